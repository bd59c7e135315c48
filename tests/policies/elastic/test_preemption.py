"""Vectors of the notes, 5A DryRun, 5C PostFilter, 5D end to end, 5E stories, 4.9 worked examples: who is displaced."""

from __future__ import annotations

import pytest

from bursar.engine.disruption_budgets import KIND, BudgetBody
from bursar.policies.elastic.settings import BEYOND_SHARE, IN_MIN
from bursar.policies.results import Setting
from bursar.selectors import Selector
from tests.policies.elastic.world import GM, GPU, HIGH, LOW, MIDDLE, World, claim_of

CPU, MEM = "cpu", "memory"
MIG = "nvidia.com/mig-1g.10gb"


def placed_world(nodes: dict[str, dict[str, object]], quotas: dict[str, dict[str, object]]) -> World:
    world = World(placed=True)
    for name, allocatable in nodes.items():
        world.node(name, allocatable)
    for namespace, least in quotas.items():
        world.quota(namespace, least)
    return world


# 5A and 5C, one node


def test_dr1() -> None:
    world = placed_world({"n": {MEM: 150}}, {"ns1": {MEM: 50}, "ns2": {MEM: 200}})
    for uid, namespace in (("p1", "ns1"), ("p2", "ns2"), ("p3", "ns2")):
        world.fact(uid, namespace, {MEM: 50}, MIDDLE, "n")
    assert world.ask("p", "ns1", {MEM: 50}, HIGH).victims == ("p1",)


def test_dr2() -> None:
    """With true sums (p1 uses 40): p3 is beyond its quota's share, p4 is not; p2 is in-quota."""
    world = placed_world({"n": {MEM: 150}}, {"ns1": {MEM: 150}, "ns2": {MEM: 50}})
    world.fact("p1", "ns1", {MEM: 40}, MIDDLE, "n")
    world.fact("p2", "ns2", {MEM: 50}, HIGH, "n")
    world.fact("p3", "ns2", {MEM: 50}, MIDDLE, "n")
    world.fact("p4", "ns2", {MEM: 10}, LOW, "n")
    assert world.ask("p", "ns1", {MEM: 50}, HIGH).victims == ("p3",)


@pytest.mark.parametrize(("first", "victim"), [("p1", "p2"), ("p2", "p1")], ids=["DR3", "DR3-reverse-starts"])
def test_dr3(first: str, victim: str) -> None:
    """With true sums; p5 alone could not free enough."""
    world = placed_world(
        {"n": {MEM: 350, CPU: 200}},
        {"ns1": {MEM: 150, CPU: 200}, "ns2": {MEM: 50, CPU: 20}, "ns3": {MEM: 300, CPU: 300}},
    )
    for uid in (first, "p2" if first == "p1" else "p1"):
        world.fact(uid, "ns1", {MEM: 100 if uid == "p1" else 150, CPU: 100}, MIDDLE, "n")
    world.fact("p3", "ns2", {MEM: 50}, HIGH, "n")
    world.fact("p4", "ns2", {MEM: 50}, MIDDLE, "n")
    world.fact("p5", "ns2", {MEM: 10}, LOW, "n")
    assert world.ask("p", "ns1", {MEM: 70}, HIGH).victims == (victim,)


def test_5c_cross_namespace() -> None:
    """Ruled order: p2 is in-quota by its priority, p3 over-quota."""
    world = placed_world({"n": {MEM: 150}}, {"ns1": {MEM: 150}, "ns2": {MEM: 50}})
    world.fact("p1", "ns1", {MEM: 50}, MIDDLE, "n")
    world.fact("p2", "ns2", {MEM: 50}, HIGH, "n")
    world.fact("p3", "ns2", {MEM: 50}, MIDDLE, "n")
    decision = world.ask("p", "ns1", {MEM: 50}, HIGH)
    assert (decision.victims, decision.place) == (("p3",), "n")


def test_5c_no_quotas() -> None:
    world = placed_world({"n": {MEM: 150}}, {})
    for uid in ("p1", "p2", "p3"):
        world.fact(uid, "ns1", {MEM: 50}, MIDDLE, "n")
    assert world.ask("p", "ns1", {MEM: 50}, HIGH).victims == ("p3",)


# 5C eligibility


