"""Clusters of the present and the past, restored from the store, and the history of objects and decisions.

A moment is a place in the journal (``seq``) and in the history of the objects (``version``). Both only grow, and every
durable batch moves at least one, so the two together name a state exactly.

A cluster of the past is complete, with engine and queue, so it answers every query that the present one does. The last
few are cached. It never settles and nothing of it is written. A store file can be read this way without a server.
"""

from __future__ import annotations

import ctypes
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from bursar.engine.decision import Decision, decision_from_record
from bursar.objects.decode import ManifestError, join
from bursar.objects.kinds import POD, KindSet
from bursar.objects.validation import duration_ms, time_ms, timestamp
from bursar.policies.plugin import Registry
from bursar.server import types
from bursar.server.changes import change_of
from bursar.sim import persistence
from bursar.sim.cluster import Cluster
from bursar.sim.objects import ManifestReader
from bursar.store import snapshots, verify
from bursar.store.schema import damaged
from bursar.store.store import Store

_NUMBER = re.compile(r"[0-9]{1,15}")
C = TypeVar("C", bound=Cluster)


@dataclass(frozen=True, slots=True)
class Revision:
    seq: int
    version: int
    at: int


class MomentError(ValueError):
    """A text that names no moment, or one that is not known."""


class PrunedMomentError(MomentError):
    """A moment before the beginning of a pruned journal."""


def moment_of(cluster: Cluster) -> types.Moment:
    """The moment of a cluster, as answers carry it."""
    return types.Moment(
        seq=cluster.engine.version,
        resource_version=str(cluster.objects.version),
        time=timestamp(cluster.now()),
        digest=f"{cluster.engine.digest:016x}",
    )


def find(store: Store, text: str, now: int, latest: int, option: str) -> Revision:
    """The moment that a text names: a time, a time span ago (-5m) or the number of a journal record.

    Times after ``latest`` are in the future, and refused. It is ``now``, except for a file, whose now is its last
    moment. ``option`` is the parameter that the text was given for.
    """
    if _NUMBER.fullmatch(text):
        return at_record(store, int(text))
    moment = now - span_before(text) if text.startswith("-") else _time(text)
    if moment < 0:
        raise MomentError(f"{text!r:.60} is before 1970")
    if moment > latest:
        raise MomentError(f"`{option}`: {text!r:.60} is in the future: the server's time is {timestamp(latest)}")
    return at_time(store, min(moment, now))


def at_record(store: Store, seq: int) -> Revision:
    if seq < store.pruned_to:
        raise PrunedMomentError(f"record {seq} was pruned: the journal begins with record {store.pruned_to + 1}")
    if not store.pruned_to <= seq <= store.last_seq:
        raise MomentError(f"there is no record {seq}: the journal has {store.pruned_to} to {store.last_seq}")
    _, version, at = store.last_entry("seq", seq)
    return Revision(seq, version, at)


def at_time(store: Store, at: int) -> Revision:
    if store.pruned_to:
        begins = store.rows("SELECT at FROM snapshots WHERE seq = ?", store.pruned_to)[0][0]
        if at < begins:
            raise PrunedMomentError(f"{timestamp(at)} was pruned: history begins at {timestamp(begins)}")
    _, version, _ = store.last_entry("at", at)
    return Revision(store.line_at(at), version, at)


def span_before(text: str) -> int:
    try:
        return duration_ms(text[1:])
    except ManifestError as error:
        raise MomentError(f"{text!r:.60} is no time span ago such as -90s or -1h30m: {error.problem}") from None


def _time(text: str) -> int:
    try:
        return time_ms(text)
    except (ValueError, OverflowError):
        forms = "a time such as 2026-11-01T10:03:00Z, a time span ago such as -5m, or the number of a journal record"
        raise MomentError(f"{text!r:.60} is not {forms}") from None


