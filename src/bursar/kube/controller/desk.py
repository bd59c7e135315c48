"""Work on many objects at once, on each of them one thing at a time, and always the newest.

``want`` says that an object differs from what it should be; ``perform`` looks at what it should be *now* and makes it
so. However often it is wanted meanwhile, it is performed once more, not once for each. A failure that may pass is
tried again with growing pauses, without holding up other objects.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 30.0


class Again(Exception):  # noqa: N818 no error: it says when to try again
    """The work could not be done now; ``after`` seconds, or the usual pauses."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class Desk(Generic[K]):
    """A bounded number of workers over keyed work."""

    def __init__(self, perform: Callable[[K], Awaitable[None]], width: int, *, settle_for: float = 0.0) -> None:
        self._perform = perform
        self._width = asyncio.Semaphore(width)
        self._settle_for = settle_for  # seconds to wait before each performance, for more to come together
        self._wanted: set[K] = set()
        self._tasks: dict[K, asyncio.Task[None]] = {}
        self.broken: Callable[[K, BaseException], None] | None = None  # told of errors that nobody expected

    def __len__(self) -> int:
        """How many objects are being worked on or waited for."""
        return len(self._tasks)

    def want(self, key: K) -> None:
        """The object should be looked at."""
        self._wanted.add(key)
        if key not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._work(key))
            self._tasks[key] = task

    def forget(self, key: K) -> None:
        """The object is gone: what waits for it is dropped."""
        self._wanted.discard(key)

    async def _work(self, key: K) -> None:
        pause = _FIRST_PAUSE
        try:
            while await self._still_wanted(key):
                self._wanted.discard(key)
                try:
                    async with self._width:
                        await self._perform(key)
                    pause = _FIRST_PAUSE
                except Again as again:
                    self._wanted.add(key)
                    wait = again.after if again.after is not None else pause * (0.5 + random.random())  # noqa: S311
                    pause = min(pause * 2, _LONGEST_PAUSE)
                    await asyncio.sleep(wait)
        except Exception as error:
            if self.broken is None:
                raise
            self.broken(key, error)
        finally:
            del self._tasks[key]

    async def _still_wanted(self, key: K) -> bool:
        """Whether there is something to do, once more of it had time to come."""
        if self._settle_for and key in self._wanted:
            await asyncio.sleep(self._settle_for)
        return key in self._wanted

    async def idle(self) -> None:
        """Until nothing is wanted any more."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def close(self) -> None:
        """Stop all work at once."""
        tasks = list(self._tasks.values())
        self._wanted.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
