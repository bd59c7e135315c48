"""A leader whose loop is busy most of the time, in code that does not hand over the interpreter lock.

Prints the process of the election, then ``leading``, then ``kept`` if it led in one term through so many stretches of
work, else ``lost``. Then it waits for its end.
"""

import asyncio
import sys
import time

from bursar.kube.client.api import Api
from bursar.kube.client.http import Http
from bursar.kube.client.kubeconfig import load
from bursar.kube.client.lease import Timing
from tests.kube.client.frozen_leader import election
from tests.kube.waiting import eventually

TIMING = Timing(9.0, 7.0, 0.3)
STRETCH = 2.5
STEP = 5_000_000


def work() -> None:
    """As long as a long decision, in calls that each keep the lock."""
    until = time.monotonic() + STRETCH
    while time.monotonic() < until:
        sum(range(STEP))


def say(what: object) -> None:
    print(what, flush=True)  # noqa: T201 read by the test


async def main(kubeconfig: str, how: str, stretches: int) -> None:
    async with Http(load(kubeconfig)) as http:
        elector = election(Api(http), kubeconfig, "busy", child=how == "child", timing=TIMING)
        running = asyncio.create_task(elector.run())
        await eventually(lambda: elector.leading)
        process = getattr(elector, "process", None)
        say(0 if process is None else process.pid)
        say("leading")
        term = elector.term
        for _ in range(stretches):
            work()
            await asyncio.sleep(0)
        say("kept" if elector.leading and elector.term == term else "lost")
        await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