def trim_memory() -> None:
    """Calls malloc_trim where available: a start or a snapshot frees much that the C library would keep."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def past_moment(store: Store, revision: Revision) -> types.Moment:
    """A moment of the past, as answers carry it; the journal has the digest."""
    digest = f"{0:016x}"
    if revision.seq == store.pruned_to and revision.seq:
        digest = str(store.rows("SELECT digest FROM snapshots WHERE seq = ?", revision.seq)[0][0])
    elif revision.seq:
        digest = msgspec.json.decode(store.line(revision.seq))[-2]
    return types.Moment(revision.seq, str(revision.version), timestamp(revision.at), digest)


META = "cluster"
_KEPT = 4
_CLAIMS_KEPT = 50_000  # in all of them together; one is kept however large


class Counters(msgspec.Struct, frozen=True):
    """Counters of a cluster besides its objects; written with every batch."""

    now: int = 0
    uids: int = 0
    version: int = 0
    changes: int = 0

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def counters(store: Store) -> Counters:
    text = store.meta(META)
    return Counters() if text is None else msgspec.json.decode(text, type=Counters)


def present(store: Store, registry: Registry) -> Cluster:
    """The cluster as it was when the last batch was written."""
    cluster = Cluster(registry, manifests=store.manifest)
    restore_engine(store, cluster, store.last_seq)
    known = counters(store)
    cluster.resume(known.now, known.uids, known.version, store.objects(), summed=True)
    vouched, found = cluster.engine.objects, persistence.sum_text(cluster.objects.sum)
    if vouched and vouched != found:
        problem = f"the objects are not those that the journal vouches for (their sum is {found}, not {vouched})"
        raise damaged(store.path, f"{problem}; `bursar audit` says more")
    trim_memory()
    return cluster


def past(store: Store, cluster: C, moment: Revision) -> C:
    """A new cluster, as it was at a moment."""
    restore_engine(store, cluster, moment.seq)
    rows = store.objects_at(store.last_entry("version", moment.version)[0])
    cluster.resume(moment.at, counters(store).uids, moment.version, rows)
    trim_memory()
    return cluster


def restore_engine(store: Store, cluster: Cluster, seq: int) -> None:
    """Bring the engine to the state after a record; the snapshot is out of memory again."""
    snapshots.restore(store, cluster.engine, seq)
    trim_memory()


class Archive:
    """The clusters of the past that were read last, for one caller."""

    def __init__(self, store: Store, registry: Registry, kept: int = _KEPT) -> None:
        self.store = store
        self._registry = registry
        self._kept = kept
        self._clusters: OrderedDict[Revision, Cluster] = OrderedDict()

    def at(self, moment: Revision) -> Cluster:
        """The cluster of a moment, only to be looked at."""
        found = self._clusters.get(moment)
        if found is None:
            new = Cluster(self._registry, manifests=self.store.manifest)
            found = self._clusters[moment] = past(self.store, new, moment)
            while len(self._clusters) > 1 and self._too_much():
                self._clusters.popitem(last=False)
        else:
            self._clusters.move_to_end(moment)
        return found

    def _too_much(self) -> bool:
        claims = sum(len(cluster.engine.state.claims) for cluster in self._clusters.values())
        return len(self._clusters) > self._kept or claims > _CLAIMS_KEPT


_VERSIONS = 1000
_NOISE = ("metadata.resourceVersion", "metadata.generation")
Manifest = dict[str, Any]
Outcome = Literal["created", "changed", "deleted"]


# The journal


def claim_key(uid: str) -> str:
    """namespace/name of a claim of the embedded cluster, from its uid."""
    return uid.rpartition("#")[0] or uid


def decision_rows(line: bytes) -> list[types.DecisionRow]:
    """A journal line in short; one row for each decision of a group."""
    _, seq, at, _, cause, decided, _, digest, _ = msgspec.json.decode(line)
    verb, *subjects = cause
    found = [] if decided is None else decided if verb == "group" else [decided]
    rows = [_decided(seq, at, cause, digest, decision_from_record(record, seq)) for record in found]
    if rows:
        return rows
    subjects = subjects if verb == "configure" else [claim_key(str(subject)) for subject in subjects]
    return [types.DecisionRow(seq=seq, time=timestamp(at), cause=verb, subjects=subjects, digest=digest)]


def _decided(seq: int, at: int, cause: list[Any], digest: str, decision: Decision) -> types.DecisionRow:
    return types.DecisionRow(
        seq=seq,
        time=timestamp(at),
        cause=cause[0],
        subjects=[claim_key(decision.uid)],
        claim=claim_key(decision.uid),
        outcome=decision.name,
        node=decision.place,
        reason=decision.reason,
        message=decision.sentence(),
        victims=[claim_key(uid) for uid in decision.victims],
        by=decision.by,
        digest=digest,
    )


def latest(store: Store, before: int, limit: int) -> Iterator[types.DecisionRow]:
    """The newest records first, before a number (0: from the end); up to ``limit`` records."""
    last = min(before - 1, store.last_seq) if before else store.last_seq
    first = max(last - limit, store.pruned_to) + 1
    if first > last:
        return
    for line in reversed(list(store.load_journal(first, last))):
        yield from decision_rows(line)


def about(store: Store, key: str, before: int, limit: int) -> list[types.DecisionRow]:
    """Rows about a claim, as asker or victim, the newest first; no more records than give ``limit`` rows.

    Fewer rows mean that there are no more: records that mention a claim but are not about it do not count.
    """
    rows: list[types.DecisionRow] = []
    for line in verify.lines_about(store, key, before):
        rows.extend(row for row in decision_rows(line) if key in {row.claim, row.by, *row.subjects, *row.victims})
        if len(rows) >= limit:
            break
    return rows


# Objects


def manifest(store: Store, kinds: KindSet, kind: str, key: str, version: int, body: bytes) -> Manifest:
    manifests = ManifestReader(kinds, store.manifest)
    return persistence.decode(kinds, manifests, kind, key, version, body)[0].manifest()


def object_history(store: Store, kinds: KindSet, kind: str, key: str) -> list[types.ObjectVersion]:
    """All versions of an object, the oldest first; each with what changed."""
    before: Manifest | None = None
    found: list[types.ObjectVersion] = []
    for entry in store.object_changes(kind, key)[-_VERSIONS:]:
        after = None if entry.body is None else manifest(store, kinds, kind, key, entry.version, entry.body)
        result, fields = _compared(before, after)
        if result != "changed" or fields:
            change = change_of(store, kind, key, entry.version)
            found.append(
                types.ObjectVersion(
                    actor="" if change is None else change.actor,
                    change=0 if change is None else change.id,
                    seq=entry.seq,
                    time=timestamp(entry.at),
                    resource_version=str(entry.version),
                    result=result,
                    fields=fields,
                )
            )
        before = after
    return found


def _compared(before: Manifest | None, after: Manifest | None) -> tuple[Outcome, list[types.FieldChange]]:
    if before is None:
        return "created", []
    return ("deleted", []) if after is None else ("changed", list(differences(before, after)))


def object_differences(
    store: Store, kinds: KindSet, start: Revision, end: Revision
) -> Iterator[types.ObjectDifference]:
    """The objects that differ between two moments."""
    first, last = (store.last_entry("version", moment.version)[0] for moment in (start, end))
    touched = store.rows(
        "SELECT DISTINCT kind, key FROM object_history WHERE id > ? AND id <= ? ORDER BY kind, key", first, last
    )
    for kind, key in touched:
        before, after = _as_of(store, kinds, kind, key, first), _as_of(store, kinds, kind, key, last)
        if before is not None or after is not None:
            result, fields = _compared(before, after)
            if result != "changed" or fields:
                yield types.ObjectDifference(kind=kind, key=key, result=result, fields=fields)


def past_object(store: Store, kinds: KindSet, kind: str, key: str, revision: Revision) -> Manifest | None:
    """An object as it was at a moment."""
    return _as_of(store, kinds, kind, key, store.last_entry("version", revision.version)[0])


def past_objects(store: Store, revision: Revision, kind: str, namespace: str) -> list[tuple[str, str, int]]:
    """(kind, key, entry in the history) of the objects that there were, by kind and key; all if "" is wanted."""
    wanted, values = "id <= ?", [store.last_entry("version", revision.version)[0]]
    within: list[object] = []
    if kind:
        wanted, within = f"{wanted} AND kind = ?", [kind]
    if namespace:
        wanted, within = f"{wanted} AND key >= ? AND key < ?", [*within, f"{namespace}/", f"{namespace}0"]
    query = f"SELECT kind, key, max(id), body IS NULL FROM object_history WHERE {wanted} GROUP BY kind, key"  # noqa: S608 of the parts above
    return [(one, key, entry) for one, key, entry, gone in store.stream(query, *values, *within) if not gone]


def entry_manifest(store: Store, kinds: KindSet, kind: str, key: str, entry: int) -> Manifest:
    ((version, body),) = store.rows("SELECT version, body FROM object_history WHERE id = ?", entry)
    return manifest(store, kinds, kind, key, version, bytes(body))


def _as_of(store: Store, kinds: KindSet, kind: str, key: str, entry: int) -> Manifest | None:
    query = "SELECT version, body FROM object_history WHERE kind = ? AND key = ? AND id <= ? ORDER BY id DESC LIMIT 1"
    rows = store.rows(query, kind, key, entry)
    if not rows or rows[0][1] is None:
        return None
    return manifest(store, kinds, kind, key, rows[0][0], bytes(rows[0][1]))


def pod_counts(found: list[types.ObjectDifference]) -> dict[str, int]:
    """How many pods came, went, started, were evicted, finished."""
    counts = dict.fromkeys(("came", "went", "started", "evicted", "finished"), 0)
    words = {"Running": "started", "Evicted": "evicted", "Succeeded": "finished"}
    for one in found:
        if one.kind != POD.name:
            continue
        if one.result != "changed":
            counts["came" if one.result == "created" else "went"] += 1
        for change in one.fields:
            if change.path == "status.phase" and change.after in words:
                counts[words[change.after]] += 1
    return counts


def differences(before: object, after: object, path: str = "") -> Iterator[types.FieldChange]:
    """The fields that differ, with their paths; lists are compared as a whole."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            yield from differences(before.get(name), after.get(name), join(path, name))
    elif before != after and path not in _NOISE:
        yield types.FieldChange(path=path, before=before, after=after)
