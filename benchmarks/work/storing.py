"""Durable decisions and restarts: the engine of part engine, with a store behind it.

Callers are threads. Each decides or releases a claim under the engine's lock, hands the journal line to the group
committer and waits until it is on the disk; that wait is the latency. Both calls are decisions with a record.
"""

import sqlite3
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from benchmarks.timing import collector
from benchmarks.work.deciding import new_claims, resident
from benchmarks.work.tree import LEAVES, TreePolicy
from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim
from bursar.policies.results import Setting
from bursar.store.committer import GroupCommitter
from bursar.store.snapshots import restore, take
from bursar.store.store import Batch, Store

_POLICY = "tree"
_TOGETHER = 1_000  # pairs a transaction when a journal is made


def _engine() -> Engine:
    return Engine([TreePolicy(_POLICY, LEAVES)])


def _configured() -> Engine:
    engine = _engine()
    engine.configure([Setting(f"{_POLICY}.Tree", "all", None)])
    return engine


def durable(callers: int, pairs: int) -> dict[str, float]:
    """Acknowledged decisions a second and their latencies in milliseconds; each caller makes so many pairs."""
    with TemporaryDirectory() as folder:
        store = Store.create(Path(folder) / "bursar.db")
        committer = GroupCommitter(store)
        engine = _configured()
        committer.commit(Batch(engine.journal.take()))
        supply = new_claims(LEAVES)
        latencies: list[float] = []
        work = [list(islice(supply, pairs)) for _ in range(callers)]
        threads = [Thread(target=_call, args=(engine, committer, claims, latencies)) for claims in work]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
        assert store.last_seq == 1 + 2 * callers * pairs
        committer.close()
    latencies.sort()
    count = len(latencies)
    return {"rate": count / seconds, "p50": latencies[count // 2] * 1e3, "p99": latencies[count * 99 // 100] * 1e3}


def _call(engine: Engine, committer: GroupCommitter, claims: list[Claim], latencies: list[float]) -> None:
    for claim in claims:
        for release in (False, True):
            begun = time.perf_counter()
            with engine.lock:
                if release:
                    engine.release(claim.uid, 2)
                else:
                    engine.decide(claim, 1)
                future = committer.submit(Batch(engine.journal.take()))
            future.result()
            latencies.append(time.perf_counter() - begun)


def one_by_one(records: int) -> dict[str, float]:
    """The same records with a commit for each, in plain SQLite: what a caller gets who shares no wait."""
    engine = _configured()
    for claim in islice(new_claims(LEAVES), records):
        engine.decide(claim, 1)
    lines = engine.journal.take()
    with TemporaryDirectory() as folder:
        db = sqlite3.connect(Path(folder) / "plain.db", isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE journal (seq INTEGER PRIMARY KEY, line BLOB NOT NULL) STRICT")
        started = time.perf_counter()
        for seq, line in enumerate(lines):
            db.execute("INSERT INTO journal VALUES (?, ?)", (seq, line))
        seconds = time.perf_counter() - started
        db.close()
    return {"rate": len(lines) / seconds}


def fill(path: str, records: int, standing: int) -> dict[str, float]:
    """A store with so many records: claims come and go, and so many of them stay."""
    engine = _configured()
    supply = new_claims(LEAVES)
    with collector(False), Store.create(path) as store:
        store.commit(Batch(engine.journal.take()))
        for claim in islice(supply, standing):
            engine.decide(claim, 1)
        while engine.version < records:
            for claim in islice(supply, min(_TOGETHER, (records - engine.version + 1) // 2)):
                engine.decide(claim, 1)
                engine.release(claim.uid, 2)
            store.commit(Batch(engine.journal.take()))
        return {"records": store.last_seq, "bytes": Path(path).stat().st_size / store.last_seq}


def restart(path: str) -> dict[str, float]:
    """Seconds until a new engine has the state of a store."""
    engine = _engine()
    before = resident()
    started = time.perf_counter()
    worked = time.process_time()
    with Store.open(path) as store:
        replayed = restore(store, engine)
        assert engine.version == store.last_seq
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "processor": time.process_time() - worked,
        "replayed": replayed,
        "memory": (resident() - before) / 1e6,
    }


def snapshot(path: str) -> dict[str, float]:
    """Seconds that a snapshot takes, beside the engine."""
    started = time.perf_counter()
    with Store.open(path) as store:
        size = len(take(store).text())
    return {"seconds": time.perf_counter() - started, "megabytes": size / 1e6}
