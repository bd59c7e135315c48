"""The patches: what is narrowed goes into every term, and nothing that is there gets lost."""

from typing import Any

import pytest

from bursar.kube.controller.patches import (
    ADMISSION,
    HOLD,
    OFF_GPU_NODES,
    AdmissionRecord,
    Filled,
    HoldRecord,
    admission_of,
    filled_in,
    hold_of,
    metadata_patch,
    narrowed,
    node_terms,
    start_patch,
    written,
)

PIN = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
ARCH = {"key": "arch", "operator": "In", "values": ["x"]}
TREE = {"key": "tree", "operator": "In", "values": ["gpu"]}


def _pod(terms: list[dict[str, Any]] | None = None, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = {} if terms is None else {"affinity": {"nodeAffinity": required}}
    return {"metadata": {"name": "p", "uid": "u1", "annotations": annotations or {}}, "spec": spec}


@pytest.mark.parametrize(
    ("before", "admitted", "pin", "keep_off", "expected"),
    [
        ([], [], "", False, None),
        ([], [], "n1", False, [{"matchFields": [PIN]}]),
        ([], [], "", True, [{"matchExpressions": [OFF_GPU_NODES]}]),
        ([], [{"matchExpressions": [TREE]}], "", False, [{"matchExpressions": [TREE]}]),
        ([], [{"matchExpressions": [TREE]}], "n1", False, [{"matchExpressions": [TREE], "matchFields": [PIN]}]),
        (
            [{"matchExpressions": [ZONE]}, {"matchExpressions": [ARCH]}],
            [{"matchExpressions": [ZONE]}, {"matchExpressions": [ARCH]}],
            "n1",
            False,
            [{"matchExpressions": [ZONE], "matchFields": [PIN]}, {"matchExpressions": [ARCH], "matchFields": [PIN]}],
        ),
        ([{"matchFields": [PIN]}], [{"matchFields": [PIN]}], "n1", False, None),
        ([{"matchExpressions": []}], [{"matchExpressions": []}], "n1", False, None),
        (
            [{"matchExpressions": [ZONE]}],
            [{"matchExpressions": [ZONE, TREE]}, {"matchExpressions": [ZONE, ARCH]}],
            "n1",
            False,
            [{"matchExpressions": [ZONE], "matchFields": [PIN]}],
        ),
    ],
    ids=[
        "nothing to narrow",
        "pin",
        "off the GPU nodes",
        "a tree's nodes",
        "a tree's nodes and a pin",
        "a pin in every term",
        "pinned already",
        "a term that matches nothing goes on matching nothing",
        "more terms than there may be: the pin alone",
    ],
)
def test_terms(
    before: list[dict[str, Any]],
    admitted: list[dict[str, Any]],
    pin: str,
    keep_off: bool,
    expected: list[dict[str, Any]] | None,
) -> None:
    assert narrowed(before, admitted, pin=pin, keep_off=keep_off) == expected


def test_a_start_removes_only_our_gate_and_fails_on_another_pod_of_that_name() -> None:
    patch = start_patch("u1", filled_in(_pod(), _pod()), {"bursar.dev/term": "3"}, pin="", keep_off=False)
    assert patch == {
        "metadata": {"uid": "u1", "annotations": {"bursar.dev/term": "3"}},
        "spec": {"schedulingGates": [{"name": "bursar.dev/quota", "$patch": "delete"}]},
    }


def test_a_start_writes_what_admission_filled_in() -> None:
    filled = filled_in(_pod(annotations={"a": "1"}), _pod(annotations={"a": "1", "b": "2"}))
    patch = start_patch("u1", filled, {}, pin="", keep_off=False)
    assert patch["metadata"]["annotations"] == {"b": "2"}


def test_terms_are_read_where_there_are_none() -> None:
    assert node_terms({"spec": {}}) == []
    assert node_terms({"spec": {"affinity": {"podAffinity": {}}}}) == []


def test_what_cannot_be_expressed_without_a_pin() -> None:
    assert Filled({}, [], [{}, {}]).expressible
    assert Filled({}, [{}], [{}]).expressible
    assert not Filled({}, [{}], [{}, {}]).expressible


def test_marks_are_written_and_taken_away() -> None:
    assert metadata_patch("u", annotations={"a": None}, labels={}) == {
        "metadata": {"uid": "u", "annotations": {"a": None}}
    }


# Records on pods


DEEP = "[" * 5000 + "]" * 5000
ADMITTED = AdmissionRecord(7, 2, "n1", pinned=True, bindings=(("nodes", "n1"),), displaced=(("u", "o"),))
HELD = HoldRecord("n1", (("u", "o"),))


def test_a_record_is_read_as_it_was_written() -> None:
    read = admission_of({ADMISSION: written(ADMITTED)})
    assert read is not None
    assert written(read) == written(ADMITTED)
    assert hold_of({HOLD: written(HELD)}) == HELD


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        '{"seq": "seven"}',
        '{"seq":1,"term":1,"place":"n","bindings":' + "[" * 5000 + "]" * 5000 + "}",
    ],
    ids=["empty", "no JSON", "a list", "a text", "nested too deeply"],
)
def test_anything_else_is_no_record(text: str) -> None:
    assert admission_of({ADMISSION: text}) is None
    assert hold_of({HOLD: text}) is None
