"""Over-use taken back: V1 to V3 of 6.9, and the rulings."""

from __future__ import annotations

import pytest

from bursar.engine.disruption_budgets import KIND as BUDGET
from bursar.engine.disruption_budgets import BudgetBody
from bursar.engine.session import CommitListener
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.policies.pools.revocation import choose
from bursar.resources import EMPTY
from bursar.selectors import Requirement, Selector
from tests.builders import node, pod
from tests.policies.pools.world import World
from tests.sim.steps import TestBed

SECONDS = 1000
GPU = "nvidia.com/gpu"
QUOTA = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "ElasticQuota",
    "spec": {"max": {GPU: 4}, "min": {GPU: 2}},
}
REVOKING = {
    "apiVersion": "bursar.dev/v1alpha1",
    "kind": "Configuration",
    "metadata": {"name": "default"},
    "spec": {"pools": {"revokeOveruse": True}},
}
V1 = [("p10", 10, [20, 0]), ("p9", 9, [10, 1]), ("p8", 8, [20, 0]), ("p7", 7, [40, 0])]
Row = tuple[str, int, list[int]]


def chosen(rows: list[Row], runtime: list[int]) -> list[str]:
    """Rows: (name, priority, amounts), oldest first."""
    claims = [Claim(name, ClaimSpec(EMPTY, priority=p), at) for at, (name, p, _) in enumerate(rows)]
    order = sorted(claims, key=lambda claim: (claim.spec.priority, -claim.created))
    used = [sum(amounts[slot] for _, _, amounts in rows) for slot in range(len(runtime))]
    over = [max(0, used[slot] - runtime[slot]) for slot in range(len(runtime))]
    return [claim.uid for claim in choose({name: amounts for name, _, amounts in rows}, order, over)]


@pytest.mark.parametrize(
    ("rows", "runtime", "expected"),
    [
        pytest.param(V1, [50, 0], ["p9", "p7"], id="V1"),
        pytest.param(V1, [0, 0], ["p10", "p9", "p8", "p7"], id="V2 ruled: nothing is never less than nothing"),
        pytest.param(V1[:3], [0, 0], ["p10", "p9", "p8"], id="V2 three left"),
        pytest.param([("a", 0, [5, 0]), ("b", 1, [0, 5])], [5, 0], ["b"], id="B9 only who uses what is over-used"),
        pytest.param(
            [("one", 0, [1]), ("two", 0, [2]), ("eight", 0, [8])], [10], ["one"], id="the smallest sufficient one"
        ),
        pytest.param([("old", 0, [4]), ("new", 0, [4])], [5], ["new"], id="newest among equals"),
        pytest.param([("low", 0, [8]), ("high", 1, [1])], [8], ["low"], id="priority before size: it may overshoot"),
        pytest.param([("a", 0, [3]), ("b", 0, [3]), ("c", 0, [3])], [4], ["b", "c"], id="several, no more than needed"),
        pytest.param([("low", 0, [1]), ("high", 1, [5])], [2], ["high"], id="who became needless is spared"),
    ],
)
def test_choice(rows: list[Row], runtime: list[int], expected: list[str]) -> None:
    assert chosen(rows, runtime) == expected


def lent(delay: int = 120 * SECONDS) -> World:
    """Quota b has borrowed a's idle min."""
    world = World({"memory": 20}, placing=True)
    world.options(delay=delay)
    world.quota("a", {"memory": 20}, {"memory": 10})
    world.quota("b", {"memory": 20}, {"memory": 10})
    for _ in range(4):
        world.start({"memory": 5}, "b")
    world.now = 1000 * SECONDS
    assert world.engine.tick(world.now) == []
    return world


def test_v3_within_the_delay_nobody_goes_and_after_it_somebody_does() -> None:
    world = lent()
    world.submit({"memory": 5}, "a")
    assert world.runtime("b") == {"memory": 15}
    start = world.now
    assert world.engine.tick(start) == []
    assert world.engine.tick(start + 119 * SECONDS) == []
    (decision,) = world.engine.tick(start + 120 * SECONDS)
    assert (decision.uid, decision.reason) == ("c4", "pools.revoked")
    assert world.engine.tick(start + 500 * SECONDS) == []  # it goes already


