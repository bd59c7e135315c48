"""Objects of the embedded cluster as text, so that it can be stopped and started again.

A record holds what Bursar wrote, for a pod what it is doing and when its next timer is due, and the version with which
the manifest was applied. The manifest itself stands apart, because it seldom changes: writing what a pod is doing needs
neither to have nor to repeat it.

Stopping a cluster and starting it again: what must be written, and going on from what was.

A cluster is stopped at rest, so what its policies want written was written; going on writes nothing anew. What was once
in memory before (a name, a status that its policy remembers) is once in memory again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from sys import intern
from typing import Any, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from bursar.control.admission import CONFIGURATION, ObjectChange
from bursar.control.controller import Controller
from bursar.ledger.claims import Claim
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import POD, KindSet
from bursar.policies.policy import Policy
from bursar.sim.objects import Body, ObjectStore, Shelf, Stored, manifest_text, shared
from bursar.sim.pods import ENDED, PodLife, SimPod


class ObjectRow(NamedTuple):
    """An object as it is to be written. Without a record it is gone; the manifest only when it is new."""

    kind: str
    key: str
    version: int
    record: bytes | None
    applied_as: int = 0
    manifest: bytes | None = None


class PodRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    phase: str
    reason: str = ""
    message: str = ""
    evicted: bool = False
    deleted: bool = False
    due: int | None = None
    order: int = 0  # among timers of the same time
    runs_for: int | None = None
    leaves_after: int = 0


class ObjectRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    uid: str
    created: int
    applied_as: int
    generation: int = 1
    written: dict[str, dict[str, Any]] = {}
    node: str = ""
    leaves_since: int | None = None
    pod: PodRecord | None = None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(ObjectRecord)


def encode(stored: Stored, pod: SimPod | None) -> bytes:
    doing = None
    if pod is not None:
        doing = PodRecord(
            pod.phase,
            pod.reason,
            pod.message,
            pod.evicted,
            pod.deleted,
            pod.due,
            pod.order,
            pod.runs_for,
            pod.leaves_after,
        )
    return _ENCODER.encode(
        ObjectRecord(
            stored.uid,
            stored.created,
            stored.applied_as,
            stored.generation,
            stored.written,
            stored.node,
            stored.leaves_since,
            doing,
        )
    )


def read(text: bytes) -> ObjectRecord:
    """The record as it stands."""
    return _DECODER.decode(text)


def decode(
    kinds: KindSet, shelf: Shelf, kind: str, key: str, version: int, text: bytes
) -> tuple[Stored, SimPod | None]:
    """The inverse of ``encode``; ``ManifestError`` for what this Bursar cannot read. The manifest is not read."""
    try:
        record = _DECODER.decode(text)
    except msgspec.DecodeError as error:
        raise ManifestError(f"the stored record cannot be read: {error}", subject=f"{kind} {key}") from error
    known = kinds.find(kind)
    stored = Stored(
        known,
        key,
        record.uid,
        record.created,
        shelf,
        record.applied_as,
        record.generation,
        version,
        shared(known, record.written),
        intern(record.node),  # many pods are on one node, and most of them do the same
        record.leaves_since,
    )
    return stored, None if record.pod is None else _pod(stored, record.pod)


def _pod(stored: Stored, record: PodRecord) -> SimPod:
    return SimPod(
        stored.uid,
        stored.key,
        record.runs_for,
        record.leaves_after,
        intern(record.phase),
        stored.node,
        record.reason,
        record.message,
        record.evicted,
        record.deleted,
        record.due,
        record.order,
    )


Said = dict[tuple[str, str, str], dict[str, object] | None]  # by kind, key and part of an object


def changed_rows(store: ObjectStore, pods: PodLife) -> list[ObjectRow]:
    """Each object that changed since the last call, in the order of the versions."""
    found: list[ObjectRow] = []
    for (kind, key), version in sorted(store.touched.items(), key=lambda item: item[1]):
        stored = store.find(kind, key)
        if stored is None:
            found.append(ObjectRow(kind, key, version, None))
            continue
        pod = pods.by_key.get(key) if kind == POD.name else None
        manifest = manifest_text(stored.body) if stored.applied_as > store.taken else None
        found.append(ObjectRow(kind, key, version, encode(stored, pod), stored.applied_as, manifest))
    store.touched.clear()
    store.taken = store.version
    return found


def said_again(policies: Iterable[Policy], now: int) -> Said:
    """What policies say of objects after a restart: what they said before it, and what they remember from now on.

    Without pods, of which equal ones become one anyway.
    """
    outputs = (output for policy in policies for output in policy.outputs(now))
    return {(one.kind, one.key, one.part): one.value for one in outputs if one.kind != POD.name}


def load_objects(
    store: ObjectStore,
    pods: PodLife,
    kinds: KindSet,
    claims: Mapping[str, Claim],
    records: Iterable[tuple[str, str, int, bytes]],
    said: Said,
) -> list[ObjectChange]:
    """Objects from records (kind, key, version, text) into a new cluster; returns those that the controller reads.

    Manifests of pods stay where they are. Others, which are few and looked at often, are read and checked at once. What
    is written and was ``said`` again by a policy is once in memory, the policy's.
    """
    changes: list[ObjectChange] = []
    for kind, key, number, text in records:
        stored, pod = decode(kinds, store.shelf, kind, key, number, text)
        if pod is not None:
            claim = claims.get(pod.uid)
            if claim is not None:  # the same text, once in memory
                pod.uid = claim.uid
            store.load(replace(stored, uid=pod.uid))
            pods.by_key[key] = pod
        else:
            given = stored.applied
            held = same(given.body, said.get((kind, key, "object")))
            written = {part: same(value, said.get((kind, key, part))) for part, value in stored.written.items()}
            store.load(replace(stored, held=cast("Body", held), written=cast("dict[str, Body]", written)))
            if stored.kind.kind == CONFIGURATION:
                changes.append(ObjectChange(stored.kind, key, given))
    return changes


def resume_pods(pods: PodLife, controller: Controller, changes: list[ObjectChange], now: int) -> None:
    """Set the timers that were running, and tell the controller who is there."""
    timed: list[SimPod] = [pod for pod in pods.by_key.values() if pod.due is not None]
    for pod in sorted(timed, key=lambda pod: (pod.due, pod.order)):
        pods.set_timer(pod, (pod.due or 0) - now)
    controller.resume(changes, [(pod.key, pod.uid) for pod in pods.by_key.values() if pod.phase not in ENDED])


def same(kept: object, said: object) -> object:
    """Plain data that equals ``kept`` to the types and the order of keys, of ``said``'s objects as far as those do."""
    if isinstance(kept, dict) and isinstance(said, dict):
        found = {key: same(value, said.get(key)) for key, value in kept.items()}
        return said if list(kept) == list(said) and _alike(found.values(), said.values()) else found
    if isinstance(kept, list) and isinstance(said, list):
        items = [same(value, other) for value, other in zip_longest(kept, said[: len(kept)])]
        return said if len(kept) == len(said) and _alike(items, said) else items
    return said if type(kept) is type(said) and kept == said else kept


def _alike(found: Iterable[object], said: Iterable[object]) -> bool:
    return all(one is other for one, other in zip(found, said, strict=True))
