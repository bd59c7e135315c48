import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.quantity import MAX_AMOUNT
from bursar.resources import NO_LIMITS, UNLIMITED, Limits, dimension, first_short, from_amounts, parse_limits, shortfall
from tests.amounts import AMOUNTS, NAMES, plain, tally_of
from tests.reference_models import resources as reference

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