def test_5c_policy_never() -> None:
    world = placed_world({"n": {MEM: 150}}, {"ns1": {MEM: 150}})
    world.fact("p1", "ns1", {MEM: 150}, LOW, "n")
    claim = claim_of("p", "ns1", {MEM: 50}, HIGH, 9)
    spec = claim.spec
    claim.spec = type(spec)(spec.requests, priority=HIGH, preempts=False)
    assert world.decide(claim).reason == "elastic.total.memory"


def test_5c_waits_for_victims_that_are_leaving() -> None:
    """Whoever was told to leave is counted as gone, so nobody else has to go; the claim waits (B7: in every mode)."""
    world = placed_world({"n": {MEM: 150}}, {"ns1": {MEM: 100}, "ns2": {MEM: 50}})
    world.fact("p1", "ns1", {MEM: 50}, MIDDLE, "n")
    world.fact("p2", "ns2", {MEM: 50}, MIDDLE, "n")
    world.fact("p3", "ns2", {MEM: 50}, MIDDLE, "n")
    first = world.ask("p", "ns1", {MEM: 50}, MIDDLE)
    assert (first.name, first.victims) == ("held", ("p3",))
    again = world.ask("q", "ns1", {MEM: 10}, MIDDLE)
    assert (again.victims, again.reason) == ((), "elastic.total.memory")
    world.leave()
    assert world.engine.claim("p").state == 2


# 5D, two nodes of 100 bytes; pods of 50 bytes and 10m


def two_nodes(quotas: bool = True) -> World:
    least: dict[str, object] = {MEM: 100, CPU: "100m"}
    world = World(placed=True)
    for name in ("n1", "n2"):
        world.node(name, {MEM: 100, CPU: 100})
    if quotas:
        for namespace in ("ns1", "ns2"):
            world.quota(namespace, least, {MEM: 200, CPU: "200m"})
    return world


Existing = list[tuple[str, str, int, str]]
Added = list[tuple[str, str, int, int]]


@pytest.mark.parametrize(
    ("quotas", "existing", "added", "remain"),
    [
        pytest.param(
            True,
            [
                ("p1", "ns1", MIDDLE, "n1"),
                ("p2", "ns1", LOW, "n1"),
                ("p3", "ns2", MIDDLE, "n2"),
                ("p4", "ns2", LOW, "n2"),
            ],
            [("p5", "ns1", MIDDLE, 50), ("p6", "ns2", MIDDLE, 50)],
            ["p1", "p3", "p5", "p6"],
            id="E2-in-namespace",
        ),
        pytest.param(
            False,
            [("p1", "ns1", HIGH, "n1"), ("p2", "ns1", LOW, "n1"), ("p3", "ns2", HIGH, "n2"), ("p4", "ns2", LOW, "n2")],
            [("p5", "ns1", MIDDLE, 50), ("p6", "ns2", MIDDLE, 50)],
            ["p1", "p3", "p5", "p6"],
            id="E3-no-quotas",
        ),
        pytest.param(
            True,
            [
                ("p1", "ns1", MIDDLE, "n1"),
                ("p2", "ns1", MIDDLE, "n1"),
                ("p3", "ns1", LOW, "n2"),
                ("p4", "ns2", MIDDLE, "n2"),
            ],
            [("p5", "ns1", HIGH, 150), ("p6", "ns2", HIGH, 150)],
            ["p1", "p2", "p3", "p4"],
            id="E4-impossible",
        ),
        pytest.param(
            True,
            [
                ("p1", "ns1", MIDDLE, "n1"),
                ("p2", "ns2", HIGH, "n1"),
                ("p3", "ns2", HIGH, "n2"),
                ("p4", "ns2", HIGH, "n2"),
            ],
            [("p5", "ns2", HIGH, 50)],
            ["p1", "p2", "p3", "p4"],
            id="E5-over-min-cannot-take-others",
        ),
        pytest.param(
            True,
            [
                ("p1", "ns1", LOW, "n1"),
                ("p2", "ns1", LOW, "n2"),
                ("p3", "ns2", MIDDLE, "n1"),
                ("p4", "ns2", MIDDLE, "n2"),
            ],
            [("p5", "ns1", HIGH, 100), ("p6", "ns2", HIGH, 100)],
            ["p1", "p2", "p3", "p4"],
            id="E6-cross-node",
        ),
    ],
)
def test_end_to_end(quotas: bool, existing: Existing, added: Added, remain: list[str]) -> None:
    world = two_nodes(quotas)
    for uid, namespace, priority, node in existing:
        world.fact(uid, namespace, {MEM: 50, CPU: "10m"}, priority, node)
    for uid, namespace, priority, memory in added:
        world.ask(uid, namespace, {MEM: memory, CPU: "10m"}, priority)
        world.leave()
    assert world.counted() == remain