def test_v3_no_delay() -> None:
    world = lent(0)
    world.submit({"memory": 5}, "a")
    assert [decision.uid for decision in world.engine.tick(world.now)] == ["c4"]


def test_v3_being_back_within_resets_the_clock() -> None:
    world = lent()
    claim = world.submit({"memory": 5}, "a")
    start = world.now
    world.engine.tick(start)
    world.engine.release(claim.uid)
    world.engine.tick(start + 100 * SECONDS)
    world.submit({"memory": 5}, "a")
    assert world.engine.tick(start + 130 * SECONDS) == []
    assert len(world.engine.tick(start + 250 * SECONDS)) == 1


def test_v3_several_over_used_quotas_and_one_that_is_removed() -> None:
    world = World({"memory": 40}, placing=True)
    world.options(delay=0)
    for name in "abc":
        world.quota(name, {"memory": 40})
        world.start({"memory": 10}, name)
    world.quota("d", {"memory": 40}, {"memory": 5})
    world.submit({"memory": 5}, "d")
    world.node("n1", {"memory": 0})
    world.node("n2", {"memory": 10})
    assert [d.uid for d in world.engine.tick(world.now)] == ["c1", "c2", "c3"]
    world.remove("a")
    assert world.engine.tick(world.now) == []


def test_own_pods_of_a_parent_and_its_children_are_brought_back_too() -> None:
    """B10: the original revokes nothing for a parent that has no pods of its own."""
    world = World({"memory": 20}, placing=True)
    world.options(delay=0)
    world.quota("p", {"memory": 20}, is_parent=True)
    world.quota("c", {"memory": 20}, parent="p")
    world.quota("other", {"memory": 20}, {"memory": 10})
    for _ in range(3):
        world.start({"memory": 5}, "c")
    world.start({"memory": 5}, "p")
    world.submit({"memory": 10}, "other")
    gone = [decision.uid for decision in world.engine.tick(world.now)]
    assert world.runtime("p") == {"memory": 10}
    assert gone == ["c2", "c3"]  # its own pods and its child have 5 each, by equal weights
    for uid in gone:
        world.engine.release(uid)
    assert world.used("p") == {"memory": 10}


def test_pods_that_may_not_be_preempted_stay() -> None:
    world = World({"memory": 20}, placing=True)
    world.options(delay=0)
    world.quota("q", {"memory": 20}, {"memory": 10})
    world.start({"memory": 10}, "q", firm=True)
    world.start({"memory": 5}, "q")
    world.quota("waiting", {"memory": 20}, {"memory": 2})
    world.submit({"memory": 2}, "waiting")
    world.node("n1", {"memory": 14})
    assert [decision.uid for decision in world.engine.tick(world.now)] == ["c2"]


def test_a_budget_is_honoured_and_somebody_else_is_asked() -> None:
    world = lent(0)
    selector = Selector((Requirement("x", "DoesNotExist"),))
    world.set(BUDGET, "ns/all", BudgetBody("ns", selector, 4, None, False))
    world.start({"memory": 0}, "b", namespace="free")
    world.submit({"memory": 5}, "a", namespace="free")
    assert world.engine.tick(world.now) == []
    assert world.engine.tick(world.now + 1) == []
    world.set(BUDGET, "ns/all", BudgetBody("ns", selector, 3, None, False))
    found = [d.uid for tick in range(4) for d in world.engine.tick(world.now + 2 + tick)]
    assert len(found) == 1


def test_lowering_max_takes_over_use_back() -> None:
    """Ruled: in this dialect a runtime that falls takes over-use back, if another claim waits for it."""
    world = World({"memory": 20}, placing=True)
    world.options(delay=0)
    world.quota("q", {"memory": 20})
    world.start({"memory": 5}, "q")
    world.start({"memory": 5}, "q")
    world.quota("q", {"memory": 5})
    assert world.engine.tick(world.now) == [], "nobody waits for it"
    world.quota("waiting", {"memory": 20})
    world.submit({"memory": 11}, "waiting")
    assert [decision.uid for decision in world.engine.tick(world.now)] == ["c2"]


