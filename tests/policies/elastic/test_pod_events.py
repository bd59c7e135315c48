"""Pods that come, change and leave: 5C pod events, eligibility to preempt again, controller and 5D status rows.

Through the embedded cluster: what a scheduler learns from its informers is here what the control loop has seen.
"""

from __future__ import annotations

import pytest

from bursar.engine.session import EngineError
from bursar.ledger.claims import BOUND, RUNNING, TERMINATING
from tests.builders import Manifest, container, node, pod
from tests.policies.elastic.world import HIGH, LOW, MIDDLE, World, claim_of
from tests.sim.steps import TestBed

CPU, MEM, GPU = "cpu", "memory", "nvidia.com/gpu"
SLOWLY = {"sim.bursar.dev/leaves-after": "30s"}
NEVER: Manifest = {"preemptionPolicy": "Never"}


def quota(namespace: str, least: Manifest, most: Manifest | None = None) -> Manifest:
    spec = {"min": least} | ({} if most is None else {"max": most})
    head = {"apiVersion": "n8s.nebuly.ai/v1alpha1", "kind": "ElasticQuota"}
    return {**head, "metadata": {"namespace": namespace, "name": "quota"}, "spec": spec}


def status(bed: TestBed, namespace: str) -> Manifest:
    found: Manifest = bed.whole(f"ElasticQuota.n8s.nebuly.ai/{namespace}/quota")["status"]
    return found


def used(bed: TestBed, namespace: str) -> Manifest:
    """What runs; all of it is also what decisions count, unless the test says otherwise."""
    found = status(bed, namespace)
    assert found["used"] == found["reserved"]
    whole: Manifest = found["used"]
    return whole


def evicted(bed: TestBed) -> list[str]:
    return [line.pod for line in bed.happenings if line.what == "evicted"]


# 5C pod events: min 10 cpu and 100 bytes, max 100 and 1000


def governed(*pods: Manifest) -> TestBed:
    """Another quota lends, so that all pods may run."""
    bed = TestBed(node("n", {CPU: 1000, MEM: 10_000}), quota("lender", {CPU: 1000, MEM: 10_000}))
    bed.give(quota("ns1", {CPU: 10, MEM: 100}, {CPU: 100, MEM: 1000}), *pods)
    return bed


def test_5c_pods_add_up() -> None:
    bed = governed(*(pod(f"p{n}", "ns1", {MEM: 50, CPU: 10}) for n in range(3)))
    assert used(bed, "ns1") == {CPU: "30", MEM: "150"}


def test_5c_what_is_seen_again_counts_once() -> None:
    """Succeeded to Running: an end is final, and a pod that runs is not counted a second time."""
    bed = governed(pod("p1", "ns1", {MEM: 50, CPU: 20}), pod("p2", "ns1", {MEM: 50, CPU: 10}))
    for name in ("p1", "p2"):
        claim = bed.controller.claim(f"ns1/{name}")
        assert claim is not None
        bed.controller.running(claim.uid)
    bed.settle()
    assert used(bed, "ns1") == {CPU: "30", MEM: "100"}
    bed.finish(["ns1/p1"])
    bed.controller.running("ns1/p1")
    bed.settle()
    assert used(bed, "ns1") == {CPU: "10", MEM: "50"}


def test_5c_a_pod_that_ends_before_it_runs_counts_nothing() -> None:
    """Pending to Failed."""
    bed = governed(pod("p1", "ns1", {MEM: 50, CPU: 101}))
    assert bed.see("ns1/p1").reason == "elastic.max.cpu"
    claim = bed.controller.claim("ns1/p1")
    assert claim is not None
    bed.controller.gone(claim.uid)
    bed.settle()
    assert used(bed, "ns1") == {CPU: "0", MEM: "0"}


@pytest.mark.parametrize(
    ("gone", "left"),
    [(["p1", "p2"], {CPU: "0", MEM: "0"}), (["p1"], {CPU: "30", MEM: "100"})],
    ids=["delete-both", "delete-one"],
)
def test_5c_deleted_pods(gone: list[str], left: Manifest) -> None:
    bed = governed(pod("p1", "ns1", {MEM: 100, CPU: 30}), pod("p2", "ns1", {MEM: 100, CPU: 30}))
    bed.take(*(f"Pod/ns1/{name}" for name in gone))
    assert used(bed, "ns1") == left


# 5C quota events


@pytest.mark.parametrize(
    ("least", "most", "listed"),
    [
        pytest.param({CPU: 10, MEM: 100}, {CPU: 100, MEM: 1000}, {CPU: "0", MEM: "0"}, id="add"),
        pytest.param({CPU: 10, MEM: 100}, None, {CPU: "0", MEM: "0"}, id="without-max"),
        pytest.param({}, {CPU: 100, MEM: 1000}, {CPU: "0", MEM: "0"}, id="without-min"),
        pytest.param({}, None, {}, id="neither"),
    ],
)
def test_5c_a_new_quota(least: Manifest, most: Manifest | None, listed: Manifest) -> None:
    """What is absent is no limit: not the largest number, and not zero."""
    assert used(TestBed(quota("ns1", least, most)), "ns1") == listed


