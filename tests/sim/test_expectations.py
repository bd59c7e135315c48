"""Subset matching: what must be there, and how amounts compare."""

from typing import Any

import pytest

from bursar.sim.runner import differences


def paths(expected: Any, found: Any) -> list[str]:  # noqa: ANN401 any plain data
    return [difference.path for difference in differences(expected, found)]


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({}, {"a": 1}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 2, "d": 3}]}}),
        ({"a": None}, {"b": 1}),
        ({"a": None}, {"a": None}),
        ({"used": {"cpu": "1"}}, {"used": {"cpu": "1000m", "memory": "1Gi"}}),
        ({"used": {"memory": "1024Mi"}}, {"used": {"memory": "1Gi"}}),
        ({"used": {"nvidia.com/gpu": 8}}, {"used": {"nvidia.com/gpu": "8"}}),
        ({"c": [{"type": "B", "status": "True"}]}, {"c": [{"type": "A"}, {"type": "B", "status": "True"}]}),
        ({"containers": [{"name": "x"}]}, {"containers": [{"name": "y"}, {"name": "x"}]}),
        ({"list": []}, {"list": []}),
    ],
)
def test_matches(expected: object, found: object) -> None:
    assert paths(expected, found) == []


@pytest.mark.parametrize(
    ("expected", "found", "where"),
    [
        ({"a": 1}, {}, ["a"]),
        ({"a": 1, "b": 2}, {"a": 2, "b": 3}, ["a", "b"]),
        ({"a": {"b": 1}}, {"a": 1}, ["a"]),
        ({"a": None}, {"a": 0}, ["a"]),
        ({"a": 1}, {"a": "1"}, ["a"]),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": "8"}, {"a": 8}, ["a"]),
        ({"a": [1, 2]}, {"a": [1]}, ["a"]),
        ({"a": [1, 2]}, {"a": [2, 1]}, ["a[0]", "a[1]"]),
        ({"a": []}, {"a": [{"type": "A"}]}, ["a"]),
        ({"used": {"cpu": "1"}}, {"used": {"cpu": "1001m"}}, ["used.cpu"]),
        ({"used": {"cpu": "1"}}, {"used": {}}, ["used.cpu"]),
        ({"labels": {"x.dev/n": "1"}}, {"labels": {"x.dev/n": "1.0"}}, ["labels.x.dev/n"]),
        ({"s": {"cpu": "1", "x": 1}}, {"s": {"cpu": "1000m", "x": 1}}, ["s.cpu"]),
        ({"c": [{"type": "A", "status": "True"}]}, {"c": [{"type": "A", "status": "False"}]}, ["c[A].status"]),
        ({"c": [{"type": "A"}]}, {"c": [{"type": "B"}]}, ["c[A]"]),
    ],
)
def test_differs(expected: object, found: object, where: list[str]) -> None:
    assert paths(expected, found) == where


def test_a_difference_shows_both_sides() -> None:
    (difference,) = differences({"a": {"b": "x"}}, {"a": {}})
    assert difference.lines() == ["- a.b: x", "+ a.b: nothing"]


@pytest.mark.parametrize(("value", "shown"), [("", "''"), (True, "true"), (5, "5"), ("5", "5"), (" x", "' x'")])
def test_values_are_shown_so_that_they_can_be_told_apart(value: object, shown: str) -> None:
    (difference,) = differences({"a": value}, {})
    assert difference.lines()[0] == f"- a: {shown}"
