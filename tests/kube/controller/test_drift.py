"""Differences between ledger and cluster: each kind is found, and put right or said to need a new ledger."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from bursar.kube.controller.drift import differences, repair, wrong_sums
from bursar.kube.controller.mirror import Mirror
from bursar.resources import from_amounts
from tests.kube.controller.plain_kubernetes import PlainKubernetes
from tests.kube.controller.test_mirror import GPU, cluster_with, namespace, node, pod, quota

ENFORCED = {"bursar.dev/quota": "enforced"}


def team() -> PlainKubernetes:
    """One pod runs, one waits for quota."""
    cluster = cluster_with(
        node("n", 2), node("m", 2), namespace("a", **ENFORCED), quota("a", 2, 2), pod("a", "runs", 2), pod("a", "waits")
    )
    assert (cluster.phases["a/runs"], cluster.phases["a/waits"]) == ("Running", "Pending")
    assert found(cluster.mirror) == []
    assert list(wrong_sums(cluster.mirror.engine.state)) == []
    return cluster


def found(mirror: Mirror) -> list[str]:
    return [f"{one.key} {one.problem}" for one in differences(mirror.controller, mirror.pods)]


def uid_of(mirror: Mirror, key: str) -> str:
    claim = mirror.controller.claim(key)
    assert claim is not None
    return claim.uid


def repaired(mirror: Mirror) -> list[bool]:
    return [repair(mirror.controller, mirror.pods, one) for one in differences(mirror.controller, mirror.pods)]


def test_a_claim_without_a_pod_is_released_and_who_waits_may_start() -> None:
    mirror = team().mirror
    tracked = mirror.pods.by_key.pop("a/runs")
    del mirror.pods.by_uid[tracked.uid]
    assert found(mirror) == ["a/runs counts, but there is no such pod"]
    assert repaired(mirror) == [True]
    assert found(mirror) == []
    mirror.controller.settle()
    waiting = mirror.controller.claim("a/waits")
    assert waiting is not None
    assert waiting.place


def test_a_claim_in_the_wrong_place_is_moved_to_where_its_pod_is() -> None:
    cluster = team()
    mirror = cluster.mirror
    uid = uid_of(mirror, "a/runs")
    here = cluster.pods["a/runs"]["spec"]["nodeName"]
    (there,) = {"n", "m"} - {here}
    mirror.engine.place(uid, there, cluster.now, forced=True)
    assert found(mirror) == [f"a/runs is on {here}, but counts on {there}"]
    assert repaired(mirror) == [True]
    assert found(mirror) == []
    used = {name: mirror.engine.state.account(f"nodes/{name}").used.amount(GPU) for name in (here, there)}
    assert used == {here: 2, there: 0}


@pytest.mark.parametrize(("name", "asks"), [("runs", 2), ("waits", 1)])
def test_a_claim_that_counts_for_less_than_its_pod_requests_is_synced_again(name: str, asks: int) -> None:
    mirror = team().mirror
    tracked = mirror.pods.by_key[f"a/{name}"]
    more = {GPU: "1", "cpu": "500m"}
    container = tracked.seen.spec.containers[0]
    grown = msgspec.structs.replace(container, resources=msgspec.structs.replace(container.resources, requests=more))
    tracked.seen = msgspec.structs.replace(
        tracked.seen, spec=msgspec.structs.replace(tracked.seen.spec, containers=(grown,))
    )
    assert found(mirror) == [f"a/{name} requests 500m cpu, 1 {GPU}, but counts for {asks} {GPU}"]
    assert repaired(mirror) == [True]
    assert found(mirror) == []
    assert list(wrong_sums(mirror.engine.state)) == []


def test_a_sum_that_is_not_what_the_claims_cost_is_named() -> None:
    state = team().mirror.engine.state
    (node,) = [name for name in ("nodes/n", "nodes/m") if not state.account(name).used.amount(GPU)]
    state.account(node).used.add(from_amounts({GPU: 1}))
    state.account(node).busy.add(from_amounts({GPU: 2}))
    assert list(wrong_sums(state)) == [
        f"{node}: 1 {GPU} used, and its claims cost nothing",
        f"{node}: 2 {GPU} busy, and its claims cost nothing",
    ]


def lose_runner(mirror: Mirror, now: int) -> None:
    mirror.engine.release(uid_of(mirror, "a/runs"), now)


def lose_waiter(mirror: Mirror, now: int) -> None:
    mirror.engine.release(uid_of(mirror, "a/waits"), now)


@pytest.mark.parametrize(
    ("lose", "problem"),
    [
        (lose_runner, "a/runs is on {node}, but does not count"),
        (lose_waiter, "a/waits is pending, but not in the queue"),
    ],
)
def test_a_pod_without_a_claim_needs_a_new_ledger(lose: Callable[[Mirror, int], None], problem: str) -> None:
    cluster = team()
    lose(cluster.mirror, cluster.now)
    assert found(cluster.mirror) == [problem.format(node=cluster.pods["a/runs"]["spec"]["nodeName"])]
    assert repaired(cluster.mirror) == [False]
