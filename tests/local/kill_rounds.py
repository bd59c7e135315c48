"""Kills what carries jobs, at random instants, and checks that no GPU is lost or given twice: ``make kill-rounds``.

    python3 -m tests.local.kill_rounds [--rounds 100] [--seed N]

In each round jobs with GPUs are queued, and one of these happens: kill -9 of a client, a shim, a process of a job, the
server or the agent, which are processes of their own; a restart as systemd does it (SIGTERM to one unit only); a
logout (all processes of the sessions in which clients were started). A job holds a file lock for each of its GPUs in
all its processes, so a GPU that is handed out too early is seen by the next job. In the end all GPUs are free, no
process is left and the audit is clean.
The GPUs are fakes; processes, cgroups and signals are real.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.device.check_bed import Bed, CheckError, Client, must, until
from tests.device.fake.fake_nvml import h200, machine

CARDS = 4
JOBS = 5  # that wait or run at a time
ACTIVE = {"Pending", "Running", "Terminating"}

# Each process of the job keeps the locks of its GPUs; one of them ignores SIGTERM and left the session.
SCRIPT = """
at=5
for gpu in $(echo $CUDA_VISIBLE_DEVICES | tr , ' '); do
  at=$((at + 1))
  eval "exec $at> $LOCKS/$gpu"
  flock -n $at || echo $BURSAR_JOB $gpu >> $LOCKS/twice
