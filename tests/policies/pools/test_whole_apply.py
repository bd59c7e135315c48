"""One apply or delete is judged as a whole: random batches in random orders, and what is kept against what is read."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from bursar.control.admission import ObjectChange
from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.policies.pools.plugin import _read_profile, _topology
from bursar.policies.pools.settings import PREFIX, PROFILE_OBJECT, QUOTA_OBJECT
from bursar.policies.pools.topology import Topology, topology_of
from bursar.sim.cluster import Cluster
from tests.builders import Manifest, node, pod
from tests.policies.pools.test_admission import profile, quota

P = PREFIX
NAMES = ("a", "b", "c", "d", "root-x", "root-y")
Verdict = tuple[str, dict[str, Manifest]]


class Batches:
    """Random manifests about few names, so that they meet."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def quota(self) -> Manifest:
        pick = self.random.choice
        name = pick(NAMES[:4] if self.random.random() < 0.9 else NAMES)
        keys = pick([("cpu",), ("cpu", "memory"), ("cpu", "memory")])
        least = {key: pick([0, 1, 2, 4]) for key in keys if self.random.random() < 0.8}
        labels: dict[str, str] = {"is_parent": pick(["true", "true", "false"])}
        if self.random.random() < 0.15:
            labels["tree_id"] = pick(["x", "y"])
        if self.random.random() < 0.1:
            labels["allow_force_update"] = "true"
        notes = {"namespaces": f'["{pick("no")}"]'} if self.random.random() < 0.15 else {}
        parent = pick(["", *NAMES])
        return quota(name, dict.fromkeys(keys, 9), least, parent, namespace="kube-system", annotations=notes, **labels)

    def other(self) -> Manifest:
        pick = self.random.choice
        kind = pick(["node", "profile", "pod"])
        if kind == "node":
            return node(pick(["n1", "n2"]), {"cpu": pick([2, 6]), "memory": pick([2, 6])}, labels={"pool": pick("xy")})
        if kind == "profile":
            pool = pick("xy")
            found = profile(pool, f"root-{pool}", {"pool": pool}, labels={P + "tree-id": pool})
            keys = pick(['["cpu"]', '["cpu","memory"]'])
            found["metadata"]["annotations"] = {P + "resource-keys": keys}
            return found
        return pod(pick(["p", "q"]), "default", {"cpu": 1}, labels={P + "name": pick(NAMES)})

    def batch(self) -> list[Manifest]:
        count = self.random.choice([1, 2, 3, 5])
        found = [self.quota() if self.random.random() < 0.7 else self.other() for _ in range(count)]
        return list({(one["kind"], one["metadata"]["name"]): one for one in found}.values())

    def gone(self, cluster: Cluster) -> list[tuple[Any, str]]:
        kinds = [QUOTA_OBJECT, PROFILE_OBJECT, "Pod", "Node"]
        there = [(stored.kind, stored.key) for kind in kinds for stored in cluster.objects.all(kind)]
        return self.random.sample(there, min(len(there), self.random.choice([1, 2, 4])))

    def shuffled(self, items: list[Any]) -> list[Any]:
        return self.random.sample(items, len(items))


def documents(batch: list[Manifest]) -> list[Document]:
    return [Document("", number, body) for number, body in enumerate(batch)]


def named(change: ObjectChange) -> str:
    return f"{change.kind.name} {change.key}"


def verdict(cluster: Cluster, batch: list[Manifest]) -> Verdict:
    """What would be stored, or why nothing is."""
    try:
        changes = cluster.staged(documents(batch))
    except ManifestError as error:
        return "a pod" if error.subject.startswith("Pod ") else str(error), {}  # of pods the first given is named
    return "", {named(change): change.object.body for change in changes if change.object is not None}


def removal(cluster: Cluster, gone: list[tuple[Any, str]]) -> str:
    stage = cluster.objects.stage()
    found = [cluster.objects.find(kind.name, key) for kind, key in gone]
    try:
        cluster.staging.check_removals(stage, [stored for stored in found if stored is not None])
    except ManifestError as error:
        return str(error)
    return ""


def content(topology: Topology) -> object:
    """All but the annotations, of which Bursar writes some that admission reads elsewhere."""
    found: dict[str, object] = {}
    for name in (*NAMES, "n", "o", "koordinator-root-quota"):
        given = topology.object(name)
        place = topology.quota(name), topology.children(name), topology.promised(name)
        listed = topology.listing(name), topology.name_of(name, {})
        found[name] = None if given is None else (given.quota, given.labels), place, listed
    return found


def excess(cluster: Cluster) -> dict[tuple[str, str], int]:
    """By how much the mins of children exceed the min of their parent; for root quotas too."""
    found: dict[tuple[str, str], int] = {}
    bodies = {stored.name: stored.manifest() for stored in cluster.objects.all(QUOTA_OBJECT)}
    for body in bodies.values():
        parent = bodies.get(body["metadata"].get("labels", {}).get(P + "parent", ""))
        for resource, amount in (body["spec"].get("min") or {}).items():
            if parent is not None:
                key = parent["metadata"]["name"], resource
                least = int((parent["spec"].get("min") or {}).get(resource, 0))
                found[key] = found.get(key, -least) + int(amount)
    return {key: amount for key, amount in found.items() if amount > 0}


def is_calm(batch: list[Manifest]) -> bool:
    """Whether it contains nothing that may let a sum exceed: nodes, profiles, forced quotas, roots."""
    forced = any(one["metadata"].get("labels", {}).get(P + "allow-force-update") for one in batch)
    kinds = {one["kind"] for one in batch}
    return not forced and not kinds & {"Node", "ElasticQuotaProfile"}


@pytest.mark.parametrize("seed", range(0, 24, 4))
def test_any_order_gives_the_same_verdict(seed: int) -> None:
    refused = [verdict for number in range(4) for verdict in history(Batches(seed + number))]
    assert set(refused) == {False, True}


def history(random: Batches) -> list[bool]:
    """Batches and removals on one cluster; whether each was refused, in whatever order."""
    cluster = Cluster()
    refused: list[bool] = []
    for _ in range(20):
        before = excess(cluster)
        if random.random.random() < 0.2:
            gone = random.gone(cluster)
            found = removal(cluster, gone)
            assert all(removal(cluster, random.shuffled(gone)) == found for _ in range(3))
            if not found:
                cluster.delete(gone)
        else:
            batch = random.batch()
            first = verdict(cluster, batch)
            assert all(verdict(cluster, random.shuffled(batch)) == first for _ in range(3))
            refused.append(bool(first[0]))
            if not first[0]:
                cluster.apply(documents(random.shuffled(batch)))
                if is_calm(batch):
                    assert all(before.get(key, 0) >= amount for key, amount in excess(cluster).items()), batch
        assert content(_topology(cluster.objects)) == content(topology_of(cluster.objects, _read_profile))
    return refused