# 5E


def test_story_1() -> None:
    """A(4,6) B(6,8), 10 GPUs: B takes its min back from A; nobody passes the sum of the minimums."""
    world = World(placed=True)
    world.node("n", {GPU: 10})
    world.quota("a", {GPU: 4}, {GPU: 6})
    world.quota("b", {GPU: 6}, {GPU: 8})
    world.ask("a1", "a", {GPU: 2})
    world.ask("b1", "b", {GPU: 3})
    world.ask("a2", "a", {GPU: 2})
    assert world.ask("a3", "a", {GPU: 3}).reason == f"elastic.max.{GPU}"
    assert world.ask("a4", "a", {GPU: 2}).admitted
    assert world.ask("b2", "b", {GPU: 3}).victims == ("a4",)
    world.leave()
    assert (world.used("a")[GPU], world.used("b")[GPU]) == ("4", "6")
    assert world.ask("b3", "b", {GPU: 1}).reason == f"elastic.total.{GPU}"


def test_story_2() -> None:
    """A(3,4) B(4,6) C(3,4): B within its min takes from A only; above it, from its own lower priority."""
    world = World(placed=True)
    world.node("n", {GPU: 10})
    for name, least, most in (("a", 3, 4), ("b", 4, 6), ("c", 3, 4)):
        world.quota(name, {GPU: least}, {GPU: most})
    for name, count in (("a", 4), ("b", 3), ("c", 3)):
        for number in range(count):
            world.ask(f"{name}{number}", name, {GPU: 1}, LOW)
    assert world.ask("b3", "b", {GPU: 1}, LOW).victims == ("a3",)
    world.leave()
    world.engine.release("a0")
    assert world.ask("b4", "b", {GPU: 1}, LOW).admitted
    assert (world.used("a")[GPU], world.used("b")[GPU], world.used("c")[GPU]) == ("2", "5", "3")
    assert world.ask("b5", "b", {GPU: 1}, HIGH).victims == ("b4",)


# 4.9


def seed_example() -> World:
    world = World()
    for name, least in (("a", 40), ("b", 10), ("c", 30)):
        world.quota(name, {GM: least})
    for name in ("a", "b"):
        for number in range(1, 5):
            assert world.ask(f"{name}{number}", name, {MIG: 1, CPU: 1}).admitted
    return world


def test_seed_example() -> None:
    world = seed_example()
    book = world.policy.book
    assert [book.guaranteed(world.found(name)) for name in "abc"] == [[15], [3], [11]]
    assert world.ask("a5", "a", {MIG: 1, CPU: 1}).victims == ("b4",)
    world.leave()
    assert (world.used("a")[GM], world.used("b")[GM]) == ("50", "30")
    assert world.ask("a6", "a", {MIG: 1}).reason == f"elastic.total.{GM}"
    assert world.ask("c1", "c", {MIG: 1}).victims == ("b3",)


def test_demo_no_victim() -> None:
    """Ruled: a fair share never takes a quota from its min to below it; one pod of 150 stays for one of 10."""
    world = World()
    for name, least in (("a", "100m"), ("b", "50m"), ("c", "100m")):
        world.quota(name, {CPU: least})
    world.ask("a1", "a", {CPU: "100m"})
    world.ask("b1", "b", {CPU: "150m"})
    assert world.ask("a2", "a", {CPU: "10m"}).reason == "elastic.total.cpu"


def test_claiming_min() -> None:
    world = World(placed=True)
    world.node("n", {CPU: 8})
    for name in ("q1", "q2"):
        world.quota(name, {CPU: 4}, {CPU: 6})
    for number in range(3):
        world.ask(f"a{number}", "q1", {CPU: 2})
    assert world.ask("a3", "q1", {CPU: 2}).reason == "elastic.max.cpu"
    assert world.ask("b0", "q2", {CPU: 2}).victims == ()
    assert world.ask("b1", "q2", {CPU: 2}).victims == ("a2",)