def test_5c_an_updated_max_keeps_what_is_used_and_a_deleted_quota_is_gone() -> None:
    bed = governed(pod("p1", "ns1", {CPU: 30}))
    bed.give(quota("ns1", {CPU: 10, MEM: 100}, {CPU: 300, MEM: 1000}))
    assert used(bed, "ns1") == {CPU: "30", MEM: "0"}
    bed.take("ElasticQuota.n8s.nebuly.ai/ns1/quota")
    assert sorted(name for name in bed.engine.state.accounts if "ns1" in name) == []


# 5C eligibility: node of 150 bytes, pods of 50


def full_node(least: dict[str, int], *pods: Manifest) -> TestBed:
    bed = TestBed(node("node-a", {MEM: 150}), *(quota(name, {MEM: amount}) for name, amount in least.items()))
    for one in pods:
        bed.give(one)
        bed.advance(1)
    return bed


def slow(name: str, namespace: str, priority: int) -> Manifest:
    return pod(name, namespace, {MEM: 50}, annotations=SLOWLY, priority=priority)


def asked_again(bed: TestBed, claimant: Manifest) -> list[str]:
    """Victims of the claimant after it was given every reason to look again while the first one is leaving."""
    bed.give(claimant)
    bed.give(node("node-a", {MEM: 151}))
    bed.advance(10_000)
    bed.give(node("node-a", {MEM: 150}))
    bed.advance(10_000)
    return evicted(bed)


@pytest.mark.parametrize(
    ("least", "others", "claimant", "victims"),
    [
        pytest.param(
            {"ns1": 50, "ns2": 100},
            [slow("p1", "ns1", MIDDLE), slow("p2", "ns2", MIDDLE), slow("p3", "ns2", MIDDLE)],
            pod("t", "ns1", {MEM: 50}, priority=HIGH),
            ["ns1/p1"],
            id="waits-same-namespace",
        ),
        pytest.param(
            {"ns1": 100, "ns2": 50},
            [slow("p1", "ns1", MIDDLE), slow("p2", "ns2", MIDDLE), slow("p3", "ns2", MIDDLE)],
            pod("t", "ns1", {MEM: 50}, priority=MIDDLE),
            ["ns2/p3"],
            id="waits-other-namespace-over-its-min",
        ),
        pytest.param(
            {},
            [slow("p1", "ns1", MIDDLE), slow("p2", "ns2", MIDDLE), slow("p3", "ns2", MIDDLE)],
            pod("t", "ns1", {MEM: 50}, priority=HIGH),
            ["ns2/p3"],
            id="waits-no-quotas",
        ),
        pytest.param(
            {"ns1": 50, "ns2": 100},
            [slow("p1", "ns1", LOW), slow("p2", "ns2", MIDDLE), slow("p3", "ns2", MIDDLE)],
            pod("t", "ns1", {MEM: 50}, priority=HIGH, **NEVER),
            [],
            id="policy-never",
        ),
    ],
)
def test_5c_eligibility(least: dict[str, int], others: list[Manifest], claimant: Manifest, victims: list[str]) -> None:
    bed = full_node(least, *others)
    assert bed.phases() == {f"{one['metadata']['namespace']}/{one['metadata']['name']}": "Running" for one in others}
    assert asked_again(bed, claimant) == victims
    bed.advance(10_000)
    assert (evicted(bed), bed.see("ns1/t").phase) == (victims, "Running" if victims else "Pending")


def test_5c_eligibility_unresolvable() -> None:
    """Its node is gone before it could start there: it may preempt on another one."""
    bed = TestBed(node("node-a", {MEM: 50}), node("node-b", {MEM: 50}))
    bed.give(quota("ns1", {MEM: 100}), quota("ns2", {MEM: 0}))
    bed.give(slow("p1", "ns2", MIDDLE), slow("p2", "ns2", MIDDLE))
    bed.give(pod("t", "ns1", {MEM: 50}, priority=MIDDLE))
    (first,) = evicted(bed)
    lost = bed.see(first).node
    bed.take(f"Node/{lost}")
    bed.advance(30_000)
    assert (sorted(evicted(bed)), bed.see("ns1/t").phase) == (["ns2/p1", "ns2/p2"], "Running")
    assert bed.see("ns1/t").node not in ("", lost)


def test_5c_eligibility_a_claim_without_quota_does_not_wait_for_one_with() -> None:
    """A pod of ns2 is leaving; the claimant has no quota, so it takes whom it may: its like of lower priority."""
    bed = full_node({"ns2": 150}, slow("governed", "ns2", LOW), slow("p1", "ns1", LOW), slow("p2", "ns1", MIDDLE))
    bed.take("Pod/ns2/governed")
    bed.give(pod("t", "ns1", {MEM: 50}, priority=HIGH))
    assert evicted(bed) == ["ns1/p1"]


# 5C controller, 5D status