@pytest.mark.parametrize("off", [{"revoke": False}, {"runtime": False}])
def test_it_can_be_switched_off(off: dict[str, object]) -> None:
    world = lent(0)
    world.options(delay=0, **off)
    world.submit({"memory": 5}, "a")
    assert world.engine.tick(world.now) == []


def test_what_is_guaranteed_is_not_taken_back() -> None:
    world = World({"memory": 20}, placing=True)
    world.options(delay=0, guarantee=True)
    world.quota("a", {"memory": 20}, {"memory": 0})
    world.start({"memory": 15}, "a")
    world.quota("b", {"memory": 20}, {"memory": 5})
    world.submit({"memory": 10}, "b")
    assert world.engine.tick(world.now) == []
    assert world.runtime("a") == {"memory": 15}


def test_the_delay_goes_on_after_a_restart() -> None:
    world = lent()
    world.submit({"memory": 5}, "a")
    start = world.now
    assert world.engine.tick(start) == []
    again = world.replayed()
    assert again.engine.next_due(start) == start + 120 * SECONDS
    assert again.engine.last_revocation() == start + 120 * SECONDS
    assert again.engine.tick(start + 119 * SECONDS) == []
    assert [decision.uid for decision in again.engine.tick(start + 120 * SECONDS)] == ["c4"]


def test_a_rehearsal_takes_no_over_use_away() -> None:
    """What a rehearsal finds out about over-use is forgotten with it."""
    world = lent(0)
    claim = world.submit({"memory": 5}, "a")
    world.engine.begin_rehearsal(CommitListener(), world.now)
    world.engine.release(claim.uid, world.now)
    assert world.engine.tick(world.now) == []
    world.engine.end_rehearsal()
    assert [decision.uid for decision in world.engine.tick(world.now)] == ["c4"]


def test_own_pods_of_a_parent_that_lose_to_its_children() -> None:
    """Only what the implicit child gets has changed."""
    world = World({"memory": 20}, placing=True)
    world.options(delay=0)
    world.quota("p", {"memory": 20}, is_parent=True)
    world.quota("c", {"memory": 20}, {"memory": 10}, "p")
    for _ in range(4):
        world.start({"memory": 5}, "p")
    assert world.engine.tick(world.now) == []
    world.submit({"memory": 10}, "c")
    assert [decision.uid for decision in world.engine.tick(world.now)] == ["c3", "c4"]


def test_it_says_when_the_delay_will_have_passed() -> None:
    world = lent()
    assert world.engine.next_due(world.now) is None
    claim = world.submit({"memory": 5}, "a")
    start = world.now
    world.engine.tick(start)
    assert world.engine.next_due(start) == start + 120 * SECONDS
    world.options(delay=60 * SECONDS)
    assert world.engine.next_due(start) == start + 60 * SECONDS
    assert world.engine.next_due(start + 60 * SECONDS) is None  # it is due now: nothing is to be waited for
    world.options(revoke=False)
    assert world.engine.next_due(start) is None
    world.options()
    world.engine.release(claim.uid)
    world.engine.tick(start + 10 * SECONDS)
    assert world.engine.next_due(start + 10 * SECONDS) is None


def test_the_embedded_cluster_takes_back_on_time() -> None:
    bed = TestBed(
        REVOKING,
        node("n1", {GPU: 4}),
        *({**QUOTA, "metadata": {"namespace": team, "name": team}} for team in "ab"),
        pod("p1", "b", {GPU: 4}),
    )
    bed.give(pod("p1", "a", {GPU: 2}))
    assert bed.next_due == 120 * SECONDS
    bed.advance(600 * SECONDS)
    assert [(h.at, h.what) for h in bed.happenings if h.pod == "b/p1" and h.what == "evicted"] == [
        (120 * SECONDS, "evicted")
    ]
    assert bed.next_due is None
