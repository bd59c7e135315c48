"""The crash test: load over HTTP, kill -9 at a random instant, start again; for as many rounds as asked for.

What must hold after each kill, read from the file alone: every acknowledged change is there, every change is there as a
whole or not at all, and an independent audit of the journal finds nothing. Backups are made meanwhile: each one that
arrived whole, restored, is the store as it was when it began or later.

``python -m tests.server.crash --rounds 200`` is the long run.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from bursar.audit.auditor import Auditor
from bursar.policies.plugin import default_registry
from bursar.server import time_travel
from bursar.server.client import Client, RequestFailedError
from bursar.sim.cluster import Cluster
from bursar.sim.pods import ENDED
from bursar.store import upkeep
from bursar.store.store import Store
from tests.server.live import node, pod, quota, text

CALLERS = 4
START_SECONDS = 120


@dataclass
class Promises:
    """What callers were told. ``present`` and ``absent`` are numbers of pairs of pods."""

    present: set[int] = field(default_factory=set)
    absent: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)  # no answer came
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Summary:
    rounds: int
    acknowledged: int
    unanswered: int
    records: int
    backups: int


class Process:
    """A server in a process of its own."""

    def __init__(self, data: Path) -> None:
        command = [sys.executable, "-m", "bursar", "serve", "--data", str(data), "--port", "0"]
        command += ["--log-level", "warning"]  # nothing reads what it logs, and a pipe holds little
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_env()
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "serves http" not in line:
            raise AssertionError(f"the server does not start: {line}{self._process.stdout.read()}")
        self.address = line.split()[2]

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _env() -> dict[str, str]:
    source = Path(time_travel.__file__).parents[2]
    return {**os.environ, "PYTHONPATH": str(source)}


def pair(number: int) -> list[str]:
    return [f"team-{number % 3}/w{number}-{side}" for side in ("a", "b")]


def call(address: str, numbers: list[int], promises: Promises) -> None:
    """Apply pairs, and delete some of them again, until the server is gone."""
    client = Client(address, timeout=START_SECONDS)
    number = -1
    try:
        for number in numbers:
            promises.unknown.add(number)
            keys = pair(number)
            client.apply(text(*(pod(key.partition("/")[0], key.partition("/")[2], runs_for="1h") for key in keys)))
            promises.unknown.discard(number)
            promises.present.add(number)
            if number % 4 == 0:
                promises.present.discard(number)
                promises.unknown.add(number)
                client.delete([f"Pod/{key}" for key in keys])
                promises.unknown.discard(number)
                promises.absent.add(number)
    except RequestFailedError as error:
        if error.status:
            promises.problems.append(f"pair {number}: {error}")


def save(address: str, folder: Path, found: list[tuple[Path, int]]) -> None:
    """Make one backup after the other until the server is gone; each with the record that it must have."""
    client = Client(address, timeout=START_SECONDS)
    while True:
        path = folder / f"{len(found)}.db"
        try:
            seq = client.info().moment.seq
            with path.open("wb") as file:
                file.writelines(client.backup())
        except RequestFailedError:
            return
        found.append((path, seq))


def check_backups(data: Path, found: list[tuple[Path, int]], folder: Path) -> int:
    """Restore the last one, and compare it with what the killed server left."""
    if found:
        path, seq = found[-1]
        upkeep.restore(path, folder / "restored.db")
        with Store.open(folder / "restored.db") as restored, Store.open(data, read_only=True) as store:
            lines = list(restored.load_journal())
            assert seq <= restored.last_seq <= store.last_seq, "the backup lacks what was durable when it began"
            assert lines == list(store.load_journal(1, len(lines))), "the backup has another history"
            there = time_travel.past(
                store, Cluster(default_registry(), manifests=store.manifest), time_travel.at_record(store, len(lines))
            )
            cluster = time_travel.present(restored, default_registry())
            assert cluster.engine.digest == there.engine.digest
            assert set(cluster.pods()) == set(there.pods())
    return len(found)


def check(data: Path, promises: Promises) -> tuple[Cluster, int]:
    """Read the file that a killed server left."""
    with Store.open(data, read_only=True) as store:
        cluster = time_travel.present(store, default_registry())
        there = set(cluster.pods())
        auditor = Auditor()
        for line in store.load_journal():
            auditor.feed(line)
        assert auditor.seq == store.last_seq == cluster.engine.version
    lost = [number for number in promises.present if not there.issuperset(pair(number))]
    risen = [number for number in promises.absent if there.intersection(pair(number))]
    assert not lost, f"acknowledged, and lost: pairs {lost}"
    assert not risen, f"acknowledged as deleted, and there: pairs {risen}"
    assert not promises.problems, promises.problems
    for number in promises.unknown:
        found = there.intersection(pair(number))
        assert len(found) in {0, 2}, f"half applied: {found}"
    claims = {claim.key for claim in cluster.engine.state.claims.values()}
    alive = {pod.key for key in there if (pod := cluster.doing(key)) is not None and pod.phase not in ENDED}
    assert claims == alive, f"objects and ledger differ: {claims ^ alive}"
    return cluster, cluster.engine.version


def run(data: Path, rounds: int, seed: int, *, talk: bool = False) -> Summary:
    rolled = random.Random(seed)
    promises = Promises()
    number, answered, unanswered, records, backups = 0, 0, 0, 0, 0
    for round_ in range(rounds):
        server = Process(data)
        if round_ == 0:
            Client(server.address).apply(
                text(*(node(f"n{i}", 8) for i in range(6)), *(quota(f"team-{i}", 16) for i in range(3)))
            )
        threads: list[Thread] = []
        for _ in range(CALLERS):
            numbers = list(range(number, number + 40))
            number += 40
            threads.append(Thread(target=call, args=(server.address, numbers, promises), daemon=True))
        folder = Path(tempfile.mkdtemp(dir=data.parent))
        saved: list[tuple[Path, int]] = []
        threads.append(Thread(target=save, args=(server.address, folder, saved), daemon=True))
        for thread in threads:
            thread.start()
        if round_ % 3:  # on a busy machine, too, most rounds must have something to lose
            _wait_for(promises, answered + 3, saved)
        time.sleep(rolled.uniform(0.01, 0.6))
        server.kill()
        for thread in threads:
            thread.join(START_SECONDS)
        unanswered += len(promises.unknown)
        _, records = check(data, promises)
        backups += check_backups(data, saved, folder)
        shutil.rmtree(folder)
        promises.unknown.clear()
        answered = len(promises.present) + len(promises.absent)
        if talk:
            print(f"round {round_ + 1}: {answered} pairs acknowledged, {records} records", flush=True)  # noqa: T201
    return Summary(rounds, answered, unanswered, records, backups)


def _wait_for(promises: Promises, count: int, saved: list[tuple[Path, int]]) -> None:
    """Until so many changes were acknowledged, and a backup was made."""
    end = time.monotonic() + START_SECONDS
    while (len(promises.present) + len(promises.absent) < count or not saved) and time.monotonic() < end:
        time.sleep(0.005)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(run(Path(folder) / "bursar.db", options.rounds, options.seed, talk=True))  # noqa: T201


if __name__ == "__main__":
    main()
