"""Nodes of HAMi: its annotation as inventory, and pods with slices in quotas and on nodes."""

from __future__ import annotations

import json

import pytest
from msgspec import convert

from bursar.objects.core import Node
from bursar.objects.hami_register import SlicedGpus, read_register
from bursar.policies.gpus.node_labels import host_body
from bursar.policies.gpus.plugin import GpuPins
from bursar.policies.gpus.policy import GpusPolicy
from bursar.policies.gpus.settings import host_of
from bursar.policies.namespace.policy import LimitsPolicy
from bursar.sim.cluster import Cluster
from tests.builders import Manifest, container, node, pod
from tests.policies.gpus.hami_world import GPU, H200_MIB, MIB, configuration, gpu, hami_node, quota, slices
from tests.sim.steps import TestBed

OLDER = "GPU-a,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true:GPU-b,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,1,false:"
NEWER = "GPU-a,10,4096,100,NVIDIA-NVIDIA GeForce GTX 1050,0,true,0,hami-core:"
ROOMY = quota(tflops="100000", vram="100Ti")


def used(bed: TestBed) -> dict[str, str]:
    found = bed.engine.state.accounts["limits/team"].used.vector().show()
    return {name: amount for name, amount in found.items() if not name.startswith("limits.")}


def of_node(bed: TestBed, name: str = "n1") -> dict[str, str]:
    return bed.engine.state.accounts[f"gpus/plugin/{name}"].used.vector().show()


# The annotation


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps([gpu()]), [("GPU-0", H200_MIB, 100, "NVIDIA-H200", True)]),
        (json.dumps([gpu(health=False, more=[1])]), [("GPU-0", H200_MIB, 100, "NVIDIA-H200", False)]),
        ("[]", []),
        (
            OLDER,
            [
                ("GPU-a", 32768, 100, "Tesla-V100-PCIE-32GB", True),
                ("GPU-b", 32768, 100, "Tesla-V100-PCIE-32GB", False),
            ],
        ),
        (NEWER, [("GPU-a", 4096, 100, "NVIDIA-GeForce-GTX-1050", True)]),
    ],
)
def test_both_forms_are_read(text: str, expected: list[tuple[str, int, int, str, bool]]) -> None:
    found, problem = read_register(text)
    assert problem == ""
    assert [(one.id, one.devmem, one.devcore, one.model(), one.health) for one in found] == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("GPU-a,10,32768", "is no list of GPUs"),
        ("GPU-a,10,much,100,V100,0,true:", "is no list of GPUs"),
        ('[{"devmem": "much"}]', "is no list of GPUs"),
        ("[" * 5000, "is no list of GPUs"),
        (json.dumps([gpu(devmem=-1)]), "GPU GPU-0 has devmem -1"),
        (json.dumps([gpu(devcore=10**9)]), "GPU GPU-0 has devcore 1000000000"),
        (json.dumps([gpu(i) for i in range(129)]), "lists more than 128 GPUs"),
    ],
)
def test_what_cannot_be_read_is_a_problem_of_the_node_that_then_has_no_gpus(text: str, words: str) -> None:
    found = host_body(convert(hami_node(register=text), Node))
    assert words in found.problem
    assert found.slicing == SlicedGpus(0, 0, 0, 0)
    assert found.split(every=True) == (0, 0, False)


def test_the_annotation_comes_before_labels_and_leaves_no_fractions() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A30", "nvidia.com/gpu.count": "8", "bursar.dev/gpu-fractions": "all"}
    found = host_body(convert(hami_node(gpus=[gpu(0), gpu(1, health=False)], labels=labels), Node))
    assert found.slicing == SlicedGpus(H200_MIB * MIB, 100, H200_MIB * MIB, 1)
    assert [(offer.model, offer.unit({})) for offer in found.offers] == [("NVIDIA-H200", (989_000, H200_MIB * MIB))]
    assert found.split(every=True) == (0, 0, False)
    assert "HAMi hands out the GPUs" in found.problem
    assert host_of(found.cell()) == found


