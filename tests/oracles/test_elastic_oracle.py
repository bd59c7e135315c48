"""The brute force for elastic quotas says what the rules say, in cases worked out by hand."""

from __future__ import annotations

import pytest

from tests.oracles.elastic_oracle import (
    BEYOND_SHARE,
    IN_QUOTA,
    OVER_QUOTA,
    Asking,
    Choice,
    Judge,
    MinMax,
    SmallWorld,
)

GM = "gpu-memory"


def quota(name: str, minimum: dict[str, int] | None = None, maximum: dict[str, int] | None = None) -> MinMax:
    """The quota of the namespace of that name."""
    return MinMax(name, (name,), minimum or {}, maximum or {})


def claim(name: str, namespace: str, priority: int = 0, created: int = 0, /, **requests: int) -> Asking:
    return Asking(name, namespace, requests, "n1", priority, created)


def world(*parts: MinMax | Asking, nodes: dict[str, dict[str, int]] | None = None) -> SmallWorld:
    quotas = tuple(part for part in parts if isinstance(part, MinMax))
    claims = tuple(part for part in parts if isinstance(part, Asking))
    resources = {name for one in claims for name in one.requests}
    return SmallWorld(quotas, nodes or {"n1": dict.fromkeys(resources, 1000)}, claims)


def victims(small: SmallWorld, claimant: Asking) -> tuple[str, ...] | None:
    chosen = Judge(small, claimant).choose()
    return None if chosen is None else chosen.victims


# The cases of users


def test_one_big_borrower_does_not_shield_the_others() -> None:
    """It may not go, because its quota would fall below min; the small borrower may."""
    parts = [quota("a", {"gm": 40}), quota("b", {"gm": 10}), quota("c", {"gm": 50}), quota("d", {"gm": 10})]
    parts_a = [claim(f"a{i}", "a", 0, i, gm=10) for i in range(4)]
    parts_d = [claim(f"d{i}", "d", 0, 10 + i, gm=10) for i in range(4)]
    small = world(*parts, *parts_a, *parts_d, claim("big", "b", 0, 20, gm=30), nodes={"n1": {"gm": 110}})
    a5 = claim("a5", "a", 0, 30, gm=10)
    judge = Judge(small, a5)
    assert [parts["gm"] for parts in judge.guaranteed.values()] == [18, 4, 22, 4]
    assert judge.objections("n1", ["big"]) == ["b would fall below min of gm"]
    assert judge.choose() == Choice("n1", ("d3",))


NOTEBOOK = world(
    quota("a", {"gpu": 8}),
    quota("b", {"gpu": 0}),
    claim("notebook", "a", gpu=1),
    claim("borrower", "b", gpu=7),
    nodes={"n1": {"gpu": 8}},
)


def test_a_job_of_the_size_of_min_gets_its_min() -> None:
    training = claim("training", "a", 1000, 1, gpu=8)
    assert victims(NOTEBOOK, training) == ("borrower", "notebook")
    assert Judge(NOTEBOOK, training).legal_sets("n1") == [("notebook", "borrower")]


def test_a_job_of_the_size_of_min_does_not_displace_its_equals() -> None:
    assert victims(NOTEBOOK, claim("training", "a", 0, 1, gpu=8)) is None


def test_own_lower_priority_serves_where_fair_share_may_not() -> None:
    """Without b's only claim b would fall below its min; a's own low-priority claim makes room alone."""
    quotas = [quota("a", {"gpu": 6}), quota("b", {"gpu": 1}), quota("c", {"gpu": 2})]
    small = world(*quotas, claim("low", "a", gpu=5), claim("big", "b", gpu=3), nodes={"n1": {"gpu": 9}})
    assert victims(small, claim("high", "a", 1000, 1, gpu=2)) == ("low",)


# The seed's example and those of the notes