def test_cross_node() -> None:
    """Ruled: two victims on two nodes make room for one claim where one is not enough (the KEP cannot)."""
    world = World(placed=True)
    for name in ("n1", "n2"):
        world.node(name, {CPU: 2})
    world.quota("q1", {CPU: 0}, {CPU: 2})
    world.quota("q2", {CPU: 2}, {CPU: 2})
    for number in (1, 2):
        world.fact(f"a{number}", "q1", {CPU: 1}, 0, f"n{number}")
    assert sorted(world.ask("b", "q2", {CPU: 2}).victims) == ["a1", "a2"]


def test_first_come_above_min() -> None:
    world = World()
    for name, least in (("q1", 0), ("q2", 0), ("q3", 1)):
        world.quota(name, {CPU: least})
    world.ask("a", "q1", {CPU: 1}, LOW)
    assert world.ask("b", "q2", {CPU: 1}, HIGH).reason == "elastic.total.cpu"


# Notes part 6: what users reported


def test_issue_683_the_owner_of_min_gets_it_back() -> None:
    """5 GPUs, A min 4 uses 5, B min 1 asks 1, and nobody lists cpu or memory."""
    world = World(placed=True)
    world.node("n", {GPU: 5, CPU: 64, MEM: "64Gi"})
    world.quota("a", {GPU: 4})
    world.quota("b", {GPU: 1})
    for number in range(5):
        assert world.ask(f"a{number}", "a", {GPU: 1, CPU: 2, MEM: "1Gi"}).admitted
    assert world.ask("b0", "b", {GPU: 1, CPU: 2, MEM: "1Gi"}).victims == ("a4",)


def test_issue_211_no_needless_evictions() -> None:
    """Claims decided one after the other, before any victim has left: each takes its own victim and no more."""
    world = World(placed=True)
    world.node("n", {GPU: 4})
    world.quota("a", {GPU: 1})
    world.quota("b", {GPU: 3})
    for number in range(4):
        world.fact(f"a{number}", "a", {GPU: 1}, 0, "n")
    taken = [world.ask(f"b{number}", "b", {GPU: 1}).victims for number in range(3)]
    assert taken == [("a3",), ("a2",), ("a1",)]
    assert world.ask("b3", "b", {GPU: 1}).victims == ()


def test_issue_424_no_max_is_no_limit() -> None:
    world = World(borrowing="capacity")
    world.quota("a", {GPU: 1})
    assert world.ask("p", "a", {GPU: 100, CPU: 1}).admitted


# Rules of our own


def test_on_a_full_node_an_unlisted_dimension_counts_as_over_quota() -> None:
    world = World(placed=True)
    world.node("n", {CPU: 4, GPU: 8})
    world.quota("lists", {CPU: 2, GPU: 4})
    world.quota("not", {GPU: 4})
    for number in range(4):
        world.ask(f"x{number}", "not", {CPU: 1, GPU: 1}, HIGH)
    assert world.ask("p", "lists", {CPU: 1}, LOW).victims == ("x3",)
    world.leave()
    assert world.ask("q", "not", {CPU: 1}, LOW).reason == "nodes.full"


def test_gpu_memory_stands_for_gpus_on_a_node() -> None:
    """Both quotas list gpu-memory only; the node is short of GPUs: in-quota claims are safe from each other."""
    world = World(borrowing="capacity", placed=True)
    world.node("n", {GPU: 4})
    world.quota("a", {GM: 32})
    world.quota("b", {GM: 32})
    for number in range(3):
        world.ask(f"a{number}", "a", {GPU: 1})
    assert world.ask("b0", "b", {GPU: 1}).victims == ()
    assert world.ask("b1", "b", {GPU: 1}).victims == ("a2",)
    assert world.ask("b2", "b", {GPU: 1}).reason == "nodes.full"


