"""Quantity parses a second, beside the naive parser with fractions that the tests compare with."""

from benchmarks.timing import rate
from bursar.quantity import MILLI, UNIT, parse
from tests.reference_models.quantity import parse as parse_with_fractions

TEXTS = ("100m", "2", "1500m", "0.5", "24Gi", "512Mi", "1.5Gi", "8", "2k", "100M", "1e3", "250m")
_ROUNDS = 2_000
_NAIVE_ROUNDS = 200


def parses() -> dict[str, float]:
    """Both parsers in one run, in turn at both resolutions."""
    return {"parses": rate(_exact), "naive": rate(_naive)}


def _exact() -> int:
    for _ in range(_ROUNDS):
        for text in TEXTS:
            parse(text, MILLI)
            parse(text, UNIT)
    return _ROUNDS * len(TEXTS) * 2


def _naive() -> int:
    for _ in range(_NAIVE_ROUNDS):
        for text in TEXTS:
            parse_with_fractions(text, MILLI, False)
            parse_with_fractions(text, UNIT, False)
    return _NAIVE_ROUNDS * len(TEXTS) * 2
