"""Which demand counts: that of claims that some node could take, in gangs that could be admitted. Ruling 7."""

from __future__ import annotations

from random import Random

import pytest

from bursar.engine.placement import possible_nodes
from bursar.engine.what_if import Configure
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.policies.nodes.policy import KIND as NODES_NODE
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.pools.configure import NODE
from bursar.policies.pools.node_pools import PoolNode
from bursar.policies.pools.settings import QUOTA_OF_POD
from bursar.policies.results import Setting
from bursar.resources import Limits, from_amounts
from bursar.selectors import NO_NEEDS, NodeNeeds, Taint
from tests.policies.pools.world import Amounts, World

DISKS = ("hdd", "ssd")


def node(name: str, has: Amounts, labels: dict[str, str], taints: tuple[Taint, ...] = ()) -> list[Setting]:
    return [
        Setting(NODE, name, PoolNode(has, labels)),
        Setting(NODES_NODE, name, NodeBody(Limits(has), labels, taints, False)),
    ]


def pool(*nodes: list[Setting]) -> World:
    world = World(placing=True)
    world.engine.configure([setting for given in nodes for setting in given])
    world.quota("q", {"cpu": 100})
    world.quota("other", {"cpu": 100}, {"cpu": 5})
    return world


def claim(world: World, cpu: int, disk: str = "", gang: str = "", size: int = 0) -> Claim:
    world.count += 1
    needs = NodeNeeds({"disk": disk}) if disk else NO_NEEDS
    spec = ClaimSpec(from_amounts({"cpu": cpu}), labels={QUOTA_OF_POD: "q"}, group=gang, group_size=size, needs=needs)
    return Claim(f"c{world.count}", spec, world.count, "ns", f"p{world.count}")


def entered(world: World, *claims: Claim) -> list[Claim]:
    for one in claims:
        world.engine.submit(one, world.now)
    return list(claims)


def test_demand_counts_while_some_node_could_take_it() -> None:
    world = pool(node("n1", {"cpu": 10}, {"disk": "hdd"}))
    entered(world, claim(world, 4, "ssd"), claim(world, 4, "ssd"), claim(world, 3))
    assert world.request("q") == {"cpu": 3}
    world.engine.configure(node("n2", {"cpu": 5}, {"disk": "ssd"}))
    assert world.request("q") == {"cpu": 11}
    world.engine.configure(node("n2", {"cpu": 5}, {"disk": "ssd"}, (Taint("no", "", "NoSchedule"),)))
    assert world.request("q") == {"cpu": 3}
    world.engine.configure(node("n2", {"cpu": 3}, {"disk": "ssd"}))
    assert world.request("q") == {"cpu": 3}, "too small"
    world.engine.configure(node("n1", {"cpu": 10}, {"disk": "ssd"}))
    assert world.request("q") == {"cpu": 11}
    world.remove_node("n1")
    assert world.request("q") == {"cpu": 3}
    world.replayed()


def test_a_trial_of_nodes_leaves_no_answer_behind() -> None:
    world = pool(node("n1", {"cpu": 10}, {"disk": "hdd"}))
    (waiting,) = entered(world, claim(world, 4, "ssd"))
    outlook = world.engine.what_if([Configure(node("n1", {"cpu": 10}, {"disk": "ssd"}))], 0, True)
    assert outlook.decisions[-1].admitted
    assert world.request("q") == {}
    assert world.engine.decide(waiting).reason == "nodes.none"
    entered(world, claim(world, 4, "ssd"))
    assert world.request("q") == {}


