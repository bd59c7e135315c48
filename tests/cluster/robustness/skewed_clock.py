"""``bursar`` with a wall clock that is wrong by so many seconds: ``python skewed_clock.py 3600 controller ...``.

What runs is the command line as it is; only the answers of ``time.time``, ``time.time_ns`` and ``datetime.now`` are
shifted, in every module of the controller and of the child process that renews its lease, which is this program again.
Clocks that count from the machine's start stay: a wrong date is nothing to them.
"""

import asyncio
import os
import sys
import time
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import bursar.cli.main
import bursar.kube.client.election_child
import bursar.kube.controller.main
from bursar.kube.client import election

BILLION = 1_000_000_000
SECONDS = "BURSAR_TEST_SKEW"  # tells the child


def skew(seconds: int) -> None:
    """From now on the wall clock is that far ahead, or (negative) behind."""
    right, right_ns = time.time, time.time_ns

    class Skewed(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(seconds=seconds)

    time.time = lambda: right() + seconds
    time.time_ns = lambda: right_ns() + seconds * BILLION
    for name, module in list(sys.modules.items()):
        if name.startswith("bursar.") and getattr(module, "datetime", None) is datetime:
            vars(module)["datetime"] = Skewed


if __name__ == "__main__":
    if SECONDS in os.environ:
        skew(int(os.environ[SECONDS]))
        asyncio.run(bursar.kube.client.election_child.main())
    else:
        os.environ[SECONDS] = sys.argv.pop(1)
        skew(int(os.environ[SECONDS]))
        vars(election)["CHILD"] = Path(__file__).stem  # found where this program lies
        bursar.cli.main.main()
