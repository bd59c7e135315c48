"""The child process that answers from a copy of the cluster: one question after the other, from stdin to stdout.

``python -m bursar.server.copy_child STORE`` answers about now, and follows the journal between questions.
``... STORE SEQ VERSION AT`` answers about the past near that moment; a reply without a status says that the moment is
not near. Questions that change what they are asked of are answered in a fork, which begins as this process is and
leaves no trace in it: changes, and moments of the past, to which a copy goes forward.

It ends when its pipes are closed.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import IO, cast

import msgspec

from bursar.policies.plugin import default_registry
from bursar.server.copy_answers import CHANGING, Question, answer
from bursar.server.followed_copy import FollowedCopy, StoreFile
from bursar.server.problems import Reply, reply_of, reply_with
from bursar.server.time_travel import Revision
from bursar.server.what_if import Course, Unchanged, advancing
from bursar.sim.cluster import Cluster
from bursar.store.store import Store
from bursar.store.verify import ChildFailedError, run_child

_NICER = 2  # deciding goes before answering, and answering before what nobody waits for
_SIZE = Struct(">I")
NOT_NEAR = 0
_MOST = 2**31


def send(pipe: IO[bytes], message: object) -> None:
    text = msgspec.msgpack.encode(message)
    pipe.write(_SIZE.pack(len(text)) + text)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes:
    """The next message; empty when the other side has closed the pipe."""
    size = pipe.read(_SIZE.size)
    if len(size) < _SIZE.size:
        return b""
    (length,) = _SIZE.unpack(size)
    return pipe.read(length) if length < _MOST else b""


class Fork:
    """A process that begins as this one is, and answers by pipe: ``work`` makes its answers of what it is asked."""

    def __init__(self, work: Callable[[bytes], bytes]) -> None:
        asked, ask = os.pipe()
        heard, tell = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            os.close(ask)
            os.close(heard)
            _work(work, asked, tell)
        os.close(asked)
        os.close(tell)
        self._ask, self._heard = os.fdopen(ask, "wb"), os.fdopen(heard, "rb")

    def ask(self, message: object) -> bytes:
        send(self._ask, message)
        found = receive(self._heard)
        if not found:
            raise ChildFailedError("a fork of the process that answers from a copy ended early")
        return found

    def end(self) -> None:
        self._ask.close()
        self._heard.close()
        os.waitpid(self._process, 0)


def _work(work: Callable[[bytes], bytes], asked: int, tell: int) -> None:
    """All that a fork does. It never returns to what the process did before."""
    try:
        with os.fdopen(asked, "rb") as questions, os.fdopen(tell, "wb") as answers:
            while question := receive(questions):
                found = work(question)
                answers.write(_SIZE.pack(len(found)) + found)
                answers.flush()
    except BaseException:  # noqa: BLE001 nothing may go on in the fork
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


class AnsweringCopy:
    """A followed copy that answers."""

    def __init__(self, copy: FollowedCopy, *, past: bool) -> None:
        self._copy = copy
        self._past = past
        self._twins: list[Fork] = []

    @property
    def cluster(self) -> Cluster:
        return self._copy.cluster

    def history(self) -> Store:
        return self._copy.file.store()

    def unchanged(self) -> Unchanged:
        """The cluster goes on alone in a fork, which is made now."""
        self._copy.file.close()
        alone = advancing(self.cluster)
        twin = Fork(lambda asked: msgspec.msgpack.encode(alone(msgspec.msgpack.decode(asked, type=int))))
        self._twins.append(twin)
        return lambda duration: msgspec.msgpack.decode(twin.ask(duration), type=Course)

    def reply(self, question: Question) -> Reply:
        if self._past and not self._copy.reaches(question.upto):
            return Reply(NOT_NEAR)
        if not self._past:
            self._follow(question.upto)
        if question.operation not in CHANGING and not self._past:
            return self._answered(question)
        self._copy.file.close()
        fork = Fork(lambda _: msgspec.msgpack.encode(self._apart(question)))
        try:
            return msgspec.msgpack.decode(fork.ask(0), type=Reply)
        finally:
            fork.end()

    def _follow(self, upto: Revision) -> None:
        self._copy.follow(upto)
        if not self._copy.cluster.rest():
            raise ChildFailedError(f"the copy of the cluster at record {upto.seq} is not like the original")

    def _apart(self, question: Question) -> Reply:
        try:
            self._copy.follow(question.upto)
            return self._answered(question)
        finally:
            for twin in self._twins:
                twin.end()

    def _answered(self, question: Question) -> Reply:
        if not question.operation:
            return Reply(204)
        try:
            return reply_with(answer(question, self))
        except Exception as error:  # noqa: BLE001 whatever it is becomes a problem
            return reply_of(error, self.cluster.engine)

    def rest(self) -> None:
        self._copy.file.close()


def main(path: str, *moment: str) -> None:
    os.nice(_NICER)
    os.setpgid(0, 0)  # so that its forks end with it
    file, registry = StoreFile(Path(path)), default_registry()
    if moment:
        copy = FollowedCopy.before(file, registry, Revision(*map(int, moment)))
    else:
        copy = FollowedCopy.present(file, registry)
    answering = AnsweringCopy(copy, past=bool(moment))
    while text := receive(sys.stdin.buffer):
        reply = answering.reply(msgspec.msgpack.decode(text, type=Question))
        answering.rest()
        send(cast("IO[bytes]", sys.stdout.buffer), reply)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    run_child(lambda: main(*sys.argv[1:]))