done
setsid sh -c 'trap "" TERM; sleep "$1"; sleep 600' - $1 &
sleep $1
exit $2
"""


class KillRounds:
    """One machine under fire."""

    def __init__(self, bed: Bed, seed: int) -> None:
        self._bed = bed
        self._dice = random.Random(seed)
        self._locks = bed.folder / "locks"
        self._locks.mkdir()
        bed.environment["LOCKS"] = str(self._locks)
        self.done: Counter[str] = Counter()
        self._strikes: dict[str, Callable[[], bool]] = {
            "client": self._client,
            "shim": self._shim,
            "job": self._job,
            "server": self._server,
            "agent": self._agent,
            "restart": self._restart,
            "logout": self._logout,
        }

    def run(self, rounds: int) -> None:
        self._bed.start()
        for number in range(rounds):
            while len(self._active()) < JOBS and self._waiting_to_queue() < JOBS:
                self._queue()
            time.sleep(self._dice.random() * 0.7)
            names = self._dice.sample(sorted(self._strikes), len(self._strikes))
            self.done[next(name for name in names if self._strikes[name]())] += 1
            twice = self._locks / "twice"
            must(not twice.exists(), f"round {number}: given twice: {twice.exists() and twice.read_text()}")
        self._end()

    # Jobs

    def _queue(self) -> None:
        dice = self._dice
        options = ["--gpus", str(dice.choice([1, 1, 2, CARDS])), "--grace", "100ms"]
        options += ["--requeue"] if dice.random() < 0.2 else []
        options += ["--detach"] if dice.random() < 0.2 else []
        work = ["sh", "-c", SCRIPT, "job", f"{dice.random() * 2:.2f}", str(dice.choice([0, 0, 3]))]
        self._bed.client(*options, command=work)

    def _waiting_to_queue(self) -> int:
        """Clients that live: some have not queued their job yet."""
        return sum(client.process.poll() is None for client in self._bed.clients)

    def _active(self) -> list[dict[str, Any]]:
        """As the server has them; nothing while it does not answer."""
        environment = self._bed.environment
        request = urllib.request.Request(  # noqa: S310 our own server
            f"{environment['BURSAR_SERVER']}/api/v1/claims?limit=1000",
            headers={"Authorization": f"Bearer {environment['BURSAR_TOKEN']}"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 as above
            found: list[dict[str, Any]] = json.load(answer)["items"]
        return [one for one in found if one["phase"] in ACTIVE]

    # Strikes: False where there is nothing to strike

    def _client(self) -> bool:
        alive: list[Client] = [one for one in self._bed.clients if one.process.poll() is None]
        if not alive:
            return False
        return self._kill(self._dice.choice(alive).process.pid)

    def _shim(self) -> bool:
        """A fork of a client that leads a session of its own."""
        clients = {client.process.pid for client in self._bed.clients}
        pids = [pid for pid in self._bed.left() if pid not in clients and b"bursar\0run" in _command(pid)]
        return bool(pids) and self._kill(self._dice.choice(sorted(pids)))

    def _job(self) -> bool:
        pids = [pid for pid in self._bed.left() if b"bursar\0run" not in _command(pid)]
        return bool(pids) and self._kill(self._dice.choice(sorted(pids)))

    def _kill(self, pid: int) -> bool:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return True

    def _server(self) -> bool:
        self._bed.end_server(signal.SIGKILL)
        time.sleep(self._dice.random() * 0.5)
        self._bed.start()
        return True

    def _agent(self) -> bool:
        self._bed.end_agent(signal.SIGKILL)
        time.sleep(self._dice.random() * 0.5)
        self._bed.start()
        return True

    def _restart(self) -> bool:
        if self._dice.random() < 0.5:
            self._bed.end_server(signal.SIGTERM)
        else:
            self._bed.end_agent(signal.SIGTERM)
        self._bed.start()
        return True

    def _logout(self) -> bool:
        """As systemd ends a session: all that is in it, at once. Shims and jobs have left it."""
        sessions = {client.process.pid for client in self._bed.clients if client.process.poll() is None}
        for pid in self._bed.every():
            with suppress(ProcessLookupError):
                if os.getsid(pid) in sessions:
                    os.kill(pid, signal.SIGKILL)
        return bool(sessions)

    # The end

    def _end(self) -> None:
        bed = self._bed
        for client in bed.clients:
            client.process.terminate()
        names = [f"{one['namespace']}/{one['name']}" for one in self._active()]
        for name in names:
            bed.bursar("stop", "--now", name, code=None)
        until("no job waits or runs", lambda: not self._active())
        must(not (self._locks / "twice").exists(), "a GPU was given twice")
        everything = bed.client("--gpus", str(CARDS), command=["sh", "-c", SCRIPT, "job", "0.1", "0"])
        must(everything.code() == 0, f"a job of all GPUs: {everything.err}")
        until("it is gone", lambda: not self._active())
        until("all are free", lambda: not any(gpu["jobs"] or gpu["strays"] or gpu["out"] for gpu in bed.gpus()))
        bed.end_agent(signal.SIGTERM)
        bed.end_server(signal.SIGTERM)
        until("no process is left", lambda: not bed.left())
        bed.bursar("audit", str(bed.folder / "bursar.db"))
        must(not list((bed.folder / "agent/jobs").iterdir()), "records of jobs are left")


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def rounds_of(rounds: int, seed: int) -> Counter[str]:
    """What was struck how often; ``CheckError`` for anything that must not be."""
    bed = Bed(machine(*(h200(index) for index in range(CARDS))), None, apart=True)
    try:
        fire = KillRounds(bed, seed)
        fire.run(rounds)
    except CheckError:
        for name in ("server.log", "agent.log"):
            sys.stderr.write((bed.folder / name).read_text(encoding="utf-8")[-6000:])
        raise
    finally:
        bed.close()
    return fire.done


def main(arguments: list[str]) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args(arguments)
    began = time.monotonic()
    try:
        struck = rounds_of(given.rounds, given.seed)
    except CheckError as error:
        sys.stdout.write(f"seed {given.seed}: FAILED: {error}\n")
        return 1
    what = ", ".join(f"{name} {count}" for name, count in sorted(struck.items()))
    text = f"{given.rounds} rounds (seed {given.seed}; {what}): no GPU lost or given twice, no process left"
    sys.stdout.write(f"{text}; {time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
