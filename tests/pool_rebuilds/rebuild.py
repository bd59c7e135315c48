"""A cluster from the objects that another one left, found in any order, and what must be equal in both.

It is what a restart without a journal and a new leader do: pods that have a node count there, whatever quotas say, and
the others are pending. Admission is not asked again. Of what Bursar wrote, only the preemption history is read.
"""

from __future__ import annotations

from random import Random
from typing import Any, cast

import msgspec

from bursar.control.admission import ObjectChange
from bursar.objects.core import Pod
from bursar.objects.kinds import POD, TypedObject
from bursar.policies.pools.policy import PoolsPolicy
from bursar.sim.cluster import Cluster
from bursar.sim.objects import Stored
from bursar.sim.pods import ENDED, TERMINATING, SimPod, pod_times
from tests.at_rest import Retry, decidable, is_at_rest, story
from tests.builders import Manifest
from tests.policies.pools.world import derived_of

REST = 10_000
_TRIES = 8


class DifferenceError(AssertionError):
    """What differs, by the name of what was compared."""

    def __init__(self, what: str, found: object, right: object) -> None:
        super().__init__(f"{what}: rebuilt {found}, before {right}")
        self.what = what.partition(" ")[0]


def rebuilt(cluster: Cluster, rng: Random) -> Cluster:
    """Nodes come first, because a pod is only charged on a node that is known; all else is shuffled."""
    new = Cluster(start=cluster.now())
    nodes = cluster.objects.all("Node")
    others = [stored for kind in cluster.objects.kinds() if kind != "Node" for stored in cluster.objects.all(kind)]
    rng.shuffle(nodes)
    rng.shuffle(others)
    for stored in [*nodes, *others]:
        if stored.kind.name == POD.name:
            _enter_pod(new, cluster, stored)
        else:
            new.objects.load(msgspec.structs.replace(stored, written={}))
            new.controller.apply([ObjectChange(stored.kind, stored.key, stored.applied)])
    for uid in new.engine.state.claims:
        new.controller.recall_history(uid, *cluster.engine.preemption_history(uid))
    new.settle()
    return new


def _enter_pod(new: Cluster, old: Cluster, stored: Stored) -> None:
    before = old.doing(stored.key)
    assert before is not None
    if before.phase in ENDED:
        return
    given = stored.applied
    pod = cast("Pod", given.typed)
    metadata = msgspec.structs.replace(pod.metadata, namespace=given.namespace, uid=stored.uid)
    spec = msgspec.structs.replace(pod.spec, node_name=before.node)
    typed = msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=type(pod.status)())
    runs_for, leaves_after = pod_times(pod)
    new.objects.load(msgspec.structs.replace(stored, written={}))
    pods = cast("dict[str, SimPod]", new.pod_states)
    pods[stored.key] = SimPod(stored.uid, stored.key, runs_for, leaves_after, before.phase, before.node)
    whole = TypedObject(given.kind, given.namespace, given.name, given.body, typed)
    new.controller.apply([ObjectChange(stored.kind, stored.key, whole, stored.created)])
    if before.node:
        new.controller.running(stored.uid)
    if before.phase == TERMINATING:
        new.controller.terminating(stored.uid)


def comes_to_rest(cluster: Cluster) -> bool:
    """Lets time pass until nothing is on its way; returns whether that took only a few steps."""
    for _ in range(_TRIES):
        if is_at_rest(cluster):
            return True
        cluster.advance(REST)
    return False


# What must be equal


def compare(cluster: Cluster, rng: Random) -> None:
    """Raises ``DifferenceError`` if a cluster at rest and one that is rebuilt from its objects differ."""
    found = rebuilt(cluster, rng)
    for what, one, other in (
        ("places", _places(found), _places(cluster)),
        ("derived", derived_of(_policy(found)), derived_of(_policy(cluster))),
        ("accounts", _accounts(found), _accounts(cluster)),
        ("reasons", _reasons(found), _reasons(cluster)),
        ("explanations", _explanations(found), _explanations(cluster)),
        ("objects", _objects(found), _objects(cluster)),
    ):
        _same(what, one, other)


def _same(what: str, found: Any, right: Any) -> None:  # noqa: ANN401 plain data
    """Raises with the innermost part that differs."""
    if isinstance(found, dict) and isinstance(right, dict):
        for key in sorted({*found, *right}):
            _same(f"{what} {key}", found.get(key), right.get(key))
    elif isinstance(found, list) and isinstance(right, list) and len(found) == len(right):
        for number, (one, other) in enumerate(zip(found, right, strict=True)):
            _same(f"{what} {number}", one, other)
    elif found != right:
        raise DifferenceError(what, found, right)


def _places(cluster: Cluster) -> dict[str, Any]:
    return {key: place for key, place in story(cluster).items() if place[0] not in ENDED}


def _policy(cluster: Cluster) -> PoolsPolicy:
    (policy,) = (policy for policy in cluster.engine.policies if isinstance(policy, PoolsPolicy))
    return policy


def _accounts(cluster: Cluster) -> dict[str, Any]:
    accounts = cluster.engine.state.accounts
    return {name: accounts[name].used.vector().show() for name in accounts if name.startswith("pools/")}


def _reasons(cluster: Cluster) -> dict[str, Any]:
    """Why each pod waits if it is tried now: what it was told may be of the time when it was refused."""
    found: dict[str, Any] = {}
    for claims in decidable(cluster.controller.queue):
        outlook = cluster.engine.what_if([Retry([claim.uid for claim in claims])], cluster.now())
        found.update({decision.uid: [decision.name, decision.reason] for decision in outlook.decisions})
    return found


def _explanations(cluster: Cluster) -> dict[str, Any]:
    policy, found = _policy(cluster), {}
    for claim in cluster.engine.state.claims.values():
        binding = claim.binding_of(policy.name)
        found[claim.key] = None if binding is None else policy.explain(claim, binding).lines()
    return found


def _objects(cluster: Cluster) -> dict[str, Any]:
    """What Bursar wrote on quotas and profiles, and the root quotas that it made."""
    found: dict[str, Any] = {}
    for kind in cluster.objects.kinds():
        if kind.startswith("ElasticQuota"):
            for stored in cluster.objects.all(kind):
                found[f"{kind} {stored.key}"] = _visible(stored.manifest())
    return found


def _visible(manifest: Manifest) -> Manifest:
    """The object as its readers see it, without the count of its writes. An empty label is as good as none."""
    given = manifest["metadata"]
    marks = [
        {name: mark for name, mark in (given.get(part) or {}).items() if mark} for part in ("labels", "annotations")
    ]
    return manifest | {"metadata": marks}