def seed_world(a: int, b: int, c: int) -> SmallWorld:
    """Mins 40, 10 and 30; claims of 10 each."""
    quotas = [quota("a", {GM: 40}), quota("b", {GM: 10}), quota("c", {GM: 30})]
    counts = {"a": a, "b": b, "c": c}
    claims = [
        Asking(f"{team}{i + 1}", team, {GM: 10}, "n1", 0, 10 * i + place)
        for place, (team, count) in enumerate(counts.items())
        for i in range(count)
    ]
    return world(*quotas, *claims, nodes={"n1": {GM: 80}})


def asking(name: str, namespace: str, amount: int) -> Asking:
    return Asking(name, namespace, {GM: amount}, created=100)


def test_the_example_of_the_seed() -> None:
    judge = Judge(seed_world(4, 4, 0), asking("a5", "a", 10))
    assert judge.pool(GM) == 30
    assert {name: parts[GM] for name, parts in judge.guaranteed.items()} == {"a": 15, "b": 3, "c": 11}
    assert judge.choose() == Choice("n1", ("b4",))
    assert judge.walked["b1"] == IN_QUOTA
    assert judge.walked["b2"] == judge.walked["b4"] == BEYOND_SHARE


def test_a_share_is_no_more_than_guaranteed() -> None:
    assert victims(seed_world(5, 3, 0), asking("a6", "a", 10)) is None  # 60 > 40 + 15


def test_an_owner_takes_its_min_from_those_beyond_their_share() -> None:
    """A5 came last, but is within a's share of 10 of the pool that is left."""
    judge = Judge(seed_world(5, 3, 0), asking("c1", "c", 10))
    assert (judge.walked["a5"], judge.walked["b3"]) == (OVER_QUOTA, BEYOND_SHARE)
    assert judge.choose() == Choice("n1", ("b3",))


def test_the_demo_has_no_victim() -> None:
    """B's only pod is over-quota, but without it b would be below its min of 50."""
    quotas = [quota("a", {"cpu": 100}), quota("b", {"cpu": 50}), quota("c", {"cpu": 100})]
    small = world(*quotas, claim("pa", "a", cpu=100), claim("pb", "b", cpu=150), nodes={"n1": {"cpu": 250}})
    judge = Judge(small, claim("x", "a", 0, 1, cpu=10))
    assert judge.guaranteed == {"a": {"cpu": 40}, "b": {"cpu": 20}, "c": {"cpu": 40}}
    assert judge.choose() is None


def test_an_owner_claims_its_min() -> None:
    small = world(
        quota("q1", {"cpu": 4}, {"cpu": 6}),
        quota("q2", {"cpu": 4}, {"cpu": 6}),
        *(claim(f"p{i}", "q1", 0, i, cpu=2) for i in range(3)),
        claim("s1", "q2", cpu=2),
        nodes={"n1": {"cpu": 8}},
    )
    assert victims(small, claim("s2", "q2", 0, 9, cpu=2)) == ("p2",)
    assert victims(small, claim("p3", "q1", 0, 9, cpu=2)) is None  # above max


def test_victims_on_two_nodes() -> None:
    """Both have to go: two nodes of one cpu each were never enough, so the sum of mins is what is short."""
    small = SmallWorld(
        (quota("q1", {"cpu": 0}, {"cpu": 2}), quota("q2", {"cpu": 2}, {"cpu": 2})),
        {"n1": {"cpu": 2}, "n2": {"cpu": 1}},
        (Asking("p1", "q1", {"cpu": 1}, "n1"), Asking("p2", "q1", {"cpu": 1}, "n2")),
    )
    assert Judge(small, Asking("x", "q2", {"cpu": 2})).choose() == Choice("n1", ("p1", "p2"))


def test_over_min_takes_nothing_from_others_whatever_its_priority() -> None:
    small = world(quota("q1"), quota("q2", {"cpu": 0}), quota("q3", {"cpu": 1}), nodes={"n1": {"cpu": 1}})
    borrower = Asking("p", "q1", {"cpu": 1}, "n1")
    full = SmallWorld(small.quotas, small.nodes, (borrower,))
    assert victims(full, Asking("x", "q2", {"cpu": 1}, priority=1000)) is None


