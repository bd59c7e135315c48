"""The order in which claims slide down, where the room is for some of them only, and the stamps that they get."""

from __future__ import annotations

from bursar.policies.trees.slide_down import _choose
from tests.policies.trees.test_vectors_updates import node
from tests.policies.trees.world import World


def test_of_two_sizes_the_higher_priority_goes_first() -> None:
    world = World(T="R10(A2)")
    for one in (("z", "A", 2, 9), ("x", "A", 1, 0), ("y", "A", 2, 5)):
        assert world.allocate(*one).allocated
    assert world.state() == "A2{z} R5{x y}"
    assert world.manager.deallocate("T", "z")
    assert world.state() == "A2{y} R3{x}"


def test_those_that_come_down_two_levels_go_on_by_priority() -> None:
    world = World(T="R10(M2(L1,K2))")
    for one in (("k", "K", 2), ("x", "L", 1, 0), ("y", "L", 1, 5)):
        assert world.allocate(*one).allocated
    assert world.manager.deallocate("T", "k")
    assert world.state() == "L1{y} M2{x} R2"


def test_newcomers_are_taken_by_priority_in_whatever_order_they_came() -> None:
    world = World(T="R10(M9(L1))")
    for one in (("z", "L", 1, 9), ("x", "L", 1, 0), ("y", "L", 1, 5)):
        assert world.allocate(*one).allocated
    ledger = world.manager._book.ledger
    tree = world.manager._book.trees.by_name["T"]
    tx = ledger.begin(0)
    tx.release(tree.allocations["z"].claim, (tree.nodes["L"].account,), (tree.allocations["z"].request.cost,))
    arrived = [tree.allocations["x"], tree.allocations["y"]]
    assert [mover[2] for mover in _choose(tx, tree, tree.nodes["M"], [], arrived)] == ["y"]
    ledger.abort()


def test_claims_of_different_groups_move_in_one_order() -> None:
    """First the higher priority, as their stamps show, whatever the groups are called."""
    world = World(T="R10(A0,B0)")
    for one in (("x", "A", 1, 0), ("y", "B", 1, 5)):
        assert world.allocate(*one).allocated
    world.manager.get_tree_cache("T").add_node_specs({"A": node("R", 1), "B": node("R", 1)})
    world.manager.update_tree("T")
    assert world.state() == "A1{x} B1{y} R2"
    seats = world.manager._book.trees.by_name["T"].allocations
    assert seats["y"].stamp < seats["x"].stamp
