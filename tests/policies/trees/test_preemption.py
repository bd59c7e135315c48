"""Whom a consumer may displace: the search for victims, what it looks at, and what a refusal says about it."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest

from bursar.ledger.claims import Claim
from bursar.policies.policy import EvictionRules
from bursar.policies.trees import NORMAL, QuotaManager
from bursar.policies.trees.climb import Climb, Permission
from bursar.policies.trees.preemption import find_victims, is_legal
from tests.policies.trees.machine import RESOURCES, document, info
from tests.policies.trees.reference_model import Node, ReferenceModel, Wish
from tests.policies.trees.world import World, forest_consumer, wish

Held = tuple[Any, ...]
ROWS: list[tuple[str, str, list[Held], Held, list[str], str]] = [
    # id, tree, held (id, group, request, priority, type, unp), asked, preempted, state after
    (
        "after its victims the climb ends higher",
        "R9(C3!(B3!,E0))",
        [("b", "B", 2), ("e", "E", 1)],
        ("boss", "B", 3, 9),
        ["b", "e"],
        "B3{boss} C3 R3",
    ),
    (
        "the same with a soft group",
        "R9(C3!(B3,E0))",
        [("b", "B", 2), ("e", "E", 1)],
        ("boss", "B", 3, 9),
        ["b", "e"],
        "B3{boss} C3 R3",
    ),
    (
        "three hard levels",
        "R9(D4!(C3!(B3!,E0),F1))",
        [("b", "B", 2, 1), ("e", "E", 1, 2), ("f", "F", 1, 3)],
        ("boss", "B", 3, 9),
        ["b", "e"],
        "B3{boss} C3 D4 F1{f} R4",
    ),
    (
        "the most important one is kept",
        "R4(H4!)",
        [("p0", "H", 1, 0), ("p1", "H", 2, 1), ("p2", "H", 1, 2)],
        ("n", "H", 2, 6),
        ["p1"],
        "H4{p0 p2 n} R4",
    ),
    (
        "the more important of two alike is kept",
        "R4(H4!)",
        [("p0", "H", 1, 0), ("p1", "H", 1, 1), ("p2", "H", 2, 2)],
        ("n", "H", 3, 6),
        ["p0", "p2"],
        "H4{p1 n} R4",
    ),
    (
        "what the climb takes back from borrowers comes on top",
        "R6(C6!(B3!,E0),F0)",
        [("e", "E", 1, 0), ("b", "B", 2, 2), ("r", "F", 3, 3)],
        ("n", "B", 3, 9),
        ["b", "r"],
        "B3{n} C4{e} R4",
    ),
    (
        "to take more away would not do",
        "R20(g7!(f5(c6(B3!,D0)),E0))",
        [("b", "D", 3, 0, 0, True), ("x", "D", 1), ("y", "E", 1)],
        ("n", "B", 3, 9),
        ["y"],
        "B3{n} R7 c4{x} f4 g7{b}",
    ),
]


@pytest.mark.parametrize(
    ("shape", "held", "asked", "preempted", "after"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_row(shape: str, held: list[Held], asked: Held, preempted: list[str], after: str) -> None:
    world = World(T=shape)
    for one in held:
        assert world.allocate(*one[:5], unp=one[5] if len(one) > 5 else False).allocated
    response = world.allocate(*asked)
    assert (response.allocated, list(response.preempted)) == (True, preempted)
    assert world.state() == after


class Counting(EvictionRules):
    """Lets everything go, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def obstacle(self, claim: Claim, victim: Claim) -> str:
        self.asked += 1
        return ""


def climb_of(world: World, name: str, rules: EvictionRules) -> Climb:
    book = world.manager._book
    tree = book.tree("T")
    (request,) = book.requests(book.claim(name))
    return Climb(tree, tree.nodes[request.group], request, Permission(book.claim(name), rules), preempting=True)


HOPELESS = [
    ("more than the quota of the root", "R4(A4)", [("a", "A", 1), ("b", "A", 3)], ("n", "A", 5, 1)),
    ("more than the quota of a hard group", "R9(A4!)", [("a", "A", 1), ("b", "A", 3)], ("n", "A", 5, 1)),
    ("the rest is of higher priority", "R4(A4!)", [("a", "A", 1), ("b", "A", 3, 2)], ("n", "A", 2, 1)),
    ("the rest is of another type", "R4(A4!)", [("a", "A", 1), ("b", "A", 3, 0, 7)], ("n", "A", 2, 1)),
]


