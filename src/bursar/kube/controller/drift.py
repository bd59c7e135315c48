"""Drift detection: compares the ledger with the cluster.

Every pod that takes room must be a claim that is charged what the pod requests, nothing else may be charged, and the
usage of each node and GPU must be the sum of the claims on it. Ledger and cluster see the same events, so drift is a
fault of Bursar or of a write past the guards. Each difference is reported. A pod that can be corrected in place is
synced again; any other drift makes the leader rebuild the ledger from the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bursar.control.controller import Controller
from bursar.control.device_sharing import pod_requests
from bursar.kube.controller.pod_sync import PodSync, TrackedPod
from bursar.ledger.claims import BOUND, GONE, HELD, PENDING, Claim
from bursar.ledger.state import Account, State
from bursar.objects.requests import pod_resources
from bursar.resources import Tally, Vector

DIFFERENT = "control.ledger-differs"


@dataclass(frozen=True, slots=True)
class Drift:
    """One pod about which ledger and cluster disagree."""

    key: str
    uid: str
    problem: str


def differences(controller: Controller, pods: PodSync) -> list[Drift]:
    """All differences, by key."""
    claims = controller.engine.state.claims
    found = [
        Drift(claim.key, uid, "counts, but there is no such pod")
        for uid, claim in claims.items()
        if uid not in pods.by_uid
    ]
    asked = _Asked()
    for tracked in pods.by_uid.values():
        claim = claims.get(tracked.uid)
        problem = _problem(claim, tracked, asked)
        if problem:
            found.append(Drift(tracked.key, tracked.uid, problem))
    return sorted(found, key=lambda difference: difference.key)


def _problem(claim: Claim | None, tracked: TrackedPod, asked: _Asked) -> str:
    return _whether(claim, tracked) or asked.problem(claim, tracked)


def _whether(claim: Claim | None, tracked: TrackedPod) -> str:
    """What is wrong with whether and where it counts."""
    node = tracked.seen.spec.node_name
    if claim is None:
        if tracked.counted is None:
            return ""  # reported when it was read
        return f"is on {node}, but does not count" if node else "is pending, but not in the queue"
    if node:
        if claim.state < BOUND:
            return f"is on {node}, but its claim is not bound"
        return "" if claim.place == node else f"is on {node}, but counts on {claim.place}"
    if not tracked.pending and claim.state in {PENDING, HELD}:
        return "is ungated, but its claim has no place"
    return ""


class _Asked:
    """Compares claims with the requests of their pods. Claims share specs, so equal pods are read once."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[tuple[object, ...], str]] = {}  # by the identity of what is shared

    def problem(self, claim: Claim | None, tracked: TrackedPod) -> str:
        if claim is None or tracked.counted is None:
            return ""
        spec = tracked.seen.spec
        parts = (spec.containers, spec.init_containers, spec.resources, spec.overhead)
        known = self._read.get(id(claim.spec))
        if known is None or known[0] != parts:
            counted, asked = pod_requests(claim.spec), pod_resources(spec).requests
            wrong = f"requests {_shown(asked)}, but counts for {_shown(counted)}" if counted != asked else ""
            known = self._read[id(claim.spec)] = parts, wrong
        return known[1]


def _shown(amounts: Vector) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in amounts.show().items()) or "nothing"


def repair(controller: Controller, pods: PodSync, difference: Drift) -> bool:
    """Put one difference right; False: only a new ledger can."""
    claims = controller.engine.state.claims
    tracked = pods.by_uid.get(difference.uid)
    if tracked is None:
        controller.gone(difference.uid)
        return True
    if tracked.uid not in claims:
        return False
    if tracked.seen.spec.node_name:
        controller.bound(tracked.uid, tracked.seen.spec.node_name)
    if _Asked().problem(claims[tracked.uid], tracked):
        pods.sync_again(tracked)
    return not _problem(claims.get(tracked.uid), tracked, _Asked())


def wrong_sums(state: State) -> Iterator[str]:
    """Sentences about nodes and GPUs whose usage is not the sum of the claims on them."""
    physical = [account for account in state.accounts.values() if account.physical]
    used = {account.name: Tally() for account in physical}
    busy = {account.name: Tally() for account in physical}
    for claim in state.claims.values():
        for account, cost in _costs(claim):
            busy[account.name].add(cost)
            if not claim.leaving:
                used[account.name].add(cost)
    for account in physical:
        for what, said, summed in (("used", account.used, used), ("busy", account.busy, busy)):
            said_now, costs = said.vector(), summed[account.name].vector()
            if said_now != costs:
                yield f"{account.name}: {_shown(said_now)} {what}, and its claims cost {_shown(costs)}"


def _costs(claim: Claim) -> Iterator[tuple[Account, Vector]]:
    """What a claim costs on its node and GPUs."""
    if claim.state not in {PENDING, GONE}:
        for binding in claim.bindings:
            if binding is not None:
                for account, cost in zip(binding.accounts, binding.costs, strict=True):
                    if account.physical:
                        yield account, cost
