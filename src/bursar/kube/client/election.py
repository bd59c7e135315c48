"""Leader election in a child process, for a leader whose event loop may be busy for seconds.

Compiled code does not hand over the interpreter lock, so neither the loop nor a thread of this process renews a lease
while one long decision is made (docs/decisions/0015-lease-in-a-child-process.md). The child runs the ``Elector``, and
both share a page of memory:

* The loop writes the time of its last progress there. Once that is older than the renew deadline, the child renews no
  more: a process that hangs loses its lease.
* The child writes the term, and until when this process may write. ``remaining`` reads both at the moment of a write,
  so that a loop that was frozen is fenced before it has read a message of the child.

All times are of the same clock, which goes on while a process is stopped. The child ends when this process does, and
gives the lease back only when it is told to.
"""

from __future__ import annotations

import asyncio
import math
import mmap
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from bursar.kube.client.errors import Fenced
from bursar.kube.client.http import Backoff, Call, Http
from bursar.kube.client.lease import NO_TERM, Timing, steady

CHILD = "bursar.kube.client.election_child"
_PROGRESS, _UNTIL, _TERM = range(3)
_LAST_WORDS = 5.0  # seconds in which a child gives the lease back and ends
RELEASE = b"release\n"
CALLS = b"calls "


class Election(Protocol):
    """What a replica needs of an election; ``lease.Elector`` in its own process is another one."""

    term: int | None  # while leading

    @property
    def leading(self) -> bool: ...

    def remaining(self) -> float:
        """Seconds for which we may still write; raises ``Fenced``."""

    async def run(self) -> None:
        """Compete and lead until cancelled, then release the lease."""


class SharedPage:
    """What both processes see: numbers that one of them writes and the other reads, each at once."""

    def __init__(self, file: int) -> None:
        self.file = file
        self._numbers = memoryview(mmap.mmap(file, mmap.PAGESIZE)).cast("d")

    @staticmethod
    def create() -> SharedPage:
        file = os.memfd_create("bursar-election")
        os.truncate(file, mmap.PAGESIZE)
        page = SharedPage(file)
        page.term, page.until = NO_TERM, -math.inf
        return page

    def close(self) -> None:
        self._numbers.release()
        os.close(self.file)

    @property
    def progress(self) -> float:
        return self._numbers[_PROGRESS]

    @progress.setter
    def progress(self, now: float) -> None:
        self._numbers[_PROGRESS] = now

    @property
    def until(self) -> float:
        return self._numbers[_UNTIL]

    @until.setter
    def until(self, until: float) -> None:
        self._numbers[_UNTIL] = until

    @property
    def term(self) -> int:
        return int(self._numbers[_TERM])

    @term.setter
    def term(self, term: int) -> None:
        self._numbers[_TERM] = term


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Where the child finds the cluster: as ``kubeconfig.load`` takes it. ``fence``: the annotation with the term."""

    kubeconfig: str = ""
    context: str = ""
    fence: str = ""
    verbose: bool = False


class ElectionTask(msgspec.Struct, frozen=True):
    """What the child is told at its start, in one line."""

    access: ClusterAccess
    namespace: str
    lease: str
    identity: str
    timing: Timing
    file: int


class ElectionCalls(msgspec.Struct, frozen=True):
    """The calls that a child made since it last said so: (verb, group, resource, count), with the code of failures."""

    made: list[tuple[str, str, str, int]] = []
    failed: list[tuple[str, str, str, int, int]] = []


class ElectionChild:
    """Takes part in the election by a child process. Set ``http.gate = election.remaining``."""

    def __init__(
        self,
        http: Http,
        access: ClusterAccess,
        lease: str,
        namespace: str,
        identity: str,
        *,
        timing: Timing,
        started: Callable[[int], None],
        stopped: Callable[[], None],
    ) -> None:
        self.term: int | None = None
        self.process: Process | None = None
        self._progressing: asyncio.Task[None] | None = None
        self._http = http
        self._page = SharedPage.create()
        self._task = ElectionTask(access, namespace, lease, identity, timing, self._page.file)
        self._started = started
        self._stopped = stopped

    @property
    def leading(self) -> bool:
        return self.term is not None and self._page.term == self.term and steady() < self._page.until

    def remaining(self) -> float:
        """Seconds for which we may still write."""
        name = f"{self._task.namespace}/{self._task.lease}"
        if self.term is None or self._page.term != self.term:
            raise Fenced(f"{name}: {self._task.identity} does not hold the lease")
        left = self._page.until - steady()
        if left <= 0:
            raise Fenced(f"{name}: the time to write ended {-left:.3f} s ago")
        return left

    async def run(self) -> None:
        """Compete and lead until cancelled; then give the lease back."""
        self._progressing = asyncio.create_task(self._report_progress())
        pauses = Backoff(self._task.timing.retry_period)
        try:
            while True:  # a child that dies is replaced: the lease is still ours
                await self._follow(await self._start())
                self._stop()
                await asyncio.sleep(pauses.next())
        finally:
            if self._progressing is not None:
                self._progressing.cancel()
            self._stop()
            await self._leave()
            self._page.close()

    async def _report_progress(self) -> None:
        while True:
            self._page.progress = steady()
            await asyncio.sleep(self._task.timing.retry_period / 4)

    async def _start(self) -> Process:
        self._page.term, self._page.until, self._page.progress = NO_TERM, -math.inf, steady()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", CHILD),
            stdin=PIPE,
            stdout=PIPE,
            env=environment,
            pass_fds=[self._page.file],
            start_new_session=True,  # signals of a terminal are for this process, which then tells the child
        )
        self._say(msgspec.json.encode(self._task) + b"\n")
        return self.process

    def _say(self, line: bytes) -> None:
        if self.process is not None and self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.write(line)

    async def _follow(self, process: Process) -> None:
        """Hear of terms until the child is gone."""
        output = process.stdout
        while line := b"" if output is None else await output.readline():
            if line.startswith(CALLS):
                self._count(msgspec.json.decode(line[len(CALLS) :], type=ElectionCalls))
                continue
            self._stop()
            if line.strip().isdigit():
                self.term = int(line)
                self._started(self.term)
        await process.wait()

    def _count(self, calls: ElectionCalls) -> None:
        """Calls of the child are calls of this process, for its metrics."""
        for verb, group, resource, count in calls.made:
            self._http.calls[Call(verb, group, resource)] += count
        for verb, group, resource, code, count in calls.failed:
            self._http.failures[Call(verb, group, resource), code] += count

    def _stop(self) -> None:
        if self.term is not None:
            self.term = None
            self._stopped()

    async def _leave(self) -> None:
        """Let the child give the lease back, unless a write of ours may still be under way."""
        process = self.process
        if process is None or process.returncode is not None:
            return
        if await self._http.drain(self._task.timing.retry_period):
            self._say(RELEASE)
            try:
                async with asyncio.timeout(_LAST_WORDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
        else:
            process.kill()
        await process.wait()
