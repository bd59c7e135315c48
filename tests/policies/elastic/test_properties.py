"""Properties that the issue names: composite = elastic, splitting changes no sum, min is obtainable, undo is exact."""

from __future__ import annotations

from random import Random

import pytest

from bursar.engine.what_if import Configure, Submit
from bursar.policies.elastic.fair_share import divide, loans
from bursar.policies.elastic.quotas import lending
from tests.policies.elastic.world import GM, GPU, World, claim_of, quota_setting

CPU, MEM = "cpu", "memory"


def same_life(first: World, second: World, rng: Random, namespaces: dict[str, str]) -> None:
    """The same claims asked of two worlds (the second under other namespaces) fare the same way."""
    for number in range(60):
        namespace = rng.choice(sorted(namespaces))
        wants: dict[str, object] = {CPU: rng.randint(0, 3), MEM: rng.randint(0, 3)}
        priority = rng.randint(0, 2)
        left = first.decide(claim_of(f"p{number:02}", namespace, wants, priority, number))
        right = second.decide(claim_of(f"p{number:02}", namespaces[namespace], wants, priority, number))
        assert (left.outcome, left.victims, left.reason) == (right.outcome, right.victims, right.reason)
        for world in (first, second):
            world.leave()
        if rng.random() < 0.3 and first.counted():
            gone = rng.choice(first.counted())
            first.engine.release(gone)
            second.engine.release(gone)
    assert first.counted() == second.counted()


@pytest.mark.parametrize("seed", range(10))
def test_a_composite_of_one_namespace_is_an_elastic_quota(seed: int) -> None:
    rng = Random(seed)
    mins = {name: {CPU: rng.randint(0, 6), MEM: rng.randint(0, 6)} for name in ("a", "b", "c")}
    first, second = World(), World()
    for name, least in mins.items():
        first.quota(name, least)
        second.composite(name, (name,), least)
    same_life(first, second, rng, {name: name for name in mins})


@pytest.mark.parametrize("seed", range(10))
def test_splitting_the_namespaces_of_a_composite_changes_no_sum(seed: int) -> None:
    """All claims of a composite in one namespace, or spread over three: every decision is the same."""
    rng = Random(seed)
    first, second = World(), World()
    for world in (first, second):
        world.composite("x", ("a", "b1", "b2", "b3"), {CPU: 5, MEM: 4})
        world.quota("c", {CPU: 4, MEM: 6})
    same_life(first, second, rng, {"b1": "a", "b2": "a", "b3": "a", "c": "c"})
    assert first.policy.book.pool == second.policy.book.pool
    assert first.used("a") == second.used("a")


@pytest.mark.parametrize("seed", range(30))
def test_min_is_obtainable(seed: int) -> None:
    """Others have borrowed all there is; claims that stay within their quota's min get in, each at its first attempt
    or after finitely many, and keep what they got while demand does not change.
    """
    rng = Random(seed)
    world = World()
    mins = {name: rng.randint(2, 8) for name in ("a", "b", "c")}
    for name, least in mins.items():
        world.quota(name, {CPU: least})
    for number in range(30):
        world.ask(f"x{number:02}", rng.choice(["b", "c"]), {CPU: rng.randint(1, 2)}, rng.randint(0, 9))
        world.leave()
    wanted: list[str] = []
    left = mins["a"]
    while left:
        size = rng.randint(1, left)
        left -= size
        wanted.append(f"a{len(wanted)}")
        decision = world.ask(wanted[-1], "a", {CPU: size}, rng.randint(0, 9))
        assert decision.admitted, (decision, size)
        world.leave()
    for uid in world.waiting():
        world.decide(world.engine.claim(uid))
        world.leave()
    assert set(wanted) <= set(world.counted())
    assert world.used("a") == {CPU: str(mins["a"])}


def test_a_refused_decision_and_a_what_if_leave_no_trace() -> None:
    world = World()
    world.quota("a", {CPU: 2})
    world.quota("b", {CPU: 2})
    world.ask("b1", "b", {CPU: 1})
    world.ask("b2", "b", {CPU: 3})
    book = world.policy.book
    before = (world.engine.state.plain(), dict(book.pool), world.classes("b"), dict(world.policy.runners))
    guess = world.engine.what_if([Submit(claim_of("a1", "a", {CPU: 2}, 0, 9))]).of("a1")
    assert guess is not None
    assert guess.victims == ("b2",)
    world.engine.what_if([Configure([quota_setting("b", {MEM: 1})]), Submit(claim_of("a2", "a", {CPU: 2}, 0, 9))])
    assert before == (world.engine.state.plain(), dict(book.pool), world.classes("b"), dict(world.policy.runners))


