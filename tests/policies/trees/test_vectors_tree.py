"""The published example of one tree, its try and undo, and vectors 2.3, 6.1, 6.2, 6.9."""

from __future__ import annotations

import pytest

from bursar.policies.trees import QuotaError, StaleTokenError
from tests.policies.trees.world import S_EX, World

Step = str | tuple[str, str, int, int]
STEPS: list[tuple[str, Step, str, list[str]]] = [
    ("1", ("a", "N", 1, 0), "A1 C1 H1 N1{a}", []),
    ("2", ("b", "N", 1, 0), "A2 C2 H2 N2{a b}", []),
    ("3", ("c", "N", 1, 0), "A3 C3 H3{c} N2{a b}", []),
    ("4", "a", "A2 C2 H2 N2{b c}", []),
    ("5", ("d", "N", 2, 1), "A4 C4{b} H3{c} N2{d}", []),
    ("6", ("e", "L", 3, 0), "A7{b} C6 G3{e} H3{c} N2{d}", []),
    ("7", ("f", "E", 3, 0), "A10{b f} C6 G3{e} H3{c} N2{d}", []),
    ("8", ("g", "J", 1, 0), "A10{f} C6 D1 G3{e} H3{c} J1{g} N2{d}", ["b"]),
    ("9", ("h", "K", 1, 0), "A8{e} C4 D1 G1 H3{c} J1{g} K1{h} N2{d}", ["f"]),
    ("10", ("i", "I", 3, 1), "A8{i} C4 D1 G1 H3{c} J1{g} K1{h} N2{d}", ["e"]),
    ("11", ("j", "F", 2, 0), "A10{i} B2{j} C4 D1 G1 H3{c} J1{g} K1{h} N2{d}", []),
]


def test_6_1_the_example_step_by_step() -> None:
    world = World(T=S_EX)
    for number, step, expected, preempted in STEPS:
        if isinstance(step, str):
            assert world.manager.deallocate("T", step)
        else:
            response = world.allocate(*step)
            assert response.allocated, number
            assert list(response.preempted) == preempted, number
        assert world.state() == expected, number


def test_6_1_known_consumers_after_the_demo() -> None:
    world = World(T=S_EX)
    for _, step, _, preempted in STEPS:
        if isinstance(step, str):
            world.manager.deallocate("T", step)
            world.manager.remove_consumer(step)
        else:
            world.allocate(*step)
        for consumer in preempted:
            world.manager.remove_consumer(consumer)
    assert world.manager.get_all_consumer_ids() == ["c", "d", "g", "h", "i", "j"]


def test_6_2_try_and_undo() -> None:
    world = World(T=S_EX)
    for name in "abc":
        world.allocate(name, "N", 1)
    before = world.manager.plain()
    world.know("d", "N", 2, 1)
    known = world.manager.plain()
    tried = world.manager.try_allocate("T", "d")
    assert world.state() == "A5 C5{c a} H3{b} N2{d}"
    assert tried.preempted == ()
    assert sorted(map(str, tried.moves)) == ["a: N -> C in T", "b: N -> H in T", "c: H -> C in T"]
    assert tried.token is not None
    world.manager.undo_allocate(tried.token)
    assert world.state() == "A3 C3 H3{c} N2{a b}"
    assert world.manager.plain() == known != before
    assert not world.manager.is_allocated("T", "d")
    world.allocate("e", "L", 3)
    assert world.state() == "A6 C6 G3{e} H3{c} N2{a b}"


CASES_2_3 = [
    ("2.3-6 soft", "R4(M1(L4))", [], ("c", "L", 2), True, [], "R2{c}"),
    ("2.3-6 hard", "R4(M1(L4!))", [], ("c", "L", 2), False, [], ""),
    (
        "2.3-8",
        "R20(D6!(L4,K4))",
        [("l1", "L", 2, 0), ("l2", "L", 2, 1), ("k1", "K", 1, 0), ("d1", "L", 1, 0)],
        ("n", "L", 3, 2),
        True,
        ["d1", "l1"],
        "D6{l2} K1{k1} L3{n} R6",
    ),
]


@pytest.mark.parametrize(
    ("shape", "held", "asked", "allocated", "preempted", "expected"),
    [case[1:] for case in CASES_2_3],
    ids=[case[0] for case in CASES_2_3],
)
def test_worked_steps(
    shape: str,
    held: list[tuple[str, str, int, int]],
    asked: tuple[str, str, int],
    allocated: bool,
    preempted: list[str],
    expected: str,
) -> None:
    world = World(T=shape)
    for one in held:
        assert world.allocate(*one).allocated
    response = world.allocate(*asked)
    assert response.allocated == allocated
    assert sorted(response.preempted) == preempted
    assert world.state() == expected


def test_2_3_9_a_resource_that_is_short_refuses_although_another_is_free() -> None:
    world = World()
    world.add("T", "R[10,4](A[8,1],B[4,4])", ("cpu", "gpu"))
    assert world.allocate("g", "B", [1, 4]).allocated
    refused = world.allocate("a", "A", [2, 1])
    assert not refused.allocated
    assert refused.refusals[0].reason == "trees.quota.gpu"
    assert world.allocate("b", "A", [8, 0]).allocated
    assert world.state() == "A[8,0]{b} B[1,4]{g} R[9,4]"


TRIES_6_9 = [
    ("group C, 5", ("C", 5, 0), False, [], "A2{C2} B1{C1}"),
    ("group C, 1", ("C", 1, 0), True, [], "A3{C2} B1{C1} C1{c}"),
    ("group B, 1", ("B", 1, 0), True, [], "A3{C2 c} B1{C1}"),
    ("group C, 1, p1", ("C", 1, 1), True, [], "A3{C2} B1{C1} C1{c}"),
    ("group B, 2, p1", ("B", 2, 1), True, ["C2"], "A3{c} B1{C1}"),
    ("group C, 2, p1", ("C", 2, 1), True, ["C2"], "A3{c} B1{C1}"),
]


def tree_a() -> World:
    world = World(T="A3(B1,C1)")
    world.allocate("C1", "B", 1)
    world.allocate("C2", "B", 1)
    assert world.state() == "A2{C2} B1{C1}"
    return world


@pytest.mark.parametrize(
    ("asked", "allocated", "preempted", "expected"), [t[1:] for t in TRIES_6_9], ids=[t[0] for t in TRIES_6_9]
)
def test_6_9_try_and_undo(asked: tuple[str, int, int], allocated: bool, preempted: list[str], expected: str) -> None:
    world = tree_a()
    world.know("c", *asked)
    base = world.manager.plain()
    tried = world.manager.try_allocate("T", "c")
    assert (tried.allocated, list(tried.preempted), world.state()) == (allocated, preempted, expected)
    assert tried.token is not None
    world.manager.undo_allocate(tried.token)
    assert world.manager.plain() == base
    with pytest.raises(StaleTokenError):
        world.manager.undo_allocate(tried.token)
    assert world.manager.plain() == base


def test_6_9_a_group_that_the_tree_does_not_have() -> None:
    world = tree_a()
    world.know("c", "X", 1)
    base = world.manager.plain()
    with pytest.raises(QuotaError, match="no group X"):
        world.manager.try_allocate("T", "c")
    assert world.manager.plain() == base
