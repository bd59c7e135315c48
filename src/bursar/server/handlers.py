"""What each operation of the API does: one method for each row of the table of operations, by its name.

Methods that look at the cluster run in worker threads. An answer about state is given when the state is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from hashlib import sha256
from typing import Any, TypeVar

from bursar._version import __version__
from bursar.objects.corekinds import POD
from bursar.objects.durations import duration_ms
from bursar.objects.errors import ManifestError
from bursar.server import answers, changelog, explaining, history, quotas, trials, views
from bursar.server.asking import Asked, label_filter
from bursar.server.moments import MomentError, moment_of
from bursar.server.paging import Page, read_token
from bursar.server.problems import RefusedError
from bursar.server.service import Pending, Service
from bursar.server.threads import in_thread
from bursar.sim.cluster import Cluster
from bursar.sim.store import timestamp
from bursar.store.errors import StoreError

T = TypeVar("T")
Look = Callable[[Cluster], T]
Rows = tuple[list[T], int, str]  # a page, how many more there are, and what the next one comes after
HORIZON_MOST = 7 * 24 * 3600 * 1000


class Handlers:
    """The operations over one service."""

    def __init__(self, service: Service, *, demo: bool = False) -> None:
        self._service = service
        self._demo = demo

    # Changing

    async def apply(self, asked: Asked) -> answers.Change:
        documents = await in_thread(asked.documents)
        return await self._change(
            lambda: self._service.apply(
                documents, dry_run=asked.truth("dryRun"), key=asked.text("Idempotency-Key"), request=_digest(asked)
            )
        )

    async def delete(self, asked: Asked) -> answers.Change:
        references = asked.references()
        return await self._change(
            lambda: self._service.delete(
                references, dry_run=asked.truth("dryRun"), key=asked.text("Idempotency-Key"), request=_digest(asked)
            )
        )

    async def finish(self, asked: Asked) -> answers.Change:
        pods = asked.pods()
        return await self._change(
            lambda: self._service.finish(pods, key=asked.text("Idempotency-Key"), request=_digest(asked))
        )

    async def undo(self, asked: Asked) -> answers.Change:
        number = asked.number("id")
        return await self._change(lambda: self._service.undo(number, dry_run=asked.truth("dryRun")))

    async def changes(self, asked: Asked) -> answers.ChangeList:
        def look(cluster: Cluster) -> answers.ChangeList:
            found = changelog.load_changes(self._service.store, asked.number("before"), asked.limit)
            return answers.ChangeList(items=[record.change for record in found], moment=moment_of(cluster))

        return await self._look(look)

    async def _change(self, make: Callable[[], Pending]) -> answers.Change:
        pending = await in_thread(make)
        await _durable(pending.durable)
        return pending.answer

    # Reading

    async def info(self, asked: Asked) -> answers.Info:
        def look(cluster: Cluster) -> answers.Info:
            return answers.Info(
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

        return await self._look(look)

    async def kinds(self, asked: Asked) -> answers.KindList:
        return answers.KindList(
            items=[
                answers.KindInfo(
                    name=kind.name,
                    api_version=kind.api_version,
                    kind=kind.kind,
                    plural=kind.plural,
                    short_names=kind.short_names,
                    namespaced=kind.namespaced,
                )
                for kind in self._service.cluster.kinds
            ]
        )

    async def objects(self, asked: Asked) -> answers.ObjectList:
        kind = self._kind(asked.text("kind")).name if asked.text("kind") else ""
        namespace, matches = asked.text("namespace"), label_filter(asked.text("label"))

        def take(cluster: Cluster, after: str) -> Callable[[], Rows[dict[str, Any]]]:
            known = views.stored_objects(cluster, kind, namespace or None)

            def page() -> Rows[dict[str, Any]]:
                named = sorted((f"{stored.kind.name} {stored.key}", stored) for stored in known)
                found = [(name, stored) for name, stored in named if name > after and matches(views.labels_of(stored))]
                shown = found[: asked.limit]
                last = shown[-1][0] if shown else ""
                return [stored.manifest() for _, stored in shown], len(found) - len(shown), last

            return page

        items, remaining, token, moment = await self._page(asked, take)
        return answers.ObjectList(items=items, moment=moment, remaining=remaining, next=token)

    async def object(self, asked: Asked) -> dict[str, Any]:
        kind, key = self._kind(asked.text("kind")), asked.text("key")
        found = await self._look(lambda cluster: cluster.find(kind, key), asked.text("at"))
        if found is None:
            raise RefusedError(404, f"there is no {kind.kind} {key!r:.200}")
        return found

    async def claims(self, asked: Asked) -> answers.ClaimList:
        matches = label_filter(asked.text("label"))
        wanted = {name: asked.text(name) for name in ("namespace", "phase", "node") if asked.text(name)}
        quota = asked.text("quota")

        def keep(row: answers.ClaimRow) -> bool:
            return (not quota or quota in row.quotas) and matches(row.labels)

        def take(cluster: Cluster, after: str) -> Callable[[], Rows[answers.ClaimRow]]:
            rows, remaining = views.claim_rows(cluster, after, asked.limit, wanted, keep)
            last = _claim_key(rows[-1].namespace, rows[-1].name) if rows else ""
            return lambda: (rows, remaining, last)

        items, remaining, token, moment = await self._page(asked, take)
        return answers.ClaimList(items=items, moment=moment, remaining=remaining, next=token)

    async def claim(self, asked: Asked) -> answers.ClaimRow:
        key = _asked_claim(asked)
        found = await self._look(lambda cluster: views.ClaimView(cluster).row(key), asked.text("at"))
        if found is None:
            raise RefusedError(404, f"there is no claim {key!r:.200}")
        return found

    async def explain(self, asked: Asked) -> answers.Explanation:
        key = _asked_claim(asked)
        if not asked.truth("fixes"):
            return await self._look(lambda cluster: explaining.explanation(cluster, key), asked.text("at"))

        def search() -> answers.Explanation:
            """On a copy: a search may take a while, and nobody waits for it but who asked."""
            at = asked.text("at")
            moment = self._service.moment(at) if at else self._service.position()
            return self._service.read_past(lambda cluster: explaining.explanation(cluster, key, fixes=True), moment)

        return await in_thread(search)

    async def quotas(self, asked: Asked) -> answers.QuotaList:
        kind = self._kind(asked.text("kind")).name if asked.text("kind") else ""
        wanted = {name: asked.text(name) for name in ("namespace", "policy") if asked.text(name)} | (
            {"kind": kind} if kind else {}
        )

        def take(cluster: Cluster) -> Callable[[], list[answers.QuotaRow]]:
            gathered = quotas.gather(cluster)

            def rows() -> list[answers.QuotaRow]:
                found = (quotas.row(quota) for quota in gathered.quotas())
                return [row for row in found if all(getattr(row, name) == value for name, value in wanted.items())]

            return rows

        items, remaining, token, moment = await self._table(asked, take)
        return answers.QuotaList(items=items, moment=moment, remaining=remaining, next=token)

    async def nodes(self, asked: Asked) -> answers.NodeList:
        matches = label_filter(asked.text("label"))
        look: Look[list[answers.NodeRow]] = lambda cluster: [r for r in views.node_rows(cluster) if matches(r.labels)]  # noqa: E731
        items, remaining, token, moment = await self._table(asked, _at_once(look))
        return answers.NodeList(items=items, moment=moment, remaining=remaining, next=token)

    async def gpus(self, asked: Asked) -> answers.GpuList:
        node = asked.text("node")
        look: Look[list[answers.GpuRow]] = lambda cluster: [  # noqa: E731
            row for row in views.gpu_rows(cluster) if not node or row.node == node
        ]
        items, remaining, token, moment = await self._table(asked, _at_once(look))
        return answers.GpuList(items=items, moment=moment, remaining=remaining, next=token)

    async def queue(self, asked: Asked) -> answers.QueueList:
        namespace = asked.text("namespace")
        look: Look[list[answers.QueueRow]] = lambda cluster: [  # noqa: E731
            row for row in views.queue_rows(cluster) if not namespace or row.namespace == namespace
        ]
        items, remaining, token, moment = await self._table(asked, _at_once(look))
        return answers.QueueList(items=items, moment=moment, remaining=remaining, next=token)

    # The past

    async def decisions(self, asked: Asked) -> answers.DecisionList:
        before, limit, key = asked.number("before"), asked.limit, asked.text("claim")
        moment = await self._look(moment_of)

        def read() -> list[answers.DecisionRow]:
            store = self._service.store
            return history.about(store, key, before, limit) if key else list(history.latest(store, before, limit))

        rows = await in_thread(read)
        more = rows[-1].seq if rows and (key or rows[-1].seq > 1) and len(rows) >= limit else 0
        return answers.DecisionList(items=rows, moment=moment, next=more)

    async def history(self, asked: Asked) -> answers.ObjectHistory:
        kind, key = self._kind(asked.text("kind")), asked.text("key")
        moment = await self._look(moment_of)

        def read() -> answers.ObjectHistory:
            store, kinds = self._service.store, self._service.cluster.kinds
            found = history.object_history(store, kinds, kind.name, key)
            if not found:
                raise RefusedError(404, f"there never was a {kind.kind} {key!r:.200}")
            rows = history.about(store, key, 0, asked.limit) if kind.name == POD.name else []
            return answers.ObjectHistory(kind=kind.name, key=key, items=found, decisions=rows, moment=moment)

        return await in_thread(read)

    async def diff(self, asked: Asked) -> answers.Difference:
        def read() -> answers.Difference:
            service = self._service
            start = service.moment(asked.text("from"))
            end = service.moment(asked.text("to")) if asked.text("to") else service.position()
            if (start.seq, start.version) > (end.seq, end.version):
                raise RefusedError(400, "the moment in `from` is after the one in `to`")
            found = list(history.object_differences(service.store, service.cluster.kinds, start, end))
            return answers.Difference(
                start=service.read_past(moment_of, start),
                end=service.read_past(moment_of, end),
                objects=found,
                pods=history.pod_counts(found),
            )

        return await in_thread(read)

    # Asking

    async def what_if(self, asked: Asked) -> answers.WhatIf:
        documents = await in_thread(asked.documents)
        return await self._look(lambda cluster: trials.what_if(cluster, documents))

    async def plan(self, asked: Asked) -> answers.Plan:
        horizon = _span(asked.text("horizon"))
        delete: Sequence[str] = asked.values.get("delete", ())
        documents = [] if delete and not asked.body.strip() else await in_thread(asked.documents)

        def read() -> answers.Plan:
            moment = self._service.position()
            return trials.plan(lambda: self._service.archive.scratch(moment), documents, delete, horizon)

        return await in_thread(read)

    # Helpers

    def _kind(self, name: str) -> Any:  # noqa: ANN401 a Kind
        try:
            return self._service.cluster.kinds.find(name)
        except ManifestError as error:
            raise RefusedError(400, str(error)) from None

    async def _look(self, look: Look[T], at: str = "") -> T:
        found, durable = await in_thread(self._service.read, look, at)
        await _durable(durable)
        return found

    async def _page(
        self, asked: Asked, take: Callable[[Cluster, str], Callable[[], Rows[T]]]
    ) -> tuple[list[T], int, str, answers.Moment]:
        """A page after what the token says, of the token's moment; and the token of the next one.

        ``take`` notes under the cluster's lock what the rows are made of, and returns what makes them without it.
        """
        token, at = asked.text("continue"), asked.text("at")
        if not token:
            rows, moment = await self._look(lambda cluster: (take(cluster, ""), moment_of(cluster)), at)
            start = await in_thread(self._service.moment, at) if at else None
        else:
            page = read_token(token)
            start = page.moment
            rows, moment = await in_thread(
                self._again, page, lambda cluster: (take(cluster, page.after), moment_of(cluster))
            )
        items, remaining, last = await in_thread(rows)
        if not remaining:
            return items, 0, "", moment
        version = int(moment.resource_version)
        when = start.at if start is not None else self._service.cluster.now()
        return items, remaining, Page(moment.seq, version, when, last).token(), moment

    def _again(self, page: Page, look: Look[T]) -> T:
        """The state of an earlier page: the present one if nothing changed since, else from the archive."""
        service = self._service
        with service.lock:
            now = service.cluster
            if (now.engine.version, now.objects.version) == (page.seq, page.version):
                return look(now)
        if page.seq > service.store.last_seq:
            raise RefusedError(400, "the parameter continue is not what a page before gave")
        try:
            return service.read_past(look, page.moment)
        except (MomentError, StoreError) as error:
            raise RefusedError(410, str(error)) from None

    async def _table(self, asked: Asked, take: Look[Callable[[], list[T]]]) -> tuple[list[T], int, str, answers.Moment]:
        """A page of a table that is made as a whole."""

        def part(cluster: Cluster, after: str) -> Callable[[], Rows[T]]:
            begin = int(after) if after.isdecimal() else 0
            rows = take(cluster)

            def page() -> Rows[T]:
                found = rows()
                shown = found[begin : begin + asked.limit]
                return shown, max(0, len(found) - begin - len(shown)), str(begin + len(shown))

            return page

        return await self._page(asked, part)


def _at_once(look: Look[list[T]]) -> Look[Callable[[], list[T]]]:
    """For rows that can only be made under the cluster's lock."""

    def take(cluster: Cluster) -> Callable[[], list[T]]:
        rows = look(cluster)
        return lambda: rows

    return take


async def _durable(future: Future[int] | None) -> None:
    if future is not None and not future.done():
        await asyncio.wrap_future(future)
    if future is not None:
        future.result()


def _digest(asked: Asked) -> str:
    """What was asked for, for idempotency."""
    return sha256(asked.body + repr(sorted(asked.values.items(), key=str)).encode()).hexdigest()


def _asked_claim(asked: Asked) -> str:
    namespace = asked.text("namespace")
    return _claim_key("" if namespace == "-" else namespace, asked.text("name"))


def _claim_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


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