def test_5c_controller_requests_of_containers_and_init_containers() -> None:
    """(b) two containers of 1/2 each, and one pod whose init container is the larger (3/3)."""
    bed = TestBed(node("n", {CPU: 10, MEM: 10}), quota("ns1", {CPU: 10, MEM: 10}))
    two = pod("p1", "ns1")
    two["spec"]["containers"] = [container({CPU: 1, MEM: 2}), container({CPU: 1, MEM: 2}, name="b")]
    bed.give(two, pod("p2", "ns1", {CPU: 1, MEM: 1}, initContainers=[container({CPU: 3, MEM: 3}, name="first")]))
    assert used(bed, "ns1") == {CPU: "5", MEM: "7"}


def test_5c_controller_a_replaced_spec_and_another_namespace() -> None:
    """(c) the pod of ns1 becomes 3/3 while it runs; that of ns2 is 4/3."""
    bed = TestBed(node("n", {CPU: 10, MEM: 10}), quota("ns1", {CPU: 10, MEM: 10}), quota("ns2", {CPU: 10, MEM: 10}))
    bed.give(pod("p1", "ns1", {CPU: 1, MEM: 2}), pod("p2", "ns2", {CPU: 4, MEM: 3}))
    bed.give(pod("p1", "ns1", {CPU: 3, MEM: 3}))
    assert (used(bed, "ns1"), used(bed, "ns2")) == ({CPU: "3", MEM: "3"}, {CPU: "4", MEM: "3"})


@pytest.mark.parametrize("strangers", [0, 2], ids=["d-no-pods", "e-pods-elsewhere"])
def test_5c_controller_zeros_of_all_that_is_listed(strangers: int) -> None:
    bed = TestBed(node("n", {CPU: 10, MEM: 10}), quota("ns1", {CPU: 3, MEM: 5}, {CPU: 5, MEM: 15, GPU: 1}))
    bed.give(*(pod(f"p{n}", "ns3", {CPU: 1}) for n in range(strangers)))
    assert used(bed, "ns1") == {CPU: "0", MEM: "0", GPU: "0"}


def test_5d_status_without_max() -> None:
    bed = TestBed(node("n", {CPU: 100, MEM: 100}), quota("ns1", {CPU: 100, MEM: 100}))
    bed.give(*(pod(f"p{n}", "ns1", {CPU: 10, MEM: memory}) for n, memory in enumerate((10, 10, 10, 20))))
    assert used(bed, "ns1") == {CPU: "40", MEM: "50"}


def test_5d_status_ended_pods() -> None:
    bed = TestBed(node("n", {CPU: 100, MEM: 100}), quota("ns1", {CPU: 100, MEM: 100}))
    bed.give(*(pod(f"p{n}", "ns1", {CPU: 10, MEM: memory}) for n, memory in enumerate((10, 10, 20))))
    assert used(bed, "ns1") == {CPU: "30", MEM: "40"}
    bed.finish(["ns1/p1", "ns1/p2"])
    assert used(bed, "ns1") == {CPU: "10", MEM: "10"}


# 5C reserve and unreserve, on the ledger alone


def test_5c_reserve_counts_in_its_own_quota_only() -> None:
    world = World(borrowing="capacity")
    world.quota("ns1", {MEM: 1000})
    world.fact("before", "ns1", {MEM: 300})
    world.ask("p1", "ns1", {MEM: 50})
    world.ask("p2", "ns2", {MEM: 50})
    assert (world.used("ns1"), sorted(world.found("ns1").members)) == ({MEM: "350"}, ["before", "p1"])


def test_5c_unreserve_takes_back_only_what_was_counted() -> None:
    world = World(borrowing="capacity")
    world.quota("ns1", {MEM: 1000})
    world.fact("p3", "ns1", {MEM: 50})
    world.fact("p4", "ns1", {MEM: 250})
    world.ask("p2", "ns2", {MEM: 50})
    with pytest.raises(EngineError, match="no claim p1"):
        world.engine.release("p1")
    world.engine.release("p2")
    assert world.used("ns1") == {MEM: "300"}
    world.engine.release("p3")
    assert (world.used("ns1"), sorted(world.found("ns1").members)) == ({MEM: "250"}, ["p4"])


def test_5a_guaranteed_of_an_unknown_quota() -> None:
    """Where no quota governs, there is nothing to ask for a guarantee."""
    assert World().policy.book.governing("unknown") is None


@pytest.mark.parametrize("seen", [RUNNING, TERMINATING])
def test_a_pod_that_is_seen_to_run_after_its_eviction_began_is_used_until_it_is_gone(seen: int) -> None:
    world = World()
    world.quota("ns1", {CPU: 10}, {CPU: 10})
    assert world.decide(claim_of("low", "ns1", {CPU: 10})).admitted
    world.engine.observe("low", BOUND)
    assert world.ask("high", "ns1", {CPU: 10}, HIGH).victims == ("low",)
    running = world.engine.state.accounts["elastic/ElasticQuota/ns1/quota#running"].used
    world.engine.observe("low", seen)
    assert running.amount(CPU) == 10_000
    world.engine.release("low")
    assert running.amount(CPU) == 0
