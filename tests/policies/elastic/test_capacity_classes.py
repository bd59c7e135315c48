"""Order, classes, capacity label and status: notes 5A label order, 5B, 5C controller, 5D status."""

from __future__ import annotations

import pytest

from bursar.engine.what_if import Submit
from bursar.ledger.claims import TERMINATING
from bursar.policies.results import Output
from tests.policies.elastic.world import GM, GPU, HIGH, LOW, World, claim_of

CPU, MEM = "cpu", "memory"
LABEL = "n8s.nebuly.ai/capacity"
MIG = "nvidia.com/mig-1g.1gb"


def order(world: World, namespace: str) -> list[str]:
    return [member.claim.uid for member in world.found(namespace).order.members()]


def outputs(world: World) -> list[Output]:
    return world.engine.outputs(world.now)


def labels(found: list[Output]) -> dict[str, object]:
    return {o.key: (o.value or {}).get(LABEL) for o in found if o.kind == "Pod" and o.part == "labels"}


def status(found: list[Output], key: str) -> dict[str, object]:
    (last,) = [output.value for output in found if output.key == key and output.part == "status"][-1:]
    assert last is not None
    return last


# 5A label order


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([], [], id="order-empty"),
        pytest.param(
            [("1", 1995, 100, 1), ("2", 2000, 10, 1), ("3", 1996, 50, 1)], ["1", "3", "2"], id="order-created"
        ),
        # ruled: higher priority first
        pytest.param([("1", 5, 100, 1), ("2", 5, 10, 1), ("3", 5, 50, 1)], ["1", "3", "2"], id="order-priority"),
        pytest.param([("1", 5, 0, 10), ("2", 5, 0, 1), ("3", 5, 0, 5)], ["2", "3", "1"], id="order-request"),
        pytest.param([("1", 5, 0, 1), ("3", 5, 0, 1), ("2", 5, 0, 1)], ["1", "2", "3"], id="order-name"),
    ],
)
@pytest.mark.parametrize("listed", [GPU, CPU])
def test_order(pods: list[tuple[str, int, int, int]], expected: list[str], listed: str) -> None:
    world = World(borrowing="capacity")
    world.quota("a", {listed: 100})
    for uid, created, priority, gpus in pods:
        assert world.decide(claim_of(uid, "a", {GPU: gpus}, priority, created)).admitted
    assert order(world, "a") == expected


def test_order_by_creation_leaves_priority_out() -> None:
    world = World(order="creation", borrowing="capacity")
    world.quota("a", {CPU: 1})
    for uid, priority, created in (("1", LOW, 1), ("2", HIGH, 2)):
        world.decide(claim_of(uid, "a", {CPU: 1}, priority, created))
    assert order(world, "a") == ["1", "2"]
    world.options(order="priority", borrowing="capacity")
    assert order(world, "a") == ["2", "1"]


@pytest.mark.parametrize(
    ("small", "large"),
    [
        pytest.param({CPU: 1, MEM: 10}, {CPU: 1, MEM: 11}, id="larger share"),
        pytest.param({CPU: 2, MEM: 1}, {CPU: 1, MEM: 30}, id="share before amounts"),
        pytest.param({CPU: 1, MEM: 10}, {CPU: 1, MEM: 10, GPU: 1}, id="fewer dimensions"),
        pytest.param({"example.com/b": 7}, {"example.com/a": 1}, id="the first differing dimension by name"),
    ],
)
def test_smaller_requests_come_first(small: dict[str, object], large: dict[str, object]) -> None:
    world = World(borrowing="capacity")
    world.quota("a", {CPU: 10, MEM: 100})
    world.decide(claim_of("a-large", "a", large, 0, 1))
    world.decide(claim_of("b-small", "a", small, 0, 1))
    assert order(world, "a") == ["b-small", "a-large"]


def test_first_fit() -> None:
    """Ruled: min 40, requests 30, 20, 10 in order: 30 and 10 are in-quota (the original passes over both)."""
    world = World(borrowing="capacity")
    world.quota("a", {CPU: 40})
    for uid, cpu in (("p1", 30), ("p2", 20), ("p3", 10)):
        world.ask(uid, "a", {CPU: cpu})
    assert [uid for uid, rank in world.classes("a").items() if rank == 2] == ["p1", "p3"]


def test_a_claim_that_asks_nothing_listed_is_in_quota() -> None:
    world = World(borrowing="capacity")
    world.quota("a", {GPU: 1})
    world.ask("p1", "a", {GPU: 2})
    world.ask("p2", "a", {CPU: 1})
    assert world.classes("a") == {"p1": 0, "p2": 2}


# 5B


