"""Stopping the embedded cluster and starting it again: objects as rows of a store.

A record holds what Bursar wrote about an object, the state of a pod with its next timer, and the version with which the
manifest was applied. The manifest stands apart because it seldom changes.

A cluster is stopped at rest, so all outputs of its policies were written, and starting writes nothing again. Equal
values that were one object in memory before (a name, a status that its policy remembers) are one again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from itertools import zip_longest
from sys import intern
from typing import Any, cast

import msgspec
from msgspec import structs
from msgspec.structs import replace

from bursar.control.admission import CONFIGURATION, ObjectChange
from bursar.control.controller import Controller
from bursar.ledger.claims import Claim
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import DEVICE_KINDS, POD, KindSet
from bursar.policies.policy import Policy
from bursar.sim.objects import Body, ManifestReader, ObjectStore, Stored, manifest_mark, manifest_text, shared
from bursar.sim.pods import ENDED, PodLife, SimPod

ObjectRow = tuple[str, str, int, bytes | None, int, bytes | None]
"""(kind, key, version, record, version of the manifest, manifest): no record if the object is gone, and the manifest
only if it is new.
"""


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
    machine: str = ""


class ObjectRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    uid: str
    created: int
    applied_as: int
    generation: int = 1
    written: dict[str, dict[str, Any]] = {}
    node: str = ""
    leaves_since: int | None = None
    pod: PodRecord | None = None
    mark: bytes = b""  # the hash of the manifest


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(ObjectRecord)


def encode(stored: Stored, pod: SimPod | None) -> bytes:
    record = msgspec.convert(stored, ObjectRecord, from_attributes=True)
    if pod is not None:
        record = replace(record, pod=msgspec.convert(pod, PodRecord, from_attributes=True))
    return _ENCODER.encode(record)


def read(text: bytes) -> ObjectRecord:
    """The record as it stands."""
    return _DECODER.decode(text)


def decode(
    kinds: KindSet, manifests: ManifestReader, kind: str, key: str, version: int, text: bytes
) -> tuple[Stored, SimPod | None]:
    """The inverse of ``encode``; ``ManifestError`` for what this Bursar cannot read. The manifest is not read."""
    try:
        record = _DECODER.decode(text)
    except msgspec.DecodeError as error:
        raise ManifestError(f"the stored record cannot be read: {error}", subject=f"{kind} {key}") from error
    known = kinds.find(kind)
    fields = structs.asdict(record)
    doing = fields.pop("pod")
    fields["written"] = shared(known, record.written)
    fields["node"] = intern(record.node)  # many pods are on one node, and most of them do the same
    stored = Stored(kind=known, key=key, manifests=manifests, version=version, **fields)
    if doing is None:
        return stored, None
    pod = SimPod(uid=stored.uid, key=key, node=stored.node, **structs.asdict(doing))
    pod.phase = intern(pod.phase)
    return stored, pod


PolicyOutputs = dict[tuple[str, str, str], dict[str, object] | None]  # by kind, key and part of an object


_SUMS = 1 << 128


def object_number(kind: str, key: str, version: int, record: bytes) -> int:
    """What an object adds to the sum of all objects: a hash of its row. The record has the hash of the manifest."""
    head = f"{len(kind)} {len(key)} {kind}{key} {version} ".encode()
    return int.from_bytes(blake2b(head + record, digest_size=16).digest(), "little")


def sum_text(total: int) -> str:
    """A sum of numbers of objects, as the journal has it."""
    return f"{total % _SUMS:032x}"


def changed_rows(store: ObjectStore, pods: PodLife) -> list[ObjectRow]:
    """Each object that changed since the last call, in the order of the versions; the sum of all objects follows."""
    store.sum -= store.gone
    store.gone = 0
    found: list[ObjectRow] = []
    for (kind, key), version in sorted(store.touched.items(), key=lambda item: item[1]):
        stored = store.find(kind, key)
        if stored is None:
            found.append((kind, key, version, None, 0, None))
            continue
        pod = pods.by_key.get(key) if kind == POD.name else None
        manifest = manifest_text(stored.body) if stored.applied_as > store.taken else None
        if manifest is not None:
            stored = replace(stored, mark=manifest_mark(manifest))
        record = encode(stored, pod)
        number = object_number(kind, key, version, record)
        store.sum += number - stored.number
        store.load(replace(stored, number=number))
        found.append((kind, key, version, record, stored.applied_as, manifest))
    store.touched.clear()
    store.taken = store.version
    return found


def policy_outputs(policies: Iterable[Policy], now: int) -> PolicyOutputs:
    """The outputs that policies have after a restart, which equal those before it, by kind, key and part.

    Those of pods are left out: equal ones become one object anyway.
    """
    outputs = (output for policy in policies for output in policy.outputs(now))
    return {(one.kind, one.key, one.part): one.value for one in outputs if one.kind != POD.name}


def load_objects(
    store: ObjectStore,
    pods: PodLife,
    kinds: KindSet,
    claims: Mapping[str, Claim],
    records: Iterable[tuple[str, str, int, bytes]],
    outputs: PolicyOutputs,
    *,
    summed: bool = False,
) -> list[ObjectChange]:
    """Objects from records (kind, key, version, text) into a new cluster; returns those that the controller reads.

    Manifests of pods stay in the store. Others, which are few and read often, are read and checked at once. A part
    that equals an output of a policy shares its memory. ``summed``: the cluster will write objects, so it needs their
    sum.
    """
    changes: list[ObjectChange] = []
    for kind, key, version, text in records:
        stored, pod = decode(kinds, store.manifests, kind, key, version, text)
        if summed:
            stored = replace(stored, number=object_number(kind, key, version, text))
            store.sum += stored.number
        if pod is not None:
            claim = claims.get(pod.uid)
            if claim is not None:  # the same text, once in memory
                pod.uid = claim.uid
            store.load(replace(stored, uid=pod.uid))
            pods.by_key[key] = pod
        else:
            given = stored.applied
            held = same(given.body, outputs.get((kind, key, "object")))
            written = {part: same(value, outputs.get((kind, key, part))) for part, value in stored.written.items()}
            store.load(replace(stored, held=cast("Body", held), written=cast("dict[str, Body]", written)))
            if stored.kind.kind == CONFIGURATION or stored.kind in DEVICE_KINDS:
                changes.append(ObjectChange(stored.kind, key, given))
    return changes


def resume_pods(pods: PodLife, controller: Controller, changes: list[ObjectChange], now: int) -> None:
    """Set the timers that were running, and tell the controller who is there."""
    timed: list[SimPod] = [pod for pod in pods.by_key.values() if pod.due is not None]
    for pod in sorted(timed, key=lambda pod: (pod.due, pod.order)):
        pods.set_timer(pod, (pod.due or 0) - now)
    controller.resume(changes, [(pod.key, pod.uid) for pod in pods.by_key.values() if pod.phase not in ENDED])


def same(kept: object, other: object) -> object:
    """Plain data equal to ``kept``, made of the objects of ``other`` where these have equal types and key order."""
    if isinstance(kept, dict) and isinstance(other, dict):
        found = {key: same(value, other.get(key)) for key, value in kept.items()}
        return other if list(kept) == list(other) and _alike(found.values(), other.values()) else found
    if isinstance(kept, list) and isinstance(other, list):
        items = [same(value, one) for value, one in zip_longest(kept, other[: len(kept)])]
        return other if len(kept) == len(other) and _alike(items, other) else items
    return other if type(kept) is type(other) and kept == other else kept


def _alike(found: Iterable[object], other: Iterable[object]) -> bool:
    return all(one is that for one, that in zip(found, other, strict=True))
