"""The least set of contenders, against a search of all sets; and what happens when there are too many."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from bursar.engine.decision import REASONS
from bursar.engine.disruption_budgets import KIND, BudgetBody
from bursar.engine.eligibility import Slack
from bursar.engine.preemption import PreemptionPlan
from bursar.engine.time_box import DecisionTime
from bursar.engine.victim_sets import SETS_A_PLACE, JudgedSets, VictimSetCheck, least_set
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.policies.results import Setting
from bursar.policies.rights import Allowance, Contender, Row
from bursar.resources import dimension
from bursar.selectors import Requirement, Selector
from tests.policies.elastic.world import World, claim_of


class Never(VictimSetCheck):
    """Accepts no set that has one of these."""

    def __init__(self, *unwanted: str) -> None:
        self.unwanted = unwanted

    def accepts(self, chosen: list[Contender]) -> bool:
        return not any(one.claim.uid in self.unwanted for one in chosen)


def contender(number: int, relief: list[int]) -> Contender:
    found = Contender(Claim(f"c{number:02}", ClaimSpec(), number), 0)
    found.relief = relief
    return found


def loads_of(chosen: tuple[Contender, ...]) -> dict[Allowance, int]:
    sums: dict[Allowance, int] = {}
    for one in chosen:
        for allowance, load in zip(one.allowances, one.loads, strict=True):
            sums[allowance] = sums.get(allowance, 0) + load
    return sums


def brute_force(contenders: list[Contender], needs: list[int]) -> list[str] | None:
    """The most important member first, as small as possible."""
    best: list[int] | None = None
    for size in range(len(contenders) + 1):
        for chosen in combinations(range(len(contenders)), size):
            picked = tuple(contenders[at] for at in chosen)
            enough = all(sum(one.relief[r] for one in picked) >= need for r, need in enumerate(needs))
            allowed = all(load <= allowance.left for allowance, load in loads_of(picked).items())
            key = sorted(chosen, reverse=True)
            if enough and allowed and (best is None or key < best):
                best = key
    return None if best is None else [contenders[at].claim.uid for at in sorted(best)]


@pytest.mark.parametrize("seed", range(300))
def test_the_least_set_is_found(seed: int) -> None:
    rng = Random(seed)
    rows = rng.randint(1, 3)
    contenders = [contender(n, [rng.randint(0, 4) for _ in range(rows)]) for n in range(rng.randint(1, 9))]
    allowances = [Allowance(f"a{n}", rng.randint(0, 6)) for n in range(rng.randint(0, 3))]
    for one in contenders:
        for allowance in rng.sample(allowances, rng.randint(0, len(allowances))):
            load = rng.choice([1, max(1, one.relief[0])])
            if load <= allowance.left:
                one.load(allowance, load)
    needs = [rng.randint(1, 9) for _ in range(rows)]
    found = least_set(iter(contenders), needs, JudgedSets(DecisionTime()), VictimSetCheck())
    assert (None if found is None else [one.claim.uid for one in found]) == brute_force(contenders, needs)


def test_a_set_that_the_judge_rejects_is_not_the_end() -> None:
    allowance = Allowance("two of three", 2)
    contenders = [contender(n, [1]) for n in range(4)]
    for one in contenders[:3]:
        one.load(allowance, 1)
    found = least_set(iter(contenders), [2], JudgedSets(DecisionTime()), Never("c01"))
    assert [one.claim.uid for one in found or []] == ["c00", "c02"]


def test_a_search_that_is_too_long_takes_what_it_can_build_and_says_so() -> None:
    """Every contender takes of two budgets, and no set within both is enough, as only whole sets show."""
    rng = Random(1)
    allowances = [Allowance(f"a{n}", 30) for n in range(6)]
    contenders = [contender(n, [rng.randint(50, 99)]) for n in range(40)]
    for one in contenders:
        for allowance in rng.sample(allowances, 3):
            one.load(allowance, rng.randint(3, 9))
    judged = JudgedSets(DecisionTime())
    assert least_set(iter(contenders), [1400], judged, VictimSetCheck()) is None
    assert judged.cut
    assert judged.here > SETS_A_PLACE


def test_the_reason_says_that_not_all_sets_were_judged() -> None:
    """Budgets that overlap at random, and a claim that needs more than they can allow together."""
    world = World()
    world.quota("a", {"cpu": 40})
    world.quota("b", {"cpu": 0})
    rng = Random(3)
    for number in range(40):
        labels = {f"l{n}": "x" for n in rng.sample(range(8), 3)}
        world.decide(claim_of(f"b{number:02}", "b", {"cpu": 1}, 0, number, labels=labels))
        world.run(f"b{number:02}")
    for n in range(8):
        has = Selector((Requirement(f"l{n}", "Exists", ()),))
        world.engine.configure([Setting(KIND, f"b/p{n}", BudgetBody("b", has, None, 3, False))])
    decision = world.decide(claim_of("a0", "a", {"cpu": 9}, 0, 99))
    assert not decision.admitted
    assert decision.reason == "elastic.total.cpu"
    assert "engine.search-limit" in [refusal.reason for refusal in decision.refusals]
    assert "engine.search-limit" in {reason.code for reason in REASONS}


def test_between_nodes_the_age_of_the_highest_priority_counts() -> None:
    def victim(uid: str, priority: int, created: int) -> Claim:
        return Claim(uid, ClaimSpec(priority=priority), created)

    newer = PreemptionPlan("n2", [victim("a", 0, 1), victim("b", 5, 10)])
    older = PreemptionPlan("n1", [victim("c", 0, 7), victim("d", 5, 8)])
    assert newer.harm() < older.harm()
    assert PreemptionPlan("n1", older.victims, 1).harm() > older.harm()


# Nodes that cannot be cleared


def test_a_node_is_ruled_out_when_more_stays_than_may() -> None:
    world = World(placed=True)
    world.node("n", {"memory": 4})
    for number in range(4):
        world.fact(f"p{number}", "free", {"memory": 1}, node="n")
    assert world.ask("asks", "free", {"memory": 1}, priority=5).victims == ("p3",)
    memory = dimension("memory").index
    claims = world.engine.state.claims
    slack = Slack([Row(world.engine.state.accounts["nodes/n"], memory, 3)])  # of the four that count one may stay
    assert slack.stays(claims["p3"])  # it is leaving, and does not count
    assert slack.stays(claims["p0"])
    assert not slack.stays(claims["p1"])


@pytest.mark.parametrize("protected", range(3))
def test_a_node_on_which_a_claim_stays_is_passed_over_wherever_it_stands(protected: int) -> None:
    world = World(placed=True)
    for node in ("n1", "n2"):
        world.node(node, {"memory": 3})
        for number in range(3):
            uid = f"{node}-{number}"
            stays = node == "n1" and number == protected
            world.fact(uid, "free", {"memory": 1}, priority=9 if stays else 0, node=node)
    decision = world.ask("asks", "free", {"memory": 3}, priority=5)
    assert (decision.place, set(decision.victims)) == ("n2", {"n2-0", "n2-1", "n2-2"})
    assert world.ask("again", "free", {"memory": 3}, priority=5).reason == "nodes.full"
    assert world.ask("small", "free", {"memory": 2}, priority=5).place == "n1"
