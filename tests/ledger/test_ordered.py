from bisect import bisect_right, insort

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.ledger import state
from bursar.ledger.state import Ordered

KEYS = st.tuples(st.integers(-3, 3), st.sampled_from("abcdefgh"))
STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove"]), KEYS), max_size=60)


def filled(count: int) -> Ordered:
    """Enough keys for several chunks, added in an order that splits chunks in the middle."""
    found = Ordered()
    for i in range(count):
        found.add((i * 7919 % count, f"u{i}"))
    return found


@given(STEPS)
def test_it_is_a_sorted_list_without_repeats(steps: list[tuple[str, tuple[int, str]]]) -> None:
    found, reference = Ordered(), list[tuple[object, ...]]()
    for verb, key in steps:
        if verb == "add" and key in reference:
            with pytest.raises(ValueError, match="there already"):
                found.add(key)
        elif verb == "add":
            found.add(key)
            insort(reference, key)
        elif key in reference:
            found.remove(key)
            reference.remove(key)
        else:
            with pytest.raises(KeyError):
                found.remove(key)
        assert found.keys() == reference
        assert list(found) == reference
        assert len(found) == len(reference)


@given(st.lists(st.integers(0, 2999), unique=True, max_size=400))
@settings(max_examples=20)
def test_taking_out_and_putting_back_restores_the_order_across_chunks(chosen: list[int]) -> None:
    found = filled(3000)
    before = found.keys()
    for i in chosen:
        found.remove(before[i])
    gone = set(chosen)
    assert found.keys() == [key for i, key in enumerate(before) if i not in gone]
    for i in reversed(chosen):
        found.add(before[i])
    assert found.keys() == before
    assert before == sorted(before)
    assert len(found) == 3000


def test_chunks_stay_small_and_empty_ones_go() -> None:
    found = filled(5000)
    assert all(0 < len(chunk) <= state._CHUNK for chunk in found.chunks)
    assert found.tops == [chunk[-1] for chunk in found.chunks]
    for key in found.keys():  # noqa: SIM118 a copy: the original shrinks
        found.remove(key)
    assert (found.chunks, found.tops, len(found)) == ([], [], 0)


def test_a_key_that_does_not_compare_changes_nothing() -> None:
    found = filled(10)
    before = found.keys()
    with pytest.raises(TypeError):
        found.add(("text", 1))
    assert (found.keys(), len(found)) == (before, 10)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=40))
def test_iterating_goes_on_with_the_next_key_whatever_changed_meanwhile(steps: list[tuple[bool, int]]) -> None:
    found, reference = Ordered(), list(range(0, 40, 2))
    for number in reference:
        found.add((number, "u"))
    position = None
    keys = iter(found)
    for adds, number in steps:
        at = 0 if position is None else bisect_right(reference, position)
        expected = reference[at] if at < len(reference) else None
        key = next(keys, None)
        assert key == (None if expected is None else (expected, "u"))
        if expected is None:
            return
        position = expected
        if adds and number not in reference:
            insort(reference, number)
            found.add((number, "u"))
        elif not adds and number in reference:
            reference.remove(number)
            found.remove((number, "u"))


def test_iterating_survives_that_each_key_is_taken_out_and_put_back() -> None:
    found = filled(1500)
    seen = []
    for key in found:
        seen.append(key)
        found.remove(key)
        if len(seen) % 2:
            found.add(key)
    assert seen == sorted(seen)
    assert len(seen) == 1500
