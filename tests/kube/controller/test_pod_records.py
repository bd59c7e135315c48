"""Records on pods: written and read again, and anything else is no record."""

import pytest

from bursar.kube.controller.patches import ADMISSION, HOLD, AdmissionRecord, HoldRecord, admission_of, hold_of, written

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
