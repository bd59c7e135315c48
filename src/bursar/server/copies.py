"""Questions that need a copy of the cluster: where they wait, and the processes that answer them.

Searches for fixes, trials, plans, dry runs and moments of the past would stop every other request, because compiled
code keeps the interpreter's lock. So they are answered in child processes (``copy_child``), one at a time: one process
follows the cluster of now, another one is near a moment of the past. Each is started by a question and ends when none
came for a while. Who asks while too many wait is refused, and may ask again later.

``LocalCopies`` answers in this process, for programs that have only one caller.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread, Timer
from typing import IO, Any, ClassVar, Protocol, cast

import msgspec

from bursar.policies.plugin import Registry
from bursar.server import time_travel
from bursar.server.copy_answers import CHANGING, Question, answer
from bursar.server.copy_child import NOT_NEAR, receive, send
from bursar.server.problems import RefusedError, Reply
from bursar.server.request_query import RequestQuery
from bursar.server.service import Service, StoppedError
from bursar.server.time_travel import Archive, Revision
from bursar.server.what_if import Unchanged, advancing
from bursar.sim.cluster import Cluster
from bursar.store.store import Store
from bursar.store.verify import ChildFailedError, end_child, start_child

MOST_WAITING = 16
IDLE_SECONDS = 300.0
_LOOK_EVERY = 1.0  # seconds between two looks at what is idle or behind
_BEHIND = 1_000  # records that a copy may be behind while it is idle


class Copies(Protocol):
    """Answers questions from a copy."""

    @property
    def pids(self) -> list[int]:
        """The processes that do so now."""

    @property
    def waiting(self) -> int:
        """The questions that nothing is done about yet."""

    def ask(self, asked: RequestQuery, moment: Revision | None = None, after: str = "") -> Any:  # noqa: ANN401 an answer, or a future of a reply
        """``moment``: of the past, and where the page of a list begins. Otherwise of now."""


class CopyProcess:
    """One child process: of the present, or near a moment of the past."""

    def __init__(self, path: Path, moment: Revision | None = None) -> None:
        where = () if moment is None else (moment.seq, moment.version, moment.at)
        self._process = start_child("bursar.server.copy_child", path, *where)
        self.pid = self._process.pid
        self.used = time.monotonic()
        self.seq = 0  # up to where it was asked to follow

    def ask(self, question: Question, seconds: float) -> Reply:
        """Its reply; a process that needs longer is killed."""
        late = Timer(seconds, self.kill)
        late.daemon = True
        late.start()
        begun = time.monotonic()
        try:
            send(cast("IO[bytes]", self._process.stdin), question)
            found = receive(cast("IO[bytes]", self._process.stdout))
        except (OSError, ValueError):
            found = b""
        finally:
            late.cancel()
        if not found:
            self.kill()
            if time.monotonic() - begun >= seconds:
                raise RefusedError(503, f"not answered within {seconds:g} seconds", {"Retry-After": "1"})
            raise ChildFailedError("the process that answers from a copy of the cluster ended")
        self.seq = question.upto.seq
        return msgspec.msgpack.decode(found, type=Reply)

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)  # with its forks; it may not be a group of its own yet
        self._process.kill()

    def end(self) -> None:
        end_child(self._process)


@dataclass(slots=True)
class _Waiting:
    asked: RequestQuery
    moment: Revision | None
    after: str
    reply: Future[Reply]


class CopyProcesses:
    """The queue of questions and its thread."""

    def __init__(
        self, service: Service, *, seconds: float, most_waiting: int = MOST_WAITING, idle: float = IDLE_SECONDS
    ) -> None:
        """``seconds``: how long one answer may take."""
        self._service = service
        self._seconds = seconds
        self._most = most_waiting
        self._idle = idle
        self._present: CopyProcess | None = None
        self._past: CopyProcess | None = None
        self._waiting: deque[_Waiting] = deque()
        self._changed = Condition()
        self._closing = False
        self.busy = False  # whether a question is being answered
        self._took = 1.0  # seconds, the last answers on average
        self._thread = Thread(target=self._run, name="bursar-copies", daemon=True)
        self._thread.start()

    @property
    def pids(self) -> list[int]:
        """The processes that have a copy now."""
        return [one.pid for one in (self._present, self._past) if one is not None]

    @property
    def waiting(self) -> int:
        """The questions that nothing is done about yet."""
        return len(self._waiting)

    def ask(self, asked: RequestQuery, moment: Revision | None = None, after: str = "") -> Future[Reply]:
        """Have it answered after those that wait; ``RefusedError`` if they are too many."""
        with self._changed:
            if self._closing:
                raise StoppedError("the server is shutting down")
            if len(self._waiting) >= self._most:
                seconds = math.ceil(self._took * len(self._waiting))
                detail = f"{self._most} questions that need a copy of the cluster wait already, which is the most"
                raise RefusedError(429, detail, {"Retry-After": str(max(1, seconds))})
            found = _Waiting(asked, moment, after, Future())
            self._waiting.append(found)
            self._changed.notify_all()
        return found.reply

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            for process in (self._present, self._past):
                if process is not None:
                    process.kill()
        self._thread.join()

    # In the thread

    def _run(self) -> None:
        while not self._closing:
            work = self._next()
            if work is None:
                self._look_after()
            elif work.reply.set_running_or_notify_cancel():
                begun = time.monotonic()
                self.busy = True
                try:
                    reply, failure = self._answered(work), None
                except BaseException as error:  # noqa: BLE001 who asked must hear of it
                    reply, failure = None, error
                self.busy = False
                if failure is None:
                    work.reply.set_result(cast("Reply", reply))
                else:
                    work.reply.set_exception(failure)
                self._took += (time.monotonic() - begun - self._took) / 4
        for process in (self._present, self._past):
            if process is not None:
                process.end()
        for left in self._waiting:
            left.reply.set_exception(StoppedError("the server is shutting down"))

    def _next(self) -> _Waiting | None:
        with self._changed:
            running = self._present is not None or self._past is not None
            self._changed.wait_for(lambda: self._waiting or self._closing, _LOOK_EVERY if running else None)
            return self._waiting.popleft() if self._waiting and not self._closing else None

    def _answered(self, work: _Waiting) -> Reply:
        ask = self._ask_present if work.moment is None else self._ask_past
        try:
            return ask(work)
        except ChildFailedError:  # a new process may do better
            if self._closing:
                raise StoppedError("the server is shutting down") from None
        try:
            return ask(work)
        except ChildFailedError as error:
            raise RefusedError(503, f"{error}; the server's log says more", {"Retry-After": "1"}) from error

    def _ask_present(self, work: _Waiting) -> Reply:
        question = Question.of(work.asked, self._service.position())
        process = self._present = self._present or self._started(None)
        try:
            return self._asked(process, question)
        except BaseException:
            self._present = None
            process.end()
            raise

    def _ask_past(self, work: _Waiting) -> Reply:
        moment = cast("Revision", work.moment)
        question = Question.of(work.asked, moment, work.after)
        process = self._past = self._past or self._started(moment)
        try:
            reply = self._asked(process, question)
            if reply.status == NOT_NEAR:
                process.end()
                process = self._past = self._started(moment)
                reply = self._asked(process, question)
        except BaseException:
            self._past = None
            process.end()
            raise
        return reply

    def _started(self, moment: Revision | None) -> CopyProcess:
        if self._closing:
            raise StoppedError("the server is shutting down")
        return CopyProcess(self._service.store.path, moment)

    def _asked(self, process: CopyProcess, question: Question) -> Reply:
        try:
            return process.ask(question, self._seconds)
        finally:
            process.used = time.monotonic()

    def _look_after(self) -> None:
        """End what is idle, and let the copy of the present follow."""
        self._present, self._past = (self._unless_idle(one) for one in (self._present, self._past))
        process = self._present
        if process is None or self._service.store.last_seq - process.seq < _BEHIND or self._service.error is not None:
            return
        try:
            process.ask(Question(self._service.position()), self._seconds)
        except (ChildFailedError, RefusedError):
            self._present = None
            process.end()

    def _unless_idle(self, process: CopyProcess | None) -> CopyProcess | None:
        if process is None or time.monotonic() - process.used < self._idle:
            return process
        process.end()
        return None


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A copy in this process."""

    cluster: Cluster
    store: Store
    scratch: Callable[[], Cluster]

    def history(self) -> Store:
        return self.store

    def unchanged(self) -> Unchanged:
        return advancing(self.scratch())


class LocalCopies:
    """Answers at once, and lets nobody else ask meanwhile."""

    pids: ClassVar[list[int]] = []
    waiting: ClassVar[int] = 0

    def __init__(self, service: Service, registry: Registry) -> None:
        self._service = service
        self._registry = registry
        self._archive = Archive(service.store, registry)

    def ask(self, asked: RequestQuery, moment: Revision | None = None, after: str = "") -> object:
        service = self._service
        with service.lock:
            here = service.position()
            question = Question.of(asked, moment or here, after)
            if moment is not None:
                cluster = self._archive.at(moment)
            else:
                cluster = self._scratch(here) if question.operation in CHANGING else service.cluster
            return answer(question, LocalCopy(cluster, service.store, lambda: self._scratch(here)))

    def _scratch(self, here: Revision) -> Cluster:
        store = self._service.store
        return time_travel.past(store, Cluster(self._registry, manifests=store.manifest), here)
