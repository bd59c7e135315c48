"""Tokens: what makes them stale, what does not, and nested tries."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bursar.policies.trees import StaleTokenError, Token
from tests.policies.trees.world import World, forest_consumer, wish


def world() -> World:
    """A forest of T and U with one consumer on U, and V by itself."""
    made = World(T="R4(A2)", U="R4(A2)", V="R4(A2)")
    made.forest("F", "T", "U")
    made.allocate("u", "A", 1, tree_name="U")
    made.allocate("v", "A", 1, tree_name="V")
    for name in ("a", "b"):
        made.manager.add_consumer(forest_consumer(name, wish("T", "A", 1), wish("U", "A", 1)))
    made.manager.add_consumer(forest_consumer("big", wish("T", "A", 9), wish("U", "A", 1)))
    return made


def token_of(made: World, name: str) -> Token:
    token = made.manager.try_allocate_forest("F", name).token
    assert token is not None
    return token


HARMLESS: list[tuple[str, Callable[[World], object]]] = [
    ("a read", lambda w: w.manager.get_tree_state("T")),
    ("a refused allocation", lambda w: w.manager.allocate_forest("F", "big")),
    ("a refused try", lambda w: w.manager.try_allocate_forest("F", "big")),
    ("an added consumer", lambda w: w.know("new", "A", 1)),
    ("a cache edit", lambda w: w.manager.get_tree_cache("T").rename_node("A", "B")),
    ("a dry run", lambda w: w.manager.update_all(dry_run=True)),
    ("another tree", lambda w: w.manager.deallocate("V", "v")),
    ("another forest", lambda w: w.forest("G", "V")),
]


@pytest.mark.parametrize("act", [h[1] for h in HARMLESS], ids=[h[0] for h in HARMLESS])
def test_what_leaves_a_token_good(act: Callable[[World], object]) -> None:
    made = world()
    accounts = made.manager.plain()["accounts"]
    token = token_of(made, "a")
    act(made)
    made.manager.undo_allocate_forest(token)
    assert not made.manager.is_allocated_forest("F", "a")
    assert [row for row in listed(made.manager.plain()["accounts"]) if "trees/V" not in str(row)] == [
        row for row in listed(accounts) if "trees/V" not in str(row)
    ]


def listed(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


STALE: list[tuple[str, Callable[[World], object]]] = [
    ("an allocation", lambda w: w.manager.allocate_forest("F", "b")),
    ("a try that stands", lambda w: w.manager.try_allocate_forest("F", "b")),
    ("a release on another tree of the forest", lambda w: w.manager.deallocate("U", "u")),
    ("an update", lambda w: w.manager.update_tree("U")),
]


@pytest.mark.parametrize("act", [s[1] for s in STALE], ids=[s[0] for s in STALE])
def test_what_makes_a_token_stale(act: Callable[[World], object]) -> None:
    made = world()
    token = token_of(made, "a")
    act(made)
    before = made.manager.plain()
    for _ in range(2):
        with pytest.raises(StaleTokenError, match="changed since"):
            made.manager.undo_allocate_forest(token)
    assert made.manager.plain() == before
    assert made.manager.is_allocated_forest("F", "a")


def test_nested_tries_are_undone_in_reverse() -> None:
    made = world()
    states = [made.manager.plain()]
    first = token_of(made, "a")
    states.append(made.manager.plain())
    second = token_of(made, "b")
    with pytest.raises(StaleTokenError):
        made.manager.undo_allocate_forest(first)
    made.manager.undo_allocate_forest(second)
    assert made.manager.plain() == states[1]
    made.manager.undo_allocate_forest(first)
    assert made.manager.plain() == states[0]


def test_a_token_is_good_once() -> None:
    made = world()
    token = token_of(made, "a")
    made.manager.undo_allocate_forest(token)
    made.manager.allocate_forest("F", "a")
    with pytest.raises(StaleTokenError, match="undone already"):
        made.manager.undo_allocate_forest(token)


def test_the_undo_of_a_refused_try_is_a_no_op_once() -> None:
    made = world()
    token = token_of(made, "big")
    made.manager.allocate_forest("F", "b")
    before = made.manager.plain()
    made.manager.undo_allocate_forest(token)
    assert made.manager.plain() == before
    with pytest.raises(StaleTokenError):
        made.manager.undo_allocate_forest(token)


def test_an_undo_is_a_record_of_its_own() -> None:
    made = world()
    token = token_of(made, "a")
    made.manager.undo_allocate_forest(token)
    causes = [record.cause[0] for record in made.manager.journal.records]
    assert causes[-2:] == ["allocate", "undo"]


def test_try_of_one_tree_and_undo_by_the_same_call() -> None:
    made = World(T="R4(A2)")
    made.know("a", "A", 1)
    token = made.manager.try_allocate("T", "a").token
    assert token is not None
    made.manager.undo_allocate(token)
    assert made.state() == ""
