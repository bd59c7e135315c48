"""What pools have and promise: the arithmetic, the sums over nodes, and that both follow the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.policies.gpus.fleet import COMPACT, Gpu
from bursar.policies.gpus.settings import HostBody, PoolBody
from bursar.policies.gpus.status import NO_OVERSELL, node_figures, virtual_tflops, virtual_vram
from tests.builders import node
from tests.policies.gpus.test_plugin import API, KINDS, translated
from tests.policies.gpus.world import GI, World


def figures(status: dict[str, Any], kind: str) -> tuple[str, str]:
    return status[f"{kind}TFlops"], status[f"{kind}VRAM"]


def test_the_worked_example_of_the_notes() -> None:
    """Four GPUs of 100 tflops and 20Gi in a host with 256Gi and 1024Gi of disk: 80 + 716.8 + 128 Gi."""
    assert virtual_tflops(400_000, 500) == 2_000_000
    assert virtual_vram(80 * GI, 256 * GI, 50, 1024 * GI, 70) == 80 * GI + 1024 * GI * 70 // 100 + 128 * GI


@pytest.mark.parametrize(
    ("total", "memory", "disk", "virtual"),
    [
        pytest.param(10, 3, 0, 11, id="half of 3 bytes is one"),
        pytest.param(10, 0, 3, 12, id="70 percent of 3 bytes are two"),
        pytest.param(2**60, 2**60, 2**60, 2**60 + 2**60 * 70 // 100 + 2**59, id="large amounts are exact"),
    ],
)
def test_parts_are_cut_to_whole_bytes(total: int, memory: int, disk: int, virtual: int) -> None:
    assert virtual_vram(total, memory, 50, disk, 70) == virtual


def test_without_oversubscription_virtual_is_real() -> None:
    gpu = Gpu("g", "n", 1000, 10)
    found = node_figures([gpu], [(400, 4)], [(400, 4)], NO_OVERSELL, (100, 100))
    assert found.amounts == [1000, 10, 600, 6, 1000, 10, 600, 6]


def test_nothing_is_left_rather_than_less() -> None:
    gpu = Gpu("g", "n", 1000, 10)
    found = node_figures([gpu], [(4000, 40)], [(4000, 40)], NO_OVERSELL, (0, 0))
    assert found.amounts == [1000, 10, 0, 0, 1000, 10, 0, 0]


def pooled(oversell: tuple[int, int, int] | None = (50, 70, 500)) -> World:
    found = World()
    found.pool("p", COMPACT, oversell=oversell)
    for index in range(4):
        found.gpu(f"g{index}", "n1", 100, "20Gi", pool="p", index=index)
    found.host("n1", HostBody(memory=256 * GI, disk=1000 * GI))
    return found


def test_the_status_of_a_pool() -> None:
    status = pooled().pool_status()["p"]
    assert (status["totalNodes"], status["totalGPUs"]) == (1, 4)
    assert figures(status, "total") == figures(status, "available") == ("400", "80Gi")
    assert figures(status, "virtual") == figures(status, "virtualAvailable") == ("2k", "908Gi")


def test_requests_take_of_the_real_and_limits_of_the_virtual_on_every_gpu() -> None:
    found = pooled()
    found.alloc((30, "2Gi"), 2, "w", limit=(50, "4Gi"), gpupool="p")
    status = found.pool_status()["p"]
    assert figures(status, "available") == ("340", "76Gi")
    assert figures(status, "virtualAvailable") == ("1900", "900Gi")
    found.engine.release("w")
    assert figures(found.pool_status()["p"], "virtualAvailable") == ("2k", "908Gi")


def test_only_what_changed_is_written() -> None:
    found = pooled()
    found.pool("idle", COMPACT)
    assert set(found.pool_status()) == {"p", "idle"}
    assert found.pool_status() == {}
    found.alloc((1, "1Gi"), gpupool="p")
    assert set(found.pool_status()) == {"p"}
    found.alloc((1, "1Gi"), uid="w", gpupool="p")
    found.engine.release("w")
    assert found.pool_status() == {}


def test_gpus_that_come_go_stop_or_change_sides() -> None:
    found = pooled(None)
    found.gpu("g4", "n2", 100, "20Gi", pool="p")
    assert found.pool_status()["p"]["totalNodes"] == 2
    found.gpu("g4", "n2", 100, "20Gi", pool="p", usable=False)
    found.gpu("g3", "n1", 100, "20Gi", pool="p", plugin=True)
    found.no_gpu("g2")
    status = found.pool_status()["p"]
    assert (status["totalNodes"], status["totalGPUs"], figures(status, "total")) == (1, 2, ("200", "40Gi"))
    for name in ("g0", "g1", "g3", "g4"):
        found.no_gpu(name)
    assert figures(found.pool_status()["p"], "total") == ("0", "0")


def test_pools_of_one_node_share_its_memory_by_their_gpus() -> None:
    found = pooled((50, 0, 100))
    found.pool("q", COMPACT, oversell=(50, 0, 100))
    found.gpu("g3", "n1", 100, "20Gi", pool="q", index=3)
    status = found.pool_status()
    assert [figures(status[pool], "virtual")[1] for pool in ("p", "q")] == ["156Gi", "52Gi"]


def test_the_figures_after_a_replay_are_the_same() -> None:
    found = pooled()
    found.alloc((30, "2Gi"), 2, limit=(50, "4Gi"), gpupool="p")
    assert found.replayed().pool_status() == found.pool_status()


# Manifests


def pool(**oversubscription: object) -> dict[str, Any]:
    spec = {"capacityConfig": {"oversubscription": oversubscription}}
    return {"apiVersion": API, "kind": "GPUPool", "metadata": {"name": "p"}, "spec": spec}


@pytest.mark.parametrize(
    ("manifest", "oversell"),
    [
        (pool() | {"spec": {}}, None),
        (pool() | {"spec": {"capacityConfig": {}}}, None),
        (pool(), (50, 70, 500)),
        (pool(vramExpandToHostMem=0, vramExpandToHostDisk=100, tflopsOversellRatio=100), (0, 100, 100)),
    ],
)
def test_a_pool_says_what_it_promises(manifest: dict[str, Any], oversell: tuple[int, int, int] | None) -> None:
    body = translated(manifest)
    assert isinstance(body, PoolBody)
    assert body.oversell == oversell


@pytest.mark.parametrize(
    "wrong", [{"vramExpandToHostMem": 101}, {"vramExpandToHostDisk": -1}, {"tflopsOversellRatio": 99}]
)
def test_percents_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    (field,) = wrong
    with pytest.raises(ManifestError, match=rf"spec\.capacityConfig\.oversubscription\.{field}"):
        KINDS.read(Document("", 0, pool(**wrong)))


def test_a_node_says_what_vram_may_extend_to() -> None:
    body = translated(node("n1", {"memory": "256Gi", "ephemeral-storage": "1Ti"}))
    assert isinstance(body, HostBody)
    assert (body.memory, body.disk) == (256 * GI, 1024 * GI)