@pytest.mark.parametrize(("shape", "held", "asked"), [h[1:] for h in HOPELESS], ids=[h[0] for h in HOPELESS])
def test_what_sums_can_tell_asks_about_no_claim(shape: str, held: list[Held], asked: Held) -> None:
    world = World(T=shape)
    for one in held:
        assert world.allocate(*one).allocated
    world.know(*asked)
    rules = Counting()
    climb = climb_of(world, asked[0], rules)
    assert not climb.run()
    assert not find_victims(climb)
    assert rules.asked == 0


def test_a_claim_that_frees_nothing_that_is_short_is_not_looked_at() -> None:
    world = World()
    world.add("T", "R[9,9](A[9,1]!)", ("cpu", "gpu"))
    for number in range(5):
        world.allocate(f"cpu{number}", "A", [1, 0])
    world.allocate("gpu", "A", [0, 1])
    world.know("n", "A", [1, 1], 1)
    rules = Counting()
    climb = climb_of(world, "n", rules)
    assert not climb.run()
    assert find_victims(climb)
    assert sorted(climb.gone) == ["gpu"]
    assert rules.asked == 1


def test_many_victims_take_few_climbs() -> None:
    world = World(T="R500(A500!)")
    for number in range(500):
        world.allocate(f"c{number}", "A", 1)
    response = world.allocate("n", "A", 300, 1)
    assert list(response.preempted) == [f"c{number}" for number in range(300)]
    assert world.state().startswith("A500{c300 c301")


def test_a_spared_victim_that_was_pushed_before_has_its_old_place_and_stamp() -> None:
    """In T1 v is pushed from A to R and out of it; then w leaves both trees, and v did not have to move at all."""
    world = World(T1="R5(A5(B2,C0,E2))", T2="S2(X2!)")
    world.forest("F", "T1", "T2")
    manager = world.manager
    for name, rows in (
        ("v", [wish("T1", "C", 2)]),
        ("w", [wish("T1", "E", 2), wish("T2", "X", 2)]),
        ("n", [wish("T1", "B", 2, 1), wish("T2", "X", 2, 1)]),
    ):
        manager.add_consumer(forest_consumer(name, *rows))
    assert manager.allocate_forest("F", "v").places == (("T1", "A"),)
    stamp = manager._book.trees.by_name["T1"].allocations["v"].stamp
    assert manager.allocate_forest("F", "w").allocated
    response = manager.allocate_forest("F", "n")
    assert (response.preempted, response.moves) == (("w",), ())
    seat = manager._book.trees.by_name["T1"].allocations["v"]
    assert (seat.node.name, seat.stamp) == ("A", stamp)


@pytest.mark.parametrize("seed", range(40))
def test_a_legal_set_is_found_if_there_is_one(seed: int) -> None:
    """Against all sets of candidates, each judged by the climb of the reference model."""
    dice = random.Random(seed)
    nodes = small_tree(dice)
    leaves = [name for name in nodes if all(node.parent != name for node in nodes.values())]
    manager, model = QuotaManager(), ReferenceModel()
    manager.add_tree_from_struct(document("T", RESOURCES, nodes))
    manager.set_mode(NORMAL)
    model.add_tree("T", RESOURCES, nodes)
    for number in range(14):
        name = f"c{number}"
        amounts = {resource: dice.choice((0, 1, 1, 2, 3)) for resource in RESOURCES}
        row = Wish(dice.choice(leaves), amounts, dice.randint(0, 3), int(dice.random() < 0.1), dice.random() < 0.15)
        model.now.wishes[name] = {"T": row}
        manager.add_consumer(info(name, {"T": row}))
        legal = legal_sets(model, name, model.candidates("T", name))
        book = manager._book
        tree = book.trees.by_name["T"]
        (request,) = book.requests(book.claim(name))
        climb = Climb(tree, tree.nodes[row.group], request, Permission(book.claim(name), book.rules), preempting=True)
        for some in (c for size in range(3) for c in combinations(sorted(tree.allocations), size)):
            assert is_legal(climb, [tree.allocations[one] for one in some]) == (set(some) in legal)
        response = manager.allocate("T", name)
        assert response.allocated == bool(legal)
        assert model.allocate(name, ["T"], "") == (response.allocated, list(response.preempted))


