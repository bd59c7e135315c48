"""Who has a place and may not start, because others that still run would then be too many for a quota."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.control.wakeups import TerminatingUsage
from bursar.ledger.state import Account
from tests.builders import node, pod
from tests.sim.purse import registry
from tests.sim.steps import TestBed

GPU = "nvidia.com/gpu"
SMALL = 20
SLOW = {"sim.bursar.dev/leaves-after": "5s"}


def purse(gpus: int) -> dict[str, Any]:
    metadata = {"namespace": "a", "name": "purse"}
    return {"apiVersion": "test.dev/v1", "kind": "Purse", "metadata": metadata, "spec": {"max": {GPU: gpus}}}


def crowded() -> TestBed:
    """A large pod leaves for one that is more urgent; the small ones share the rest of what it had."""
    bed = TestBed(node("n1", {GPU: 100}), purse(SMALL + 1), registry=registry())
    bed.give(pod("large", "a", {GPU: SMALL + 1}, annotations=SLOW))
    bed.give(pod("urgent", "a", {GPU: 1}, priority=9), *(pod(f"s{n}", "a", {GPU: 1}) for n in range(SMALL)))
    return bed


def phases(bed: TestBed) -> set[str]:
    return {bed.see(f"a/s{n}").phase for n in range(SMALL)}


def test_nobody_starts_before_there_is_room_for_it_in_its_quota() -> None:
    bed = crowded()
    assert bed.see("a/large").phase == "Terminating"
    assert phases(bed) == {"Pending"}
    assert (bed.see("a/s0").reason, bed.see("a/s0").message) == ("control.leaving", "starts when a/large left")
    bed.advance(5_000)
    assert phases(bed) == {"Running"}
    assert bed.see("a/s0").reason == ""


def test_a_limit_that_is_raised_makes_room_at_once() -> None:
    bed = crowded()
    bed.give(purse(2 * SMALL + 1))
    assert bed.see("a/large").phase == "Terminating"
    assert phases(bed) == {"Running"}


def test_who_goes_meanwhile_is_not_started() -> None:
    bed = crowded()
    bed.take("Pod/a/s0")
    bed.advance(5_000)
    assert [bed.see(f"a/s{n}").phase for n in range(1, SMALL)] == ["Running"] * (SMALL - 1)
    terminating = bed.controller._watch.terminating
    assert (terminating._sums, terminating._known, terminating._blocked, terminating._spot_of) == ({}, {}, {}, {})


def test_those_who_may_not_start_are_not_all_looked_at_with_each_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    exceeded = TerminatingUsage._exceeded

    def counted(terminating: TerminatingUsage, account: Account, dim: int) -> bool:
        nonlocal looked
        looked += 1
        return exceeded(terminating, account, dim)

    monkeypatch.setattr(TerminatingUsage, "_exceeded", counted)
    bed = crowded()
    assert looked < 4 * SMALL
    bed.advance(5_000)
    assert looked < 6 * SMALL
