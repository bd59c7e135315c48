"""Part local: real jobs of one machine; by the clock, because much of it is processes that start and wait."""

from collections.abc import Iterator

from benchmarks.children import COMPILED, measure
from benchmarks.rows import AT_MOST, Row

_RUNS = 9
_MORE_MILLISECONDS = 150
_REAL, _BARE, _GRANTS = 20, 980, 9
_GRANT_MILLISECONDS = 50
_MEGABYTES = 30


def rows() -> Iterator[Row]:
    found = measure("benchmarks.work.local_jobs:starting", COMPILED, runs=_RUNS)
    yield Row("bursar version", found["version"], "ms")
    yield Row("bursar run -- true", found["run"], "ms")
    yield Row("the same beyond bursar version", found["more"], "ms", _MORE_MILLISECONDS, AT_MOST)
    yield Row("the same, the worst run", found["worst"], "ms")
    sizes = {"real": _REAL, "bare": _BARE, "grants": _GRANTS}
    found = measure("benchmarks.work.local_jobs:queued", COMPILED, **sizes)
    yield Row(f"{_REAL + _BARE:,} queued, grant after the GPU is seen free", found["median"], "ms",
              _GRANT_MILLISECONDS, AT_MOST)  # fmt: skip
    yield Row("the same, the longest", found["worst"], "ms")
    yield Row("memory of a waiting client", found["memory"], "MB", _MEGABYTES, AT_MOST)
