"""Ledger against cluster: every pod that takes room is a claim that counts there, and nothing else counts.

The two are fed by the same events, so a difference is a fault: of ours, or of somebody who wrote past the guards. Each
is reported. What can be put right in place is told to the loop once more; anything else means that the ledger is to be
built anew from the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from bursar.control.loop import Controller
from bursar.kube.controller.pods import PodIntake, Sight
from bursar.ledger.claims import BOUND, HELD, PENDING, Claim

DIFFERENT = "control.ledger-differs"


@dataclass(frozen=True, slots=True)
class Difference:
    """One pod about which ledger and cluster disagree."""

    key: str
    uid: str
    problem: str


def differences(controller: Controller, pods: PodIntake) -> list[Difference]:
    """All differences, by key."""
    claims = controller.engine.state.claims
    found = [
        Difference(claim.key, uid, "counts, but there is no such pod")
        for uid, claim in claims.items()
        if uid not in pods.by_uid
    ]
    for sight in pods.by_uid.values():
        problem = _problem(claims.get(sight.uid), sight)
        if problem:
            found.append(Difference(sight.key, sight.uid, problem))
    return sorted(found, key=lambda difference: difference.key)


def _problem(claim: Claim | None, sight: Sight) -> str:
    node = sight.seen.spec.node_name
    if claim is None:
        if sight.counted is None:
            return ""  # reported when it was read
        return f"is on {node}, but does not count" if node else "waits, but nobody knows of it"
    if node:
        if claim.state < BOUND:
            return f"is on {node}, but its claim is not bound"
        return "" if claim.place == node else f"is on {node}, but counts on {claim.place}"
    if not sight.wish and claim.state in {PENDING, HELD}:
        return "was let go, but its claim has no place"
    return ""


def repair(controller: Controller, pods: PodIntake, difference: Difference) -> bool:
    """Put one difference right; False: only a new ledger can."""
    sight = pods.by_uid.get(difference.uid)
    if sight is None:
        controller.gone(difference.uid)
        return True
    node = sight.seen.spec.node_name
    if difference.uid in controller.engine.state.claims and node:
        controller.bound(difference.uid, node)
        return True
    return False