@pytest.mark.parametrize("seed", range(8))
def test_the_kept_answers_are_those_that_nodes_give(seed: int) -> None:
    """Random nodes come, change and go, some only on trial; each answer equals one over all nodes."""
    chance = Random(seed)
    world = pool(node("n0", {"cpu": 5}, {"disk": "hdd"}))
    core = world.engine._core
    claims = entered(world, *(claim(world, cpu, disk) for cpu in (1, 4, 7) for disk in ("", *DISKS)))
    for _ in range(60):
        name = f"n{chance.randrange(4)}"
        taints = (Taint("no", "", "NoSchedule"),) if chance.random() < 0.3 else ()
        given = node(name, {"cpu": chance.choice((2, 5, 9))}, {"disk": chance.choice(DISKS)}, taints)
        if chance.random() < 0.2:
            given = [Setting(kind, name, None) for kind in (NODE, NODES_NODE)]
        if chance.random() < 0.4:
            world.engine.what_if([Configure(given)])
        else:
            world.engine.configure(given)
        counted = 0
        for one in claims:
            fits = bool(possible_nodes(core, one))
            assert core.possible.has_node(one) == fits
            counted += one.spec.requests.amount("cpu") if fits else 0
        assert world.request("q").get("cpu", 0) == counted
    world.replayed()


def test_a_node_that_is_no_witness_costs_no_search() -> None:
    world = pool(*(node(name, {"cpu": 10}, {"disk": "ssd"}) for name in ("n1", "n2")))
    (waiting,) = entered(world, claim(world, 4, "ssd"))
    known = world.engine._core.possible.known
    before = known[waiting.spec, "ns"]
    world.engine.configure(node("n2", {"cpu": 10}, {}))
    assert known[waiting.spec, "ns"] is before
    world.engine.configure(node("n1", {"cpu": 10}, {}))
    assert known[waiting.spec, "ns"].slot == -1


# Gangs


def test_a_gang_counts_from_when_control_says_that_it_is_complete() -> None:
    world = pool(node("n1", {"cpu": 10}, {}))
    first = claim(world, 2, gang="ns/g", size=2)
    entered(world, first)
    world.engine.gang("ns/g", complete=False)
    assert world.request("q") == {}
    version = world.engine.version
    world.engine.gang("ns/g", complete=False)
    assert world.engine.version == version, "nothing new is no record"
    entered(world, claim(world, 2, gang="ns/g", size=2))
    assert world.request("q") == {}
    world.engine.gang("ns/g", complete=True)
    assert world.request("q") == {"cpu": 4}
    world.engine.release(first.uid)
    world.engine.gang("ns/g", complete=False)
    assert world.request("q") == {}
    world.engine.release("c2")
    world.engine.gang("ns/g", complete=True)
    assert world.engine.state.cells("gangs") == {}
    world.replayed()


@pytest.mark.parametrize(
    ("amounts", "reason"),
    [
        pytest.param((40, 40, 40), "pools.max.cpu", id="more than max in all"),
        pytest.param((30, 30, 30), "pools.unplaceable", id="more than the tree in all"),
        pytest.param((30, 45, 1), "pools.unplaceable", id="one is too large for each node"),
    ],
)
def test_a_gang_that_could_never_be_admitted_is_no_demand(amounts: tuple[int, ...], reason: str) -> None:
    world = pool(node("n1", {"cpu": 40}, {}), node("n2", {"cpu": 40}, {}))
    members = entered(world, *(claim(world, cpu, gang="ns/g", size=3) for cpu in amounts))
    world.engine.gang("ns/g", complete=True)
    assert world.request("q") == {}
    decisions = world.engine.decide_group(members)
    assert not any(decision.admitted for decision in decisions)
    assert {decision.reason for decision in decisions} <= {reason, "engine.group", "nodes.none"}
    assert any(decision.reason in (reason, "nodes.none") for decision in decisions)
    world.engine.configure(node("n3", {"cpu": 100}, {}))
    world.quota("q", {"cpu": 200})
    assert world.request("q") == {"cpu": sum(amounts)}
    assert all(decision.admitted for decision in world.engine.decide_group(members))
    world.replayed()


def test_members_that_run_count_towards_what_a_gang_asks_for() -> None:
    """A member that joins could be admitted alone, but not beside those that run."""
    world = pool(node("n1", {"cpu": 200}, {}))
    runs = claim(world, 60, gang="ns/g", size=1)
    assert world.engine.decide(runs).admitted
    entered(world, claim(world, 50, gang="ns/g", size=1))
    world.engine.gang("ns/g", complete=True)
    assert world.request("q") == {"cpu": 60}
