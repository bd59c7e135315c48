"""Part server: durable decisions, answers over HTTP, restarts, memory; by the clock, because much of it is waiting."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.children import COMPILED, measure
from benchmarks.rows import AT_MOST, Row
from benchmarks.timing import say

_RATE = 10_000
_MILLISECONDS = 20
_SECONDS = 5
_MEGABYTES = 400
_CALLERS, _PAIRS = 64, 600  # pairs by each caller
_ALONE = 2_000
_OVER_HTTP = 16
_REQUESTS = 250  # by each caller over HTTP
_ASKED_OF, _ASKED_TEAMS, _QUESTIONS = 10_000, 1_000, 500
_RECORDS, _STANDING = 1_000_000, 10_000
_PODS, _QUOTAS = 100_000, 10_000


def rows() -> Iterator[Row]:
    yield from _durable()
    yield from _over_http()
    yield from _answers()
    yield from _restart()
    yield from _memory()


def _durable() -> Iterator[Row]:
    found = measure("benchmarks.work.storing:durable", COMPILED, callers=_CALLERS, pairs=_PAIRS)
    yield Row(f"durable decisions, {_CALLERS} callers, full sync", found["rate"], "decisions/s", _RATE)
    yield Row("the same, p50 of a caller's wait", found["p50"], "ms")
    yield Row("the same, p99 of a caller's wait", found["p99"], "ms", _MILLISECONDS, AT_MOST)
    plain = measure("benchmarks.work.storing:one_by_one", COMPILED, records=_ALONE)
    yield Row("a commit for each record, plain SQLite", plain["rate"], "records/s")
    yield Row(f"{_CALLERS} callers against that", found["rate"] / plain["rate"], "times")
    alone = measure("benchmarks.work.storing:durable", COMPILED, callers=1, pairs=_PAIRS)
    yield Row("durable decisions, one caller", alone["rate"], "decisions/s")


def _over_http() -> Iterator[Row]:
    found = measure("benchmarks.work.serving:over_http", COMPILED, callers=_OVER_HTTP, each=_REQUESTS)
    yield Row(f"pods applied over HTTP, {_OVER_HTTP} callers", found["rate"], "pods/s")
    yield Row("the same, p50 of a caller's wait", found["p50"], "ms")
    yield Row("the same, p99 of a caller's wait", found["p99"], "ms")


def _answers() -> Iterator[Row]:
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "bursar.db")
        filled = measure("benchmarks.work.serving:fill", COMPILED, path=path, pods=_ASKED_OF, teams=_ASKED_TEAMS)
        yield Row("objects applied, 500 at a time", filled["rate"], "objects/s")
        sizes = {"pods": _ASKED_OF, "teams": _ASKED_TEAMS, "times": _QUESTIONS}
        found = measure("benchmarks.work.serving:asking", COMPILED, path=path, **sizes)
        of = f"of {_ASKED_OF:,} claims, over HTTP"
        yield Row(f"explain one {of}, p99", found["explain"], "ms", _MILLISECONDS, AT_MOST)
        yield Row("explain one that waits, p99", found["explain_waiting"], "ms", _MILLISECONDS, AT_MOST)
        yield Row("what if one more pod came, p99", found["what_if"], "ms", _MILLISECONDS, AT_MOST)
        inside = measure("benchmarks.work.serving:answering", COMPILED, path=path, **sizes)
        yield Row("explain one, processor time without HTTP, p99", inside["explain"], "ms")
        yield Row("explain one that waits, the same, p99", inside["explain_waiting"], "ms")
        yield Row("what if one more pod came, the same, p99", inside["what_if"], "ms")
        yield Row("list 500 claims, p99", found["list"], "ms")
        yield Row("explain with a search for fixes, longest of 10", found["fixes"], "ms")


def _restart() -> Iterator[Row]:
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "bursar.db")
        say(f"   writing {_RECORDS:,} records")
        filled = measure("benchmarks.work.storing:fill", COMPILED, path=path, records=_RECORDS, standing=_STANDING)
        yield Row("a record on the disk", filled["bytes"], "bytes")
        whole = measure("benchmarks.work.storing:restart", COMPILED, path=path)
        yield Row(f"restart, {_RECORDS:,} records, no snapshot", whole["seconds"], "s", _SECONDS, AT_MOST)
        yield Row("the same, processor time of this process", whole["processor"], "s")
        say("   taking a snapshot")
        taken = measure("benchmarks.work.storing:snapshot", COMPILED, path=path)
        yield Row("a snapshot of it, beside the engine", taken["seconds"], "s")
        short = measure("benchmarks.work.storing:restart", COMPILED, path=path)
        yield Row("restart from that snapshot", short["seconds"], "s")


def _memory() -> Iterator[Row]:
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "bursar.db")
        say(f"   giving a server {_PODS:,} pods and {_QUOTAS:,} quotas")
        found = measure("benchmarks.work.serving:memory", COMPILED, path=path, pods=_PODS, teams=_QUOTAS)
        name = f"memory, {_PODS:,} pods, {_QUOTAS:,} quotas"
        yield Row("memory of a server with nothing in it", found["empty"], "MB")
        yield Row(f"{name}, as they came", found["megabytes"], "MB", _MEGABYTES, AT_MOST)
        yield Row("memory of the auditor beside it", found["auditor"], "MB")
        again = measure("benchmarks.work.serving:reopened", COMPILED, path=path, pods=_PODS)
        yield Row(f"{name}, after a restart", again["megabytes"], "MB", _MEGABYTES, AT_MOST)
        yield Row("that restart, with the server's own snapshots", again["seconds"], "s")
