"""The vectors of 6.11 about allocation: the outcome is the one a sound version should have."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.policies.trees import MAINTENANCE, NORMAL, QuotaError, StaleTokenError, read_consumer
from tests.policies.trees.world import World, forest_consumer, wish

# id, tree, held (id, group, request, priority, type, unp), asked, allocated, preempted, state after
Held = tuple[Any, ...]
ROWS: list[tuple[str, str, list[Held], Held, bool, list[str], str]] = [
    ("X1", "R1(W5(V1(N5)))", [], ("c", "N", 2), False, [], ""),
    (
        "X1b",
        "X10(W10(V4(N2,S3)),O6)",
        [("s", "S", 3), ("o", "O", 6)],
        ("c", "N", 2),
        False,
        [],
        "O6{o} S3{s} V3 W3 X9",
    ),
    (
        "X2",
        "R10(H4!,S7)",
        [("s", "S", 7, 0, 0, True), ("v", "H", 3)],
        ("c", "H", 4, 1),
        False,
        [],
        "H3{v} R10 S7{s}",
    ),
    ("X16", "R4(A2,B2)", [("hi", "A", 4, 9)], ("lo", "B", 1), True, ["hi"], "B1{lo} R1"),
    ("X16 unp", "R4(A2,B2)", [("hi", "A", 4, 9, 0, True)], ("lo", "B", 1), False, [], "R4{hi}"),
    ("X16 type", "R4(A2,B2)", [("hi", "A", 4, 9, 3)], ("lo", "B", 1), False, [], "R4{hi}"),
    ("X16d", "R4(A2)", [("u", "A", 2, 0, 3, True)], ("n", "A", 2, 1), True, [], "A2{n} R4{u}"),
    ("X17", "R4(A0)", [("s", "A", 1), ("b", "A", 3)], ("n", "A", 3, 1), True, ["b"], "R4{s n}"),
    ("X22", "R4(H4!)", [("p5", "H", 2, 5), ("p0", "H", 2, 0)], ("n", "H", 2, 6), True, ["p0"], "H4{p5 n} R4"),
    ("X25 hard", "R4(H2!)", [("m", "H", 2, -1)], ("n", "H", 2, 0), True, ["m"], "H2{n} R2"),
    ("X25 soft", "R2(H2)", [("m", "H", 2, -1)], ("n", "H", 2, 0), True, ["m"], "H2{n} R2"),
    ("two dropped moves", "R9(A3)", [("x", "A", 1), ("y", "A", 2)], ("n", "A", 2, 1), True, [], "A3{x n} R5{y}"),
    ("equal priority waits", "R4(H4!)", [("x", "H", 4, 1)], ("n", "H", 1, 1), False, [], "H4{x} R4"),
]


@pytest.mark.parametrize(
    ("shape", "held", "asked", "allocated", "preempted", "after"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_row(shape: str, held: list[Held], asked: Held, allocated: bool, preempted: list[str], after: str) -> None:
    world = World(T=shape)
    for one in held:
        assert world.allocate(*one[:5], unp=one[5] if len(one) > 5 else False).allocated
    for _ in range(2 if not allocated else 1):
        name = f"{asked[0]}{_ or ''}"
        before = world.manager.plain()["accounts"]
        response = world.allocate(name, *asked[1:])
        assert response.allocated == allocated
        assert list(response.preempted) == preempted
        assert allocated or world.manager.plain()["accounts"] == before
    assert world.state() == after


def test_x17b_the_victim_is_the_one_that_frees_what_is_short() -> None:
    world = World()
    world.add("T", "R[4,1](A[0,0])", ("cpu", "gpu"))
    world.allocate("s", "A", [1, 0])
    world.allocate("g", "A", [0, 1])
    assert world.allocate("n", "A", [0, 1], 1).preempted == ("g",)


def test_x18_slides_down_as_far_as_there_is_room() -> None:
    world = World(T="R8(M3(L2))")
    world.allocate("a", "L", 2)
    world.allocate("b", "L", 1)
    world.allocate("c", "L", 1)
    world.allocate("e", "L", 1)
    assert world.state() == "L2{a} M3{b} R5{c e}"
    world.manager.deallocate("T", "a")
    assert world.state() == "L2{b c} M3{e} R3"


def test_x5_trees_outside_the_forest_are_skipped_and_listed() -> None:
    world = World(T="R4(A4)")
    world.forest("F", "T")
    world.manager.add_consumer(forest_consumer("x", wish("T", "A", 1), wish("U", "A", 1)))
    response = world.manager.allocate_forest("F", "x")
    assert (response.allocated, response.skipped) == (True, ("U",))
    assert world.state() == "A1{x} R1"


def test_a_consumer_that_names_no_tree_of_the_forest_is_refused() -> None:
    world = World(T="R4(A4)")
    world.forest("F", "T")
    world.manager.add_consumer(forest_consumer("x", wish("U", "A", 1)))
    response = world.manager.allocate_forest("F", "x")
    assert (response.allocated, response.refusals[0].reason) == (False, "trees.outside")


def test_x6_a_second_undo_is_an_error() -> None:
    world = World(T="R4(A4)")
    world.allocate("a", "A", 1)
    world.know("b", "A", 1)
    token = world.manager.try_allocate("T", "b").token
    assert token is not None
    world.manager.undo_allocate(token)
    before = world.manager.plain()
    with pytest.raises(StaleTokenError, match="undone already"):
        world.manager.undo_allocate(token)
    assert world.manager.plain() == before
    assert world.manager.is_allocated("T", "a")


def test_x7_a_consumer_of_some_trees_of_the_forest() -> None:
    world = World(T="R4(A4)", U="R4(A4)")
    world.forest("F", "T", "U")
    world.know("x", "A", 2)
    assert world.manager.allocate_forest("F", "x").allocated
    with pytest.raises(QuotaError, match="already"):
        world.manager.allocate_forest("F", "x")
    assert world.manager.is_allocated_forest("F", "x")
    assert world.state() == "A2{x} R2"
    assert world.manager.deallocate_forest("F", "x")
    assert world.state() == ""


def test_x9b_a_victim_leaves_every_tree() -> None:
    world = World(T1="R2(A2!)", T2="R2(A2)")
    world.forest("F", "T1", "T2")
    world.manager.add_consumer(forest_consumer("x", wish("T1", "A", 2), wish("T2", "A", 1)))
    world.manager.add_consumer(forest_consumer("n", wish("T1", "A", 2, 1)))
    world.manager.allocate_forest("F", "x")
    assert world.manager.allocate_forest("F", "n").preempted == ("x",)
    assert (world.state("T1"), world.state("T2")) == ("A2{n} R2", "")


def test_unpreemptable_in_any_tree_is_never_a_victim() -> None:
    world = World(T1="R2(A2!)", T2="R2(A2)")
    world.forest("F", "T1", "T2")
    world.manager.add_consumer(forest_consumer("x", wish("T1", "A", 2), wish("T2", "A", 1, unp=True)))
    world.manager.add_consumer(forest_consumer("n", wish("T1", "A", 2, 1)))
    world.manager.allocate_forest("F", "x")
    assert not world.manager.allocate_forest("F", "n").allocated


def test_x13_a_resource_that_is_not_requested_is_not_checked() -> None:
    world = World()
    world.add("T", "R[10,10](A[5,5],B[5,5])", ("cpu", "mem"))
    world.manager.set_mode(MAINTENANCE)
    world.allocate("o", "A", [0, 11])
    world.manager.set_mode(NORMAL)
    assert world.allocate("z", "B", [1, 0]).allocated


def test_x20_maintenance_forces() -> None:
    world = World(T="R4(A2!,B1)")
    world.manager.set_mode(MAINTENANCE)
    assert world.allocate("a", "A", 3).allocated
    assert world.allocate("r", "R", 3).allocated
    with pytest.raises(QuotaError, match="no group ZZ"):
        world.allocate("u", "ZZ", 1)
    assert world.state() == "A3{a} R6{r}"
    assert world.allocate("f", "B", 2).allocated
    assert world.state() == "A3{a} B2{f} R8{r}"
    with pytest.raises(QuotaError, match="already"):
        world.manager.allocate("T", "f")
    # X20c
    world.manager.set_mode(NORMAL)
    response = world.allocate("n", "B", 1, 5)
    assert sorted(response.preempted) == ["f", "r"]
    assert world.state() == "A3{a} B1{n} R4"


def test_x20b_forcing_on_a_forest_is_all_or_nothing() -> None:
    world = World(T="R4(A4)", U="R4(A4)")
    world.forest("F", "T", "U")
    world.manager.set_mode(MAINTENANCE)
    world.manager.add_consumer(forest_consumer("x", wish("T", "A", 1), wish("U", "ZZ", 1)))
    before = world.manager.plain()
    with pytest.raises(QuotaError, match="no group ZZ"):
        world.manager.allocate_forest("F", "x")
    assert world.manager.plain() == before


def test_x23_undo_after_another_allocation_is_refused() -> None:
    world = World(T="R4(A2,B2)")
    world.know("a", "A", 1)
    token = world.manager.try_allocate("T", "a").token
    world.allocate("b", "B", 1)
    before = world.manager.plain()
    assert token is not None
    with pytest.raises(StaleTokenError):
        world.manager.undo_allocate(token)
    assert world.manager.plain() == before


def test_x8_a_tree_of_a_forest_cannot_be_deleted() -> None:
    world = World(T="R4(A2)")
    world.forest("F", "T")
    with pytest.raises(QuotaError, match="belongs to the forest F"):
        world.manager.delete_tree("T")
    assert world.manager.update_forest("F")[0].clean


def test_x11_the_misspelt_key_is_read_with_a_warning() -> None:
    info = read_consumer(
        '{"kind": "Consumer", "metadata": {"name": "d"}, "spec": {"id": "c-1", "trees:": '
        '[{"treeName": "T", "groupID": "A", "request": {"count": 1}, "unPreemptable": true}]}}'
    )
    assert info.warnings
    world = World(T="R4(A4)")
    world.manager.add_consumer(info)
    assert world.manager.allocate("T", "c-1").allocated


def test_x32_allocated_on_a_tree_then_on_its_forest() -> None:
    world = World(T="R4(A4)", U="R4(A4)")
    world.forest("F", "T", "U")
    world.manager.add_consumer(forest_consumer("x", wish("T", "A", 1), wish("U", "A", 1)))
    world.manager.allocate("T", "x")
    before = world.manager.plain()
    with pytest.raises(QuotaError, match="already"):
        world.manager.allocate_forest("F", "x")
    assert world.manager.plain() == before


def test_x36_the_order_of_trees_is_fixed() -> None:
    world = World(T1="R4(A0)", T2="R4(A0)")
    for name in ("x", "y"):
        world.manager.add_consumer(forest_consumer(name, wish("T1", "A", 2), wish("T2", "A", 2)))
    for tree, order in (("T1", "xy"), ("T2", "yx")):
        for name in order:
            world.manager.allocate(tree, name)
    world.forest("F", "T1", "T2")
    world.manager.add_consumer(forest_consumer("n", wish("T2", "A", 2, 1), wish("T1", "A", 2, 1)))
    assert world.manager.allocate_forest("F", "n").preempted == ("x",)
