"""What is kept of watched objects: what somebody reads; of a node nothing that is large, or never at rest."""

import asyncio
import copy
import json
from typing import Any

import msgspec
import pytest

from bursar.control.admission import known_kinds
from bursar.kube.client.api import NODES
from bursar.kube.client.models import Meta, meta_of
from bursar.kube.controller.informers import QuotaView, narrowed
from bursar.kube.controller.object_cache import ObjectCache
from bursar.objects.core import Node
from bursar.objects.hami_register import REGISTER
from bursar.objects.kinds import NAMESPACE, NODE, Kind
from bursar.policies.crossquota.arguments import NODE_MARKS
from bursar.policies.plugin import default_registry
from tests.kube.controller.stage import ELASTIC, GPU, stage

Body = dict[str, Any]
MARK = f"{NODE_MARKS}cpu"
FIELDS = [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}}]


def node() -> Body:
    """As a kubelet and its neighbours leave it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "n",
            "uid": "u",
            "resourceVersion": "7",
            "creationTimestamp": "2026-11-01T00:00:00Z",
            "labels": {"zone": "z"},
            "annotations": {MARK: "8", "hami.io/node-handshake": "Requesting_2026.11.16 02:00:00"},
            "managedFields": FIELDS,
        },
        "spec": {
            "podCIDR": "10.0.0.0/24",
            "unschedulable": True,
            "taints": [{"key": "t", "effect": "NoSchedule", "timeAdded": "2026-11-01T00:00:00Z"}],
        },
        "status": {
            "allocatable": {"cpu": "8", GPU: "2"},
            "capacity": {"cpu": "9", GPU: "2"},
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "x", "lastHeartbeatTime": "2026-11-16T02:00:00Z"}
            ],
            "images": [{"names": [f"registry.example.com/image-{i}:v1"], "sizeBytes": 10**9} for i in range(50)],
            "nodeInfo": {"machineID": "m"},
            "volumesInUse": ["kubernetes.io/csi/v"],
            "volumesAttached": [{"name": "kubernetes.io/csi/v", "devicePath": ""}],
        },
    }


def kept(body: Body) -> Body:
    found: Body = json.loads(narrowed(NODE)(Meta(), json.dumps(body).encode()))
    return found


def test_of_a_node_only_what_is_read_is_kept() -> None:
    body = node()
    body["metadata"]["annotations"][REGISTER] = "[]"
    found = kept(body)
    assert sorted(found["metadata"]) == ["annotations", "creationTimestamp", "labels", "name", "uid"]
    assert found["metadata"]["annotations"] == {MARK: "8", REGISTER: "[]"}
    assert found["spec"] == {"unschedulable": True, "taints": [{"key": "t", "effect": "NoSchedule"}]}
    assert sorted(found["status"]) == ["allocatable", "capacity", "conditions"]
    assert found["status"]["conditions"] == [{"type": "Ready", "status": "True", "reason": "x"}]


def test_everything_that_the_struct_of_a_node_has_is_kept() -> None:
    whole = msgspec.convert(node(), Node)
    metadata = msgspec.structs.replace(whole.metadata, annotations={MARK: "8"})
    assert msgspec.convert(kept(node()), Node) == msgspec.structs.replace(whole, metadata=metadata)


def test_what_is_never_at_rest_on_a_node_makes_no_difference() -> None:
    later = copy.deepcopy(node())
    later["metadata"] |= {"resourceVersion": "8", "managedFields": []}
    later["metadata"]["annotations"]["hami.io/node-handshake"] = "Requesting_2026.11.16 02:00:30"
    later["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-16T02:05:00Z"
    later["status"]["images"].pop()
    assert kept(later) == kept(node())


def test_a_node_with_fields_that_are_null_is_read_all_the_same() -> None:
    body = node()
    body["spec"]["taints"] = None
    raw = narrowed(NODE)(Meta(), json.dumps(body).encode())
    given, _ = ObjectCache(known_kinds(default_registry())).read(NODE, raw)
    assert given.key == "n"
    assert b"managedFields" not in raw


@pytest.mark.parametrize("fields", [FIELDS, None])
def test_any_other_object_is_kept_but_for_its_managed_fields(fields: list[Body] | None) -> None:
    body: Body = {"metadata": {"name": "a", "labels": {"x": "managedFields"}}, "spec": {"large": 2**63, "part": 1e-7}}
    given = copy.deepcopy(body)
    if fields is not None:
        given["metadata"]["managedFields"] = fields
    assert json.loads(narrowed(NAMESPACE)(Meta(), json.dumps(given).encode())) == body


@pytest.mark.anyio
async def test_a_term_keeps_no_images_and_takes_no_heartbeat_for_a_change() -> None:
    async with stage() as cluster:
        cluster.fake.state.create(NODES, "", node())
        term = await cluster.lead()
        (held,) = [raw for kind, raw in term._watches.objects() if kind.name == NODE.name]
        known = term.mirror.cache.get(NODE.name, "n")
        assert known is not None
        assert (b"images" in held, "images" in known["status"]) == (False, False)
        told: list[str] = []

        def told_of(kind: Kind, raw: bytes) -> None:
            told.append(f"{kind.name} {meta_of(raw).name}")

        term.mirror.object_seen = told_of  # type: ignore[method-assign]
        before = cluster.fake.state.get(NODES, "", "n")
        later = copy.deepcopy(before)
        later["metadata"]["annotations"]["hami.io/node-handshake"] = "Requesting_2026.11.16 02:00:30"
        cluster.fake.state._store("MODIFIED", (NODES, "", "n"), before, later)
        cluster.node("m", 8)
        await cluster.until(lambda: "Node m" in told)
        assert told == ["Node m"]


@pytest.mark.anyio
async def test_the_webhook_keeps_no_managed_fields_either() -> None:
    kind = known_kinds(default_registry()).find("ElasticQuota.n8s.nebuly.ai")
    async with stage() as cluster:
        body = {"metadata": {"name": "q", "managedFields": FIELDS}, "spec": {"min": {GPU: 1}}}
        cluster.fake.state.create(ELASTIC, "a", body)
        view = QuotaView(cluster.api, [kind])
        task = asyncio.create_task(view.run())
        await cluster.until(view.ready)
        task.cancel()
        found = view.get(kind.name, "a/q")
        assert found is not None
        assert (found["spec"], "managedFields" in found["metadata"]) == ({"min": {GPU: 1}}, False)
