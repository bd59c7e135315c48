"""A worker keeps what it was charged when a GPU that it holds goes away."""

from __future__ import annotations

import pytest

from bursar.ledger.claims import RUNNING, ClaimSpec
from bursar.selectors import NodeNeeds
from tests.policies.gpus.world import GI, World, amounts, host, marks

HALF = {"compute_percent_request": "50", "vram_request": "1Gi"}


def world() -> World:
    """Two small GPUs, and a large one elsewhere."""
    found = World()
    found.gpu("g1", "n1", 50, "16Gi", index=1, model="small")
    found.gpu("g2", "n1", 50, "16Gi", index=2, model="small")
    found.gpu("g3", "n2", 989, "80Gi", model="large")
    found.quota(amounts("requests", (200, "100Gi")))
    return found


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param(marks(gpu_count="2", gpu_model="small", **HALF), "50", id="percent"),
        pytest.param(marks(gpu_count="2", gpu_model="small", isolation="shared"), "100", id="shared"),
        pytest.param(marks(gpu_count="2", gpu_model="small", dedicated_gpu="true"), "100", id="dedicated"),
    ],
)
@pytest.mark.parametrize("lost", [("g1",), ("g2",), ("g1", "g2")])
def test_it_is_charged_as_before(annotations: dict[str, str], expected: str, lost: tuple[str, ...]) -> None:
    found = world()
    assert found.decide(annotations, "w").admitted
    found.engine.observe("w", RUNNING)
    for name in lost:
        found.no_gpu(name)
        assert found.used()[0] == expected
    found.gpu("g4", "n1", 989, "80Gi", index=4, model="small")
    assert found.used()[0] == expected
    found.quota(amounts("requests", (300, "100Gi")))
    assert found.used()[0] == expected
    for name in lost:
        found.gpu(name, "n1", 60, "16Gi", index=int(name[1]), model="small")
    found.engine.release("w")
    assert found.used()[0] == "0"


def test_a_resize_counts_with_what_the_lost_gpu_had() -> None:
    found = world()
    found.decide(marks(gpu_count="2", gpu_model="small", **HALF), "w")
    found.no_gpu("g2")
    more = marks(gpu_count="2", gpu_model="small", compute_percent_request="80", vram_request="1Gi")
    found.engine.adjust("w", ClaimSpec(annotations=more))
    assert found.used()[0] in {"50", "80"}
    assert found.replayed().used() == found.used()


@pytest.mark.parametrize("ids", ["g1,g9", "g8,g9"])
def test_a_worker_that_is_found_on_a_gpu_that_was_never_seen_costs_what_the_others_have(ids: str) -> None:
    found = world()
    annotations = marks(gpu_count="2", gpu_ids=ids, **HALF)
    claim = found.claim(annotations, "w", needs=NodeNeeds({}, node_name="n1"))
    found.engine.submit(claim)
    found.engine.place("w", "n1", forced=True)
    assert found.used()[0] == "50"


def test_gpus_that_a_node_derives_come_and_go() -> None:
    found = World()
    found.node("n1")
    usual = (50_000, 16 * GI)
    found.host("n1", host(2, "A10", fractions=2, usual=usual))
    found.gpu("big", "n2", 989, "80Gi")
    found.quota(amounts("requests", (2000, "100Gi")))
    found.decide(marks(gpu_count="2", **HALF), "w")
    found.host("n1", host(0, "A10", fractions=2, usual=usual, served=2))
    assert found.used()[0] == "50"
    found.host("n1", host(2, "A10", fractions=2, usual=usual))
    assert found.used()[0] == "50"
    assert found.on("w") == ["n1:0", "n1:1"]