def eq1(world: World) -> None:
    world.quota("ns-1", {CPU: 4, GM: 64}, {CPU: 6, GM: 80})


def test_eq1() -> None:
    world = World()
    eq1(world)
    world.ask("p", "ns-1", {CPU: 1, GPU: 3, MIG: 1})
    found = outputs(world)
    assert status(found, "ns-1/quota")["used"] == {CPU: "0", GM: "0"}
    assert status(found, "ns-1/quota")["reserved"] == {CPU: "1", GM: "49"}
    assert labels(found) == {}
    world.run("p")
    world.ask("other", "elsewhere", {CPU: 1})
    world.run("other")
    found = outputs(world)
    assert status(found, "ns-1/quota")["used"] == {CPU: "1", GM: "49"}
    assert labels(found) == {"ns-1/p": "in-quota"}
    assert outputs(world) == []


def test_eq2() -> None:
    world = World()
    world.quota("ns-1", {GM: 64}, {GM: 160})  # the vector's max of 96 is only watched by its scheduler
    world.quota("ns-2", {GM: 1600}, {GM: 1600})
    world.ask("p", "ns-1", {GPU: 10})
    world.run("p")
    assert labels(outputs(world)) == {"ns-1/p": "over-quota"}


def test_ceq1() -> None:
    world = World()
    world.composite("ns-3", ("ns-1", "ns-2"), {CPU: 4, GM: 64}, {CPU: 6, GM: 80})
    world.ask("p1", "ns-1", {CPU: "500m", GPU: 1})
    world.ask("p2", "ns-2", {CPU: "500m", GPU: 2, MIG: 1})
    assert status(outputs(world), "ns-3/quota")["used"] == {CPU: "0", GM: "0"}
    world.run("p1", "p2")
    found = outputs(world)
    assert status(found, "ns-3/quota")["used"] == {CPU: "1", GM: "49"}
    assert labels(found) == {"ns-1/p1": "in-quota", "ns-2/p2": "in-quota"}


@pytest.mark.parametrize("lender", ["ElasticQuota", "CompositeElasticQuota"], ids=["CEQ2", "CEQ3"])
def test_ceq2_and_3(lender: str) -> None:
    world = World()
    world.composite("ns-1", ("ns-1",), {GM: 64}, {GM: 160})
    if lender == "ElasticQuota":
        world.quota("ns-2", {GM: 1600}, {GM: 1600})
    else:
        world.composite("ns-2", ("ns-2",), {GM: 1600}, {GM: 1600})
    world.ask("p", "ns-1", {GPU: 10})
    world.run("p")
    assert labels(outputs(world)) == {"ns-1/p": "over-quota"}


# Labels


def test_labels_follow_the_class() -> None:
    world = World()
    world.quota("a", {CPU: 2})
    world.quota("b", {CPU: 2})
    for number in range(3):
        world.ask(f"p{number}", "a", {CPU: 1})
        world.run(f"p{number}")
    assert labels(outputs(world)) == {"a/p0": "in-quota", "a/p1": "in-quota", "a/p2": "over-quota"}
    world.engine.release("p0")
    assert labels(outputs(world)) == {"a/p2": "in-quota"}


def test_a_user_s_label_changes_nothing() -> None:
    """isOverQuota: the original trusts the label; here it is output only, and is written whatever the pod says."""
    world = World()
    world.quota("a", {CPU: 1})
    world.quota("b", {CPU: 2})
    world.decide(claim_of("p0", "a", {CPU: 1}, 0, 1, labels={LABEL: "over-quota"}))
    world.decide(claim_of("p1", "a", {CPU: 1}, 0, 2, labels={LABEL: "in-quota"}))
    world.run("p0", "p1")
    assert labels(outputs(world)) == {"a/p0": "in-quota", "a/p1": "over-quota"}
    world.now = 3
    assert world.ask("b0", "b", {CPU: 2}).victims == ("p1",)


def test_a_pod_that_no_quota_governs_any_more_loses_its_label() -> None:
    world = World()
    world.composite("x", ("a", "b"), {CPU: 4})
    for namespace in ("a", "b"):
        world.ask(f"p-{namespace}", namespace, {CPU: 1})
        world.run(f"p-{namespace}")
    outputs(world)
    world.composite("x", ("b",), {CPU: 4})
    assert labels(outputs(world)) == {"a/p-a": None}
    world.remove("x", "CompositeElasticQuota")
    assert labels(outputs(world)) == {"b/p-b": None}
    world.engine.release("p-a")
    assert outputs(world) == []


