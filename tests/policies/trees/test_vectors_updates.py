"""Refresh: vectors 6.4 to 6.6, and the refresh rows of 6.11."""

from __future__ import annotations

import pytest

from bursar.ledger.claims import Claim
from bursar.policies.trees import MAINTENANCE, NORMAL, QuotaError
from bursar.policies.trees.records import renamed_spec, spec_requests
from tests.policies.trees.test_vectors_forest import states, two_trees
from tests.policies.trees.world import S_EX, Plain, World, forest_consumer, wish


def node(parent: str, quota: int, **more: object) -> dict[str, object]:
    return {"parent": parent, "quota": {"count": quota}, **more}


def test_6_4_updates_of_a_tree() -> None:
    world = World(T=S_EX)
    manager = world.manager
    assert world.allocate("C-1", "K", 4, unp=True).allocated
    assert world.state() == "A4 C4{C-1}"
    cache = manager.get_tree_cache("T")

    cache.delete_node("D")
    report = manager.update_tree("T")
    assert (report.dangling, report.moved, world.state()) == (("I", "J"), (), "A4 C4{C-1}")

    cache.rename_node("C", "CC")
    report = manager.update_tree("T")
    assert (report.dangling, report.moved, world.state()) == (("I", "J"), (), "A4 CC4{C-1}")
    parents = {name: one.parent for name, one in manager.get_tree_state("T").items()}
    expected = {"A": "", "B": "A", "CC": "A", "E": "B", "F": "B", "G": "CC", "H": "CC", "K": "G", "L": "G"}
    assert parents == expected | {"M": "H", "N": "H"}

    cache.add_node_specs({"G": node("B", 3), "H": node("A", 3), "B": node("A", 6)})
    report = manager.update_tree("T")
    assert (report.dangling, world.state()) == (("I", "J"), "A4 B4 G4 K4{C-1}")
    assert report.moved == (("C-1", "CC", "K"),)
    assert report.over == (("G", "count", 4, 3), ("K", "count", 4, 1))

    cache.delete_node("K")
    report = manager.update_tree("T")
    assert (report.dangling, report.moved, world.state()) == (("I", "J"), (("C-1", "K", "A"),), "A4{C-1}")

    cache.delete_node("A")
    report = manager.update_tree("T")
    assert (report.root, report.unallocated, report.clean) == ("", ("C-1",), False)
    assert report.dangling == ("B", "CC", "E", "F", "G", "H", "I", "J", "L", "M", "N")
    assert world.state() == ""
    assert not manager.deallocate("T", "C-1")


def test_6_5_updates_of_a_forest() -> None:
    world = two_trees()
    manager = world.manager
    manager.allocate_forest("F", "job-1")
    base = ("Context-4 2{job-1} Org-B2 Root2", "Root[2,1] Srvc-X[2,1]{job-1}")
    service, context = manager.get_tree_cache("ServiceTree"), manager.get_tree_cache("ContextTree")

    service.delete_node("Srvc-Z")
    assert all(report.clean for report in manager.update_forest("F"))
    assert states(world) == base

    service.rename_node("Srvc-X", "Srvc-XX")
    manager.update_forest("F")
    assert states(world) == (base[0], "Root[2,1] Srvc-XX[2,1]{job-1}")

    context.add_node_specs(
        {"Org-B": {"parent": "Org-A", "quota": {"cpu": "6"}}, "Org-A": {"parent": "Root", "quota": {"cpu": "8"}}}
    )
    manager.update_forest("F")
    assert states(world)[0] == "Context-4 2{job-1} Org-A2 Org-B2 Root2"
    assert not manager.get_tree_state("ContextTree")["Org-B"].hard

    context.delete_node("Context-4")
    manager.update_forest("F")
    assert states(world)[0] == "Root2{job-1}"

    service.delete_node("Root")
    reports = {report.tree: report for report in manager.update_forest("F")}
    assert reports["ServiceTree"].dangling == ("Srvc-XX", "Srvc-Y")
    assert reports["ServiceTree"].root == ""
    assert reports["ServiceTree"].unallocated == ("job-1",)
    assert states(world) == ("", "")
    assert not manager.deallocate_forest("F", "C-1")
    assert not manager.is_allocated_forest("F", "job-1")


