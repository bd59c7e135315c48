"""Kill -9 at random instants: nothing acknowledged is lost, nothing is half applied, the journal audits clean.

Backups are made meanwhile: the last one, restored, is the store as it was then.

``python -m tests.robustness.kill --rounds 200`` is the long form of ``test_kill``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bursar.audit.auditor import Auditor
from bursar.store import upkeep
from bursar.store.snapshots import restore
from bursar.store.store import Store
from tests.engine.machine import new_engine

ROOT = Path(__file__).resolve().parent.parent.parent
MOST_AWAITED = 30  # acknowledged before the instant is chosen: on a slow machine, too, there is something to lose


@dataclass
class Killer:
    """One store that lives through many deaths."""

    path: Path
    seed: int
    auditor: Auditor = field(default_factory=Auditor)
    rounds: int = 0
    acknowledged: int = 0
    unacknowledged: int = 0
    restored: int = 0

    def round(self) -> None:
        self.rounds += 1
        rng = Random(self.seed * 1000 + self.rounds)
        acks = self._live_and_die(rng)
        if self.path.exists():
            self._judge(acks)
            self._judge_backup()

    def _live_and_die(self, rng: Random) -> dict[str, int]:
        """Start the child, kill it at some instant; what it acknowledged, with the record it named."""
        command = [sys.executable, "-m", "tests.robustness.child", str(self.path), f"r{self.rounds}", str(self.seed)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            heard = b""
            if rng.randrange(8):  # mostly under load, sometimes while it starts
                first = child.stdout.readline()
                assert first == b"ready\n", "the child did not start"
                heard = b"".join(child.stdout.readline() for _ in range(rng.randrange(MOST_AWAITED)))
                if self.rounds % 2:
                    self._await_backup()
                time.sleep(rng.random() * 0.15)
            else:
                time.sleep(rng.random() * 0.6)
            child.kill()
            heard += child.stdout.read()
        words = [line.split() for line in heard.splitlines() if line != b"ready"]
        whole = words if heard.endswith(b"\n") or not words else words[:-1]
        return {number.decode(): int(seq) for seq, number in whole}

    def _await_backup(self) -> None:
        end = time.monotonic() + 60
        while not self.path.with_name("copy.db").exists() and time.monotonic() < end:
            time.sleep(0.01)

    def _judge(self, acks: dict[str, int]) -> None:
        with Store.open(self.path) as store:
            assert max(acks.values(), default=0) <= store.last_seq, "an acknowledged record is not there"
            sides: dict[str, set[str]] = {"left": set(), "right": set()}
            for kind, key, _version, body in store.objects():
                if kind != "Side":
                    continue
                side, _, number = key.partition("/")
                assert body == number.encode()
                sides[side].add(number)
            assert sides["left"] == sides["right"], "half of a batch is there"
            missing = set(acks) - sides["left"]
            assert not missing, f"acknowledged, but lost: {sorted(missing)[:5]}"
            decided = self._audit(store)
            mine = {number for number in sides["left"] if number.startswith(f"r{self.rounds}-")}
            assert decided == mine, "objects without their records, or records without their objects"
            self.acknowledged += len(acks)
            self.unacknowledged += len(mine) - len(acks)
            engine = new_engine()
            restore(store, engine)
            assert f"{engine.digest:016x}" == self.auditor.digest

    def _judge_backup(self) -> None:
        copy, target = self.path.with_name("copy.db"), self.path.with_name("restored.db")
        if not copy.exists():
            return
        upkeep.restore(copy, target)
        with Store.open(target) as restored, Store.open(self.path, read_only=True) as store:
            count = restored.last_seq
            assert list(restored.load_journal()) == list(store.load_journal(1, count)), "a backup of another history"
            assert list(restored.objects()) == list(store.objects_at(store.last_entry("seq", count)[0]))
            engine = new_engine()
            restore(restored, engine)
        for path in (copy, target):
            path.unlink()
        self.restored += 1

    def _audit(self, store: Store) -> set[str]:
        """Check the records of this round; who was decided in them."""
        before = self.auditor.counts["claims"]
        decided: set[str] = set()
        for line in store.load_journal(self.auditor.seq + 1):
            self.auditor.feed(line)
            decided |= {uid for uid in self.auditor.claims if uid.startswith(f"r{self.rounds}-")}
        assert self.auditor.counts["claims"] - before == len(decided)
        return decided


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        killer = Killer(Path(folder) / "bursar.db", arguments.seed)
        for _ in range(arguments.rounds):
            killer.round()
            sys.stderr.write(f"\r{killer.rounds} of {arguments.rounds} rounds, {killer.acknowledged:,} acknowledged")
        sys.stderr.write("\n")
        sys.stdout.write(
            f"seed {killer.seed}: {killer.rounds} kills, {killer.acknowledged:,} acknowledged batches all there, "
            f"{killer.unacknowledged} more were durable unacknowledged, none half applied, "
            f"{killer.auditor.seq:,} records audited clean, {killer.restored:,} backups restored equal\n"
        )


if __name__ == "__main__":
    main()
