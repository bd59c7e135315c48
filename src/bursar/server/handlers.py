"""The handlers of the API: lists come in pages, and every other operation has a method of its name.

They run in worker threads. An answer about state is given once that state is durable; a change is returned under way,
and so is what a copy of the cluster answers. Objects of the past are read from their history in the store.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from bursar._version import __version__
from bursar.objects.decode import ManifestError, or_nearest
from bursar.objects.kinds import POD, Kind
from bursar.objects.validation import timestamp
from bursar.server import time_travel, total_types, types
from bursar.server.activity import ActivityIndex
from bursar.server.agent_requests import AgentRequests
from bursar.server.changes import load_change, load_changes
from bursar.server.copies import Copies
from bursar.server.copy_answers import checked_references, claim_row
from bursar.server.operations import CHANGE
from bursar.server.overview import overview
from bursar.server.pages import LISTS, PageToken, made_page, object_name, page, read_token
from bursar.server.problems import RefusedError
from bursar.server.quota_explanation import quota_explanations
from bursar.server.request_query import RequestQuery, claim_key
from bursar.server.service import Pending, Service
from bursar.server.time_travel import Revision, moment_of, span_before
from bursar.server.what_if import explanation, warned
from bursar.sim.cluster import Cluster

T = TypeVar("T")
_TRIALS = ("what_if", "plan")


class Handlers:
    def __init__(self, service: Service, copies: Copies, *, demo: bool = False) -> None:
        self.agents = AgentRequests(service)
        self._service = service
        self._copies = copies
        self._demo = demo
        self._activity = ActivityIndex(service.store, service.cluster.registry)

    def answer(self, asked: RequestQuery) -> Any:  # noqa: ANN401 of the operation's type, or one that is under way
        """What the operation answers: a page of a list, what the method of its name finds, or what a copy answers."""
        operation = asked.operation
        if operation.name in LISTS:
            return self._list(asked)
        if operation.role == CHANGE and asked.identity.restricted:
            self._permit(asked)
        if operation.name in _TRIALS or asked.truth("fixes") or asked.truth("dryRun"):
            return self._copies.ask(asked, self._past(asked))
        if operation.name != "object" and asked.text("at"):
            return self._copies.ask(asked, self._past(asked))
        return getattr(self, operation.name)(asked)

    def _permit(self, asked: RequestQuery) -> None:
        """``RefusedError`` unless who asks may change all of these objects."""
        cluster, identity = self._service.cluster, asked.identity
        match asked.operation.name:
            case "apply":
                for given in cluster.kinds.read_all(asked.documents()):
                    pod = cluster.doing(given.key) if given.kind.name == POD.name else None
                    identity.check_given(given, "" if pod is None else pod.node)
            case "delete":
                references = checked_references(cluster, asked.names())
                identity.check_objects(cluster.reference(text) for text in references)
            case "finish":
                identity.check_objects((POD, key) for key in asked.names())
            case "undo":
                record = load_change(self._service.store, asked.number("id"))
                objects = [] if record is None else record.objects
                identity.check_objects((cluster.kinds.find(one.kind), one.key) for one in objects)
            case name:
                raise ValueError(f"{name} says nothing of the objects that it changes")

    def _past(self, asked: RequestQuery) -> Revision | None:
        """The moment that the request asks about; None: now."""
        return self._service.moment(asked.text("at")) if asked.text("at") else None

    def _look(self, look: Callable[[Cluster], T]) -> T:
        """At the cluster of now; what was seen is durable when this returns."""
        return self._service.read_durable(look)

    # Lists

    def _list(self, asked: RequestQuery) -> Any:  # noqa: ANN401 a page, or a future of one
        token = read_token(asked.text("continue")) if asked.text("continue") else None
        if token is not None:
            return self._next_page(asked, token)
        moment = self._past(asked)
        return self._look(lambda cluster: page(asked, cluster))() if moment is None else self._past_page(asked, moment)

    def _next_page(self, asked: RequestQuery, token: PageToken) -> Any:  # noqa: ANN401 a page, or a future of one
        """A page of an earlier moment: of the present one if nothing changed since."""
        service = self._service
        with service.lock:
            now = service.cluster
            if (now.engine.version, now.objects.version) == (token.seq, token.version):
                part = page(asked, now, token.after, token.at)
                return part()
        if token.seq > service.store.last_seq:
            raise RefusedError(400, "the parameter continue is not what a page before gave")
        if token.seq < service.store.pruned_to:
            raise RefusedError(
                410, f"there is no record {token.seq}: those up to {service.store.pruned_to} were pruned"
            )
        return self._past_page(asked, token.moment, token.after)

    def _past_page(self, asked: RequestQuery, moment: Revision, after: str = "") -> Any:  # noqa: ANN401 the same
        if asked.operation.name != "objects" or asked.text("label"):
            return self._copies.ask(asked, moment, after)
        store, kinds = self._service.store, self._service.cluster.kinds
        kind = self._kind_named(asked.text("kind")) if asked.text("kind") else ""
        found = time_travel.past_objects(store, moment, kind, asked.text("namespace"))
        left = [one for one in found if object_name(one[0], one[1]) > after]
        shown = left[: asked.limit]
        items = [time_travel.entry_manifest(store, kinds, *one) for one in shown]
        last = object_name(shown[-1][0], shown[-1][1]) if shown else ""
        rows = items, len(left) - len(shown), last
        return made_page(asked, rows, time_travel.past_moment(store, moment), moment.at)

    # Changes

    def apply(self, asked: RequestQuery) -> Pending:
        documents = asked.documents()
        found = self._service.apply(documents, **_once(asked))
        return Pending(warned(found.answer, self._service.cluster, documents), found.durable)

    def delete(self, asked: RequestQuery) -> Pending:
        references = checked_references(self._service.cluster, asked.names())
        return self._service.delete(references, **_once(asked))

    def finish(self, asked: RequestQuery) -> Pending:
        return self._service.finish(asked.names(), **_once(asked))

    def undo(self, asked: RequestQuery) -> Pending:
        return self._service.undo(asked.number("id"), actor=asked.identity.name)

    def changes(self, asked: RequestQuery) -> types.ChangeList:
        def look(cluster: Cluster) -> types.ChangeList:
            found = load_changes(self._service.store, asked.number("before"), asked.limit)
            return types.ChangeList(items=[record.change for record in found], moment=moment_of(cluster))

        return self._look(look)

    def retire(self, asked: RequestQuery) -> types.Retired:
        machine = asked.text("machine")
        return types.Retired(machine=machine, failed=self.agents.retire(machine))

    # State

    def info(self, asked: RequestQuery) -> types.Info:
        def look(cluster: Cluster) -> types.Info:
            return types.Info(
                version=__version__,
                api="v1",
                moment=moment_of(cluster),
                started=timestamp(self._service.started),
                claims=len(cluster.engine.state.claims),
                waiting=len(cluster.controller.queue),
                objects=cluster.objects.count(),
                read_only=self._service.error is not None,
                demo=self._demo,
            )

        return self._look(look)

    def kinds(self, asked: RequestQuery) -> types.KindList:
        kinds = self._service.cluster.kinds
        return types.KindList(items=[msgspec.convert(kind, types.KindInfo, from_attributes=True) for kind in kinds])

    def object(self, asked: RequestQuery) -> dict[str, Any]:
        moment = self._past(asked)
        if moment is None:
            return self._look(lambda cluster: _found(cluster, asked))
        return self._past_object(asked, moment)

    def _past_object(self, asked: RequestQuery, moment: Revision) -> dict[str, Any]:
        cluster, store = self._service.cluster, self._service.store

        def then(kind: Kind, key: str) -> dict[str, Any] | None:
            return time_travel.past_object(store, cluster.kinds, kind.name, key, moment)

        kind, key = _kind(cluster, asked, lambda kind, key: then(kind, key) is not None)
        found = then(kind, key)
        if found is None:
            raise _no_object(cluster, kind, key)
        return found

    def claim(self, asked: RequestQuery) -> types.ClaimRow:
        return self._look(lambda cluster: claim_row(cluster, claim_key(asked)))

    def explain(self, asked: RequestQuery) -> types.Explanation:
        return self._look(lambda cluster: explanation(cluster, claim_key(asked)))

    def explain_quota(self, asked: RequestQuery) -> types.QuotaExplanations:
        kind, key = asked.text("kind"), asked.text("key")
        return self._look(lambda cluster: quota_explanations(cluster, kind, key))

    def machines(self, asked: RequestQuery) -> types.MachineList:
        return types.MachineList(items=self._service.machines.rows())

    def overview(self, asked: RequestQuery) -> total_types.Overview:
        return self._look(overview)

    # History

    def activity(self, asked: RequestQuery) -> total_types.Activity:
        service = self._service
        end = service.moment(asked.text("to"), "to").at if asked.text("to") else service.now()
        begun = asked.text("from") or "-1h"
        start = end - span_before(begun) if begun.startswith("-") else service.moment(begun, "from").at
        if start > end:
            raise RefusedError(400, "the moment in `from` is after the one in `to`")
        return self._activity.answer(self._look(moment_of), start, end, asked.text("namespace"))

    def decisions(self, asked: RequestQuery) -> types.DecisionList:
        before, limit, key = asked.number("before"), asked.limit, asked.text("claim")
        moment, store = self._look(moment_of), self._service.store
        rows = time_travel.about(store, key, before, limit) if key else list(time_travel.latest(store, before, limit))
        more = rows[-1].seq if rows and (key or rows[-1].seq > 1) and len(rows) >= limit else 0
        return types.DecisionList(items=rows, moment=moment, next=more)

    def history(self, asked: RequestQuery) -> types.ObjectHistory:
        cluster, store = self._service.cluster, self._service.store
        moment = self._look(moment_of)
        kind, key = _kind(cluster, asked, lambda kind, key: bool(store.object_changes(kind.name, key)))
        found = time_travel.object_history(store, cluster.kinds, kind.name, key)
        if not found:
            raise RefusedError(404, f"there never was a {kind.kind} {key!r:.200}{_close(cluster, kind, key)}")
        rows = time_travel.about(store, key, 0, asked.limit) if kind.name == POD.name else []
        return types.ObjectHistory(kind=kind.name, key=key, items=found, decisions=rows, moment=moment)

    def diff(self, asked: RequestQuery) -> types.Difference:
        service = self._service
        start = service.moment(asked.text("from"), "from")
        end = service.moment(asked.text("to"), "to") if asked.text("to") else service.position()
        if (start.seq, start.version) > (end.seq, end.version):
            raise RefusedError(400, "the moment in `from` is after the one in `to`")
        found = list(time_travel.object_differences(service.store, service.cluster.kinds, start, end))
        return types.Difference(
            start=time_travel.past_moment(service.store, start),
            end=time_travel.past_moment(service.store, end),
            objects=found,
            pods=time_travel.pod_counts(found),
        )

    # Kinds

    def _kind_named(self, text: str) -> str:
        try:
            return self._service.cluster.kind_listed(text).name
        except ManifestError as error:
            raise RefusedError(400, str(error)) from None


def _kind(cluster: Cluster, asked: RequestQuery, known: Callable[[Kind, str], bool] | None = None) -> tuple[Kind, str]:
    """The kind and key that a request names; of kinds that share a name the one whose object is there, or ``known``."""
    key = asked.text("key")
    try:
        return cluster.kind_of(asked.text("kind"), key, known), key
    except ManifestError as error:
        raise RefusedError(400, str(error)) from None


def _found(cluster: Cluster, asked: RequestQuery) -> dict[str, Any]:
    kind, key = _kind(cluster, asked)
    found = cluster.find(kind, key)
    if found is None:
        raise _no_object(cluster, kind, key)
    return found


def _no_object(cluster: Cluster, kind: Kind, key: str) -> RefusedError:
    return RefusedError(404, f"there is no {kind.kind} {key!r:.200}{_close(cluster, kind, key)}")


def _close(cluster: Cluster, kind: Kind, key: str) -> str:
    """A question about the name that was probably meant."""
    return or_nearest(key, (stored.key for stored in cluster.objects.all(kind.name)))


def _once(asked: RequestQuery) -> dict[str, str]:
    """The idempotency key, a fingerprint of the request that it stands for, and who asks."""
    who = asked.identity.name
    known = asked.body + repr(sorted(asked.values.items(), key=str)).encode() + who.encode()
    return {"key": asked.text("Idempotency-Key"), "request": sha256(known).hexdigest(), "actor": who}