# Charges


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"memory": 4096, "cores": 25}, {"requests.tflops": "247250m", "requests.vram": "4Gi"}),
        ({"memory": 4096}, {"requests.tflops": "989", "requests.vram": "4Gi"}),  # cores without a limit
        ({"count": 2, "memory": 4096, "cores": 10}, {"requests.tflops": "197800m", "requests.vram": "8Gi"}),
        ({"percentage": 50, "cores": 50}, {"requests.tflops": "494500m", "requests.vram": "71885Mi"}),
        ({}, {"requests.tflops": "989", "requests.vram": f"{H200_MIB}Mi"}),
        ({"memory": 1024, "percentage": 50, "cores": 1}, {"requests.tflops": "9890m", "requests.vram": "1Gi"}),
        ({"count": 0, "memory": 2048, "cores": 100}, {"requests.tflops": "989", "requests.vram": "2Gi"}),
    ],
)
def test_slices_cost_what_they_have(asked: dict[str, int], expected: dict[str, str]) -> None:
    bed = TestBed(hami_node(), ROOMY)
    bed.give(slices("a", **asked))
    assert bed.phases() == {"team/a": "Running"}
    assert used(bed) == {**expected, "workers": "1"}
    bed.take("Pod/team/a")
    assert used(bed) == {}


def test_containers_add_up_and_an_init_container_counts_where_it_takes_more() -> None:
    def asks(name: str, memory: int) -> Manifest:
        return container(limits={GPU: 1, f"{GPU}mem": memory, f"{GPU}cores": 10}, name=name)

    bed = TestBed(hami_node(), ROOMY)
    bed.give(
        pod("a", "team", containers=[asks("main", 1024), asks("side", 2048)]),
        pod("b", "team", containers=[asks("main", 1024)], initContainers=[asks("first", 8192)]),
    )
    assert used(bed)["requests.vram"] == "11Gi"


def test_defaults_of_hami_count_for_containers_that_do_not_say() -> None:
    bed = TestBed(hami_node(), ROOMY)
    bed.give(slices("a"))
    bed.give(configuration(defaultMemory=2048, defaultCores=10))
    assert used(bed) == {"requests.tflops": "98900m", "requests.vram": "2Gi", "workers": "1"}
    assert of_node(bed) == {"vram": "2Gi", "nvidia.com/gpucores": "10"}
    bed.take("Configuration/default")
    assert used(bed)["requests.vram"] == f"{H200_MIB}Mi"


def test_a_quota_refuses_by_memory_and_compute() -> None:
    bed = TestBed(hami_node(), quota(tflops="500", vram="10Gi"))
    bed.give(slices("a", memory=8192, cores=25), slices("b", memory=4096, cores=25), slices("c", memory=1024, cores=50))
    assert bed.phases() == {"team/a": "Running", "team/b": "Pending", "team/c": "Pending"}
    assert bed.see("team/b").reason == "total.max.vram.request"
    assert bed.see("team/c").reason == "total.max.tflops.request"


def test_a_pending_pod_costs_the_largest_gpu_and_a_placed_one_its_own() -> None:
    small = [gpu(i, 24_576, type="NVIDIA-NVIDIA L4") for i in range(2)]
    bed = TestBed(hami_node("big"), hami_node("small", small), quota(vram="70Gi"))
    bed.give(slices("any", percentage=50, cores=10))
    assert bed.see("team/any").reason == "total.max.vram.request"  # 50 % of an H200
    bed.give(slices("least", percentage=50, cores=10, nodeName="small"))
    assert used(bed)["requests.vram"] == "12Gi"


def test_a_model_without_known_tflops_is_named_where_tflops_are_limited() -> None:
    bed = TestBed(hami_node(gpus=[gpu(type="NVIDIA-Example 9")]), quota(tflops="10"))
    bed.give(slices("a", memory=1024, cores=10))
    assert bed.see("team/a").reason == "limits.capacity"
    assert "Example-9" in bed.see("team/a").message
    vram_only = TestBed(hami_node(gpus=[gpu(type="NVIDIA-Example 9")]), quota(vram="10Gi"))
    vram_only.give(slices("a", memory=1024, cores=10))
    assert used(vram_only)["requests.vram"] == "1Gi"


# Nodes


def test_parts_are_no_resources_of_nodes_and_only_nodes_of_hami_take_them() -> None:
    bed = TestBed(node("plain", {"cpu": 64, GPU: 8}))
    bed.give(slices("a", memory=1024))
    assert bed.see("team/a").reason == "gpus.none"
    assert "HAMi hands out the GPUs of no node" in bed.see("team/a").message
    check = bed.explain("team/a")
    assert check is not None
    assert "gpus.slices" in [child.reason for child in check.children]
    bed.give(hami_node("sliced"))
    assert bed.see("team/a").node == "sliced"


