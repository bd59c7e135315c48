"""Work in a process of its own: a fork, which has everything that this process has, and ends with the work.

A fork may change whatever it likes, and takes no time of the process that follows the cluster. There are few at a time;
others wait, and beyond that are refused. One that takes too long is ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from collections.abc import Callable

AT_ONCE = 2
WAITING = 16
SECONDS = 30.0
_NICER = 5


class BusyError(Exception):
    """Too much work waits already."""


class ForkFailedError(Exception):
    """A fork ended without a result."""


class Forks:
    """Runs work in forks. Only for a process whose other threads hold no locks that the work needs."""

    def __init__(self, at_once: int = AT_ONCE, waiting: int = WAITING, seconds: float = SECONDS) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._seconds = seconds
        self._pending = 0
        self.refused = 0

    async def run(self, work: Callable[[], bytes]) -> bytes:
        """What the work returns. Raises ``BusyError``, ``TimeoutError`` or ``ForkFailedError``."""
        if self._pending >= self._most:
            self.refused += 1
            raise BusyError(f"{self._pending} such questions are answered or wait: ask again in a moment")
        self._pending += 1
        try:
            async with self._slots:
                return await self._forked(work)
        finally:
            self._pending -= 1

    async def _forked(self, work: Callable[[], bytes]) -> bytes:
        readable, writable = os.pipe()
        process = os.fork()
        if process == 0:
            _work(work, writable)
        os.close(writable)
        try:
            async with asyncio.timeout(self._seconds):
                found = await _read(readable)
        except BaseException:
            os.kill(process, signal.SIGKILL)
            raise
        finally:
            os.close(readable)
            _reap(process)
        if not found:
            raise ForkFailedError("a fork that works out the answer ended early; the log says more")
        return found


def _reap(process: int) -> None:
    """It has ended, or was killed."""
    os.waitpid(process, 0)


async def _read(descriptor: int) -> bytes:
    """All that is written until the other end is closed."""
    os.set_blocking(descriptor, False)
    loop, parts = asyncio.get_running_loop(), list[bytes]()
    ended = loop.create_future()

    def take() -> None:
        part = os.read(descriptor, 1 << 20)
        parts.append(part)
        if not part and not ended.done():
            ended.set_result(None)

    loop.add_reader(descriptor, take)
    try:
        await ended
    finally:
        loop.remove_reader(descriptor)
    return b"".join(parts)


def _work(work: Callable[[], bytes], writable: int) -> None:
    """All that a fork does. It never returns to what the process did before."""
    try:
        os.setpgid(0, 0)
        os.nice(_NICER)
        os.closerange(3, writable)  # connections of others must end when this process's parent ends them
        os.closerange(writable + 1, os.sysconf("SC_OPEN_MAX"))
        found = work()
        with os.fdopen(writable, "wb") as file:
            file.write(found)
    except BaseException:  # noqa: BLE001 nothing may go on in the fork
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
