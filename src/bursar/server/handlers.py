"""The handlers of the API: lists come in pages, and every other operation has a method of its name.

They run in worker threads. An answer about state is given once that state is durable; a change is returned under way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from bursar._version import __version__
from bursar.objects.decode import ManifestError, or_nearest
from bursar.objects.kinds import POD, Kind
from bursar.objects.validation import duration_ms, timestamp
from bursar.server import time_travel, types
from bursar.server import what_if as trials
from bursar.server.changes import load_changes
from bursar.server.pages import LISTS, Reader, claim_key
from bursar.server.problems import RefusedError
from bursar.server.quota_explanation import quota_explanations
from bursar.server.requests import RequestQuery
from bursar.server.rows import ClaimView
from bursar.server.service import Pending, Service
from bursar.server.time_travel import moment_of
from bursar.server.what_if import explanation
from bursar.sim.cluster import Cluster

HORIZON_MOST = 7 * 24 * 3600 * 1000


class Handlers:
    def __init__(self, service: Service, *, demo: bool = False) -> None:
        self._service = service
        self._demo = demo
        self._reader = Reader(service)

    def answer(self, asked: RequestQuery) -> Any:  # noqa: ANN401 of the operation's type, or a change under way
        """What the operation answers: a page of a list, or what the method of its name finds."""
        operation = asked.operation
        if operation.name in LISTS:
            return self._reader.page(asked, LISTS[operation.name](asked))
        return getattr(self, operation.name)(asked)

    # Changes

    def apply(self, asked: RequestQuery) -> Pending:
        return self._service.apply(asked.documents(), **_once(asked), dry_run=_dry(asked))

    def delete(self, asked: RequestQuery) -> Pending:
        return self._service.delete(self._references(asked.names()), **_once(asked), dry_run=_dry(asked))

    def finish(self, asked: RequestQuery) -> Pending:
        return self._service.finish(asked.names(), **_once(asked))

    def undo(self, asked: RequestQuery) -> Pending:
        return self._service.undo(asked.number("id"), dry_run=_dry(asked))

    def changes(self, asked: RequestQuery) -> types.ChangeList:
        def look(cluster: Cluster) -> types.ChangeList:
            found = load_changes(self._service.store, asked.number("before"), asked.limit)
            return types.ChangeList(items=[record.change for record in found], moment=moment_of(cluster))

        return self._reader.look(look)

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

        return self._reader.look(look)

    def kinds(self, asked: RequestQuery) -> types.KindList:
        kinds = self._service.cluster.kinds
        return types.KindList(items=[msgspec.convert(kind, types.KindInfo, from_attributes=True) for kind in kinds])

    def object(self, asked: RequestQuery) -> dict[str, Any]:
        def look(cluster: Cluster) -> dict[str, Any]:
            kind, key = _kind(cluster, asked)
            found = cluster.find(kind, key)
            if found is None:
                raise RefusedError(404, f"there is no {kind.kind} {key!r:.200}{_close(cluster, kind, key)}")
            return found

        return self._reader.look(look, asked.text("at"))

    def claim(self, asked: RequestQuery) -> types.ClaimRow:
        key = _asked_claim(asked)

        def look(cluster: Cluster) -> types.ClaimRow:
            found = ClaimView(cluster).row(key)
            if found is None:
                raise trials.no_claim(cluster, key)
            return found

        return self._reader.look(look, asked.text("at"))

    def explain(self, asked: RequestQuery) -> types.Explanation:
        """A search for fixes runs on a copy: it may take long, and must not hold the cluster's lock."""
        key, at = _asked_claim(asked), asked.text("at")
        if not asked.truth("fixes"):
            return self._reader.look(lambda cluster: explanation(cluster, key), at)
        moment = self._service.moment(at) if at else self._service.position()
        return self._service.read_past(lambda cluster: explanation(cluster, key, fixes=True), moment)

    def explain_quota(self, asked: RequestQuery) -> types.QuotaExplanations:
        kind, key = asked.text("kind"), asked.text("key")
        return self._reader.look(lambda cluster: quota_explanations(cluster, kind, key), asked.text("at"))

    # History

    def decisions(self, asked: RequestQuery) -> types.DecisionList:
        before, limit, key = asked.number("before"), asked.limit, asked.text("claim")
        moment, store = self._reader.look(moment_of), self._service.store
        rows = time_travel.about(store, key, before, limit) if key else list(time_travel.latest(store, before, limit))
        more = rows[-1].seq if rows and (key or rows[-1].seq > 1) and len(rows) >= limit else 0
        return types.DecisionList(items=rows, moment=moment, next=more)

    def history(self, asked: RequestQuery) -> types.ObjectHistory:
        cluster, store = self._service.cluster, self._service.store
        moment = self._reader.look(moment_of)
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
            start=service.read_past(moment_of, start),
            end=service.read_past(moment_of, end),
            objects=found,
            pods=time_travel.pod_counts(found),
        )

    # Trials

    def what_if(self, asked: RequestQuery) -> types.WhatIf:
        documents = asked.documents()
        return self._reader.look(lambda cluster: trials.what_if(cluster, documents))

    def plan(self, asked: RequestQuery) -> types.Plan:
        horizon = _span(asked.text("horizon"))
        delete = self._references(asked.values.get("delete", ()))
        documents = [] if delete and not asked.body.strip() else asked.documents()
        moment = self._service.position()
        return trials.plan(lambda: self._service.archive.scratch(moment), documents, delete, horizon)

    # Kinds and references

    def _references(self, given: Sequence[str]) -> Sequence[str]:
        """Checks that they have the form of references; the objects may be missing."""
        for text in given:
            try:
                self._service.cluster.reference(text)
            except ManifestError as error:
                raise RefusedError(400, str(error)) from None
        return given


def _kind(cluster: Cluster, asked: RequestQuery, known: Callable[[Kind, str], bool] | None = None) -> tuple[Kind, str]:
    """The kind and key that a request names; of kinds that share a name the one whose object is there, or ``known``."""
    key = asked.text("key")
    try:
        return cluster.kind_of(asked.text("kind"), key, known), key
    except ManifestError as error:
        raise RefusedError(400, str(error)) from None


def _close(cluster: Cluster, kind: Kind, key: str) -> str:
    """A question about the name that was probably meant."""
    return or_nearest(key, (stored.key for stored in cluster.objects.all(kind.name)))


def _once(asked: RequestQuery) -> dict[str, str]:
    """The idempotency key, and a fingerprint of the request that it stands for."""
    request = sha256(asked.body + repr(sorted(asked.values.items(), key=str)).encode()).hexdigest()
    return {"key": asked.text("Idempotency-Key"), "request": request}


def _dry(asked: RequestQuery) -> bool:
    return asked.truth("dryRun")


def _asked_claim(asked: RequestQuery) -> str:
    namespace = asked.text("namespace")
    return claim_key("" if namespace == "-" else namespace, asked.text("name"))


def _span(text: str) -> int:
    if not text:
        return 0
    try:
        span = duration_ms(text)
    except ManifestError as error:
        raise RefusedError(400, f"horizon: {error}") from None
    if span > HORIZON_MOST:
        raise RefusedError(400, "horizon: more than seven days cannot be looked ahead")
    return span