def test_a_node_gives_no_more_memory_and_cores_than_its_healthy_gpus_have() -> None:
    bed = TestBed(hami_node(gpus=[gpu(0, 10_240), gpu(1, 10_240, health=False)]))
    bed.give(slices("a", memory=6144, cores=60), slices("b", memory=6144, cores=10), slices("c", memory=1024, cores=60))
    assert bed.phases() == {"team/a": "Running", "team/b": "Pending", "team/c": "Pending"}
    assert bed.see("team/b").reason == "gpus.plugin.vram"
    assert bed.see("team/c").reason == "gpus.plugin.nvidia.com/gpucores"
    bed.give(slices("d", memory=20_480))
    assert bed.see("team/d").reason == "gpus.none"
    bed.take("Pod/team/a")
    assert of_node(bed) == {"vram": "7Gi", "nvidia.com/gpucores": "70"}


def test_a_higher_priority_evicts_from_a_full_node() -> None:
    bed = TestBed(hami_node(gpus=[gpu(0, 10_240)]))
    bed.give(slices("low", memory=8192))
    bed.give(slices("high", memory=8192, priority=10))
    assert bed.phases() == {"team/low": "Evicted", "team/high": "Running"}
    assert of_node(bed) == {"vram": "8Gi"}


def test_a_node_that_hami_leaves_and_returns_to_keeps_its_charges() -> None:
    bed = TestBed(hami_node(), ROOMY)
    bed.give(slices("a", memory=4096, cores=25))
    before = used(bed)
    bed.give(node("n1", {"cpu": 64, GPU: 0}))
    assert used(bed) == before
    bed.give(hami_node())
    assert used(bed) == before
    assert of_node(bed) == {"vram": "4Gi", "nvidia.com/gpucores": "25"}


def test_a_pod_with_slices_is_never_pinned() -> None:
    bed = TestBed(hami_node(), node("divided", {"cpu": 8, GPU: 2}, labels={"bursar.dev/gpu-fractions": "1"}))
    bed.give(slices("a", memory=4096), slices("b"))
    (policy,) = [one for one in bed.engine.policies if isinstance(one, GpusPolicy)]
    pins = GpuPins(policy)
    parts, whole = (bed.controller.claim(f"team/{name}") for name in "ab")
    assert parts is not None
    assert whole is not None
    assert not pins.pins(parts)
    assert pins.pins(whole)  # a node that is divided could take it


def test_more_than_can_be_counted_waits() -> None:
    bed = TestBed(hami_node(), ROOMY)
    bed.give(slices("a", count=2**40, memory=2**40))
    assert bed.phases() == {"team/a": "Pending"}


@pytest.mark.parametrize("asked", [{"memory": 20_480}, {"count": 3, "memory": 1024}, {"count": 3}])
def test_a_slice_is_on_a_gpu_of_its_own_and_no_larger_than_it(asked: dict[str, int]) -> None:
    bed = TestBed(hami_node(gpus=[gpu(0, 10_240), gpu(1, 10_240)]))
    bed.give(slices("a", **asked))
    assert bed.see("team/a").reason == "gpus.none"
    check = bed.explain("team/a")
    assert check is not None
    assert "0 of 1 nodes of HAMi have GPUs for it" in [child.note for child in check.children]


def test_undo_and_replay_have_the_same_books() -> None:
    bed = TestBed(hami_node(), ROOMY)
    bed.give(slices("a", memory=4096, cores=25), slices("b", percentage=10))
    engine = bed.engine
    assert isinstance(next(one for one in engine.policies if one.name == "limits"), LimitsPolicy)
    other = Cluster()
    other.engine.replay(engine.journal.take())
    assert other.engine.state.digest == engine.state.digest


# Resources that nothing but an extender knows


def test_resources_of_an_extender_can_be_told() -> None:
    bed = TestBed(node("n1", {"cpu": 4}))
    bed.give(pod("a", "team", {"cpu": 1, "example.com/fabric": 2}))
    assert bed.see("team/a").reason == "nodes.none"
    section = {"nodes": {"ignoredResources": ["example.com/fabric"]}}
    told = {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": {"name": "default"}}
    bed.give({**told, "spec": section})
    assert bed.see("team/a").phase == "Running"
    assert bed.engine.state.accounts["nodes/n1"].used.vector().show() == {"cpu": "1", "pods": "1"}
    bed.take("Configuration/default")
    assert bed.engine.state.accounts["nodes/n1"].used.amount("example.com/fabric") == 2
    bed.give({**told, "spec": section})
    assert bed.engine.state.accounts["nodes/n1"].used.vector().show() == {"cpu": "1", "pods": "1"}
