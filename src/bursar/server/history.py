"""What happened: journal records in short, the versions of objects, and what differs between two moments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from bursar.engine.decisions import Decision, decision_from_record
from bursar.objects.corekinds import POD
from bursar.objects.errors import join
from bursar.objects.kindset import KindSet
from bursar.server import chronicle
from bursar.server.moments import Moment, entry_of
from bursar.sim import records
from bursar.sim.shelf import Shelf
from bursar.sim.store import timestamp
from bursar.store import mentions
from bursar.store.store import Store

_VERSIONS = 1000
_NOISE = ("metadata.resourceVersion", "metadata.generation")
Manifest = dict[str, Any]


# The journal


def claim_key(uid: str) -> str:
    """namespace/name of a claim of the embedded cluster, from its uid."""
    return uid.rpartition("#")[0] or uid


def decision_rows(line: bytes) -> list[chronicle.DecisionRow]:
    """A journal line in short; one row for each decision of a group."""
    _, seq, at, _, cause, decided, _, digest, _ = msgspec.json.decode(line)
    verb, *subjects = cause
    found = [] if decided is None else decided if verb == "group" else [decided]
    rows = [_decided(seq, at, cause, digest, decision_from_record(record, seq)) for record in found]
    if rows:
        return rows
    subjects = subjects if verb == "configure" else [claim_key(str(subject)) for subject in subjects]
    return [chronicle.DecisionRow(seq=seq, time=timestamp(at), cause=verb, subjects=subjects, digest=digest)]


def _decided(seq: int, at: int, cause: list[Any], digest: str, decision: Decision) -> chronicle.DecisionRow:
    return chronicle.DecisionRow(
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


def latest(store: Store, before: int, limit: int) -> Iterator[chronicle.DecisionRow]:
    """The newest records first, before a number (0: from the end); up to ``limit`` records."""
    last = min(before - 1, store.last_seq) if before else store.last_seq
    first = max(last - limit, store.pruned_to) + 1
    if first > last:
        return
    for line in reversed(list(store.load_journal(first, last))):
        yield from decision_rows(line)


def about(store: Store, key: str, before: int, limit: int) -> list[chronicle.DecisionRow]:
    """Rows about a claim, as asker or victim, the newest first; no more records than give ``limit`` rows.

    Fewer rows mean that there are no more: records that mention a claim but are not about it do not count.
    """
    rows: list[chronicle.DecisionRow] = []
    for line in mentions.lines_about(store, key, before):
        rows.extend(row for row in decision_rows(line) if _concerns(row, key))
        if len(rows) >= limit:
            break
    return rows


def _concerns(row: chronicle.DecisionRow, key: str) -> bool:
    return key in {row.claim, row.by, *row.subjects, *row.victims}


# Objects


def manifest(store: Store, kinds: KindSet, kind: str, key: str, version: int, body: bytes) -> Manifest:
    shelf = Shelf(kinds, store.manifest)
    return records.decode(kinds, shelf, kind, key, version, body)[0].manifest()


def object_history(store: Store, kinds: KindSet, kind: str, key: str) -> list[chronicle.ObjectVersion]:
    """All versions of an object, the oldest first; each with what changed."""
    before: Manifest | None = None
    found: list[chronicle.ObjectVersion] = []
    for entry in store.object_changes(kind, key)[-_VERSIONS:]:
        after = None if entry.body is None else manifest(store, kinds, kind, key, entry.version, entry.body)
        fields = [] if before is None or after is None else list(differences(before, after))
        if before is None or after is None or fields:
            found.append(
                chronicle.ObjectVersion(
                    seq=entry.seq,
                    time=timestamp(entry.at),
                    resource_version=str(entry.version),
                    result="created" if before is None else "deleted" if after is None else "changed",
                    fields=fields,
                )
            )
        before = after
    return found


def object_differences(
    store: Store, kinds: KindSet, start: Moment, end: Moment
) -> Iterator[chronicle.ObjectDifference]:
    """The objects that differ between two moments."""
    first, last = entry_of(store, start.version), entry_of(store, end.version)
    touched = store.rows(
        "SELECT DISTINCT kind, key FROM object_history WHERE id > ? AND id <= ? ORDER BY kind, key", first, last
    )
    for kind, key in touched:
        before, after = _as_of(store, kinds, kind, key, first), _as_of(store, kinds, kind, key, last)
        if before is None and after is None:
            continue
        if before is None or after is None:
            result = chronicle.ObjectDifference(kind=kind, key=key, result="created" if before is None else "deleted")
            yield result
            continue
        fields = list(differences(before, after))
        if fields:
            yield chronicle.ObjectDifference(kind=kind, key=key, result="changed", fields=fields)


def _as_of(store: Store, kinds: KindSet, kind: str, key: str, entry: int) -> Manifest | None:
    query = "SELECT version, body FROM object_history WHERE kind = ? AND key = ? AND id <= ? ORDER BY id DESC LIMIT 1"
    rows = store.rows(query, kind, key, entry)
    if not rows or rows[0][1] is None:
        return None
    return manifest(store, kinds, kind, key, rows[0][0], bytes(rows[0][1]))


def pod_counts(found: list[chronicle.ObjectDifference]) -> dict[str, int]:
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


def differences(before: object, after: object, path: str = "") -> Iterator[chronicle.FieldChange]:
    """The fields that differ, with their paths; lists are compared as a whole."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            yield from differences(before.get(name), after.get(name), join(path, name))
    elif before != after and path not in _NOISE:
        yield chronicle.FieldChange(path=path, before=before, after=after)
