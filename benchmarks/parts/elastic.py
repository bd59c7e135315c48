"""Part elastic: 1,000 quotas and 100,000 claims, 10,000 of them over-quota; charges, and decisions that preempt."""

from collections.abc import Iterator

from benchmarks.children import COMPILED, INTERPRETED, measure
from benchmarks.rows import AT_MOST, Row

_QUOTAS, _EACH = 1_000, 100
_CHARGES = 200_000
_MILLISECONDS = 2


def rows() -> Iterator[Row]:
    for mode, count in ((COMPILED, 20_000), (INTERPRETED, 3_000)):
        found = measure("benchmarks.work.elastic:charges", mode, quotas=_QUOTAS, each=_EACH, count=count)
        goal = _CHARGES if mode == COMPILED else None
        yield Row(f"check+charge+release, no journal, {mode}", found["cycles"], "cycles/s", goal)
    for mode, count in ((COMPILED, 200), (INTERPRETED, 10)):
        found = measure("benchmarks.work.elastic:preemptions", mode, quotas=_QUOTAS, each=_EACH, count=count)
        goal = _MILLISECONDS if mode == COMPILED else None
        name = f"preempt one of {found['over']:,.0f} over-quota claims, {mode}"
        yield Row(f"{name}, median", found["milliseconds"], "ms", goal, AT_MOST)
        yield Row(f"{name}, the first after the load", found["first"], "ms")
        yield Row(f"{name}, worst", found["worst"], "ms")
