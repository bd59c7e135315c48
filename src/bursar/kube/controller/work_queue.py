"""The keyed work queue, the meaning of failed writes, and the control loop's ports on Kubernetes.

``want`` marks an object as different from its wanted state; ``perform`` reads the newest wanted state and writes it.
One worker at a time works on an object, and repeated calls are merged. Transient failures are retried with growing
pauses and do not hold up other objects.

``PendingActions`` implements the ports: the control loop never waits for the API server. It keeps the newest action
per object until the term takes it. Workers check the ledger again and drop an action that is no longer wanted.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bursar.control import actions as outside
from bursar.engine.decision import Decision
from bursar.kube.client.errors import ApiError, Conflict, Fenced, Forbidden, Invalid, KubeError, NotFound
from bursar.kube.client.http import LONGEST_RETRY_AFTER
from bursar.ledger.claims import Claim
from bursar.objects.kinds import POD
from bursar.policies.results import Output

K = TypeVar("K", bound=Hashable)
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 30.0


class RetryLater(Exception):  # noqa: N818 no error: it says when to try again
    """The work could not be done now; ``after`` seconds, or the usual pauses."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class KeyedWorkQueue(Generic[K]):
    """A bounded number of workers over keyed work."""

    def __init__(self, perform: Callable[[K], Awaitable[None]], width: int, *, settle_for: float = 0.0) -> None:
        self._perform = perform
        self._width = asyncio.Semaphore(width)
        self._settle_for = settle_for  # seconds to wait before each performance, for more to come together
        self._wanted: set[K] = set()
        self._tasks: dict[K, asyncio.Task[None]] = {}
        self.broken: Callable[[K, BaseException], None] | None = None  # called with unexpected errors

    def __len__(self) -> int:
        """How many objects have work."""
        return len(self._tasks)

    def want(self, key: K) -> None:
        """The object may differ from its wanted state."""
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
            while key in self._wanted:
                if self._settle_for:
                    await asyncio.sleep(self._settle_for)
                    if key not in self._wanted:
                        return
                self._wanted.discard(key)
                try:
                    async with self._width:
                        await self._perform(key)
                    pause = _FIRST_PAUSE
                except RetryLater as again:
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

    async def idle(self) -> None:
        """Return when no work is left."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def close(self) -> None:
        """Stop all work at once."""
        tasks = list(self._tasks.values())
        self._wanted.clear()
        await cancelled(*tasks)


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


T = TypeVar("T")
STALE_TERM = "bursar.dev/term"  # stands in the message of the policy that refuses patches of a former leader
_UID = "metadata.uid"  # as the server names it when a patch is about another object of that name
_REFUSED_PAUSE = 5.0  # seconds before something that the server refused is sent once more

Refused = Callable[[str], None]


class LeadershipLost(Exception):  # noqa: N818 no error of ours: another replica leads now
    """Another replica leads now; nothing may be written any more."""


class Declined(RetryLater):
    """The server refused the write itself: it was not carried out, and a retry will hardly help."""


async def sent(write: Awaitable[T], *, refused: Refused) -> T | None:
    """The answer to a call; None when its object is gone. Raises ``RetryLater`` (``Declined``) or ``LeadershipLost``.

    ``refused`` gets the server's message if it refused the write itself.
    """
    try:
        return await write
    except NotFound:
        return None
    except Fenced as fenced:
        raise LeadershipLost(str(fenced)) from None
    except Forbidden as error:
        if STALE_TERM in error.message:
            raise LeadershipLost(error.message) from None
        refused(error.message)
        raise Declined(error.message, _REFUSED_PAUSE) from None
    except Invalid as error:
        if any(cause.field == _UID for cause in error.causes):
            return None  # another object has the name now: the one that was meant is gone
        refused(error.message)
        raise Declined(error.message, _REFUSED_PAUSE) from None
    except Conflict as error:
        raise RetryLater(error.message) from None
    except ApiError as error:
        pause = min(error.retry_after or 0.0, LONGEST_RETRY_AFTER)
        raise RetryLater(str(error), pause or None) from None  # a Retry-After of 0 is no pause here
    except KubeError as error:  # no response, or a malformed one
        raise RetryLater(str(error)) from None


ObjectKey = tuple[str, str]
"""(kind, key)."""


Parts = dict[str, Output]
"""What is to be written on one object, by part."""


def add_output(parts: Parts, newer: Output) -> None:
    """Merges labels and annotations; of any other part the newest counts alone."""
    known = parts.get(newer.part)
    if known is not None and newer.part in {"labels", "annotations"}:
        newer = Output(newer.kind, newer.key, newer.part, {**(known.value or {}), **(newer.value or {})})
    parts[newer.part] = newer


@dataclass(frozen=True, slots=True)
class Notice:
    """An event about an object."""

    kind: str
    key: str
    type: str
    reason: str
    message: str


class PendingActions:
    """The actions of the control loop since they were last taken."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._last = 0
        self.starts: dict[str, Claim] = {}
        self.evictions: dict[str, tuple[Claim, Decision]] = {}
        self.marks: dict[str, dict[str, dict[str, str | None]]] = {}  # by key of a pod: labels, annotations
        self.outputs: dict[ObjectKey, Parts] = {}  # of other objects
        self.events: list[Notice] = []

    # Ports

    def now(self) -> int:
        """Wall clock, but never back: what is recorded must not be older than what came before."""
        self._last = max(self._last, self._clock())
        return self._last

    def start(self, claim: Claim) -> None:
        self.starts[claim.uid] = claim

    def evict(self, claim: Claim, decision: Decision) -> None:
        self.evictions[claim.uid] = (claim, decision)

    def write(self, output: Output) -> None:
        if output.kind == POD.name and output.part in {"labels", "annotations"}:
            marks = self.marks.setdefault(output.key, {}).setdefault(output.part, {})
            marks.update({name: None if value is None else str(value) for name, value in (output.value or {}).items()})
        else:
            add_output(self.outputs.setdefault((output.kind, output.key), {}), output)

    def event(self, kind: str, key: str, type: str, reason: str, message: str) -> None:  # noqa: A002 as Kubernetes says
        if reason != outside.ADMITTED:  # it is in the admission record, in the one write that starts the pod
            self.events.append(Notice(kind, key, type, reason, message))
