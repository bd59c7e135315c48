from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.quantity import MAX_AMOUNT, MILLI, UNIT, QuantityError
from bursar.resources import (
    EMPTY,
    NO_LIMITS,
    UNLIMITED,
    Limits,
    Vector,
    dimension,
    dimension_at,
    first_short,
    from_amounts,
    from_indices,
    parse_vector,
    shortfall,
)
from tests.amounts import AMOUNTS, NAMES, parse_limits, plain, tally_of
from tests.reference_models import resources as reference


def outcome(make: Callable[[], Vector]) -> dict[str, int] | None:
    """The amounts of what is made, or None where it overflows."""
    try:
        return plain(make())
    except OverflowError:
        return None


@given(AMOUNTS, AMOUNTS)
def test_arithmetic_is_that_of_the_reference_model(left: dict[str, int], right: dict[str, int]) -> None:
    a, b = from_amounts(left), from_amounts(right)
    assert plain(a) == reference.clean(left)
    assert outcome(lambda: a.plus(b)) == reference.plus(left, right)
    assert outcome(lambda: a.minus(b)) == reference.plus(left, right, -1)
    assert outcome(lambda: a.peak(b)) == reference.peak(left, right)
    assert (a == b) == (plain(a) == plain(b))
    assert plain(a) == reference.clean(left), "operands never change"


@given(AMOUNTS, st.sets(st.sampled_from([*NAMES, "never seen"])))
def test_only_keeps_the_named_dimensions(amounts: dict[str, int], names: set[str]) -> None:
    kept = {name: amount for name, amount in amounts.items() if name in names and amount}
    assert plain(from_amounts(amounts).only(names)) == kept


@given(AMOUNTS)
def test_vectors_list_by_name_whatever_was_interned_first(amounts: dict[str, int]) -> None:
    vector = from_amounts(amounts)
    names = sorted(name for name, amount in amounts.items() if amount)
    assert vector.names() == names
    assert [dimension_at(index).name for index in vector.indices()] == names
    assert list(vector.show()) == names
    assert len(vector) == len(names)
    assert bool(vector) == bool(names)


@given(AMOUNTS)
def test_equal_vectors_have_equal_hashes_and_lanes(amounts: dict[str, int]) -> None:
    one = from_amounts(amounts)
    other = from_amounts(dict(reversed(amounts.items())))
    assert one == other
    assert hash(one) == hash(other)
    assert (one.lane_a, one.lane_b) == (other.lane_a, other.lane_b)


def test_a_vector_is_equal_to_nothing_else() -> None:
    assert from_amounts({"cpu": 1}) != {"cpu": 1}
    assert from_amounts({"cpu": 1}) != from_amounts({"pods": 1})


def test_no_amounts_make_the_empty_vector() -> None:
    assert from_amounts({"cpu": 0}) is EMPTY
    assert from_indices([]) is EMPTY
    assert not EMPTY
    assert EMPTY.plus(EMPTY) is EMPTY


@pytest.mark.parametrize("amount", [MAX_AMOUNT + 1, -MAX_AMOUNT - 1, 2**63, 2**64 + 5, -(2**70)])
def test_amounts_out_of_range_are_refused(amount: int) -> None:
    with pytest.raises(OverflowError, match="outside of the exact range"):
        from_amounts({"cpu": amount})
    with pytest.raises(OverflowError, match=r"range|too large|64"):
        Limits({"cpu": amount})


def test_amount_of_a_name_that_nobody_knows_is_zero() -> None:
    assert from_amounts({"cpu": 5}).amount("test.example/unheard-of") == 0
    assert tally_of({"cpu": 5}).amount("test.example/unheard-of") == 0
    assert from_amounts({"cpu": 5}).amount("cpu") == 5


@given(AMOUNTS, st.lists(st.tuples(st.sampled_from([1, -1]), AMOUNTS), max_size=8))
def test_tally_adds_and_takes_like_the_reference_model(
    start: dict[str, int], steps: list[tuple[int, dict[str, int]]]
) -> None:
    tally = tally_of(start)
    sums = reference.clean(start) or {}
    for sign, amounts in steps:
        after = reference.plus(sums, amounts, sign)
        if after is None:
            with pytest.raises(OverflowError, match="leaves the exact range"):
                (tally.add if sign > 0 else tally.take)(from_amounts(amounts))
        else:
            (tally.add if sign > 0 else tally.take)(from_amounts(amounts))
            sums = after
        assert plain(tally.vector()) == sums, "an overflow must change nothing"


@given(AMOUNTS, AMOUNTS)
def test_taking_undoes_adding(start: dict[str, int], amounts: dict[str, int]) -> None:
    tally = tally_of(start)
    before = tally.vector()
    try:
        tally.add(from_amounts(amounts))
    except OverflowError:
        assert tally.vector() == before
    else:
        tally.take(from_amounts(amounts))
        assert tally.vector() == before


def test_quantities_become_vectors_and_come_back() -> None:
    vector = parse_vector({"memory": "40Gi", "cpu": "1500m", "pods": 0})
    assert vector.pairs() == [("cpu", 1500), ("memory", 40 * 2**30)]
    assert vector.show() == {"cpu": "1500m", "memory": "40Gi"}


def test_a_bad_quantity_names_its_field() -> None:
    with pytest.raises(QuantityError, match=r"^spec\.hard\.cpu: 'lots'"):
        parse_vector({"pods": 1, "cpu": "lots"}, "spec.hard")
    with pytest.raises(QuantityError, match=r"^cpu: '-1' must not be negative"):
        parse_vector({"cpu": "-1"})


