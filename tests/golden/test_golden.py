"""Nothing that users and programs rely on changes by accident: the golden record, compared field by field."""

from __future__ import annotations

import copy

import pytest

from tests.golden import PARTS
from tests.golden.record import WORDING, Part, compare, load, make

RECORDED = load()
SHOWN = 10
ADVICE = "if this is intended, run `make golden`, read the diff and commit it"


@pytest.mark.parametrize("part", PARTS)
def test_nothing_differs_from_the_record(part: str) -> None:
    changed = compare({part: RECORDED[part]}, make({part: PARTS[part]}))
    shown = "\n".join(one.line() for one in changed[:SHOWN])
    assert not changed, f"{len(changed)} fields differ; {ADVICE}:\n{shown}"


def test_every_file_of_the_record_is_compared() -> None:
    assert set(RECORDED) == {*PARTS, WORDING}


# Planted faults


def record(name: str) -> tuple[Part, Part]:
    return RECORDED[name], copy.deepcopy(RECORDED[name])


def test_another_digest_is_named_by_scenario_step_and_record() -> None:
    before, after = record("scenarios")
    steps = after["examples/queueing.yaml"]["room and queueing by priority"]
    steps[1]["journal"][2]["digest"] = "0123456789abcdef"
    changed = compare({"scenarios": before}, {"scenarios": after})
    place = "scenarios.examples/queueing.yaml.room and queueing by priority[1].journal[2].digest"
    assert [(one.path, one.found) for one in changed] == [(place, "0123456789abcdef")]


def test_a_metric_with_another_name_is_one_that_went_and_one_that_came() -> None:
    before, after = record("metrics")
    after["controller"]["bursar_is_leader"] = after["controller"].pop("bursar_leader")
    changed = compare({"metrics": before}, {"metrics": after})
    assert [one.path for one in changed] == ["metrics.controller.bursar_leader", "metrics.controller.bursar_is_leader"]
    assert "found:    (nothing)" in changed[0].line()


def test_other_wording_is_no_difference() -> None:
    first = make({"x": lambda: {"reason": "a.b", "note": "one"}})
    second = make({"x": lambda: {"reason": "a.b", "note": "two"}})
    assert not compare(first, second)
    assert (first[WORDING], second[WORDING]) == ({"x": ["one"]}, {"x": ["two"]})
