"""Pods that people with ordinary rights write to harm others: pods of others go on, and events name them.

The users are one with the role ``edit`` and the admin of a namespace.
"""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import Object
from tests.cluster.controlplane.identities import ALICE, BOB
from tests.cluster.controlplane.objects import pod
from tests.cluster.installation import Replica, replicas
from tests.cluster.robustness.scene import GATE, GPU, Scene
from tests.cluster.waiting import eventually

ATTACKERS = (ALICE, BOB)  # ALICE has ``edit`` everywhere
NODES = 100
PODS = 24
TERMS = 12_000  # about a megabyte
READ = 250  # terms that are read
NOTE = 250_000  # bytes of an annotation: as much as a pod may have
CHURN = 30
SPECS, READINGS = 'bursar_cache_bytes{cache="specs"}', 'bursar_cache_bytes{cache="readings"}'


@pytest.fixture
def hostile(plane: ControlPlane) -> Iterator[str]:
    """A governed namespace whose admin is bob."""
    name = plane.create_namespace(labels={"bursar.dev/quota": "enforced"})
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": BOB}
    role = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "admin"}
    binding: Object = {"metadata": {"name": "bob"}, "roleRef": role, "subjects": [subject]}
    plane.api().create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings", binding)
    eventually(
        lambda: "yes" in plane.kubectl("auth", "can-i", "create", "pods", "-n", name, "--as", BOB, check=False),
        "bob may",
    )
    yield name
    plane.api().delete(f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})
    eventually(lambda: not plane.api().get(f"/api/v1/namespaces/{name}/pods")["items"], "all pods are gone")
    plane.delete_namespace(name)


def affinity(name: str, terms: int) -> Object:
    """Terms that match no node; those of every pod are others."""
    listed = [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [f"{name}-{term}"]}]}
        for term in range(terms)
    ]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": listed}}}


def attack(plane: ControlPlane, user: str, namespace: str, name: str, **spec: Any) -> None:  # noqa: ANN401 fields
    body = pod(name, {GPU: "1"}, labels=spec.pop("labels", None))
    body["spec"] |= spec
    plane.api(user).create(f"/api/v1/namespaces/{namespace}/pods", body)


def told(plane: ControlPlane, namespace: str, reason: str) -> set[str]:
    """The pods that have an event with that reason."""
    events = plane.api().get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    return {one["regarding"]["name"] for one in events if one["reason"].startswith(reason)}


def admission(scene: Scene, name: str) -> float:
    """Seconds until a pod of another team is admitted."""
    began = time.monotonic()
    scene.pod(name)
    eventually(lambda: not scene.gated(name), f"{name} is admitted")
    return time.monotonic() - began


def change_a_node(plane: ControlPlane, node: str, value: int) -> None:
    """All that is known of the nodes for a pod is judged again."""
    plane.api().patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"turn": str(value)}}})


@pytest.mark.parametrize("user", ATTACKERS)
@pytest.mark.parametrize(("terms", "reason"), [(TERMS, "control.too-large"), (READ, "nodes.none")])
def test_pods_with_thousands_of_terms_hold_up_nobody(
    plane: ControlPlane, scene: Scene, hostile: str, user: str, terms: int, reason: str
) -> None:
    nodes = scene.nodes(NODES, gpus=1)
    scene.quota(NODES)
    with replicas(plane, 2) as running:
        before, took = running.lease(), []
        names = {f"attack-{number}" for number in range(PODS)}
        for name in names:
            attack(plane, user, hostile, name, affinity=affinity(name, terms))
        eventually(lambda: told(plane, hostile, reason) == names, "each of them is named")
        for number in range(5):
            change_a_node(plane, nodes[number], number)
            took.append(admission(scene, f"probe-{number}"))
        print(f"{PODS} pods of {terms} terms: probes admitted after {', '.join(f'{one:.2f}' for one in took)} s")  # noqa: T201
        assert running.lease() == before, "one leader all the time"
        assert running.leader().metrics()["bursar_ledger_differences_total"] == 0
        left = plane.api().get(f"/api/v1/namespaces/{hostile}/pods")["items"]
        assert all(GATE in [gate["name"] for gate in one["spec"]["schedulingGates"]] for one in left)


def churn(plane: ControlPlane, user: str, namespace: str, turn: int) -> None:
    """Pods come and go, each with a note of its own that no policy reads."""
    names = [f"churn-{turn}-{number}" for number in range(CHURN)]
    path = f"/api/v1/namespaces/{namespace}/pods"
    for name in names:
        body = pod(name, {GPU: "1"}, annotations={"note": name + "x" * NOTE})
        plane.api(user).create(path, body)
    eventually(lambda: set(names) <= told(plane, namespace, "elastic."), "the controller has seen them")
    for name in names:
        plane.api(user).delete(f"{path}/{name}", {"gracePeriodSeconds": 0})
    eventually(lambda: not plane.api().get(path)["items"], "they are gone")


@pytest.mark.parametrize("user", ATTACKERS)
def test_large_annotations_of_pods_that_are_gone_are_not_kept(
    plane: ControlPlane, scene: Scene, hostile: str, user: str
) -> None:
    """Three rounds of pods bring over 20 MB; before, each megabyte cost three, for good."""
    scene.nodes(1)
    no_room(plane, hostile)
    with replicas(plane) as running:
        leader = running.leader()
        churn(plane, user, hostile, 0)
        before = resident(leader)
        for turn in range(1, 4):
            churn(plane, user, hostile, turn)
        after = leader.metrics()
        assert after[SPECS] + after[READINGS] < 2_000_000
        assert resident(leader) - before < CHURN * NOTE * 3 / 2


def no_room(plane: ControlPlane, namespace: str) -> None:
    """A quota without a single GPU, so that pods wait."""
    spec = {"min": {GPU: 0}, "max": {GPU: 0}}
    body = {"apiVersion": "n8s.nebuly.ai/v1alpha1", "kind": "ElasticQuota", "metadata": {"name": "quota"}, "spec": spec}
    plane.api().create(f"/apis/n8s.nebuly.ai/v1alpha1/namespaces/{namespace}/elasticquotas", body)


def resident(leader: Replica) -> float:
    return eventually(partial(_resident, leader), "the controller says what it takes")


def _resident(leader: Replica) -> float:
    return leader.metrics().get("bursar_resident_bytes", 0)