def test_own_priority_within_the_quota() -> None:
    """DR1: in-quota claims of both quotas; only the own one of lower priority may go."""
    quotas = [quota("ns1", {"mem": 50}), quota("ns2", {"mem": 200})]
    p1, p2, p3 = (
        claim("p1", "ns1", 100, 1, mem=50),
        claim("p2", "ns2", 100, 2, mem=50),
        claim("p3", "ns2", 100, 3, mem=50),
    )
    small = world(*quotas, p1, p2, p3, nodes={"n1": {"mem": 150}})
    assert victims(small, claim("x", "ns1", 1000, 9, mem=50)) == ("p1",)


def test_borrowers_go_before_lower_priorities() -> None:
    """DR2 with true sums: p3 is over-quota; p4 has a lower priority but is in-quota."""
    quotas = [quota("ns1", {"mem": 150}), quota("ns2", {"mem": 50})]
    running = [
        claim("p1", "ns1", 100, 1, mem=40),
        claim("p2", "ns2", 1000, 2, mem=50),
        claim("p3", "ns2", 100, 3, mem=50),
        claim("p4", "ns2", 10, 4, mem=10),
    ]
    small = world(*quotas, *running, nodes={"n1": {"mem": 150}})
    assert "p3" in (victims(small, claim("x", "ns1", 1000, 9, mem=50)) or ())


def test_a_dimension_that_min_does_not_list_is_not_checked() -> None:
    """PF1 as ruled: cpu 10 and memory 10 with a min of memory only."""
    small = world(quota("ns1", {"mem": 1000}), nodes={"n1": {"cpu": 100, "mem": 2000}})
    assert victims(small, claim("x", "ns1", cpu=10, mem=10)) == ()
    assert victims(small, claim("y", "ns1", mem=1001)) is None


def test_a_composite_counts_once() -> None:
    """210 of 200 is refused; with 150 and 40 in use 10 more are admitted."""
    quotas = (MinMax("ceq", ("n1", "n2"), {"cpu": 100}), MinMax("eq", ("n3",), {"cpu": 100}))
    nodes = {"n": {"cpu": 1000}}

    def admits(ceq: int, eq: int, more: int) -> bool:
        claims = (Asking("c", "n1", {"cpu": ceq}, "n"), Asking("e", "n3", {"cpu": eq}, "n"))
        return Judge(SmallWorld(quotas, nodes, claims), Asking("x", "n2", {"cpu": more})).objections("n", ()) == []

    assert not admits(60, 90, 60)
    assert admits(60, 90, 50)
    assert admits(150, 40, 10)


@pytest.mark.parametrize(
    ("minimum", "sizes", "classes"),
    [
        (40, [30, 20, 10], [IN_QUOTA, BEYOND_SHARE, IN_QUOTA]),  # first fit: what is over adds nothing
        (40, [30, 20, 10, 10], [IN_QUOTA, BEYOND_SHARE, IN_QUOTA, BEYOND_SHARE]),
        (50, [150], [BEYOND_SHARE]),
    ],
)
def test_classes_by_first_fit(minimum: int, sizes: list[int], classes: list[int]) -> None:
    claims = [claim(f"p{i}", "a", 0, i, cpu=size) for i, size in enumerate(sizes)]
    judge = Judge(world(quota("a", {"cpu": minimum}), *claims), claim("x", "a", 0, 99, cpu=1000))
    assert [judge.walked[one.name] for one in claims] == classes


def test_the_order_of_the_walk() -> None:
    """Non-preemptible, then high priority, then old, then small, then by name."""
    claims = [
        Asking("firm", "a", {"cpu": 1}, "n1", 0, 9, preemptible=False),
        claim("high", "a", 100, 8, cpu=1),
        claim("old", "a", 10, 1, cpu=5),
        claim("small", "a", 10, 2, cpu=1),
        claim("large1", "a", 10, 2, cpu=2),
        claim("large2", "a", 10, 2, cpu=2),
    ]
    asked = claim("x", "a", 0, 99, cpu=1)
    judge = Judge(world(quota("a", {"cpu": 8}), *reversed(claims)), asked)
    key = sorted(judge.all, key=lambda one: judge.walk_key(judge.quota, one))
    assert [one.name for one in key] == [one.name for one in (*claims, asked)]


