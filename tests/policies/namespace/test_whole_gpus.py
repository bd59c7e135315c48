"""Whole GPUs of a device plugin in the quotas of namespaces."""

from __future__ import annotations

import pytest

from bursar.ledger.claims import ClaimSpec
from bursar.policies.gpus.fleet import ScoringOptions
from bursar.policies.gpus.settings import OPTIONS, GpuOptionsBody, HostBody, Offer
from bursar.policies.namespace.policy import WHOLE_GPUS
from bursar.policies.namespace.settings import WholeGpusBody
from bursar.policies.nodes.policy import KIND as NODE
from bursar.policies.nodes.rules import NodeBody
from bursar.selectors import NO_NEEDS, NodeNeeds
from tests.amounts import parse_limits
from tests.policies.gpus.world import GI, NS, World, amounts, host, marks, total

GPU = "nvidia.com/gpu"
H100 = (989_000, 80 * GI)
A10 = (125_000, 24 * GI)


def world() -> World:
    found = World()
    for name, usual in (("big", H100), ("small", A10)):
        found.node(name, {"model": name}, gpus=8)
        found.host(name, host(8, name, usual=usual))
    return found


def take(found: World, uid: str, count: int = 1, node: str = "", resource: str = GPU) -> str:
    needs = NodeNeeds({"model": node}) if node else NO_NEEDS
    decision = found.engine.decide(found.claim({}, uid, requests={resource: count}, needs=needs))
    return decision.reason


def test_they_cost_all_that_they_have_and_are_one_worker() -> None:
    found = world()
    found.quota(total(10_000, "800Gi", 5))
    assert take(found, "p", 2, "big") == ""
    assert found.used() == ("1978", 160 * GI, "1978", 160 * GI, 1)
    found.engine.release("p")
    assert found.used() == ("0", 0, "0", 0, 0)


def test_admission_takes_the_largest_that_it_may_get_and_the_charge_what_it_got() -> None:
    found = world()
    found.quota(amounts("requests", (988, "800Gi")))
    assert take(found, "any") == "total.max.tflops.request"
    assert take(found, "small", node="small") == ""
    assert found.used()[0] == "125"
    found.quota(amounts("requests", (2000, "800Gi")))
    assert take(found, "other") == ""


@pytest.mark.parametrize(
    ("totals", "singles", "reason"),
    [
        ({"workers": 0}, {}, "total.max.workers.limit"),
        ({}, {"gpus": 1}, "single.max.gpuCount.limit"),
        ({}, amounts("requests", (1000, "80Gi")), "single.max.tflops.request"),
        (amounts("limits", (5000, "100Gi")), {}, "total.max.vram.limit"),
    ],
)
def test_every_limit_counts_them(totals: dict[str, int], singles: dict[str, int], reason: str) -> None:
    found = world()
    found.quota(totals, singles)
    assert take(found, "p", 2, "big") == reason


def test_a_new_quota_knows_those_that_run_and_without_one_nothing_is_kept() -> None:
    found = world()
    assert take(found, "p", 2, "big") == ""
    assert found.used() == ("0", 0, "0", 0, 0)
    found.quota(amounts("requests", (1978, "800Gi")))
    assert found.used()[0] == "1978"
    assert take(found, "q", 1, "small") == "total.max.tflops.request"
    found.quota(None)
    assert found.used() == ("0", 0, "0", 0, 0)
    found.engine.release("p")
    found.engine.release("q")
    assert f"limits/{NS}" not in found.engine.state.accounts
    replayed = found.replayed()
    assert replayed.engine.state.digest == found.engine.state.digest


def test_ignoring_them_is_an_option() -> None:
    found = world()
    found.quota(amounts("requests", (100, "10Gi")))
    assert take(found, "p", 1, "small") == "total.max.tflops.request"
    found.set(WHOLE_GPUS, "default", WholeGpusBody())
    assert found.engine.decide(found.engine.claim("p")).admitted
    assert found.used() == ("0", 0, "0", 0, 0)
    found.set(WHOLE_GPUS, "default", None)
    assert found.used()[0] == "125"


def test_a_claim_keeps_its_charge_while_nothing_tells_what_its_gpus_have() -> None:
    found = world()
    found.quota(total(10_000, "800Gi", 5))
    take(found, "p", 2, "small")
    before = found.used()
    found.host("small", host(0, "small", usual=A10))
    found.quota(total(9_000, "800Gi", 5))
    assert found.used() == before
    found.host("small", None)
    found.engine.adjust("p", ClaimSpec(found.engine.claim("p").spec.requests, needs=NodeNeeds({"model": "small"})))
    assert found.used() == before


