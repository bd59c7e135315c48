"""What Nodes say of their GPUs: failed ones, replicas and MIG slices; never more than the cards have."""

from __future__ import annotations

import pytest
from msgspec import convert

from bursar.objects.core import Node
from bursar.objects.manifests import Document
from bursar.policies.gpus.node_labels import host_body
from bursar.policies.gpus.settings import HostBody, host_of
from bursar.sim.cluster import Cluster
from tests.builders import node

GI = 2**30
GB = 10**9
H100 = 989_000
GPU = "nvidia.com/gpu"
LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": str(80 * 1024)}
FRACTIONS = "bursar.dev/gpu-fractions"


def body(
    allocatable: dict[str, object], labels: dict[str, str] | None = None, capacity: dict[str, object] | None = None
) -> HostBody:
    manifest = {
        "metadata": {"name": "n1", "labels": labels or {}},
        "status": {"allocatable": allocatable, "capacity": capacity or {}},
    }
    return host_body(convert(manifest, Node))


def gpus(found: HostBody, resource: str = GPU) -> tuple[int, int, tuple[int, int]]:
    """(units, replicas of a GPU, milli-tflops and vram of a unit)."""
    (offer,) = [one for one in found.offers if one.resource == resource]
    return offer.count, offer.replicas, offer.unit({})


def test_whole_gpus() -> None:
    found = body({GPU: 8, "memory": "64Gi"}, LABELS)
    assert gpus(found) == (8, 1, (H100, 80 * GI))
    assert (found.fractions, found.memory, found.problem) == (-1, 64 * GI, "")
    assert host_of(found.cell()) == found


def test_a_node_without_gpus_offers_none() -> None:
    found = body({"cpu": 4}, LABELS)
    assert found.offers == ()
    assert found.split(every=True) == (0, 0, False)


def test_a_node_of_an_older_journal() -> None:
    found = host_of((2, "Tesla-T4", 15 * GI, 1, 64 * GI, 0, (65_000, 16 * GB)))
    assert gpus(found) == (2, 1, (65_000, 15 * GI))
    assert found.split(every=False) == (1, 1, True)
    assert host_of((0, "", 0, -1, 5, 7, (0, 0))) == HostBody((), -1, 0, 5, 7)


@pytest.mark.parametrize(
    ("label", "allocatable", "capacity", "count", "expected"),
    [
        pytest.param("4", 8, 8, None, (4, 4, True), id="half of them, and the plugin serves all"),
        pytest.param("4", 4, 4, "8", (4, 4, False), id="the plugin serves the other half"),
        pytest.param("all", 8, 8, None, (8, 0, False), id="all"),
        pytest.param("4", 2, 8, None, (2, 0, False), id="six failed"),
        pytest.param("4", 0, 8, None, (0, 0, False), id="the plugin restarts"),
        pytest.param("4", 0, 4, "8", (4, 0, False), id="the plugin of the other half restarts"),
        pytest.param("4", 1, 4, "8", (4, 1, False), id="three of the other half failed"),
        pytest.param("12", 8, 8, None, (8, 0, False), id="more than it has"),
        pytest.param("3", 4, 4, "8", (3, 4, False), id="one GPU is nobody's"),
        pytest.param("0", 8, 8, None, (0, 8, False), id="none"),
        pytest.param("many", 8, 8, None, (0, 8, False), id="rubbish"),
    ],
)
def test_gpus_for_fractions_and_for_the_plugin(
    label: str, allocatable: int, capacity: int, count: str | None, expected: tuple[int, int, bool]
) -> None:
    labels = LABELS | {FRACTIONS: label} | ({} if count is None else {"nvidia.com/gpu.count": count})
    assert body({GPU: allocatable}, labels, {GPU: capacity}).split(every=False) == expected


@pytest.mark.parametrize(
    ("label", "allocatable", "words"),
    [
        ("4", 2, "asks for 4 GPUs for fractions, the node has 2 now"),
        ("many", 8, "'many' is neither 'all' nor a number"),
    ],
)
def test_a_label_that_is_wrong_is_a_problem_and_no_error(label: str, allocatable: int, words: str) -> None:
    assert words in body({GPU: allocatable}, LABELS | {FRACTIONS: label}).complaint()


@pytest.mark.parametrize("resource", [GPU, "nvidia.com/gpu.shared"])
def test_replicas_divide_a_card(resource: str) -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-H200-SHARED",
        "nvidia.com/gpu.memory": str(140 * 1024),
        "nvidia.com/gpu.replicas": "4",
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
        "nvidia.com/gpu.count": "8",
        FRACTIONS: "2",
    }
    found = body({resource: 32}, labels)
    assert gpus(found, resource) == (32, 4, (H100 // 4, 35 * GI))
    assert found.split(every=False) == (2, 6, True)
    assert found.split(every=True) == (2, 6, True)


def test_mig_slices_of_one_profile_have_a_seventh() -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
        "nvidia.com/gpu.memory": "9728",
        "nvidia.com/gpu.count": "56",
        "nvidia.com/mig.strategy": "single",
    }
    found = body({GPU: 56}, labels)
    tflops, vram = gpus(found)[2]
    assert (tflops, vram) == (H100 // 7, 9728 * 2**20)
    assert found.split(every=True) == (56, 0, False)
    assert 7 * tflops <= H100
    assert 7 * vram <= 80 * GI


def test_mig_slices_of_several_profiles_are_resources_of_their_own() -> None:
    labels = LABELS | {
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/mig-3g.40gb.memory": "40320",
    }
    found = body({GPU: 6, "nvidia.com/mig-1g.10gb": 8, "nvidia.com/mig-3g.40gb": 2}, labels)
    assert gpus(found, "nvidia.com/mig-1g.10gb") == (8, 1, (H100 // 7, 10 * GB))
    assert gpus(found, "nvidia.com/mig-3g.40gb") == (2, 1, (3 * H100 // 7, 40320 * 2**20))
    assert found.split(every=True) == (6, 0, False)


def test_an_a30_has_four_slices() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A30-MIG-1g.6gb", "nvidia.com/mig.strategy": "single"}
    assert gpus(body({GPU: 4}, labels))[2] == (165_000 // 4, 6 * GB)


def test_gpus_of_other_vendors() -> None:
    labels = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "191G"}
    found = body({"amd.com/gpu": 8}, labels)
    assert gpus(found, "amd.com/gpu")[2] == (1_307_400, 191 * GI)
    assert found.split(every=True) == (0, 0, False)


def test_a_node_whose_gpus_fail_stays_in_force() -> None:
    cluster = Cluster()
    cluster.apply([Document("", 0, node("n1", {GPU: 8}, labels=LABELS | {FRACTIONS: "4"}))])
    failed = node("n1", {GPU: 2}, labels=LABELS | {FRACTIONS: "4"})
    failed["spec"] = {"unschedulable": True}
    cluster.apply([Document("", 0, failed)])
    cell = cluster.engine.state.cell("nodes", "n1")
    assert isinstance(cell, tuple)
    assert cell[2] is True
    assert sorted(cluster.engine.state.cells("gpus")) == ["n1:0", "n1:1"]
    events = [event for event in cluster.events if event.reason == "gpus.fractions"]
    assert [event.key for event in events] == ["n1"]
