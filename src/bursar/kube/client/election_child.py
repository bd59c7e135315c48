"""The child process of ``election``: holds the lease for its parent, for as long as that makes progress.

It reads one line with its task, and answers with the number of each term that begins and a dash when it is over. Then
``release`` gives the lease back. When its input ends without that, its parent has died or given it up: it ends at once,
and the lease ends by itself, because writes of the parent may still be under way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import Counter

import msgspec

from bursar.kube.client.api import Api
from bursar.kube.client.election import CALLS, RELEASE, ElectionCalls, ElectionTask, SharedPage
from bursar.kube.client.errors import ConfigError
from bursar.kube.client.http import Call, Http
from bursar.kube.client.kubeconfig import load
from bursar.kube.client.lease import NO_TERM, Elector, announced_term, steady

OVER = "-"


def elector_of(task: ElectionTask, api: Api, page: SharedPage) -> Elector:
    """The elector whose terms are announced on stdout, and whose deadline is on the page."""

    def started(term: int) -> None:
        page.term = term
        _say(str(term))

    def stopped() -> None:
        page.term = NO_TERM
        _say(OVER)

    def extended(until: float) -> None:
        page.until = until

    made = Elector(api, task.lease, task.namespace, task.identity, timing=task.timing, started=started, stopped=stopped)
    made.extended = extended
    made.alive = lambda: steady() - page.progress < task.timing.renew_deadline
    if task.access.fence:
        made.floor = lambda: announced_term(api, task.namespace, task.access.fence)
    return made


def _say(line: str) -> None:
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)


async def elect(task: ElectionTask, http: Http, lines: asyncio.StreamReader) -> None:
    """Take part until the parent says ``release`` or is gone."""
    election = asyncio.create_task(elector_of(task, Api(http), SharedPage(task.file)).run())
    counting = asyncio.create_task(report_calls(http, task.timing.retry_period))
    if await lines.readline() != RELEASE:
        os._exit(0)
    election.cancel()
    counting.cancel()
    await asyncio.wait([election, counting])


async def report_calls(http: Http, period: float) -> None:
    """Say which calls were made and failed, for the parent's metrics."""
    calls: Counter[Call] = Counter()
    failures: Counter[tuple[Call, int]] = Counter()
    while True:
        made = [(*call, count) for call, count in (http.calls - calls).items()]
        failed = [(*call, code, count) for (call, code), count in (http.failures - failures).items()]
        calls, failures = http.calls.copy(), http.failures.copy()
        if made or failed:
            _say((CALLS + msgspec.json.encode(ElectionCalls(made, failed))).decode())
        await asyncio.sleep(period)


async def main() -> None:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    task = msgspec.json.decode(await lines.readline(), type=ElectionTask)
    level = logging.INFO if task.access.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    async with Http(load(task.access.kubeconfig, task.access.context)) as http:
        await elect(task, http, lines)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except ConfigError as error:
        sys.exit(f"the election cannot reach the cluster: {error}")
