"""The whole cluster on one page: used, reserved, free and usable, by resource, team and pool."""

from __future__ import annotations

from typing import Any

from bursar.server.total_types import ResourceTotal
from tests.server.live import Live, ManualClock, node, pod

GPU = "nvidia.com/gpu"


def in_pool(name: str, pool: str, gpus: int) -> dict[str, Any]:
    return {**node(name, gpus), "metadata": {"name": name, "labels": {"pool": pool}}}


def gpus(bed: Live) -> ResourceTotal:
    (found,) = [one for one in bed.client.overview().resources if one.resource == GPU]
    return found


def test_what_is_free_is_usable_in_pieces_of_the_largest_that_waits(bed: Live) -> None:
    bed.give(node("n2"), node("n3"))
    assert (gpus(bed).allocatable, gpus(bed).free, gpus(bed).usable, gpus(bed).largest) == ("12", "12", "12", "")
    bed.give(*(pod("free", f"p{index}", 3) for index in range(3)))  # one is free on each node
    bed.give(pod("free", "pair", 2))
    found = gpus(bed)
    assert (found.free, found.usable, found.largest, found.largest_claim) == ("3", "0", "2", "free/pair")
    bed.client.delete(["Pod/free/p0"])  # the pair takes its place, which leaves 2 + 1 + 1
    assert (gpus(bed).free, gpus(bed).usable) == ("4", "4")
    bed.give(pod("free", "triple", 3))
    assert (gpus(bed).free, gpus(bed).usable) == ("4", "0")


def test_a_claim_that_cannot_start_as_things_are_makes_nothing_unusable(bed: Live) -> None:
    bed.give(pod("free", "too-large", 99))
    assert (gpus(bed).free, gpus(bed).usable, gpus(bed).largest) == ("4", "4", "")


def test_nodes_that_are_not_ready_have_nothing(bed: Live) -> None:
    bed.give({**node("n1"), "spec": {"unschedulable": True}})
    assert bed.client.overview().resources == []
    (pool,) = bed.client.overview().pools
    assert (pool.nodes, pool.ready) == (1, 0)


def test_teams_and_pools_are_summed(bed: Live) -> None:
    bed.give(in_pool("t1", "train", 2), in_pool("t2", "train", 2))
    bed.give(pod("c", "one", 2), pod("c", "two", 2), pod("d", "large", 2), pod("d", "later", 4))
    found = bed.client.overview()
    teams = {team.namespace: team for team in found.teams}
    assert (teams["c"].used[GPU], teams["c"].running, teams["c"].waiting) == ("4", 2, 0)
    assert (teams["d"].used[GPU], teams["d"].wanted[GPU], teams["d"].waiting) == ("2", "4", 1)
    pools = {pool.name: pool for pool in found.pools}
    assert (pools["train"].nodes, pools["train"].allocatable[GPU]) == (2, "4")
    assert int(pools["train"].used.get(GPU, 0)) + int(pools[""].used.get(GPU, 0)) == 6
    total = gpus(bed)
    assert int(total.used) + int(total.reserved) + int(total.free) == int(total.allocatable) == 8


def test_the_past_has_an_overview(bed: Live, clock: ManualClock) -> None:
    seq = bed.client.info().moment.seq
    clock.now += 1000
    bed.give(pod("a", "one", 2))
    assert [team.namespace for team in bed.client.overview(at=str(seq)).teams] == []
    assert [team.namespace for team in bed.client.overview().teams] == ["a"]