def legal_sets(model: ReferenceModel, name: str, candidates: list[str]) -> list[set[str]]:
    before = model.now.copy()
    model.origins = before.seats
    found = []
    for some in (c for size in range(len(candidates) + 1) for c in combinations(candidates, size)):
        model.now, model.victims = before.copy(), []
        for one in some:
            model.depart(one)
        if model.climb("T", name, ""):
            found.append(set(some))
    model.now = before
    return found


def small_tree(dice: random.Random) -> dict[str, Node]:
    def quota(most: int) -> dict[str, int]:
        return {resource: dice.randint(0, most) for resource in RESOURCES}

    nodes = {"R": Node("", False, quota(9))}
    level = ["R"]
    for depth in range(1, dice.choice((3, 4))):
        level = [f"{parent}{number}" for parent in level for number in range(dice.choice((1, 1, 2)))]
        nodes.update({name: Node(name[:-1], dice.random() < 0.4, quota(max(2, 8 - 2 * depth))) for name in level})
    return nodes


# What a refusal says

SENTENCES = [
    (
        "the node that binds, not the first that is short",
        "R[2,9](A[4,1]!,B[0,9])",
        [("a", "A", [0, 1]), ("fixed", "B", [2, 0], 0, 0, True)],
        ("n", "A", [1, 1], 1),
        "trees/T/R: needs 1 cpu, 2 of 2 in use; fixed would have to leave, but is not preemptible",
    ),
    (
        "another type",
        "R[4,4](A[1,1]!)",
        [("a", "A", [1, 1], 0, 3)],
        ("n", "A", [1, 1], 1),
        "trees/T/A: needs 1 cpu, 1 of 1 in use; a would have to leave, but is of another type (3)",
    ),
    (
        "priority protects: there is nothing to say",
        "R[4,4](A[1,1]!)",
        [("a", "A", [1, 1], 1, 0, True)],
        ("n", "A", [1, 1], 1),
        "trees/T/A: needs 1 cpu, 1 of 1 in use",
    ),
    (
        "an owner is kept out by a borrower of another type",
        "R[1,1](A[1,1],B[0,0])",
        [("b", "B", [1, 1], 0, 3)],
        ("n", "A", [1, 1]),
        "trees/T/R: needs 1 cpu, 1 of 1 in use; b would have to leave, but is of another type (3)",
    ),
]


@pytest.mark.parametrize(
    ("shape", "held", "asked", "sentence"), [s[1:] for s in SENTENCES], ids=[s[0] for s in SENTENCES]
)
def test_a_refusal_names_the_node_that_binds_and_who_may_not_leave(
    shape: str, held: list[Held], asked: Held, sentence: str
) -> None:
    world = World()
    world.add("T", shape, ("cpu", "gpu"))
    for one in held:
        assert world.allocate(*one[:5], unp=one[5] if len(one) > 5 else False).allocated
    assert world.allocate(*asked).message == sentence


def test_a_refusal_says_that_the_one_there_displaced_the_consumer() -> None:
    world = World(T="R2(A1)")
    world.allocate("high", "A", 2, 9)
    assert world.allocate("low", "A", 1).preempted == ("high",)
    refused = world.manager.allocate("T", "high")
    assert (
        refused.message == "trees/T/R: needs 2 count, 1 of 2 in use; low would have to leave, but displaced it before"
    )
    assert refused.message in "\n".join(refused.explain().lines())


# Several trees


def test_what_one_tree_needs_makes_room_in_another() -> None:
    """In T2 n needs what a and b hold on G; in T1 they sit elsewhere, and are no candidates."""
    world = World(T1="R4(A3!,B3!)", T2="S2(G2!)")
    world.forest("F", "T1", "T2")
    for name in ("a", "b"):
        world.manager.add_consumer(forest_consumer(name, wish("T1", "A", 1), wish("T2", "G", 1)))
        assert world.manager.allocate_forest("F", name).allocated
    world.manager.add_consumer(forest_consumer("n", wish("T1", "B", 3, 1), wish("T2", "G", 1, 1)))
    assert world.manager.allocate_forest("F", "n").preempted == ("a",)
    world.manager.deallocate_forest("F", "n")
    assert world.manager.allocate_forest("F", "a").allocated
    for name, priority in (("m", 1), ("o", 0)):
        world.manager.add_consumer(forest_consumer(name, wish("T1", "B", 3, 1), wish("T2", "G", 2, priority)))
    assert not world.manager.allocate_forest("F", "o").allocated
    assert sorted(world.manager.allocate_forest("F", "m").preempted) == ["a", "b"]