def test_6_6_parents_may_come_later() -> None:
    world = World()
    manager = world.manager
    manager.add_tree_by_name("ExampleTree")
    cache = manager.get_tree_cache("ExampleTree")
    cache.clear()
    cache.add_resource_name("cpu")
    cache.add_node_spec("Context-1", {"parent": "Org-A", "hard": "true", "quota": {"cpu": "1"}})
    cache.add_node_specs_from_string(
        '{"Root": {"parent": "nil", "quota": {"cpu": "10"}}, "Org-A": {"parent": "Root", "quota": {"cpu": "4"}}}'
    )
    cache.add_node_spec("Context-2", {"parent": "Org-B", "quota": {"cpu": "2"}})
    cache.add_node_spec("Org-B", {"parent": "Root", "quota": {"cpu": "3"}})
    report = manager.update_tree("ExampleTree")
    assert report.clean
    found = {name: (one.parent, one.hard) for name, one in manager.get_tree_state("ExampleTree").items()}
    assert found == {
        "Root": ("", False),
        "Org-A": ("Root", False),
        "Org-B": ("Root", False),
        "Context-1": ("Org-A", True),
        "Context-2": ("Org-B", False),
    }


def test_6_6_the_main_demo() -> None:
    world = World()
    world.add("TestTree", "A[10,256]!(B[2,64]!,C[6,64],D[2,128])", ("cpu", "memory"))
    assert world.allocate("C-1", "D", [4, 16], unp=True, tree_name="TestTree").allocated
    assert world.state("TestTree") == "A[4,16]{C-1}"
    assert world.manager.deallocate("TestTree", "C-1")
    assert world.state("TestTree") == ""


def test_6_6_a_request_for_what_the_tree_does_not_count() -> None:
    world = two_trees()
    rows = (
        wish("ContextTree", "Context-1", 1, resources=("cpu",)),
        wish("ServiceTree", "Srvc-X", {"cpu": 8, "count": 3}),
    )
    world.manager.add_consumer(forest_consumer("sample", *rows))
    refused = world.manager.allocate_forest("F", "sample")
    assert not refused.allocated
    assert refused.refusals[0].reason == "trees.quota.cpu"


def test_what_a_tree_does_not_count_is_ignored_with_a_warning() -> None:
    world = World(T="R4")
    world.manager.add_consumer(forest_consumer("c", wish("T", "R", {"count": 1, "gpu": 3})))
    response = world.manager.allocate("T", "c")
    assert response.allocated
    assert response.warnings == ("the tree T does not count gpu",)


def test_x29_a_lowered_quota_evicts_nobody() -> None:
    world = World(T="R6(A3,B3)")
    world.allocate("a1", "A", 2)
    world.allocate("a2", "A", 1)
    world.manager.get_tree_cache("T").add_node_spec("A", node("R", 1))
    report = world.manager.update_tree("T")
    assert report.over == (("A", "count", 3, 1),)
    assert world.allocate("b", "B", 3).allocated
    assert world.state() == "A3{a1 a2} B3{b} R6"
    assert not world.allocate("a3", "A", 1).allocated
    world.manager.deallocate("T", "a1")
    assert world.state() == "A1{a2} B3{b} R4"


def test_x4_update_all() -> None:
    assert World().manager.update_all() == []
    assert [report.tree for report in World(T="R1", U="R1").manager.update_all()] == ["T", "U"]


def test_x14_vectors_are_rebuilt_from_named_requests() -> None:
    world = World()
    world.add("T", "R10", ("cpu",))
    for name in ("a", "b"):
        world.manager.add_consumer(forest_consumer(name, wish("T", "R", {"cpu": 1, "mem": 3})))
    world.manager.allocate("T", "a")
    cache = world.manager.get_tree_cache("T")
    cache.add_resource_name("mem")
    cache.add_node_spec("R", {"quota": {"cpu": 10, "mem": 10}})
    assert world.manager.allocate("T", "b").allocated
    assert world.state() == "R2{a b}"
    world.manager.update_tree("T")
    assert world.state() == "R[2,6]{a b}"
    cache.delete_resource_name("cpu")
    world.manager.update_tree("T")
    assert world.state() == "R6{a b}"


def test_x15b_a_group_gains_children() -> None:
    world = World(T="R10(A3,B3)")
    world.forest("F", "T")
    world.know("a", "A", 1)
    world.manager.allocate_forest("F", "a")
    world.manager.get_tree_cache("T").add_node_spec("A1", node("A", 1))
    world.manager.update_forest("F")
    assert world.state() == "A1{a} R1"
    world.know("b", "B", 1)
    assert world.manager.try_allocate_forest("F", "b").allocated
    world.know("c", "A", 1)
    refused = world.manager.allocate_forest("F", "c")
    assert refused.refusals[0].reason == "trees.inner-group"


def test_x24_undo_after_an_update_is_refused() -> None:
    world = World(T="R10(A3)")
    world.allocate("z", "A", 1)
    world.know("a", "A", 1)
    tried = world.manager.try_allocate("T", "a")
    world.manager.update_tree("T")
    assert tried.token is not None
    with pytest.raises(QuotaError, match="changed since"):
        world.manager.undo_allocate(tried.token)
    assert world.manager.deallocate("T", "z")
    assert world.manager.deallocate("T", "a")
    assert world.state() == ""


