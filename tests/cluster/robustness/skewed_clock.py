"""``bursar`` with a wall clock that is wrong by so many seconds: ``python skewed_clock.py 3600 controller ...``.

What runs is the command line as it is; only the answers of ``time.time``, ``time.time_ns`` and ``datetime.now`` are
shifted, in every module of the controller. Clocks that count from the machine's start stay: a wrong date is nothing to
them.
"""

import sys
import time
from datetime import datetime, timedelta, tzinfo

import bursar.cli.main
import bursar.kube.controller.main

BILLION = 1_000_000_000


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
    skew(int(sys.argv.pop(1)))
    bursar.cli.main.main()