def test_a_victim_must_be_needed_where_it_is_a_candidate() -> None:
    """T2 has room; that a would make room in T1, where it sits elsewhere, is no reason to displace it."""
    world = World(T1="R4(A3!,B3!)", T2="S9(G9!)")
    world.forest("F", "T1", "T2")
    world.manager.add_consumer(forest_consumer("a", wish("T1", "A", 2), wish("T2", "G", 1)))
    assert world.manager.allocate_forest("F", "a").allocated
    world.manager.add_consumer(forest_consumer("n", wish("T1", "B", 3, 1), wish("T2", "G", 1, 1)))
    assert not world.manager.allocate_forest("F", "n").allocated


def test_of_many_candidates_the_trees_take_turns() -> None:
    world = World(T1="R24(A20!,B14!)", T2="S20(G20!)")
    world.forest("F", "T1", "T2")
    for number in range(20):
        world.manager.add_consumer(forest_consumer(f"c{number}", wish("T1", "A", 1), wish("T2", "G", 1)))
        assert world.manager.allocate_forest("F", f"c{number}").allocated
    world.manager.add_consumer(forest_consumer("n", wish("T1", "B", 14, 1), wish("T2", "G", 10, 1)))
    assert len(world.manager.allocate_forest("F", "n").preempted) == 10
    assert world.state("T1") == "A10{c10 c11 c12 c13 c14 c15 c16 c17 c18 c19} B14{n} R24"


# Consumers that come back


def comes_back(world: World, name: str, group: str, request: int, priority: int = 0) -> list[str] | None:
    """What the usual client does with a preempted consumer; whom it preempts, or None if it is refused."""
    world.manager.remove_consumer(name)
    response = world.allocate(name, group, request, priority)
    return list(response.preempted) if response.allocated else None


def test_two_consumers_that_are_removed_and_added_again_come_to_rest() -> None:
    world = World(T="R2(A1)")
    assert world.allocate("high", "A", 2, 9).allocated
    assert world.allocate("low", "A", 1).preempted == ("high",)
    for _ in range(3):
        assert comes_back(world, "high", "A", 2, 9) is None
    world.manager.deallocate("T", "low")
    assert world.manager.allocate("T", "high").allocated
    assert comes_back(world, "low", "A", 1) == ["high"]


def test_the_eviction_of_the_displacer_does_not_end_what_it_did() -> None:
    """First a displaced b, then c displaced a: whoever is removed and added again, b does not displace c."""
    world = World(T="R2(A2!)")
    assert world.allocate("b", "A", 2).allocated
    assert world.allocate("a", "A", 2, 1).preempted == ("b",)
    assert world.allocate("c", "A", 2, 2).preempted == ("a",)
    world.manager.remove_consumer("a")
    assert comes_back(world, "b", "A", 2, 9) is None
    world.manager.deallocate("T", "c")
    world.manager.remove_consumer("c")
    assert world.manager.allocate("T", "b").allocated


def test_nothing_is_kept_of_those_that_are_all_gone() -> None:
    world = World(T="R2(A2!)")
    for number in range(5):
        assert world.allocate(f"c{number}", "A", 2, number).allocated
        if number:
            world.manager.remove_consumer(f"c{number - 1}")
    world.manager.deallocate("T", "c4")
    world.manager.remove_consumer("c4")
    tables = world.manager.plain()["tables"]
    assert isinstance(tables, dict)
    assert "displaced" not in tables


def test_an_explanation_marks_the_node_that_binds_and_all_that_is_short() -> None:
    world = World()
    world.add("T", "R[2,1](A[4,1]!,B[0,9])", ("cpu", "gpu"))
    world.allocate("a", "A", [0, 1])
    world.allocate("fixed", "B", [2, 0], unp=True)
    lines = world.allocate("n", "A", [1, 1], 1).explain().lines()
    assert [line.strip() for line in lines[2:]] == [
        "FAIL A: hard; cpu 1 wanted, 0 of 4 in use; gpu 1 wanted, 1 of 1 in use [trees.quota.gpu]",
        "FAIL R: soft; cpu 1 wanted, 2 of 2 in use; gpu 1 wanted, 1 of 1 in use",
        "FAIL <- first cpu: trees/T/R: needs 1 cpu, 2 of 2 in use [trees.quota.cpu]",
        "FAIL gpu: trees/T/R: needs 1 gpu, 1 of 1 in use [trees.quota.gpu]",
    ]
