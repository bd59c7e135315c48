"""Pods in Protocol Buffers, from a real API server: whatever a pod has, it is read as from JSON."""

import asyncio
from typing import Any

import pytest

from bursar.kube.client.api import PODS, Api, PatchKind
from bursar.kube.client.http import Call, Request
from bursar.kube.client.pod_protobuf import _VOLUME_SOURCES
from bursar.kube.client.protobuf import _ENVELOPE, MAGIC, PACKED, bytes_of
from bursar.kube.client.watch import Following
from bursar.kube.controller.pod_model import read_pod
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.objects import pod, unique
from tests.kube.client.conformance import Followed, OnlyPacked
from tests.kube.protobuf_writer import sized

pytestmark = pytest.mark.anyio

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NEAR = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
WHERE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
BY_NAME = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
SOURCES: dict[str, dict[str, Any]] = {
    "hostPath": {"path": "/x"},
    "emptyDir": {"sizeLimit": "1Gi"},
    "gcePersistentDisk": {"pdName": "x"},
    "awsElasticBlockStore": {"volumeID": "x"},
    "gitRepo": {"repository": "x"},
    "secret": {"secretName": "x"},
    "nfs": {"server": "x", "path": "/x"},
    "iscsi": {"targetPortal": "1.2.3.4", "iqn": "iqn.2020-01.com.example:x", "lun": 0},
    "glusterfs": {"endpoints": "x", "path": "x"},
    "persistentVolumeClaim": {"claimName": "x"},
    "rbd": {"monitors": ["x"], "image": "x"},
    "flexVolume": {"driver": "a/b"},
    "cinder": {"volumeID": "x"},
    "cephfs": {"monitors": ["x"]},
    "flocker": {"datasetName": "x"},
    "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]},
    "fc": {"targetWWNs": ["x"], "lun": 0},
    "azureFile": {"secretName": "x", "shareName": "x"},
    "configMap": {"name": "x"},
    "vsphereVolume": {"volumePath": "x"},
    "quobyte": {"registry": "x:1", "volume": "x"},
    "azureDisk": {"diskName": "x", "diskURI": "https://blob/x"},
    "photonPersistentDisk": {"pdID": "x"},
    "portworxVolume": {"volumeID": "x"},
    "scaleIO": {"gateway": "x", "system": "x", "secretRef": {"name": "x"}, "volumeName": "x"},
    "projected": {"sources": [{"configMap": {"name": "x"}}]},
    "storageos": {"volumeName": "x"},
    "csi": {"driver": "x"},
    "ephemeral": {
        "volumeClaimTemplate": {
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
    },
    "image": {"reference": "x"},
}


def _everything(plane: ControlPlane) -> dict[str, Any]:
    """A pod with all that is read of one."""
    urgent, odd = unique("urgent"), unique("odd")
    plane.api().create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": urgent}, "value": -7, "preemptionPolicy": "Never"},
    )
    plane.api().create(
        "/apis/node.k8s.io/v1/runtimeclasses",
        {"metadata": {"name": odd}, "handler": "odd", "overhead": {"podFixed": {"cpu": "0.25", "memory": "1e6"}}},
    )
    body = pod("everything", {"cpu": "1.5", "memory": "128974848", "nvidia.com/gpu": "2"}, gates=["a/b", "c/d"])
    main = body["spec"]["containers"][0]
    main["ports"] = [
        {"containerPort": 80},
        {"containerPort": 53, "hostPort": 53, "hostIP": "1.2.3.4", "protocol": "UDP"},
    ]
    sidecar = {"name": "side", "image": "x", "restartPolicy": "Always", "resources": {"requests": {"cpu": "10m"}}}
    owners = [
        {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "y", "uid": "2", "controller": True},
    ]
    body["metadata"] |= {
        "labels": {"app": "x", "empty": ""},
        "annotations": {"note": "üöä €", "empty": ""},
        "ownerReferences": owners,
        "finalizers": ["example.com/stay"],
    }
    body["spec"] |= {
        "initContainers": [sidecar, {"name": "first", "image": "x", "resources": {"limits": {"cpu": "2"}}}],
        "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4", "memory": "1Gi"}},
        "nodeSelector": {"disk": "ssd", "empty": ""},
        "affinity": {
            "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [WHERE, WHERE | BY_NAME]}},
            "podAffinity": {REQUIRED: [NEAR, NEAR]},
            "podAntiAffinity": {REQUIRED: [NEAR]},
        },
        "tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": how}
            for how in ("DoNotSchedule", "ScheduleAnyway")
        ],
        "priorityClassName": urgent,
        "runtimeClassName": odd,
        "schedulerName": "volcano",
        "hostNetwork": False,
        "terminationGracePeriodSeconds": 0,
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}],
        "volumes": [{"name": name.lower(), name: source} for name, source in SOURCES.items()],
    }
    return body


