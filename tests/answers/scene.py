"""A leader and a replica that answers, on a server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from bursar.answers.access import User
from bursar.answers.follower import ClusterFollower
from bursar.answers.forks import Forks
from bursar.answers.questions import Questions
from bursar.answers.view import FollowedView
from bursar.control.controller import LEAVING
from bursar.kube.controller.mirror import MirrorOptions
from bursar.ledger.claims import HELD
from bursar.server.operations import Operation
from bursar.server.request_query import RequestQuery
from tests.kube.controller.stage import Stage, stage
from tests.kube.waiting import eventually

Body = dict[str, Any]
ALL = User("admin")
MEMBER = User("member")


class Rights:
    """Reviews of rights: the member may get pods in some namespaces, everybody else in all."""

    def __init__(self, *seen: str) -> None:
        self.seen: Collection[str] = seen

    async def hidden(self, user: User, namespaces: Iterable[str]) -> set[str]:
        return set() if user != MEMBER else set(namespaces) - set(self.seen)


class Scene:
    def __init__(self, leader: Stage, follower: ClusterFollower, rights: Rights) -> None:
        self.stage = leader
        self.follower = follower
        self.questions = Questions(leader.registry, follower, rights, Forks())  # type: ignore[arg-type] # as it asks

    async def ask(
        self,
        operation: Operation[Any],
        body: object = None,
        user: User = ALL,
        **values: Any,  # noqa: ANN401
    ) -> Body:
        text = b"" if body is None else msgspec.json.encode(body)
        asked = RequestQuery(operation, values, text, "application/json")
        found: Body = msgspec.json.decode(await self.questions.answer(asked, user))
        return found

    @property
    def live(self) -> FollowedView:
        return FollowedView(self.stage.registry, self.follower.mirror, self.follower.written)

    async def same(self) -> None:
        """Until the replica has all that the leader has, and says the same of what counts."""
        try:
            await eventually(lambda: self.differences() == {}, 20)
        except TimeoutError:
            raise AssertionError(f"leader and replica differ: {self.differences()}") from None

    def differences(self) -> Body:
        """What the leader and the replica say differently of a claim: its state and place."""
        assert self.stage.term is not None
        theirs, ours = self.stage.term.mirror, self.follower.mirror
        found: Body = {}
        for uid in theirs.engine.state.claims.keys() | ours.engine.state.claims.keys():
            pair = [_said(mirror, uid) for mirror in (theirs, ours)]
            if pair[0] != pair[1]:
                found[uid] = pair
        return found


def _said(mirror: Any, uid: str) -> tuple[Any, ...]:  # noqa: ANN401
    """What counts of a claim. Only the leader may know of an admission that waits for others.

    Why a claim waits may be said differently: each of them says what it found when it last tried.
    """
    claim = mirror.engine.state.claims.get(uid)
    if claim is None:
        return ()
    if claim.state == HELD or mirror.controller.reason(uid)[0] == LEAVING:
        return claim.key, "waits for others to leave"
    return claim.key, claim.state, claim.place, claim.leaving


@asynccontextmanager
async def scene(*seen: str) -> AsyncIterator[Scene]:
    async with stage() as leader:
        follower = ClusterFollower(leader.api, leader.registry, MirrorOptions())
        running = asyncio.create_task(follower.run())
        try:
            yield Scene(leader, follower, Rights(*seen))
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