def test_an_unknown_model_is_named_where_a_quota_needs_its_figures() -> None:
    found = World()
    found.node("n1", gpus=4)
    found.host("n1", host(4, "NVIDIA-X1"))
    assert take(found, "free") == ""
    found.quota({"workers": 2})
    assert found.used()[4] == 1
    found.quota(amounts("requests", (1000, "80Gi")))
    decision = found.engine.decide(found.claim({}, "p", requests={GPU: 1}))
    assert decision.reason == "limits.capacity"
    assert "of model NVIDIA-X1 have" in decision.refusals[0].note
    found.set(OPTIONS, "default", GpuOptionsBody(ScoringOptions(), models={"NVIDIA-X1": (500_000, 40 * GI)}))
    assert found.engine.decide(found.engine.claim("p")).admitted
    assert found.used()[0] == "1k", "with the one that ran before"


def test_a_pod_that_runs_with_gpus_of_an_unknown_model_is_a_worker() -> None:
    """Also where the quota limits what nothing is known about, so that nobody else is admitted beyond maxWorkers."""
    found = World()
    found.node("n1", gpus=4)
    found.host("n1", host(4, "NVIDIA-X1"))
    found.quota(total(1000, "80Gi", 1))
    found.engine.submit(found.claim({}, "there", requests={GPU: 1}))
    found.engine.place("there", "n1", forced=True)
    assert found.used() == ("0", 0, "0", 0, 1)
    found.host("n1", host(4, "NVIDIA-X1", usual=A10))
    found.quota(total(2000, "80Gi", 1))
    assert take(found, "p") == "total.max.workers.limit"


def test_gpu_objects_say_what_labels_do_not() -> None:
    found = World()
    found.node("n1", gpus=2)
    found.host("n1", host(2))
    for index in range(2):
        found.gpu(f"g{index}", "n1", 312, "80Gi", index=index, plugin=True)
    found.quota(total(10_000, "800Gi", 5))
    assert take(found, "p") == ""
    assert found.used()[:2] == ("312", 80 * GI)


def test_parts_cost_what_they_are() -> None:
    found = World()
    listed = {GPU: 8, "nvidia.com/mig-1g.10gb": 7, "amd.com/gpu": 1}
    found.set(NODE, "n1", NodeBody(parse_limits(listed)))
    replicas = Offer(GPU, 8, 8, "H100", 80 * GI, H100, replicas=4)
    slices = Offer("nvidia.com/mig-1g.10gb", 7, 7, "H100", 10 * GI, H100, (1, 7))
    other = Offer("amd.com/gpu", 1, 1, "MI300X", 0, (1_307_000, 192 * GI))
    found.host("n1", HostBody((replicas, slices, other)))
    found.quota(total(10_000, "8000Gi"))
    take(found, "a", 4)
    assert found.used()[:2] == ("989", 80 * GI)
    take(found, "b", 1, resource="nvidia.com/mig-1g.10gb")
    assert found.used()[:2] == ("1130285m", 90 * GI)
    take(found, "c", 1, resource="amd.com/gpu")
    assert found.used()[:2] == ("2437285m", 282 * GI)
    assert found.used()[4] == 3


def test_a_worker_that_requests_whole_gpus_too_costs_both_and_is_one_worker() -> None:
    found = world()
    found.node("small", {"model": "small"}, gpus=4)
    found.host("small", host(4, "small", fractions=2, usual=A10))
    found.quota(total(10_000, "800Gi", 5))
    needs = NodeNeeds({"model": "small"})
    claim = found.claim(marks((50, "4Gi")), "p", requests={GPU: 1}, needs=needs)
    assert found.engine.decide(claim).admitted
    assert found.used() == ("175", 28 * GI, "175", 28 * GI, 1)


def test_a_model_of_which_only_the_memory_is_known_is_named_where_tflops_are_limited() -> None:
    found = World()
    found.node("odd", {"model": "odd"}, gpus=8)
    found.host("odd", host(8, "X-9000", vram=80 * GI))
    found.quota({"requests.tflops": 10**9})
    decision = found.engine.decide(found.claim({}, "p", requests={GPU: 1}))
    assert decision.reason == "limits.capacity"
    assert "X-9000" in decision.sentence()
    found.quota({"requests.vram": 100 * GI})
    assert take(found, "q") == ""
    assert found.used() == ("0", 80 * GI, "0", 80 * GI, 1)
    assert take(found, "r") == "total.max.vram.request"
