"""Part store: durable decisions of many callers, and restarts from a long journal, compiled."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.children import COMPILED, measure
from benchmarks.rows import AT_MOST, Row
from benchmarks.timing import say

_RATE = 10_000
_MILLISECONDS = 20
_SECONDS = 5
_CALLERS = 64
_PAIRS = 600  # by each caller
_RECORDS = 1_000_000
_STANDING = 10_000


def rows() -> Iterator[Row]:
    yield from _durable()
    yield from _restart()


def _durable() -> Iterator[Row]:
    found = measure("benchmarks.work.storing:durable", COMPILED, callers=_CALLERS, pairs=_PAIRS)
    yield Row(f"durable decisions, {_CALLERS} callers, full sync", found["rate"], "decisions/s", _RATE)
    yield Row("the same, p50 of a caller's wait", found["p50"], "ms")
    yield Row("the same, p99 of a caller's wait", found["p99"], "ms", _MILLISECONDS, AT_MOST)
    alone = measure("benchmarks.work.storing:durable", COMPILED, callers=1, pairs=_PAIRS)
    yield Row("durable decisions, one caller", alone["rate"], "decisions/s")


def _restart() -> Iterator[Row]:
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "bursar.db")
        say(f"   writing {_RECORDS:,} records")
        filled = measure("benchmarks.work.storing:fill", COMPILED, path=path, records=_RECORDS, standing=_STANDING)
        yield Row("a record on the disk", filled["bytes"], "bytes")
        whole = measure("benchmarks.work.storing:restart", COMPILED, path=path)
        yield Row(f"restart, {_RECORDS:,} records, no snapshot", whole["seconds"], "s", _SECONDS, AT_MOST)
        yield Row("the same, processor time", whole["processor"], "s")
        yield Row(f"the same, memory of {_STANDING:,} claims that stand", whole["memory"], "MB")
        say("   taking a snapshot")
        taken = measure("benchmarks.work.storing:snapshot", COMPILED, path=path)
        yield Row("a snapshot of it, beside the engine", taken["seconds"], "s")
        short = measure("benchmarks.work.storing:restart", COMPILED, path=path)
        yield Row("restart from that snapshot", short["seconds"], "s")
