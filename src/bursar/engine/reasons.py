"""What the engine itself says, beside its policies."""

from __future__ import annotations

from typing import Final

from bursar.policies.reasons import Reason

REASONS: Final = (
    Reason(
        "engine.preempted",
        "The pod was evicted: it gave its place to another one, which had a better right to it. The note names it.",
        "Submit it again: it starts when there is room. `bursar explain` of the other one shows its right.",
    ),
    Reason(
        "engine.displaced",
        "The pod had a place, but had not started; another one with a better right took it, and the pod waits again.",
        "Wait.",
    ),
    Reason(
        "engine.group",
        "The pod starts together with its group, and another one of the group cannot run.",
        "See the reason of the pod that the note names.",
    ),
    Reason(
        "engine.out-of-range",
        "What the pod asks for, together with what others have, is more than can be counted exactly (4 Ei).",
        "Ask for an amount that exists.",
    ),
    Reason(
        "engine.fixed-needs",
        "What a pod requires of its node cannot change while it has a place.",
        "Create it anew.",
    ),
    Reason(
        "engine.fixed-priority",
        "The priority of a pod cannot change while it has a place.",
        "Create it anew.",
    ),
)
