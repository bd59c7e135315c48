"""Who starts, against rules that look at everything anew: nobody too early, nobody forgotten, groups as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.audit.auditor import Auditor
from bursar.ledger.claims import HELD, PENDING, RESERVED, RUNNING, Claim
from bursar.ledger.state import Account
from bursar.resources import Vector
from tests.builders import node, pod
from tests.control.test_wakeups_against_reference_model import (
    GPU,
    NAMES,
    NAMESPACES,
    nodes,
    perform,
    purse,
    purses,
    references,
)
from tests.sim.purse import registry
from tests.sim.steps import TestBed

SIZE = 2
GROUPS = {"p0": "g", "p1": "g", "p2": "g", "p3": "h", "p4": "h"}


def build(name: str, namespace: str, gpus: int, priority: int, leaves: str) -> dict[str, Any]:
    group = GROUPS.get(name, "")
    labels = {"bursar.dev/group": group, "bursar.dev/group-size": str(SIZE)} if group else {}
    marks = {"sim.bursar.dev/leaves-after": leaves} if leaves else {}
    return pod(name, namespace, {GPU: gpus}, labels=labels, annotations=marks, priority=priority)


pods = st.builds(
    build,
    st.sampled_from(NAMES),
    st.sampled_from(NAMESPACES),
    st.sampled_from([1, 1, 2, 4]),
    st.integers(0, 3),
    st.sampled_from(["", "2s", "3s", "3s"]),
)
steps = st.one_of(
    st.tuples(st.just("give"), pods),
    st.tuples(st.just("give"), pods),
    st.tuples(st.just("give"), pods),
    st.tuples(st.just("give"), st.one_of(nodes, purses)),
    st.tuples(st.just("take"), references),
    st.tuples(st.just("finish"), references),
    st.tuples(st.just("advance"), st.integers(1, 3)),
)


def costs(claim: Claim) -> Iterator[tuple[Account, Vector]]:
    for binding in claim.bindings:
        if binding is not None:
            yield from zip(binding.accounts, binding.costs, strict=True)


def summed(claims: list[Claim], account: Account, dim: int) -> int:
    return sum(cost.get(dim) for claim in claims for other, cost in costs(claim) if other is account)


def crowded(bed: TestBed, claim: Claim) -> bool:
    """Whether too much runs in a quota of the claim, with those that are leaving it."""
    claims = list(bed.engine.state.claims.values())
    leaving, held = [one for one in claims if one.leaving], [one for one in claims if one.state == HELD]
    for account, cost in costs(claim):
        for dim in [] if account.physical else cost.indices():
            more = summed(leaving, account, dim)
            running = account.used.get(dim) + more - summed(held, account, dim)
            if more and running > account.limits.get(dim):
                return True
    return False


def members(bed: TestBed) -> dict[str, list[Claim]]:
    """By group, and each claim without one for itself: those that are not about to leave."""
    found: dict[str, list[Claim]] = {}
    for claim in bed.engine.state.claims.values():
        if not claim.leaving and claim.state <= RUNNING:
            found.setdefault(claim.spec.group or claim.uid, []).append(claim)
    return found


def check_at_rest(bed: TestBed) -> None:
    for claims in members(bed).values():
        placed = [claim for claim in claims if claim.state == RESERVED]
        if any(claim.state == RUNNING for claim in claims):
            assert all(crowded(bed, claim) for claim in placed), "who joins others starts when it can"
            continue
        assert not placed or len(claims) >= claims[0].spec.group_size, "a part of a group keeps no places"
        assert not placed or all(claim.state != PENDING for claim in claims), "all of them have a place, or nobody"
        held = any(claim.state == HELD for claim in claims)
        assert not placed or held or any(crowded(bed, claim) for claim in placed), "they start when they can"


def check_starts(bed: TestBed, before: dict[str, set[str]]) -> None:
    """Members start with as many others as their group has, or join one that ran before."""
    started: dict[str, list[str]] = {}
    for happening in bed.happenings:
        namespace, _, name = happening.pod.partition("/")
        if happening.what == "started" and name in GROUPS:
            started.setdefault(f"{namespace}/{GROUPS[name]}", []).append(name)
    for group, names in started.items():
        assert before.get(group) or len(names) >= SIZE, f"{names} of {group} started alone"


@settings(max_examples=150)
@given(st.lists(steps, min_size=15, max_size=50))
def test_nobody_starts_too_early_or_not_at_all(script: list[tuple[str, Any]]) -> None:
    bed = TestBed(registry=registry())
    bed.give(node("n1", {GPU: 6}), node("n2", {GPU: 6}), purse("red", 4), purse("blue", 5))
    for step in script:
        before = {
            group: {claim.uid for claim in claims if claim.state == RUNNING} for group, claims in members(bed).items()
        }
        bed.happenings.clear()
        perform(bed, step)
        check_at_rest(bed)
        if step[0] != "advance":
            check_starts(bed, before)
    for _ in range(4):
        bed.advance(3000)
    auditor = Auditor()
    for line in bed.engine.journal.take():
        auditor.feed(line)
    assert auditor.digest == f"{bed.engine.digest:016x}"
    terminating = bed.controller._watch.terminating
    assert (terminating._sums, terminating._known, terminating._blocked, terminating._spot_of) == ({}, {}, {}, {})
