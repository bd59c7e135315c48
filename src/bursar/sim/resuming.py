"""Stopping a cluster and starting it again: what must be written, and going on from what was.

A cluster is stopped at rest, so what its policies want written was written; going on writes nothing anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from bursar.control.loop import Controller
from bursar.control.translation import CONFIGURATION, ObjectChange
from bursar.ledger.claims import Claim
from bursar.objects.corekinds import POD
from bursar.objects.kindset import KindSet
from bursar.sim.podlife import PodLife
from bursar.sim.pods import ENDED, SimPod
from bursar.sim.records import ObjectRow, decode, encode
from bursar.sim.shelf import manifest_text
from bursar.sim.store import Store


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


def load_objects(
    store: Store,
    pods: PodLife,
    kinds: KindSet,
    claims: Mapping[str, Claim],
    records: Iterable[tuple[str, str, int, bytes]],
) -> list[ObjectChange]:
    """Objects from records (kind, key, version, text) into a new cluster; returns those that the controller reads.

    Manifests of pods stay where they are. Others, which are few and looked at often, are read and checked at once.
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
            store.load(replace(stored, held=given.body))
            if stored.kind.kind == CONFIGURATION:
                changes.append(ObjectChange(stored.kind, key, given))
    return changes


def resume_pods(pods: PodLife, controller: Controller, changes: list[ObjectChange], now: int) -> None:
    """Set the timers that were running, and tell the controller who is there."""
    timed: list[SimPod] = [pod for pod in pods.by_key.values() if pod.due is not None]
    for pod in sorted(timed, key=lambda pod: (pod.due, pod.order)):
        pods.set_timer(pod, (pod.due or 0) - now)
    controller.resume(changes, [(pod.key, pod.uid) for pod in pods.by_key.values() if pod.phase not in ENDED])
