"""The order of members: first fit by halving against first fit step by step; rights against the reference model."""

from __future__ import annotations

from random import Random

import pytest

from bursar.policies.elastic.explanation import shortage_of
from bursar.policies.elastic.member_order import FirstFit, Member, MemberOrder
from bursar.policies.elastic.rights import ElasticRights
from tests.policies.elastic.reference_model import Pod, Quota, ReferenceModel
from tests.policies.elastic.world import World, claim_of

DIMENSIONS = ("example.com/x", "memory")


def step_by_step(members: list[Member], caps: list[int]) -> set[str]:
    sums = [0] * len(caps)
    taken: set[str] = set()
    for member in members:
        amounts = member.shape.amounts
        if all(amount == 0 or sums[k] + amount <= caps[k] for k, amount in enumerate(amounts)):
            taken.add(member.claim.uid)
            sums = [sums[k] + amount for k, amount in enumerate(amounts)]
    return taken


def taken_by(order: MemberOrder, fit: FirstFit) -> set[str]:
    return {member.claim.uid for member in order.members() if fit.takes(member)}


def filled(rng: Random, count: int) -> World:
    world = World(borrowing="capacity", order=rng.choice(["priority", "creation"]))
    world.quota("a", {name: rng.randint(0, 3 * count) for name in DIMENSIONS})
    for number in range(count):
        wants = {name: rng.randint(0, 4) for name in DIMENSIONS}
        world.decide(
            claim_of(f"p{rng.random()}", "a", wants, rng.randint(0, 3), number // 2, preemptible=number % 5 > 0)
        )
    return world


@pytest.mark.parametrize("seed", range(60))
def test_first_fit_takes_what_it_takes_step_by_step(seed: int) -> None:
    rng = Random(seed)
    order = filled(rng, rng.choice([0, 1, 5, 40])).found("a").order
    members = order.members()
    assert [m.level for m in members] == sorted(m.level for m in members)
    for _ in range(5):
        caps = [rng.randint(0, 90), rng.randint(0, 90)]
        assert taken_by(order, order.first_fit(caps)) == step_by_step(members, caps)


@pytest.mark.parametrize("seed", range(30))
def test_a_kept_first_fit_stays_true_while_claims_come_and_go(seed: int) -> None:
    rng = Random(seed)
    world = filled(rng, 20)
    order = world.found("a").order
    caps = [rng.randint(0, 40), rng.randint(0, 40)]
    last = order.first_fit(caps)
    before = taken_by(order, last)
    for number in range(30):
        claims = world.counted()
        gone = rng.choice(claims) if claims and rng.random() < 0.5 else ""
        if gone:
            world.engine.release(gone)
        else:
            wants = {name: rng.randint(0, 4) for name in DIMENSIONS}
            world.decide(claim_of(f"n{number}", "a", wants, rng.randint(0, 3), rng.randint(0, 30)))
        fit = order.first_fit(caps)
        after = taken_by(order, fit)
        assert after == step_by_step(order.members(), caps)
        moved = {member.claim.uid for member in order.between(last, fit)}
        there = {member.claim.uid for member in order.members()}
        assert (before ^ after) & there <= moved | {f"n{number}"}
        last, before = fit, after


@pytest.mark.parametrize("seed", range(80))
def test_rights_judge_every_set_as_the_rules_do(seed: int) -> None:
    """All subsets of those that run, not only those that the search would look at."""
    rng = Random(seed)
    world, reference = World(), ReferenceModel()
    for team in "abc":
        least = {name: rng.randint(0, 5) for name in DIMENSIONS}
        world.quota(team, least)
        reference.quotas[world.found(team).id] = Quota((team,), least, {})
    for number in range(14):
        wants = {name: amount for name in DIMENSIONS if (amount := rng.randint(0, 3))}
        pod = Pod(f"p{number:02}", rng.choice("abc"), wants, rng.randint(0, 2), number)
        claim = claim_of(pod.uid, pod.namespace, wants, pod.priority, number)
        if len(reference.pods) < 8 and world.decide(claim).admitted:
            world.leave()
            reference.pods[pod.uid] = pod
            reference.pods = {uid: p for uid, p in reference.pods.items() if uid in world.counted()}
    pod = Pod("x", "a", {name: rng.randint(1, 3) for name in DIMENSIONS}, rng.randint(0, 2), 99)
    claim = claim_of("x", "a", pod.wants, pod.priority, 99)
    book, state = world.policy.book, world.engine.state
    rights = ElasticRights(book, claim, world.found("a"), book.memory.cost(claim.spec.requests), state.accounts)
    shortage = shortage_of(rights, book.memory.cost(claim.spec.requests))
    short = reference.short(pod)
    able = {one.uid for one in reference.candidates(pod)}
    uids = sorted(reference.pods)
    for number in range(1 << len(uids)):
        victims = [uid for at, uid in enumerate(uids) if number >> at & 1]
        pods = [reference.pods[uid] for uid in victims]
        others = [one for one in pods if one.namespace != "a"]
        relieving = all(any(one.wants.get(what) for what in short) for one in others)
        legal = set(victims) <= able and reference.legal(pod, pods) and relieving
        found = rights.judge([state.claims[uid] for uid in victims], [], shortage)
        assert (not found) == legal, (victims, found)


@pytest.mark.parametrize(("least", "reason"), [(1, ""), (2, "elastic.total.example.com/x")])
def test_fair_sharing_leaves_a_quota_that_is_exactly_at_min_there(least: int, reason: str) -> None:
    """Its pods are beyond share of another resource; of memory it uses 2."""
    world = World()
    world.quota("a", {"example.com/x": 6})
    world.quota("b", {"example.com/x": 1, "memory": least})
    world.quota("c", {"example.com/x": 5, "memory": 2})
    world.ask("a0", "a", {"example.com/x": 6})
    world.ask("b0", "b", {"example.com/x": 3, "memory": 1})
    world.ask("b1", "b", {"example.com/x": 3, "memory": 1})
    decision = world.ask("a1", "a", {"example.com/x": 1})
    assert decision.reason == reason
    assert decision.victims == (() if reason else ("b1",))