def test_lanes_are_linear_in_the_amounts() -> None:
    a, b = from_amounts({"cpu": 5, "pods": 1}), from_amounts({"cpu": -2, "zz": MAX_AMOUNT})
    total = a.plus(b)
    assert (total.lane_a, total.lane_b) == ((a.lane_a + b.lane_a) % 2147483647, (a.lane_b + b.lane_b) % 2147483629)


# Limits


SMALL = st.dictionaries(st.sampled_from(NAMES), st.integers(-20, 20))
CAPS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([0, 5, 10, UNLIMITED, MAX_AMOUNT]) | st.integers(0, 40))


@given(SMALL | AMOUNTS, SMALL | AMOUNTS, CAPS, st.booleans())
@settings(max_examples=300)
def test_what_does_not_fit_is_what_the_reference_model_says(
    used: dict[str, int], cost: dict[str, int], caps: dict[str, int], stock: bool
) -> None:
    tally, vector = tally_of(used), from_amounts(cost)
    limits = Limits(caps, stock)
    missing = reference.short(used, cost, caps, stock)
    assert plain(shortfall(tally, vector, limits)) == missing
    found = first_short(tally, vector, limits)
    assert found == (dimension(min(missing)).index if missing else -1), "the first one by name"
    assert tally.vector() == from_amounts(used), "a check changes nothing"


@pytest.mark.parametrize(
    ("limits", "used", "cost", "short"),
    [
        (NO_LIMITS, {"cpu": 10**15}, {"cpu": 10**15}, {}),
        (Limits({"cpu": 0}), {}, {"cpu": 1}, {"cpu": 1}),
        (Limits({"cpu": 0}), {}, {"pods": 1}, {}),
        (Limits({"cpu": 5}), {"cpu": 9}, {"pods": 1}, {}),
        (Limits({"cpu": 5}), {"cpu": 9}, {"cpu": -2}, {}),
        (Limits({"cpu": 5}), {"cpu": 4}, {"cpu": 1}, {}),
        (Limits({"cpu": 5}), {"cpu": 5}, {"cpu": 1}, {"cpu": 1}),
        (Limits({}, stock=True), {}, {"cpu": 1}, {"cpu": 1}),
        (Limits({"cpu": 2}, stock=True), {}, {"cpu": 2}, {}),
        (Limits({"cpu": UNLIMITED}), {"cpu": MAX_AMOUNT}, {"cpu": MAX_AMOUNT}, {}),
        (Limits({"cpu": UNLIMITED}, stock=True), {}, {"cpu": MAX_AMOUNT}, {}),
        (Limits({"cpu": 0}), {"cpu": MAX_AMOUNT}, {"cpu": MAX_AMOUNT}, {"cpu": MAX_AMOUNT}),
    ],
)
def test_absent_is_unlimited_zero_is_none_and_only_what_is_requested_counts(
    limits: Limits, used: dict[str, int], cost: dict[str, int], short: dict[str, int]
) -> None:
    assert plain(shortfall(tally_of(used), from_amounts(cost), limits)) == short


def test_limits_answer_by_dimension() -> None:
    limits = Limits({"pods": 3, "cpu": UNLIMITED})
    assert limits.cap("pods") == 3
    assert limits.cap("cpu") == UNLIMITED
    assert limits.cap("test.example/other") == UNLIMITED
    assert Limits({"pods": 3}, stock=True).cap("test.example/other") == 0
    assert limits.show() == {"cpu": "unlimited", "pods": "3"}
    assert list(limits.listed) == ["cpu", "pods"]


def test_limits_are_equal_by_content() -> None:
    assert Limits({"a": 1, "b": 2}) == Limits({"b": 2, "a": 1})
    assert hash(Limits({"a": 1, "b": 2})) == hash(Limits({"b": 2, "a": 1}))
    assert Limits({"a": 1}) != Limits({"a": 1}, stock=True)
    assert Limits({"a": 0}) != NO_LIMITS


def test_a_limit_of_zero_stays_listed() -> None:
    assert parse_limits({"pods": "0"}).listed == {"pods": 0}


# Dimensions


@pytest.mark.parametrize(
    ("name", "resolution", "binary"),
    [
        ("cpu", MILLI, False),
        ("requests.cpu", MILLI, False),
        ("limits.memory", UNIT, True),
        ("memory", UNIT, True),
        ("requests.ephemeral-storage", UNIT, True),
        ("hugepages-2Mi", UNIT, True),
        ("requests.hugepages-1Gi", UNIT, True),
        ("nvidia.com/gpu", UNIT, False),
        ("requests.nvidia.com/gpu", UNIT, False),
        ("example.com/cpu", UNIT, False),
        ("pods", UNIT, False),
        ("tflops", MILLI, False),
        ("vram", UNIT, True),
    ],
)
def test_dimensions_know_their_resolution_and_format(name: str, resolution: int, binary: bool) -> None:
    found = dimension(name)
    assert (found.resolution, found.binary) == (resolution, binary)
    assert dimension_at(found.index) is found


def test_many_threads_intern_one_index_a_name() -> None:
    names = [f"thread.example/r{i}" for i in range(200)]
    start = Barrier(8)

    def intern(offset: int) -> dict[str, int]:
        start.wait()
        return {name: dimension(name).index for name in names[offset:] + names[:offset]}

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(intern, range(0, 200, 25)))
    assert all(each == found[0] for each in found)
    assert len(set(found[0].values())) == len(names)
    assert [dimension_at(found[0][name]).name for name in names] == names
