"""Devices that drivers publish, and what policies are told of them."""

import json

import msgspec
import pytest

from bursar.kube.client.models import Meta
from bursar.kube.controller import object_cache as cached
from bursar.kube.controller.mirror import Mirror, MirrorOptions
from bursar.kube.controller.object_cache import Devices, Published
from bursar.objects.core import Node
from bursar.objects.devices import ResourceSlice
from bursar.objects.kinds import NODE, RESOURCE_SLICE
from bursar.objects.pods import DEVICES, GPU_NODE_LABEL
from bursar.policies.crossquota.plugin import devices_of
from bursar.policies.crossquota.policy import CrossQuotaPolicy
from bursar.policies.plugin import default_registry

GPUS = "gpu.nvidia.com"


def published(node: str = "n", count: int = 2, pool: str = "p", generation: int = 1, driver: str = GPUS) -> Published:
    return Published(node, driver, pool, generation, count)


def resource_slice(driver: str = GPUS, generation: int = 1) -> bytes:
    pool = {"name": "p", "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": "n", "pool": pool, "devices": [{"name": "a"}, {"name": "b"}]}
    return json.dumps({"metadata": {"name": "a", "uid": "a"}, "spec": spec}).encode()


def test_a_slice_is_read() -> None:
    given = msgspec.json.decode(resource_slice(generation=3), type=ResourceSlice)
    assert cached.published(given) == published(generation=3)


def test_devices_of_all_slices_and_pools_add_up() -> None:
    devices = Devices()
    devices.seen("a", published())
    devices.seen("b", published(count=1))
    devices.seen("c", published(pool="q", generation=7, count=4))
    devices.seen("d", published(driver="nic.example.com", count=1))
    devices.seen("e", published(node="other", count=9))
    assert devices.counts("n") == {GPUS: 7, "nic.example.com": 1}


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    devices = Devices()
    devices.seen("old", published(count=8))
    devices.seen("new", published(generation=2, count=1))
    assert devices.counts("n") == {GPUS: 1}


def test_slices_move_and_go() -> None:
    devices = Devices()
    assert devices.seen("a", published()) == {"n"}
    assert devices.seen("a", published(node="m")) == {"n", "m"}
    assert devices.counts("n") == {}
    assert devices.gone("a") == {"m"}
    assert devices.gone("a") == set()
    assert devices.seen("net", published(node="")) == set(), "devices of no single node"


def test_what_somebody_else_says_of_devices_is_not_believed() -> None:
    devices = Devices()
    forged = {"name": "n", "annotations": {DEVICES: f"{GPUS}=64", "other": "x"}}
    assert devices.marked(forged) == {"name": "n", "annotations": {"other": "x"}}
    devices.seen("a", published())
    assert devices.marked(forged)["annotations"] == {DEVICES: f"{GPUS}=2", "other": "x"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("gpu.nvidia.com=8", {"gpu.nvidia.com": 8}),
        ("gpu.a.com=1,nic.b.com=2", {"gpu.a.com": 1, "nic.b.com": 2}),
        ("gpu.a.com,=3,gpu.b.com=many,gpu.c.com=-1,gpu.d.com=99999999999", {}),
    ],
)
def test_the_annotation_is_read(text: str, expected: dict[str, int]) -> None:
    assert devices_of(text) == expected


@pytest.mark.parametrize(("driver", "is_gpu_node"), [(GPUS, True), ("nic.example.com", False)])
def test_a_node_becomes_a_gpu_node_and_back(driver: str, is_gpu_node: bool) -> None:
    mirror = Mirror(default_registry(), MirrorOptions())
    kinds = {kind.name: kind for kind in mirror.kinds}
    configuration = kinds["Configuration.bursar.dev"]
    arguments = {"crossquota": {"gpu-resource-names": "nvidia.com/gpu", "quota.cpu": "2"}}
    section = {"metadata": {"name": "default", "uid": "c"}, "spec": arguments}
    node = {"metadata": {"name": "n", "uid": "n"}, "status": {"allocatable": {"cpu": "8", "pods": "10"}}}
    objects = [(configuration, json.dumps(section).encode()), (NODE, json.dumps(node).encode())]
    list(mirror.building([(RESOURCE_SLICE, resource_slice(driver)), *objects], []))
    policy = next(one for one in mirror.engine.policies if isinstance(one, CrossQuotaPolicy))

    def found() -> bool:
        facts = policy.index.node("n")
        return facts is not None and facts.is_gpu_node()

    assert found() == is_gpu_node
    mirror.object_gone(RESOURCE_SLICE, Meta("a", "", "a"))
    assert not found()
    mirror.object_seen(RESOURCE_SLICE, resource_slice(driver))
    assert found() == is_gpu_node


def test_a_gpu_node_is_cordoned_until_it_is_marked() -> None:
    mirror = Mirror(default_registry(), MirrorOptions())
    kinds = {kind.name: kind for kind in mirror.kinds}
    configuration = kinds["Configuration.bursar.dev"]
    arguments = {"crossquota": {"gpu-resource-names": "nvidia.com/gpu"}}
    section = json.dumps({"metadata": {"name": "default", "uid": "c"}, "spec": arguments}).encode()
    meta: dict[str, object] = {"name": "n", "uid": "n"}
    status = {"allocatable": {"nvidia.com/gpu": "1", "pods": "10"}}

    def node() -> bytes:
        return json.dumps({"metadata": meta, "status": status}).encode()

    def cordoned() -> bool:
        known = mirror.cache.find(NODE.name, "n")
        assert known is not None
        assert isinstance(known.given.typed, Node)
        return known.given.typed.spec.unschedulable

    list(mirror.building([(NODE, node())], []))
    assert not cordoned(), "nothing is limited"
    mirror.object_seen(configuration, section)
    assert cordoned()
    meta["labels"] = {GPU_NODE_LABEL: "true"}
    mirror.object_seen(NODE, node())
    assert not cordoned()
    meta["labels"] = {}
    mirror.object_seen(NODE, node())
    assert cordoned(), "somebody took the mark away"
    mirror.object_gone(configuration, Meta("default", "", "c"))
    assert not cordoned()
