"""ResourceSlices as inventory: model, memory and uuid of GPUs, MIG devices, before labels of the node."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.policies.gpus.fleet import gpu_of
from bursar.server.rows import gpu_rows
from bursar.sim.cluster import Cluster
from tests.builders import Manifest, node, pod
from tests.control.devices_world import device, resource_slice
from tests.sim.steps import TestBed

GPU = "nvidia.com/gpu"
GI = 2**30
FRACTIONS = "bursar.dev/gpu-fractions"
H100 = "NVIDIA H100 80GB HBM3"
WRONG = {"nvidia.com/gpu.product": "NVIDIA-A10", "nvidia.com/gpu.memory": "24576"}  # labels that a slice corrects


def card(number: int, memory: str = "80Gi", product: str = H100) -> dict[str, Any]:
    return device(f"gpu-{number}", memory, productName=product, uuid=f"GPU-{number}")


def mig(name: str, parent: str, **more: object) -> dict[str, Any]:
    made = device(name, "40Gi", productName=H100, type="mig", profile="3g.40gb", parentUUID=parent, uuid=f"MIG-{name}")
    return {**made, **more}


def fleet(bed: TestBed) -> list[tuple[str, str, int, int, str, bool]]:
    """Name, model, tflops, Gi, uuid, and whether it is the device plugin's."""
    found = [gpu_of(name, cell) for name, cell in sorted(bed.engine.state.cells("gpus").items())]
    return [(one.name, one.model, one.tflops // 1000, one.vram // GI, one.uuid, one.plugin) for one in found if one]


def divided(fractions: str = "all", plugin: int = 0, labels: dict[str, str] | None = None) -> Manifest:
    amounts: dict[str, Any] = {"cpu": 8, **({GPU: plugin} if plugin else {})}
    return node("n1", amounts, labels={FRACTIONS: fractions, **(labels or {})})


@pytest.mark.parametrize("slice_first", [False, True])
def test_a_slice_says_what_the_gpus_are_whenever_it_comes(slice_first: bool) -> None:
    objects = [divided("2", labels=WRONG), resource_slice("n1", *[card(i) for i in (0, 2, 10)])]
    bed = TestBed()
    for one in reversed(objects) if slice_first else objects:
        bed.give(one)
    model = "NVIDIA-H100-80GB-HBM3"
    assert fleet(bed) == [("n1:0", model, 989, 80, "GPU-0", False), ("n1:1", model, 989, 80, "GPU-2", False)]
    assert [row.uuid for row in gpu_rows(bed)] == ["GPU-0", "GPU-2"]
    events = [event.reason for event in bed.events if event.kind == "Node"]
    assert events == ["gpus.unsafe-split"] if slice_first else ["gpus.fractions", "gpus.unsafe-split"]


def test_whole_gpus_of_the_device_plugin_cost_what_the_slice_says_and_go_back_to_labels() -> None:
    quota = {
        "apiVersion": "tensor-fusion.ai/v1",
        "kind": "GPUResourceQuota",
        "metadata": {"name": "q", "namespace": "team"},
        "spec": {"total": {"requests": {"vram": "1Ti", "tflops": "100k"}}},
    }
    bed = TestBed(node("n1", {"cpu": 8, GPU: 2}, labels=WRONG), resource_slice("n1", card(0), card(1)), quota)
    bed.give(pod("a", "team", {GPU: 2}))
    used = bed.engine.state.accounts["limits/team"].used
    assert (used.amount("requests.tflops"), used.amount("requests.vram")) == (1_978_000, 160 * GI)
    bed.take("ResourceSlice/n1-gpu.nvidia.com")
    assert (used.amount("requests.tflops"), used.amount("requests.vram")) == (250_000, 48 * GI)


def test_mig_devices_are_gpus_of_their_own_where_they_exist_side_by_side() -> None:
    exclusive: dict[str, Any] = {"consumesCounters": [{"counterSet": "s", "counters": {"memory": {"value": "40Gi"}}}]}
    devices = [card(0), mig("a", "GPU-1"), mig("b", "GPU-1"), mig("c", "GPU-0"), mig("d", "GPU-2", **exclusive)]
    bed = TestBed(divided(), resource_slice("n1", *devices))
    model = "NVIDIA-H100-80GB-HBM3"
    parts = [(f"MIG-{name}", 423, 40) for name in "ab"]  # three of seven slices
    found = [(uuid, tflops, memory) for _, _, tflops, memory, uuid, _ in fleet(bed)]
    assert sorted(found) == [("GPU-0", 989, 80), *parts]
    assert {row[1] for row in fleet(bed)} == {model}


def test_only_the_newest_generation_of_a_pool_counts_and_other_drivers_do_not() -> None:
    bed = TestBed(divided())
    bed.give(resource_slice("n1", card(0), card(1), name="old"))
    bed.give(resource_slice("n1", card(0), generation=2, name="new"))
    bed.give(resource_slice("n1", card(7), driver="gpu.example.com"))
    assert [row[4] for row in fleet(bed)] == ["GPU-0"]
    bed.take("ResourceSlice/new")
    assert [row[4] for row in fleet(bed)] == ["GPU-0", "GPU-1"]
    bed.take("ResourceSlice/old")
    assert fleet(bed) == []


def test_workers_run_on_published_gpus_and_stay_when_slices_go() -> None:
    bed = TestBed(divided(), resource_slice("n1", card(0)))
    marks = {"tensor-fusion.ai/tflops-request": "100", "tensor-fusion.ai/vram-request": "60Gi"}
    bed.give(pod("a", "team", annotations=marks), pod("b", "team", annotations=marks))
    assert bed.phases() == {"team/a": "Running", "team/b": "Pending"}
    bed.take("ResourceSlice/n1-gpu.nvidia.com")
    assert bed.phases() == {"team/a": "Running", "team/b": "Pending"}
    bed.give(resource_slice("n1", card(0), card(1)))
    assert bed.phases() == {"team/a": "Running", "team/b": "Running"}


def test_an_unknown_model_can_be_named_in_the_configuration() -> None:
    bed = TestBed(divided(), resource_slice("n1", card(0, product="Example GPU 9")))
    assert fleet(bed)[0][:3] == ("n1:0", "Example-GPU-9", 0)
    section = {"gpus": {"models": {"Example-GPU-9": {"tflops": 50}}}}
    metadata = {"name": "default"}
    bed.give({"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": metadata, "spec": section})
    assert fleet(bed)[0][:3] == ("n1:0", "Example-GPU-9", 50)


def test_a_replay_has_the_same_gpus() -> None:
    bed = TestBed(divided(), resource_slice("n1", card(0), card(1)))
    other = Cluster()
    other.engine.replay(bed.engine.journal.take())
    assert other.engine.state.digest == bed.engine.state.digest
    other.engine.configure([])
    assert other.engine.state.cells("gpus") == bed.engine.state.cells("gpus")
