"""The masks of many nodes say what the rules say of each node."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.policies.nodes.masks import NodeMasks
from bursar.policies.nodes.rules import UNSCHEDULABLE, NodeFacts, failed_rule
from bursar.resources import Limits
from bursar.selectors import OPERATORS, NodeNeeds, NodeTerm, Requirement, Taint, Toleration

KEYS = ("zone", "cpus", "model", "absent")
VALUES = ("a", "b", "1", "2", "10", "-3", "", "0x1", "99999999999999999999")
NAMES = tuple(f"n{number}" for number in range(12))
TAINTS = (Taint("gpu", "", "NoSchedule"), Taint("team", "a", "NoExecute"), Taint("team", "b", "NoSchedule"))
TOLERATIONS = (
    Toleration("gpu", "Exists", "", ""),
    Toleration("team", "Equal", "a", ""),
    Toleration("", "Exists", "", "NoSchedule"),
    Toleration(UNSCHEDULABLE.key, "Exists", "", ""),
)

labels = st.dictionaries(st.sampled_from(KEYS[:3]), st.sampled_from(VALUES), max_size=3)
taints = st.lists(st.sampled_from(TAINTS), unique=True, max_size=2).map(tuple)
requirements = st.builds(
    Requirement,
    st.sampled_from(KEYS),
    st.sampled_from(OPERATORS),
    st.lists(st.sampled_from(VALUES), max_size=3).map(tuple),
)
fields = st.builds(
    Requirement,
    st.sampled_from(("metadata.name", "metadata.uid")),
    st.sampled_from(OPERATORS),
    st.lists(st.sampled_from((*NAMES, "gone", "5")), max_size=2).map(tuple),
)
terms = st.builds(NodeTerm, st.lists(requirements, max_size=3).map(tuple), st.lists(fields, max_size=2).map(tuple))
needs = st.builds(
    NodeNeeds,
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=1),
    st.none() | st.lists(terms, max_size=4).map(tuple),
    st.lists(st.sampled_from(TOLERATIONS), max_size=2).map(tuple),
    st.just(()),
    st.sampled_from(("", "", "", "n1", "gone")),
)
nodes = st.tuples(st.sampled_from(range(len(NAMES))), st.none() | st.tuples(labels, taints, st.booleans()))


def facts_of(slot: int, drawn: tuple[dict[str, str], tuple[Taint, ...], bool] | None) -> NodeFacts | None:
    if drawn is None:
        return None
    marks, hard, unschedulable = drawn
    return NodeFacts(NAMES[slot], marks, hard, (), unschedulable, Limits({}, True))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(nodes, st.lists(needs, max_size=3)), max_size=25))
def test_masks_agree_with_the_rules_of_each_node_after_any_changes(
    steps: list[tuple[tuple[int, tuple[dict[str, str], tuple[Taint, ...], bool] | None], list[NodeNeeds]]],
) -> None:
    masks = NodeMasks()
    for (slot, drawn), asked in steps:
        masks.set_slot(slot, facts_of(slot, drawn))
        for one in asked:
            known = masks.facts
            allowed = [fact is not None and not failed_rule(one, fact) for fact in known]
            selected = [fact is not None and one.selects(fact.name, fact.labels) for fact in known]
            assert list(map(bool, masks.allowing(one))) == allowed
            assert list(map(bool, masks.selecting(one))) == selected


def test_values_of_many_nodes_follow_their_changes() -> None:
    masks = NodeMasks()
    for slot in range(40):
        masks.set_slot(slot, NodeFacts(f"n{slot}", {"zone": "a", "cpus": "8"}, (), (), False, Limits({}, True)))
    one = NodeNeeds({}, (NodeTerm((Requirement("zone", "In", ("a",)), Requirement("cpus", "Gt", ("4",)))),))
    assert sum(masks.allowing(one)) == 40
    masks.set_slot(7, NodeFacts("n7", {"zone": "b", "cpus": "8"}, (), (), False, Limits({}, True)))
    masks.set_slot(8, NodeFacts("n8", {"zone": "a", "cpus": "2"}, (), (), False, Limits({}, True)))
    masks.set_slot(9, None)
    assert [slot for slot, is_open in enumerate(masks.allowing(one)) if not is_open] == [7, 8, 9]


def test_nothing_is_kept_of_nodes_that_are_gone() -> None:
    masks = NodeMasks()
    given = NodeFacts("n0", {"zone": "a"}, (TAINTS[0],), (), True, Limits({}, True))
    masks.set_slot(0, given)
    masks.allowing(NodeNeeds({"zone": "a"}))
    masks.set_slot(0, None)
    kept = (masks.keys, masks.lanes, masks.ranges, masks.closed, masks.slots, masks.every)
    assert not any(kept)
