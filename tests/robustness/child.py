"""A process that decides, commits and acknowledges until somebody kills it.

Each batch holds the journal lines of a decision (or two) and two objects with the same number. What was acknowledged is
printed as ``<last record> <number>``, one line each, after the commit returned. Snapshots and backups are taken
meanwhile.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from random import Random

from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim
from bursar.store.committer import GroupCommitter
from bursar.store.snapshots import restore, take
from bursar.store.store import Batch, ObjectWrite, Store
from bursar.store.upkeep import backup
from tests.engine.machine import new_engine, room_setting
from tests.engine.toy_policies import spec

_CALLERS = 4
_BETWEEN_SNAPSHOTS = 0.05


class Load:
    """Several callers that decide and release over one engine and one store."""

    def __init__(self, store: Store, name: str, seed: int) -> None:
        self.engine: Engine = new_engine()
        restore(store, self.engine)
        self.store = store
        self.committer = GroupCommitter(store)
        self.name = name
        self.rng = Random(seed)
        self.count = 0
        self.now = self.engine.version
        if not self.engine.version:
            rooms = [room_setting("teams", "a", 40, 10), room_setting("hosts", "h1", 30, 30)]
            self.engine.configure(rooms, self.now)
            self.committer.commit(Batch(self.engine.journal.take()))

    def run(self) -> None:
        for _ in range(_CALLERS):
            threading.Thread(target=self._call, daemon=True).start()
        copy = self.store.path.with_name("copy.db")
        fresh = copy.with_name(f"fresh-{self.name}.db")
        while True:
            threading.Event().wait(_BETWEEN_SNAPSHOTS)
            take(self.store)
            backup(self.store.path, fresh)
            fresh.replace(copy)

    def _call(self) -> None:
        while True:
            with self.engine.lock:
                self.count += 1
                number = f"{self.name}-{self.count}"
                self._change(number)
                body = number.encode()
                objects = [ObjectWrite("Side", f"{side}/{number}", self.count, body) for side in ("left", "right")]
                future = self.committer.submit(Batch(self.engine.journal.take(), objects, self.now))
            os.write(1, f"{future.result()} {number}\n".encode())

    def _change(self, number: str) -> None:
        """One or two records: claims come and go, the full host makes for victims and holds."""
        self.now += 1
        claims = self.engine.state.claims
        for uid in [uid for uid, claim in claims.items() if claim.leaving][:1]:
            self.engine.release(uid, self.now)
        if len(claims) > 20:
            self.engine.release(self.rng.choice(sorted(claims)), self.now)
        wants = {"cpu": 1 + self.rng.randrange(4)}
        self.engine.decide(Claim(number, spec(wants, {"teams": "a"}, self.rng.randrange(5)), self.now, "ns"), self.now)


def main(path: Path, name: str, seed: int) -> None:
    store = Store.open(path) if path.exists() else Store.create(path)
    load = Load(store, name, seed)
    os.write(1, b"ready\n")
    load.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