async def test_whatever_a_pod_has_is_read_as_from_json(plane: ControlPlane, api: Api, namespace: str) -> None:
    assert tuple(SOURCES) == _VOLUME_SOURCES
    await api.create(PODS, pod("plain", {}), namespace)
    on_host = pod("on-host", {"cpu": "1"}, gates=["a/b"])
    on_host["spec"]["hostNetwork"] = True
    await api.create(PODS, on_host, namespace)
    await api.create(PODS, _everything(plane), namespace)
    async with Followed(api, PODS, Following(namespace=namespace), OnlyPacked()) as followed:
        await _same(api, namespace, followed)
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}
        status = {"phase": "Failed", "conditions": [condition]}
        await api.patch(PODS, "plain", namespace, PatchKind.STRATEGIC, {"status": status}, subresource="status")
        await api.delete(PODS, "everything", namespace)  # a finalizer keeps it
        await followed.diary.until("~everything")
        seen = followed.diary.last["everything"]
        assert seen.leaving
        assert (seen.spec.priority, seen.spec.overhead) == (-7, {"cpu": "250m", "memory": "1e6"})
        assert {name for volume in seen.spec.volumes for name in volume} >= set(SOURCES)
        await _same(api, namespace, followed)
        assert followed.diary.last["plain"].unschedulable
        assert followed.reflector.progress.counts["failures"] == 0
    await api.patch(PODS, "everything", namespace, PatchKind.MERGE, {"metadata": {"finalizers": None}})


async def _same(api: Api, namespace: str, followed: Followed) -> None:
    """What was seen is what there is, as soon as it was seen."""
    for name in ("plain", "on-host", "everything"):
        async with asyncio.timeout(60.0):
            while True:
                known = read_pod((await api.get(PODS, name, namespace)).raw)
                seen = followed.diary.last[name]
                if seen.metadata.resource_version == known.metadata.resource_version:
                    break
                await asyncio.sleep(0.05)
        assert seen == known


async def test_text_that_is_no_utf8_is_read_as_what_the_server_makes_of_it_in_json(api: Api, namespace: str) -> None:
    """Who sends Protocol Buffers can have any bytes kept as the value of an annotation."""
    await api.create(PODS, pod("odd", {}, gates=["a/b"]), namespace)
    path = f"/api/v1/namespaces/{namespace}/pods/odd"
    there = await api.http.send(Request(Call("get", "", "pods"), "GET", path, accept=PACKED))
    note = sized(1, sized(12, sized(1, b"note") + sized(2, b"<\xe2\x82>")))  # a part of a message is added to it
    what = sized(1, b"v1") + sized(2, b"Pod")
    body = MAGIC + sized(1, what) + sized(2, bytes_of(_ENVELOPE.read(there, len(MAGIC))) + note)
    await api.http.send(Request(Call("update", "", "pods"), "PUT", path, body=body, content_type=PACKED))
    async with Followed(api, PODS, Following(namespace=namespace), OnlyPacked()) as followed:
        seen = followed.diary.last["odd"]
    assert seen == read_pod((await api.get(PODS, "odd", namespace)).raw)
    assert seen.metadata.annotations == {"note": "<\ufffd\ufffd>"}