def test_within_share_is_not_beyond_share() -> None:
    """Min 10 and a pool of 12 over mins of 10 and 20: b is guaranteed 4."""
    quotas = [quota("b", {"cpu": 10}), quota("c", {"cpu": 20})]
    claims = [claim("b1", "b", 0, 1, cpu=10), claim("b2", "b", 0, 2, cpu=4), claim("b3", "b", 0, 3, cpu=1)]
    judge = Judge(world(*quotas, *claims), claim("x", "c", 0, 9, cpu=8))
    assert judge.guaranteed == {"b": {"cpu": 4}, "c": {"cpu": 8}}
    assert [judge.walked[one.name] for one in claims] == [IN_QUOTA, OVER_QUOTA, BEYOND_SHARE]


# Rights


@pytest.mark.parametrize(("cpu", "chosen"), [({}, ("b1",)), ({"cpu": 4}, None), ({"cpu": 5}, ("b1",))])
def test_fair_share_keeps_min_in_every_dimension(cpu: dict[str, int], chosen: tuple[str, ...] | None) -> None:
    """Exactly at min of cpu, b must stay there; below it already, it may lose more."""
    quotas = [quota("a", {"gpu": 4}), quota("b", {"gpu": 0, **cpu}), quota("c", {"gpu": 4})]
    small = world(*quotas, claim("a1", "a", gpu=4), claim("b1", "b", gpu=3, cpu=4), nodes={"n1": {"gpu": 7, "cpu": 9}})
    assert victims(small, claim("x", "a", 0, 1, gpu=1)) == chosen


def test_own_claims_of_the_same_class_but_not_of_a_better_one() -> None:
    small = world(quota("a", {"gpu": 4}), claim("p", "a", gpu=2), nodes={"n1": {"gpu": 2}})
    assert victims(small, claim("x", "a", 10, 1, gpu=2)) == ("p",)
    quotas = [quota("a", {"gpu": 2}), quota("c", {"gpu": 5})]
    better = world(*quotas, claim("p", "a", gpu=2), nodes={"n1": {"gpu": 4}})
    assert victims(better, claim("x", "a", 10, 1, gpu=3)) is None


def test_own_claims_leave_so_that_the_quota_ends_within_min() -> None:
    """Only gpu is short; p has none, but with its cpu a would end above min."""
    quotas = [quota("a", {"gpu": 2, "cpu": 2}), quota("b", {"gpu": 0}), quota("c", {"cpu": 5})]
    running = [claim("p", "a", cpu=2), claim("b1", "b", gpu=2), claim("c1", "c", cpu=4)]
    small = world(*quotas, *running, nodes={"n1": {"gpu": 2, "cpu": 100}})
    assert victims(small, claim("x", "a", 5, 1, gpu=2, cpu=1)) == ("b1", "p")


def test_in_quota_claims_of_others_stay() -> None:
    small = world(quota("a", {"gpu": 2}), quota("b", {"gpu": 2}), claim("b1", "b", gpu=2), nodes={"n1": {"gpu": 2}})
    assert victims(small, claim("x", "a", 1000, 1, gpu=2)) is None


# What protects


def protected(**extra: object) -> SmallWorld:
    base = world(quota("a", {"gpu": 2}), quota("b", {"gpu": 0}), nodes={"n1": {"gpu": 2}})
    claims = (Asking("b1", "b", {"gpu": 1}, "n1", created=1), Asking("b2", "b", {"gpu": 1}, "n1", created=2))
    return SmallWorld(base.quotas, base.nodes, claims, **extra)  # type: ignore[arg-type]


