"""Stopping a cluster and starting it again: what must be written, and going on from what was.

A cluster is stopped at rest, so what its policies want written was written; going on writes nothing anew. What was once
in memory before (a name, a status that its policy remembers) is once in memory again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import cast

from msgspec.structs import replace

from bursar.control.loop import Controller
from bursar.control.translation import CONFIGURATION, ObjectChange
from bursar.ledger.claims import Claim
from bursar.objects.corekinds import POD
from bursar.objects.kindset import KindSet
from bursar.policies.base import Policy
from bursar.sim.podlife import PodLife
from bursar.sim.pods import ENDED, SimPod
from bursar.sim.records import ObjectRow, decode, encode
from bursar.sim.shelf import manifest_text
from bursar.sim.store import Body, Store

Said = dict[tuple[str, str, str], dict[str, object] | None]  # by kind, key and part of an object


def changed_rows(store: Store, pods: PodLife) -> list[ObjectRow]:
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
    store: Store,
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
