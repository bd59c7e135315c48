"""Answers from a copy of the cluster, of now or of the past: searches for fixes, trials, plans, dry runs, time travel.

A copy is any cluster that has the state of another one, however it came by it. Nothing here knows of HTTP. Operations
of ``CHANGING`` make their changes in the copy that they are given, which is of no use afterwards; others undo theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from bursar.objects.decode import ManifestError
from bursar.objects.validation import duration_ms
from bursar.server import total_types, types
from bursar.server.changes import inverse_of, load_change
from bursar.server.operations import OPERATIONS
from bursar.server.overview import overview
from bursar.server.pages import LISTS, page
from bursar.server.problems import RefusedError
from bursar.server.quota_explanation import quota_explanations
from bursar.server.request_query import RequestQuery, claim_key
from bursar.server.rows import ClaimView
from bursar.server.service import Action, NoSuchChangeError, deleting, described
from bursar.server.time_travel import Revision
from bursar.server.what_if import Unchanged, explanation, no_claim, plan, warned, what_if
from bursar.sim.cluster import Cluster
from bursar.store.store import Store

CHANGING = frozenset({"plan", "apply", "delete", "undo"})
HORIZON_MOST = 7 * 24 * 3600 * 1000
_BY_NAME = {operation.name: operation for operation in OPERATIONS}


class Question(msgspec.Struct, frozen=True):
    """A request, and of which state it asks."""

    upto: Revision  # the moment, or a moment that an answer about now must have come to
    operation: str = ""  # none: only follow
    values: dict[str, Any] = {}
    body: bytes = b""
    content_type: str = ""
    after: str = ""  # where the page of a list begins

    @classmethod
    def of(cls, asked: RequestQuery, upto: Revision, after: str = "") -> Question:
        return cls(upto, asked.operation.name, asked.values, asked.body, asked.content_type, after)

    @property
    def asked(self) -> RequestQuery:
        return RequestQuery(_BY_NAME[self.operation], self.values, self.body, self.content_type)


class ClusterCopy(Protocol):
    """A copy of the cluster, and what questions need besides it."""

    @property
    def cluster(self) -> Cluster: ...

    def history(self) -> Store:
        """Where changes and earlier versions of objects are."""

    def unchanged(self) -> Unchanged:
        """What becomes of the cluster as it is now if it is left alone."""


def answer(question: Question, copy: ClusterCopy) -> object:
    """What the operation answers; ``RefusedError`` and other errors stand for problems."""
    asked = question.asked
    if question.operation in LISTS:
        return page(asked, copy.cluster, question.after, question.upto.at)()
    return _ANSWERS[question.operation](asked, copy)


def _claim(asked: RequestQuery, copy: ClusterCopy) -> types.ClaimRow:
    return claim_row(copy.cluster, claim_key(asked))


def claim_row(cluster: Cluster, key: str) -> types.ClaimRow:
    found = ClaimView(cluster).row(key)
    if found is None:
        raise no_claim(cluster, key)
    return found


def _explain(asked: RequestQuery, copy: ClusterCopy) -> types.Explanation:
    return explanation(copy.cluster, claim_key(asked), fixes=asked.truth("fixes"))


def _overview(_asked: RequestQuery, copy: ClusterCopy) -> total_types.Overview:
    return overview(copy.cluster)


def _explain_quota(asked: RequestQuery, copy: ClusterCopy) -> types.QuotaExplanations:
    return quota_explanations(copy.cluster, asked.text("kind"), asked.text("key"))


# Trials


def _what_if(asked: RequestQuery, copy: ClusterCopy) -> types.WhatIf:
    documents = asked.documents()
    return warned(what_if(copy.cluster, documents), copy.cluster, documents)


def _plan(asked: RequestQuery, copy: ClusterCopy) -> types.Plan:
    horizon = _span(asked.text("horizon"))
    delete = checked_references(copy.cluster, asked.values.get("delete", ()))
    documents = [] if delete and not asked.body.strip() else asked.documents()
    found = plan(copy.cluster, copy.unchanged(), documents, delete, horizon)
    return warned(found, copy.cluster, documents)


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


def checked_references(cluster: Cluster, given: Sequence[str]) -> Sequence[str]:
    """They have the form of references; the objects may be missing."""
    for text in given:
        try:
            cluster.reference(text)
        except ManifestError as error:
            raise RefusedError(400, str(error)) from None
    return given


# Dry runs of changes


def _dry_run(asked: RequestQuery, copy: ClusterCopy) -> types.Change:
    cluster = copy.cluster
    action = _action(asked, copy)
    outcomes = action.run(cluster)
    found = described(cluster, 0, action, outcomes, cluster.take_news()[0], dry_run=True)
    return warned(found, cluster, asked.documents()) if asked.operation.name == "apply" else found


def _action(asked: RequestQuery, copy: ClusterCopy) -> Action:
    name = asked.operation.name
    if name == "undo":
        number = asked.number("id")
        record = load_change(copy.history(), number)
        if record is None:
            raise NoSuchChangeError(f"there is no change {number}")
        inverse = inverse_of(record, copy.cluster, copy.history())
        return Action(name, inverse.run, inverse=inverse)
    if name == "delete":
        references = checked_references(copy.cluster, asked.names())
        return Action(name, deleting(references))
    documents = asked.documents()
    return Action(name, lambda cluster: cluster.apply(documents))


_ANSWERS: dict[str, Callable[[RequestQuery, ClusterCopy], object]] = {
    "claim": _claim,
    "explain": _explain,
    "explain_quota": _explain_quota,
    "overview": _overview,
    "what_if": _what_if,
    "plan": _plan,
    "apply": _dry_run,
    "delete": _dry_run,
    "undo": _dry_run,
}