def test_budgets_protect() -> None:
    x, y = Asking("x", "a", {"gpu": 1}), Asking("y", "a", {"gpu": 2})
    assert victims(protected(), x) == ("b2",)
    assert victims(protected(budgets=((frozenset({"b2"}), 0),)), x) == ("b1",)
    assert victims(protected(budgets=((frozenset({"b1", "b2"}), 1),)), x) == ("b2",)
    assert victims(protected(budgets=((frozenset({"b1", "b2"}), 1),)), y) is None


def test_who_displaced_the_claimant_is_safe_from_it() -> None:
    x = Asking("x", "a", {"gpu": 1})
    assert victims(protected(displaced=(("b2", "x"),)), x) == ("b1",)
    assert victims(protected(displaced=(("b2", "b1"), ("b1", "x"))), x) is None


def test_a_claim_that_preempts_none() -> None:
    assert victims(protected(), Asking("x", "a", {"gpu": 1}, preempts=False)) is None


def test_non_preemptible_use_stays_within_min() -> None:
    small = protected()
    assert victims(small, Asking("x", "a", {"gpu": 2}, preemptible=False)) == ("b1", "b2")
    assert victims(small, Asking("x", "b", {"gpu": 1}, preemptible=False)) is None


def test_non_preemptible_use_of_what_min_does_not_list() -> None:
    small = world(quota("a", {"mem": 5}), nodes={"n1": {"cpu": 9, "mem": 9}})
    assert victims(small, Asking("x", "a", {"cpu": 9, "mem": 5}, preemptible=False)) == ()


def test_an_unlisted_dimension_on_a_full_node() -> None:
    """B lists no gpu: what it has of them is over-quota as soon as the node is full, and so would be its own claim."""
    quotas = (quota("a", {"gpu": 1}), quota("b", {"cpu": 5}))
    full = SmallWorld(quotas, {"n1": {"gpu": 1}}, (Asking("b1", "b", {"gpu": 1}, "n1"),))
    judge = Judge(full, Asking("x", "a", {"gpu": 1}))
    assert judge.walked["b1"] == IN_QUOTA
    assert judge.classes["n1"]["b1"] == BEYOND_SHARE
    assert judge.choose() == Choice("n1", ("b1",))
    taken = SmallWorld(quotas, {"n1": {"gpu": 1}}, (Asking("a1", "a", {"gpu": 1}, "n1"),))
    assert victims(taken, Asking("x", "b", {"gpu": 1})) is None


# Between nodes


def test_the_class_comes_before_the_priority() -> None:
    """Own p has the lower priority, but is in-quota; q is beyond its share."""
    claims = (Asking("p", "a", {"gpu": 2}, "n1"), Asking("q", "b", {"gpu": 2}, "n2", 5))
    small = SmallWorld((quota("a", {"gpu": 4}), quota("b", {"gpu": 0})), {"n1": {"gpu": 2}, "n2": {"gpu": 2}}, claims)
    assert Judge(small, Asking("x", "a", {"gpu": 2}, priority=5)).choose() == Choice("n2", ("q",))


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ([("p", 0, 1)], [("q", 5, 9)], "n1"),  # the lower priority, though it is older
        ([("p", 5, 1)], [("q", 0, 1), ("r", 0, 1)], "n2"),  # the highest priority comes before the number
        ([("p", 0, 1), ("q", 0, 1)], [("r", 0, 1)], "n2"),  # the number
        ([("p", 0, 1)], [("q", 0, 2)], "n2"),  # the newest
        ([("p", 0, 1)], [("q", 0, 1)], "n1"),  # the name
    ],
)
def test_the_choice_of_the_node(
    first: list[tuple[str, int, int]], second: list[tuple[str, int, int]], chosen: str
) -> None:
    nodes = {"n1": {"gpu": 2}, "n2": {"gpu": 2}}
    claims = tuple(
        Asking(name, "b", {"gpu": 2 // len(there)}, node, priority, created)
        for node, there in (("n1", first), ("n2", second))
        for name, priority, created in there
    )
    small = SmallWorld((quota("a", {"gpu": 4}), quota("b", {"gpu": 0})), nodes, claims)
    found = Judge(small, Asking("x", "a", {"gpu": 2})).choose()
    assert found is not None
    assert found.node == chosen