def test_x30_a_tree_cannot_be_renamed_through_its_cache() -> None:
    world = World(T="R10(A3)")
    other: Plain = {"kind": "QuotaTree", "metadata": {"name": "New"}, "spec": {"nodes": {}}}
    with pytest.raises(QuotaError, match="cannot be renamed"):
        world.manager.get_tree_cache("T").from_struct(other)


RENAMES = [
    ("chain", [("A", "X"), ("X", "Y")], "R3 Y2{a} B1{b}", "Y", "B"),
    ("swap", [("A", "tmp"), ("B", "A"), ("tmp", "B")], "A1{b} B2{a} R3", "B", "A"),
    ("there and back", [("A", "X"), ("X", "A")], "A2{a} B1{b} R3", "A", "B"),
]


@pytest.mark.parametrize(
    ("steps", "expected", "group_a", "group_b"), [r[1:] for r in RENAMES], ids=[r[0] for r in RENAMES]
)
def test_x12_renames_carry_everybody(steps: list[tuple[str, str]], expected: str, group_a: str, group_b: str) -> None:
    world = World(T="R10(A3,B3)")
    world.allocate("a", "A", 2)
    world.allocate("b", "B", 1)
    world.know("later", "A", 1)
    for old, new in steps:
        world.manager.get_tree_cache("T").rename_node(old, new)
    report = world.manager.update_tree("T")
    assert report.moved == ()
    assert world.state() == " ".join(sorted(expected.split(" "), key=lambda part: part[0]))
    response = world.manager.allocate("T", "later")
    assert response.places == (("T", group_a),)
    assert world.manager.deallocate("T", "b")
    assert world.manager.allocate("T", "b").places == (("T", group_b),)


def test_a_raised_quota_lets_borrowers_down() -> None:
    world = World(T="R10(A1)")
    world.allocate("a", "A", 1)
    world.allocate("b", "A", 2)
    assert world.state() == "A1{a} R3{b}"
    world.manager.get_tree_cache("T").add_node_spec("A", node("R", 3))
    assert world.manager.update_tree("T").moved == (("b", "R", "A"),)
    assert world.state() == "A3{a b} R3"


def test_a_dry_run_reports_the_same_and_changes_nothing() -> None:
    world = World(T=S_EX)
    world.allocate("C-1", "K", 4)
    world.manager.get_tree_cache("T").rename_node("C", "CC")
    world.manager.get_tree_cache("T").delete_node("G")
    before = world.manager.plain()
    dry = world.manager.update_tree("T", dry_run=True)
    assert world.manager.plain() == before
    assert world.manager.update_tree("T").plain() == dry.plain()
    assert dry.dangling == ("K", "L")


def test_stayers_keep_their_order_and_movers_come_after_them_in_theirs() -> None:
    world = World(T="R9(A3,B3)")
    world.manager.set_mode(MAINTENANCE)
    for name, group in (("a", "A"), ("r", "R"), ("b", "B"), ("c", "A")):
        world.allocate(name, group, 1)
    world.manager.set_mode(NORMAL)
    for group in "AB":
        world.manager.get_tree_cache("T").delete_node(group)
    world.manager.update_tree("T")
    assert world.state() == "R4{r a b c}"


def test_a_consumer_on_another_node_with_the_old_name_of_its_node_has_moved() -> None:
    """R becomes Q below B, and B becomes R: who sat on R, and has no group any more, is the newest on the new root."""
    world = World(T="R9(A0,B5)")
    world.allocate("first", "A", 2)
    world.allocate("second", "B", 1)
    assert world.state() == "B1{second} R3{first}"
    cache = world.manager.get_tree_cache("T")
    cache.delete_node("A")
    cache.add_node_spec("B", {"quota": {"count": 5}})
    cache.add_node_spec("R", {"parent": "B", "quota": {"count": 9}})
    cache.rename_node("R", "Q")
    cache.rename_node("B", "R")
    report = world.manager.update_tree("T")
    assert world.state() == "R3{second first}"
    assert report.moved == (("first", "Q", "R"),)


def test_only_claims_that_name_a_renamed_group_change() -> None:
    claim = forest_consumer("x", wish("T", "A", 1), wish("U", "C", 1)).claim()
    assert renamed_spec(claim, "T", {"B": "b", "C": "c"}) is None
    changed = renamed_spec(claim, "T", {"A": "a"})
    assert changed is not None
    after = Claim("x", changed)
    assert [(one.tree, one.group) for one in spec_requests(after)] == [("T", "a"), ("U", "C")]