# Who lends to whom


@pytest.mark.parametrize(
    ("amount", "weights", "parts"),
    [
        (10, {"a": 30, "b": 10}, {"a": 8, "b": 2}),
        (2, {"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 0}),
        (0, {"a": 5}, {"a": 0}),
        (5, {}, {}),
        (0, {"a": 0}, {"a": 0}),
    ],
)
def test_divide(amount: int, weights: dict[str, int], parts: dict[str, int]) -> None:
    assert divide(amount, weights) == parts


@pytest.mark.parametrize("seed", range(50))
def test_loans_add_up(seed: int) -> None:
    rng = Random(seed)
    standing = {f"q{number}": (rng.randint(0, 20), rng.randint(0, 25)) for number in range(rng.randint(0, 6))}
    found = loans(standing)
    for name, (least, used) in standing.items():
        assert sum(loan.amount for loan in found if loan.borrower == name) == max(0, used - least)
        assert sum(loan.amount for loan in found if loan.lender == name) <= max(0, least - used)
    if any(not loan.lender for loan in found):
        idle = sum(max(0, least - used) for least, used in standing.values())
        assert sum(loan.amount for loan in found if loan.lender) == idle


def test_the_seed_s_loans() -> None:
    world = World()
    for name, least in (("a", 40), ("b", 10), ("c", 30)):
        world.quota(name, {GM: least})
    world.options(10)
    for number in range(4):
        world.ask(f"a{number}", "a", {GPU: 1})
        world.ask(f"b{number}", "b", {GPU: 1})
    assert [[loan.lender, loan.borrower, loan.amount] for loan in lending(world.policy.book)[GM]] == [
        ["ElasticQuota c/quota", "ElasticQuota b/quota", 30]
    ]


# Explanations


def lines(world: World, uid: str) -> str:
    return "\n".join(world.engine.explain(uid).lines())


def test_explain_a_claim_that_waits() -> None:
    world = World()
    for name, least in (("a", 40), ("b", 10), ("c", 30)):
        world.quota(name, {GM: least})
    world.options(10)
    for number in range(4):
        world.ask(f"a{number}", "a", {GPU: 1})
        world.ask(f"b{number}", "b", {GPU: 1})
    world.ask("a4", "a", {GPU: 2})
    text = lines(world, "a4")
    assert "ElasticQuota a/quota: n8s.nebuly.ai/gpu-memory: min 40, max none, used 40, guaranteed over-quota 15" in text
    assert "would be over-quota, beyond its quota's share" in text
    assert "only: its quota would use more than min + guaranteed" in text
    assert "[elastic.total.n8s.nebuly.ai/gpu-memory]" in text
    assert "candidates" not in text
    assert "ElasticQuota b/quota: 3 over-quota claims, 3 of them beyond its share; not for this claim" in text
    assert "ElasticQuota c/quota: within its min: nothing to take" in text


def test_explain_says_whom_a_claim_could_displace() -> None:
    world = World()
    world.quota("a", {CPU: 2})
    world.quota("b", {CPU: 2})
    world.ask("b1", "b", {CPU: 4}, preemptible=True)
    held = claim_of("a1", "a", {CPU: 2}, 0, 9)
    world.engine.submit(held)
    text = lines(world, "a1")
    assert "  ok   rights: may displace" in text
    assert "over-quota claims of others: its quota stays within min" in text
    assert "candidates: b/b1 (over-quota, beyond its quota's share, priority 0)" in text
    assert "lends: 2 cpu to ElasticQuota b/quota" in text


def test_explain_a_claim_that_counts() -> None:
    world = World()
    world.quota("a", {CPU: 2})
    world.quota("b", {CPU: 2})
    world.ask("b1", "b", {CPU: 1})
    world.ask("b2", "b", {CPU: 2})
    text = lines(world, "b2")
    assert "class: over-quota, within its quota's share" in text
    assert "borrows: 1 cpu from ElasticQuota a/quota" in text
