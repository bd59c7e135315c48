import msgspec
import pytest

from bursar.selectors import (
    NO_NEEDS,
    NodeNeeds,
    NodeTerm,
    Requirement,
    Selector,
    Taint,
    Toleration,
    needs_from_record,
    requirement_from_record,
    term_from_record,
)

LABELS = {"zone": "a", "gpus": "8", "empty": "", "huge": "9223372036854775807", "text": "8x"}


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("zone", "In", (), False),
        ("none", "In", ("a",), False),
        ("empty", "In", ("",), True),
        ("zone", "NotIn", ("a",), False),
        ("zone", "NotIn", ("b",), True),
        ("none", "NotIn", ("a",), True),
        ("zone", "Exists", (), True),
        ("empty", "Exists", (), True),
        ("none", "Exists", (), False),
        ("zone", "DoesNotExist", (), False),
        ("none", "DoesNotExist", (), True),
        ("gpus", "Gt", ("7",), True),
        ("gpus", "Gt", ("8",), False),
        ("gpus", "Gt", ("-1",), True),
        ("gpus", "Lt", ("+9",), True),
        ("gpus", "Lt", ("8",), False),
        ("gpus", "Gt", ("7", "6"), False),
        ("gpus", "Gt", (), False),
        ("gpus", "Gt", ("7.5",), False),
        ("gpus", "Gt", ("",), False),
        ("gpus", "Gt", ("-",), False),
        ("gpus", "Lt", ("1_0",), False),
        ("gpus", "Lt", ("\u0669",), False),
        ("text", "Gt", ("1",), False),
        ("empty", "Lt", ("1",), False),
        ("none", "Gt", ("1",), False),
        ("none", "Lt", ("1",), False),
        ("huge", "Gt", ("9223372036854775806",), True),
        ("gpus", "Lt", ("9223372036854775808",), False),
        ("gpus", "Gt", ("-9223372036854775808",), True),
        ("gpus", "Gt", ("-9223372036854775809",), False),
        ("gpus", "Lt", ("9" * 5000,), False),
    ],
)
def test_requirements_match_as_in_kubernetes(key: str, operator: str, values: tuple[str, ...], matches: bool) -> None:
    requirement = Requirement(key, operator, values)
    assert requirement.matches(LABELS) is matches
    assert requirement_from_record(requirement.record()).matches(LABELS) is matches


@pytest.mark.parametrize("operator", ["", "in", "Equals", "Ge"])
def test_an_unknown_operator_is_refused(operator: str) -> None:
    with pytest.raises(ValueError, match="is none of In, NotIn"):
        Requirement("a", operator)


def test_requirements_show_as_written() -> None:
    assert repr(Requirement("zone", "In", ("a", "b"))) == "zone In [a, b]"
    assert Requirement("zone", "Exists").show() == "zone Exists"
    assert Selector().show() == "everything"
    assert Selector((Requirement("a", "Exists"), Requirement("b", "In", ("c",)))).show() == "a Exists, b In [c]"


def test_a_selector_needs_all_requirements_and_an_empty_one_matches_all() -> None:
    both = Selector((Requirement("zone", "In", ("a",)), Requirement("gpus", "Exists")))
    assert both.matches(LABELS)
    assert not both.matches({"zone": "a"})
    assert Selector().matches({})


ZONE_A = Requirement("zone", "In", ("a",))
NODE_1 = Requirement("metadata.name", "In", ("n1",))


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        (NodeTerm(()), False),
        (NodeTerm((ZONE_A,)), True),
        (NodeTerm((ZONE_A, Requirement("none", "Exists"))), False),
        (NodeTerm((), (NODE_1,)), True),
        (NodeTerm((ZONE_A,), (NODE_1,)), True),
        (NodeTerm((ZONE_A,), (Requirement("metadata.name", "NotIn", ("n1",)),)), False),
        (NodeTerm((Requirement("metadata.name", "Exists"),)), False),
    ],
)
def test_a_term_ands_labels_and_fields_and_an_empty_one_matches_nothing(term: NodeTerm, matches: bool) -> None:
    assert term.matches("n1", LABELS) is matches
    assert term_from_record(term.record()).matches("n1", LABELS) is matches


@pytest.mark.parametrize(
    ("needs", "selects"),
    [
        (NO_NEEDS, True),
        (NodeNeeds({"zone": "a"}), True),
        (NodeNeeds({"zone": "a", "gpus": "4"}), False),
        (NodeNeeds({"none": ""}), False),
        (NodeNeeds({}, terms=()), False),
        (NodeNeeds({}, terms=(NodeTerm(()),)), False),
        (NodeNeeds({}, terms=(NodeTerm(()), NodeTerm((ZONE_A,)))), True),
        (NodeNeeds({"zone": "b"}, terms=(NodeTerm((ZONE_A,)),)), False),
        (NodeNeeds({}, node_name="n1"), True),
        (NodeNeeds({}, node_name="n2"), False),
    ],
)
def test_selector_terms_and_node_name_must_all_agree(needs: NodeNeeds, selects: bool) -> None:
    assert needs.selects("n1", LABELS) is selects


TAINT = Taint("gpu", "yes", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (Toleration("gpu", "Equal", "yes", "NoSchedule"), True),
        (Toleration("gpu", "", "yes", ""), True),
        (Toleration("gpu", "Equal", "no", "NoSchedule"), False),
        (Toleration("gpu", "Equal", "yes", "NoExecute"), False),
        (Toleration("gpu", "Exists", "", ""), True),
        (Toleration("cpu", "Exists", "", ""), False),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("", "Exists", "", "NoExecute"), False),
        (Toleration("", "Equal", "yes", ""), False),
        (Toleration("gpu", "Matches", "yes", ""), False),
    ],
)
def test_tolerations_match_as_in_kubernetes(toleration: Toleration, tolerates: bool) -> None:
    assert toleration.tolerates(TAINT) is tolerates


def test_the_first_untolerated_taint_is_named_and_preferences_never_are() -> None:
    taints = (Taint("soft", "", "PreferNoSchedule"), TAINT, Taint("down", "", "NoExecute"))
    needs = NodeNeeds({}, tolerations=(Toleration("gpu", "Exists", "", ""),))
    blocked = needs.untolerated(taints)
    assert blocked is not None
    assert blocked.show() == "down:NoExecute"
    assert TAINT.show() == "gpu=yes:NoSchedule"
    first = NO_NEEDS.untolerated(taints)
    assert first is TAINT
    assert needs.untolerated(taints[:2]) is None


@pytest.mark.parametrize(
    "needs",
    [
        NO_NEEDS,
        NodeNeeds({}, terms=()),
        NodeNeeds(
            {"zone": "a"},
            (NodeTerm((ZONE_A, Requirement("x", "Gt", ("5",))), (NODE_1,)), NodeTerm(())),
            (Toleration("gpu", "", "yes", "NoSchedule"), Toleration("", "Exists", "", "")),
            (("TCP", "0.0.0.0", 80), ("UDP", "10.0.0.1", 53)),  # noqa: S104 an address in a manifest
            "n1",
        ),
    ],
)
def test_needs_come_back_from_their_record_through_json(needs: NodeNeeds) -> None:
    record = msgspec.json.decode(msgspec.json.encode(needs.record()))
    found = needs_from_record(record)
    assert found.record() == needs.record()
    assert (found.terms is None) == (needs.terms is None)
    assert found.host_ports == needs.host_ports
