"""The reasons that the control loop gives, and the list of all reasons."""

from __future__ import annotations

from typing import Final

from bursar.engine.decision import REASONS as ENGINE
from bursar.policies.plugin import Reason, Registry

CONTROL: Final = (
    Reason(
        "control.group-incomplete",
        "The pod starts together with its group, and not all of the group is there yet.",
        "Submit the others, or correct `bursar.dev/group-size`.",
    ),
    Reason(
        "control.leaving",
        "The pod is admitted, and starts when others that were told to leave are gone from its quota, or from the "
        "places of its group, which starts together.",
        "Wait: they leave within their grace period.",
    ),
    Reason(
        "control.invalid",
        "Kubernetes only: an object cannot be read, or what Bursar wants to write on it is refused.",
        "Correct what the note names; a pod must be created anew.",
    ),
    Reason(
        "control.unjudged",
        "Kubernetes only: the pod must have its node chosen by Bursar, and has constraints that Bursar does not judge.",
        "Take away the constraint that the note names (volumes, spread, pod affinity, resource claims).",
    ),
    Reason(
        "control.place-lost",
        "Kubernetes only: the scheduler could not bind the pod where Bursar had a place for it, in time.",
        "Its owner creates it anew; see the scheduler's events on the pod.",
    ),
    Reason(
        "control.preempted-by-others",
        "Kubernetes only: not Bursar but the scheduler itself preempts the pod, for one of higher priority.",
        "Its owner creates it anew, and it waits for quota again; let quota govern the pods of higher priority too.",
    ),
    Reason(
        "control.ledger-differs",
        "Kubernetes only: the ledger and the cluster did not agree about the pod, and the ledger was put right.",
        "If it comes again, report it, with the event's note.",
    ),
)


def all_reasons(registry: Registry) -> dict[str, tuple[Reason, ...]]:
    """All reasons, by source: the policies in their order, the engine, the control loop."""
    found = {plugin.name: plugin.reasons for plugin in registry}
    return {**found, "engine": ENGINE, "control": CONTROL}
