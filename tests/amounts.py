"""Amounts for tests of vectors and limits: small ones, and those at the edges of the exact range."""

from collections.abc import Mapping

from hypothesis import strategies as st

from bursar.quantity import MAX_AMOUNT
from bursar.resources import Limits, Tally, Vector, dimension, from_amounts

NAMES = ["memory", "cpu", "nvidia.com/gpu", "pods", "example.com/a", "zz"]
EDGES = [0, 1, -1, 7, MAX_AMOUNT, MAX_AMOUNT - 1, MAX_AMOUNT // 2, MAX_AMOUNT // 2 + 1, -MAX_AMOUNT, -MAX_AMOUNT // 2]
NUMBERS = st.sampled_from(EDGES) | st.integers(-MAX_AMOUNT, MAX_AMOUNT) | st.integers(-50, 50)
AMOUNTS = st.dictionaries(st.sampled_from(NAMES), NUMBERS)


def plain(vector: Vector) -> dict[str, int]:
    return dict(vector.pairs())


def tally_of(amounts: dict[str, int]) -> Tally:
    tally = Tally()
    tally.add(from_amounts(amounts))
    return tally


def parse_limits(quantities: Mapping[str, object], stock: bool = False) -> Limits:
    """Limits from Kubernetes quantities; zero stays listed, because it means none."""
    return Limits({name: dimension(name).parse(value) for name, value in quantities.items()}, stock)
