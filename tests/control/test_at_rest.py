"""The checks of clusters at rest notice what they are made for."""

from __future__ import annotations

import pytest

from tests.at_rest import admissible, assert_at_rest, assert_restart_changes_nothing
from tests.builders import node, pod
from tests.sim.steps import TestBed
from tests.sim.tape import Tape

CPU = "cpu"


def full() -> TestBed:
    bed = TestBed(node("n1", {CPU: 2}))
    bed.give(pod("runs", requests={CPU: 2}), pod("waits", requests={CPU: 1}))
    return bed


def test_nothing_that_waits_at_rest_would_be_admitted() -> None:
    bed = full()
    assert_at_rest(bed)
    assert_at_rest(assert_restart_changes_nothing(bed, Tape()))


def test_a_claim_that_would_be_admitted_and_was_not_woken_is_found() -> None:
    bed = full()
    bed.engine.listener = None  # the loop hears of nothing any more
    bed.take("Pod/default/runs")
    assert admissible(bed) == ["default/waits admitted on 'n1', evicts []"]
    with pytest.raises(AssertionError):
        assert_at_rest(bed)
    with pytest.raises(AssertionError):
        assert_restart_changes_nothing(bed, Tape())


def test_a_cluster_with_victims_on_their_way_is_not_at_rest() -> None:
    bed = TestBed(node("n1", {CPU: 2}))
    bed.give(pod("slow", requests={CPU: 2}, annotations={"sim.bursar.dev/leaves-after": "1m"}))
    bed.give(pod("boss", requests={CPU: 2}, priority=9), pod("waits", requests={CPU: 2}))
    bed.engine.listener = None
    bed.give()
    assert_at_rest(bed)


def test_a_gang_is_tried_as_a_whole_and_an_incomplete_one_not_at_all() -> None:
    marks = {"bursar.dev/group": "g", "bursar.dev/group-size": "2"}
    bed = full()
    bed.give(pod("g1", requests={CPU: 1}, labels=marks), node("n2", {CPU: 1}))
    assert bed.see("default/waits").phase == "Running"
    bed.give(node("n3", {CPU: 1}))
    assert_at_rest(bed)
    bed.give(pod("g2", requests={CPU: 1}, labels=marks))
    assert_at_rest(bed)
