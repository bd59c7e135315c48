"""Answers the operations of the API from the followed cluster, each as its caller may see it.

Explanations and lists are made at once. What takes a trial (what-if, plan, suggested fixes) runs in a fork, which has
the ledger of that moment and may do anything with it.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import structs

from bursar.answers.access import Reviews, User
from bursar.answers.follower import ClusterFollower
from bursar.answers.forks import BusyError, Forks
from bursar.answers.redaction import Redaction, named_namespaces
from bursar.answers.view import ActingCluster, FollowedView
from bursar.control.observing import ObservingController
from bursar.kube.controller.patches import UNSCHEDULED
from bursar.objects.kinds import DEFAULT_NAMESPACE, POD
from bursar.policies.plugin import Registry
from bursar.policies.results import Check
from bursar.server.copy_answers import Question, answer
from bursar.server.copy_child import Fork
from bursar.server.pages import LISTS, read_token
from bursar.server.problems import ENCODER, RefusedError, Reply, reply_of, reply_with
from bursar.server.request_query import RequestQuery, claim_key
from bursar.server.rows import check_node
from bursar.server.time_travel import Revision
from bursar.server.types import ClaimRow, Explanation
from bursar.server.what_if import Course, Unchanged, advancing
from bursar.sim.cluster import Cluster
from bursar.store.store import Store

_TRIALS = ("what_if", "plan")
_NO_PAST = "this replica knows the cluster as it is now: there is no history behind it"


class NotReadyError(Exception):
    """The cluster is not listed yet."""


class Asked:
    """A cluster to ask, as ``copy_answers`` wants one."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def history(self) -> Store:
        raise RefusedError(400, _NO_PAST)

    def unchanged(self) -> Unchanged:
        """The cluster goes on alone in a fork, which is made now."""
        alone = advancing(self.cluster)
        twin = Fork(lambda asked: msgspec.msgpack.encode(alone(msgspec.msgpack.decode(asked, type=int))))
        return lambda duration: msgspec.msgpack.decode(twin.ask(duration), type=Course)


class Questions:
    """Answers questions about one followed cluster."""

    def __init__(self, registry: Registry, follower: ClusterFollower, reviews: Reviews, forks: Forks) -> None:
        self._registry = registry
        self._follower = follower
        self._reviews = reviews
        self._forks = forks

    async def answer(self, asked: RequestQuery, user: User) -> bytes:
        """The answer as JSON; ``RefusedError`` and other errors of questions stand for refusals."""
        if asked.text("at"):
            raise RefusedError(400, f"at: {_NO_PAST}")
        if not self._follower.ready:
            raise NotReadyError("the objects of the cluster are not listed yet: ask again in a moment")
        await self._check_names(asked, user)
        trial = asked.operation.name in _TRIALS or asked.truth("fixes")
        if trial:
            found = await self._tried(asked)
        else:
            found = msgspec.json.decode(ENCODER.encode(_answered(asked, self._live())))
        return ENCODER.encode(await self._seen(asked, user, found))

    def _live(self) -> FollowedView:
        return FollowedView(self._registry, self._follower.mirror, self._follower.written)

    async def _check_names(self, asked: RequestQuery, user: User) -> None:
        """Refuses questions about a namespace whose pods the caller may not get, also about one that does not exist."""
        named = {asked.text("namespace")} - {""}
        if asked.operation.name in _TRIALS:
            named |= self._namespaces_of(asked)
        hidden = await self._reviews.hidden(user, named)
        if hidden:
            raise RefusedError(403, f"{user.name} may not get pods in the namespace {min(hidden)}")

    def _namespaces_of(self, asked: RequestQuery) -> set[str]:
        """The namespaces of the manifests of a trial, and of what it deletes."""
        found = {text.split("/")[1] for text in asked.values.get("delete", ()) if text.count("/") == 2}
        for document in asked.documents() if asked.body.strip() else ():
            kinds = self._follower.mirror.cache.kinds.called(str(document.body.get("kind")))
            if kinds and not any(kind.namespaced for kind in kinds):
                continue
            metadata = document.body.get("metadata")
            namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
            found.add(str(namespace or DEFAULT_NAMESPACE))
        return found

    async def _tried(self, asked: RequestQuery) -> dict[str, Any]:
        live = self._live()

        def work() -> bytes:
            cast("ObservingController", live.controller).wake_expected()
            try:
                reply = reply_with(_answered(asked, live))
            except Exception as error:  # noqa: BLE001 whatever it is becomes a refusal
                reply = reply_of(error, live.engine)
            return msgspec.msgpack.encode(reply)

        try:
            reply = msgspec.msgpack.decode(await self._forks.run(work), type=Reply)
        except BusyError as error:
            raise RefusedError(429, str(error), {"Retry-After": "1"}) from None
        found: dict[str, Any] = msgspec.json.decode(reply.body)
        if reply.status >= 300:
            raise RefusedError(reply.status, str(found.get("detail", "")))
        return found

    async def _seen(self, asked: RequestQuery, user: User, found: dict[str, Any]) -> dict[str, Any]:
        live = self._live()
        hidden = await self._reviews.hidden(user, named_namespaces(found, live.namespaces()))
        kinds = [kind for kind in live.kinds if kind.namespaced and kind.name != POD.name]
        cache = self._follower.mirror.cache

        def is_object(key: str) -> bool:
            return any(cache.find(kind.name, key) is not None for kind in kinds)

        return Redaction(hidden, is_object).apply(asked.operation.name, found)


def _answered(asked: RequestQuery, live: FollowedView) -> object:
    if asked.operation.name == "plan":
        return answer(_question(asked, live), Asked(ActingCluster(live)))
    found = answer(_question(asked, live), Asked(live))
    if isinstance(found, Explanation):
        return _with_obstacle(_with_scheduler_words(found, live, claim_key(asked)), live, claim_key(asked))
    return found


def _question(asked: RequestQuery, live: FollowedView) -> Question:
    after = ""
    if asked.operation.name in LISTS and asked.text("continue"):
        after = read_token(asked.text("continue")).after
    return Question.of(asked, Revision(live.engine.version, live.objects.version, live.now()), after)


def _with_obstacle(found: Explanation, live: FollowedView, key: str) -> Explanation:
    """A pod that is not decided at all is pending all the same."""
    problem = live.obstacle(key)
    if not problem:
        return found
    claim: ClaimRow = structs.replace(found.claim, state="pending", message=problem)
    return structs.replace(found, claim=claim)


def _with_scheduler_words(found: Explanation, live: FollowedView, key: str) -> Explanation:
    words = live.unscheduled(key)
    return with_scheduler(found, words) if words else found


def with_scheduler(found: Explanation, words: str) -> Explanation:
    """What the scheduler says comes last: the pod has passed everything else."""
    check = Check("scheduler", False, f"finds no node: {words}", (), UNSCHEDULED, True)
    tree = structs.replace(found.tree, checks=[*found.tree.checks, check_node(check)])
    return structs.replace(found, tree=tree, text="\n".join((found.text, *check.lines("  "))))
