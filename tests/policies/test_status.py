"""The shared status writer: it writes what changed, and tells edges from repeats."""

from __future__ import annotations

from bursar.policies.status import StatusWriter, condition


def written(writer: StatusWriter) -> list[tuple[str, str, str]]:
    return [(output.kind, output.key, output.part) for output in writer.take()]


def test_a_status_is_written_when_it_changes() -> None:
    writer = StatusWriter()
    for used in (1, 1, 2, 2):
        writer.write_status("Quota", "a/q", {"used": used})
    assert written(writer) == [("Quota", "a/q", "status")] * 2
    assert written(writer) == []


def test_an_object_that_comes_again_is_written_again() -> None:
    writer = StatusWriter()
    statuses: tuple[dict[str, object] | None, ...] = ({"used": 1}, None, None, {"used": 1})
    for status in statuses:
        writer.write_status("Quota", "a/q", status)
    assert written(writer) == [("Quota", "a/q", "status")] * 2


def test_an_empty_value_is_no_value() -> None:
    writer = StatusWriter()
    values = ((), ("cpu",), ("cpu",), (), None, ("memory",))
    assert [writer.changed("Exceeded", "n1", value) for value in values] == [False, True, False, True, False, True]


def test_aspects_and_objects_are_apart() -> None:
    writer = StatusWriter()
    assert writer.changed("one", "n1", "x")
    assert writer.changed("one", "n2", "x")
    assert writer.changed("two", "n1", "x")


def test_an_event_is_a_warning_unless_it_says_otherwise() -> None:
    writer = StatusWriter()
    writer.write_event("Node", "n1", "Exceeded", "too much")
    writer.write_event("Node", "n1", "Within", "enough", "Normal")
    assert [output.value for output in writer.take()] == [
        {"type": "Warning", "reason": "Exceeded", "message": "too much"},
        {"type": "Normal", "reason": "Within", "message": "enough"},
    ]


def test_a_policy_of_another_package_can_extend_it() -> None:
    class Own(StatusWriter):
        pass

    own = Own()
    own.write_status("Purse", "a/p", {"conditions": [condition("Ready", False, "Empty")]})
    (output,) = own.take()
    assert output.value == {"conditions": [{"type": "Ready", "status": "False", "reason": "Empty", "message": ""}]}