def test_what_if_writes_nothing() -> None:
    world = World()
    world.quota("a", {CPU: 2})
    world.ask("p", "a", {CPU: 1})
    world.run("p")
    outputs(world)
    world.engine.what_if([Submit(claim_of("q", "a", {CPU: 1}, HIGH))])
    assert outputs(world) == []


# Status: 5C controller, 5D


def test_status_lists_what_min_and_max_list() -> None:
    world = World()
    world.quota("a", {MEM: 1000}, {CPU: "100m"})
    world.ask("p", "a", {CPU: "10m", MEM: 20})
    world.run("p")
    assert status(outputs(world), "a/quota")["used"] == {CPU: "10m", MEM: "20"}


def test_status_a_max_only_key_is_kept() -> None:
    world = World()
    world.quota("a", {CPU: 3, MEM: 5}, {CPU: 5, MEM: 15, GPU: 1})
    assert status(outputs(world), "a/quota")["used"] == {CPU: "0", MEM: "0", GPU: "0"}
    world.ask("p1", "a", {CPU: 1, MEM: 2, GPU: 1})
    world.ask("p2", "a", {CPU: 1, MEM: 2})
    world.run("p1")
    assert status(outputs(world), "a/quota")["used"] == {CPU: "1", MEM: "2", GPU: "1"}


def test_status_follows_phases() -> None:
    """Pending to Running to ended, two namespaces; a third one counts nowhere."""
    world = World()
    world.quota("ns1", {CPU: 100, MEM: 100})
    world.quota("ns2", {CPU: 100, MEM: 100})
    for uid, namespace, cpu, memory in (("p1", "ns1", 10, 10), ("p2", "ns1", 10, 10), ("p3", "ns1", 10, 20)):
        world.ask(uid, namespace, {CPU: cpu, MEM: memory})
    world.ask("p4", "ns2", {CPU: 10, MEM: 10})
    world.ask("p5", "ns3", {CPU: 10, MEM: 10})
    assert status(outputs(world), "ns1/quota")["used"] == {CPU: "0", MEM: "0"}
    world.run("p1", "p2", "p3", "p4", "p5")
    found = outputs(world)
    assert status(found, "ns1/quota")["used"] == {CPU: "30", MEM: "40"}
    assert status(found, "ns2/quota")["used"] == {CPU: "10", MEM: "10"}
    world.engine.release("p2")
    world.engine.release("p3")
    assert status(outputs(world), "ns1/quota")["used"] == {CPU: "10", MEM: "10"}


def test_status_a_resized_pod() -> None:
    """Controller (c): the pod's spec is replaced by a 3/3 version while it runs."""
    world = World()
    world.quota("a", {CPU: 10, MEM: 10})
    world.ask("p", "a", {CPU: 2, MEM: 4})
    world.run("p")
    world.engine.adjust("p", claim_of("x", "a", {CPU: 3, MEM: 3}).spec)
    assert status(outputs(world), "a/quota")["used"] == {CPU: "3", MEM: "3"}


def test_a_victim_runs_until_it_is_gone() -> None:
    world = World()
    world.quota("a", {CPU: 1})
    world.quota("b", {CPU: 1})
    world.ask("p", "a", {CPU: 2})
    world.run("p")
    world.ask("q", "b", {CPU: 1})
    found = outputs(world)
    assert status(found, "a/quota")["used"] == {CPU: "2"}
    assert status(found, "a/quota")["reserved"] == {CPU: "0"}
    world.engine.observe("p", TERMINATING)
    world.leave()
    assert status(outputs(world), "a/quota")["used"] == {CPU: "0"}


def test_status_says_when_a_max_was_lowered_below_its_use() -> None:
    world = World()
    world.quota("a", {CPU: 4}, {CPU: 4})
    world.ask("p", "a", {CPU: 4})
    assert status(outputs(world), "a/quota")["conditions"] == [
        {"type": "Exceeded", "status": "False", "reason": "WithinMax", "message": ""}
    ]
    world.quota("a", {CPU: 2}, {CPU: 2})
    message = "more than max is in use of cpu; no pod is evicted for it, new ones are refused"
    assert status(outputs(world), "a/quota")["conditions"] == [
        {"type": "Exceeded", "status": "True", "reason": "MaxLowered", "message": message}
    ]
    assert world.ask("q", "a", {CPU: 1}).reason == "elastic.max.cpu"
    shrunk = world.engine.adjust("p", claim_of("x", "a", {CPU: 3}).spec)
    assert shrunk.admitted


def test_status_says_what_is_borrowed() -> None:
    world = World()
    world.quota("a", {CPU: 2})
    world.quota("b", {CPU: 2})
    world.ask("p", "a", {CPU: 3})
    assert status(outputs(world), "a/quota")["borrowed"] == {CPU: "1"}