def test_own_lower_priority_but_not_of_a_better_class() -> None:
    """An over-quota claim of high priority takes no in-quota claim of its own quota (order by creation)."""
    world = World(order="creation")
    world.quota("a", {CPU: 2})
    world.quota("b", {CPU: 2})
    world.ask("b1", "b", {CPU: 2})
    for number in range(2):
        world.ask(f"a{number}", "a", {CPU: 1}, LOW)
    assert world.classes("a") == {"a0": 2, "a1": 2}
    assert world.ask("a2", "a", {CPU: 1}, HIGH).reason == "elastic.total.cpu"
    world.options(order="priority")
    assert world.ask("a3", "a", {CPU: 1}, HIGH).victims == ("a1",)


def test_ungoverned_claims_are_not_touched() -> None:
    world = World(placed=True)
    world.node("n", {CPU: 4})
    world.quota("a", {CPU: 4})
    world.ask("u", "elsewhere", {CPU: 3}, LOW)
    assert world.ask("p", "a", {CPU: 2}, HIGH).reason == "nodes.full"


def test_a_budget_keeps_its_claims() -> None:
    world = seed_example()
    world.run("b1", "b2", "b3", "b4")
    world.engine.configure([Setting(KIND, "b/pdb", BudgetBody("b", Selector(()), 4, None, False))])
    assert world.ask("a5", "a", {MIG: 1}).reason == f"elastic.total.{GM}"


def test_non_preemptible_claims_are_in_quota_first_and_never_taken() -> None:
    world = World()
    world.quota("a", {CPU: 2})
    world.quota("b", {CPU: 4})
    world.ask("a1", "a", {CPU: 2}, HIGH)
    world.ask("a2", "a", {CPU: 2}, LOW, preemptible=False)
    assert world.classes("a") == {"a1": 0, "a2": 2}
    world.ask("a3", "a", {CPU: 2}, HIGH)
    assert world.ask("b1", "b", {CPU: 2}).victims == ("a3",)


def test_a_search_that_is_cut_short_says_so() -> None:
    """Borrowers of 2 cpu each may lose 19 memory together, so no set frees 19 cpu; there are too many to try."""
    world = World(borrowing="capacity", placed=True)
    world.node("n1", {"cpu": 80, "memory": 200})
    world.quota("a", {"cpu": 15})
    world.quota("c", {"cpu": 60, "memory": 30})
    world.quota("d", {"cpu": 21, "memory": 61})
    for number in range(40):
        assert world.ask(f"d{number:02}", "d", {"cpu": 2, "memory": 2}).admitted
    refused = world.ask("a1", "a", {"cpu": 19})
    assert [refusal.reason for refusal in refused.refusals][-1] == "engine.search-limit"
    assert len(world.counted()) == 40
    few = world.ask("a2", "a", {"cpu": 18})
    assert len(few.victims) == 9


def test_a_claim_of_its_own_quota_is_not_displaced_for_its_class_if_it_is_as_important() -> None:
    world = World(order="creation")
    world.quota("a", {CPU: 2}, {CPU: 3})
    world.quota("b", {CPU: 9})
    world.fact("low", "a", {CPU: 1})
    world.fact("alike", "a", {CPU: 2}, priority=5)  # over-quota, because it came later
    assert world.ask("asks", "a", {CPU: 1}, priority=5).victims == ("low",)


def test_fair_sharing_leaves_a_quota_alone_that_uses_exactly_its_share_of_what_is_short() -> None:
    """One claim of d is beyond its share, but of memory; e is above its share of cpu, and may not be displaced."""
    quotas: dict[str, dict[str, object]] = {
        "a": {CPU: 2, MEM: 4}, "c": {CPU: 4, MEM: 4}, "d": {CPU: 2, MEM: 0}, "e": {CPU: 0},
    }  # fmt: skip
    world = placed_world({"n": {CPU: 99, MEM: 99}}, quotas)
    firm = claim_of("firm", "e", {CPU: 3}, preemptible=False)
    world.engine.submit(firm)
    world.engine.place("firm", "n", forced=True)
    for uid, namespace, asked in (("d1", "d", {CPU: 2}), ("d2", "d", {CPU: 1, MEM: 1}), ("a1", "a", {CPU: 2})):
        world.fact(uid, namespace, asked, node="n")
    assert world.policy.book.share(world.found("d")) == [3000, 0]
    assert world.classes("d") == {"d1": IN_MIN, "d2": BEYOND_SHARE}
    decision = world.ask("asks", "a", {CPU: 1})
    assert (decision.victims, decision.reason) == ((), "elastic.total.cpu")
