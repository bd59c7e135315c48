"""Vectors of the notes, 5A: gpu-memory, pool, shares, guaranteed over-quota, sums. Ids name the row of the notes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bursar.policies.elastic.fair_share import guaranteed
from bursar.policies.elastic.settings import GpuMemory, mig_gb, slice_gb
from bursar.resources import dimension, parse_vector
from tests.policies.elastic.world import GM, GPU, World, claim_of

CPU, MEM, EPH, PODS, NEW = "cpu", "memory", "ephemeral-storage", "pods", "example.com/new"


def in_milli(amounts: dict[str, int]) -> dict[str, object]:
    """The notes count cpu in thousandths."""
    return {name: f"{amount}m" if name == CPU else amount for name, amount in amounts.items()}


def world_of(quotas: dict[str, tuple[dict[str, int], dict[str, int]]]) -> World:
    """Quotas with (min, used); what is used is one claim, a fact. GPUs weigh nothing: gpu-memory is given as it is."""
    world = World(0)
    world.options(0, "capacity")
    for name, (least, used) in quotas.items():
        world.quota(name, in_milli(least))
        if used:
            world.options(0, "capacity", example_com__gm=1)
            asked = {("example.com/gm" if key == GM else key): amount for key, amount in used.items()}
            world.fact(f"{name}-p", name, in_milli(asked))
    return world


def plain(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


def by_name(world: World, values: list[int], namespace: str) -> dict[str, int]:
    names = list(world.found(namespace).body.min.listed)
    return dict(zip(names, values, strict=True))


# gpu-memory


@pytest.mark.parametrize(
    ("requests", "gb"),
    [
        pytest.param({CPU: 1, MEM: 10}, 0, id="gm-none"),
        pytest.param({GPU: 2}, 16, id="gm-whole"),
        pytest.param({GPU: 2, "foo/1g32gb": 2, "nvidia.com/mig-2g.32gb": 3}, 112, id="gm-mig"),
        pytest.param({"nvidia.com/gpu-10gb": 2}, 20, id="gm-mps"),
        pytest.param({"nvidia.com/gpu.shared": 2}, 0, id="gm-shared"),
        pytest.param({GM: 500}, 0, id="gm-not-as-stated"),
        pytest.param({GM: 500, GPU: 1}, 8, id="gm-overwrites"),
    ],
)
def test_gpu_memory(requests: dict[str, object], gb: int) -> None:
    memory = GpuMemory(8, {})
    cost = memory.cost(parse_vector(requests))
    assert memory.gigabytes(parse_vector(requests)) == gb
    assert cost.amount(GM) == gb
    assert {name: amount for name, amount in cost.pairs() if name != GM} == {
        name: amount for name, amount in parse_vector(requests).pairs() if name != GM
    }


@pytest.mark.parametrize(
    ("gb", "requests", "expected"),
    [
        pytest.param(16, {"nvidia.com/mig-1g.10gb": 1, GPU: 2}, 42, id="seed"),
        pytest.param(32, {"nvidia.com/mig-1g.10gb": 1, GPU: 1}, 42, id="nos-docs"),
    ],
)
def test_the_documented_examples(gb: int, requests: dict[str, object], expected: int) -> None:
    assert GpuMemory(gb, {}).gigabytes(parse_vector(requests)) == expected


@pytest.mark.parametrize(
    ("name", "gb"),
    [
        ("", 0),
        ("nvidia.com/gpu", 0),
        ("nvidia.com/mig-1ga1gb", 0),
        ("nvidia.com/mig-1g.1gb", 1),
        ("nvidia.com/mig-1g12agb", 0),
        ("nvidia.com/mig-1g.1gb15gb", 0),
        ("foo/1g2gb", 0),
        ("nvidia.com/mig-1g.16gb", 16),
        ("nvidia.com/mig-1g.10gb.me", 10),
        ("nvidia.com/mig-1c.3g.40gb", 40),  # a compute slice of an instance holds that instance's memory
        ("xnvidia.com/mig-7g.80gb", 0),  # the original looked for the name anywhere in the text
    ],
)
def test_the_size_in_the_name_of_a_mig_device(name: str, gb: int) -> None:
    assert mig_gb(name) == gb


def test_the_table_overrides_sizes_in_names() -> None:
    memory = GpuMemory(16, {"amd.com/gpu": 64, "nvidia.com/gpu-10gb": 12, GPU: 80})
    assert [memory.size(dimension(name).index) for name in ("amd.com/gpu", "nvidia.com/gpu-10gb", GPU)] == [64, 12, 80]
    assert slice_gb("nvidia.com/gpu-10gb") == 10


def test_a_request_that_no_number_holds_is_refused() -> None:
    world = World()
    world.quota("a", {GM: 10})
    decision = world.ask("p", "a", {GPU: 10**18})
    assert (decision.name, decision.reason) == ("never", "elastic.unreadable")


# Pool


@pytest.mark.parametrize(
    ("quotas", "pool"),
    [
        pytest.param({}, {}, id="pool-empty"),
        pytest.param(
            {"q1": ({CPU: 100, MEM: 200, EPH: 5, PODS: 10, GPU: 5, GM: 5}, {MEM: 100, GPU: 5})},
            {CPU: 100, MEM: 100, EPH: 5, PODS: 10, GPU: 0, GM: 5},
            id="pool-one",
        ),
        pytest.param(
            {
                "q1": (
                    {CPU: 100, MEM: 200, EPH: 5, PODS: 5, GPU: 5, GM: 5},
                    {CPU: 150, MEM: 250, EPH: 10, PODS: 10, GPU: 10, GM: 10},
                ),
                "q2": ({CPU: 200, MEM: 200, EPH: 5, PODS: 5, GPU: 5, GM: 5}, {CPU: 200}),
                "q3": ({CPU: 200, MEM: 200, EPH: 5, PODS: 5, GPU: 5}, {MEM: 10, GPU: 1}),
            },
            {CPU: 200, MEM: 390, EPH: 10, PODS: 10, GPU: 9, GM: 5},
            id="pool-three",
        ),
    ],
)
def test_pool(quotas: dict[str, tuple[dict[str, int], dict[str, int]]], pool: dict[str, int]) -> None:
    book = world_of(quotas).policy.book
    assert {name: book.pool[dimension(name).index] for name in pool} == pool
    for dim, amount in book.pool.items():
        assert amount <= book.total_min[dim]


# Shares and what they guarantee

EQ1 = {CPU: 10, MEM: 10, PODS: 10, GPU: 5, GM: 64, NEW: 3}


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        pytest.param({"eq-1": ({}, {}), "eq-2": ({CPU: 100, MEM: 1000, PODS: 10}, {CPU: 50, MEM: 50, PODS: 5})}, {}),
        pytest.param({"eq-1": ({}, {}), "eq-2": ({}, {})}, {}, id="guaranteed-both-empty"),
        pytest.param(
            {
                "eq-1": (EQ1, {CPU: 5, MEM: 5, PODS: 5, GM: 10, NEW: 1}),
                "eq-2": (
                    {CPU: 30, MEM: 30, EPH: 30, PODS: 30, GPU: 3, GM: 24},
                    {CPU: 35, MEM: 35, PODS: 5, GM: 10},
                ),
                "eq-3": ({CPU: 20, MEM: 20, EPH: 20}, {CPU: 10, MEM: 10, EPH: 10}),
            },
            {CPU: 2, MEM: 2, PODS: 7, NEW: 2, GPU: 5, GM: 49},
            id="guaranteed-three",
        ),
    ],
)
def test_guaranteed(quotas: dict[str, tuple[dict[str, int], dict[str, int]]], expected: dict[str, int]) -> None:
    world = world_of(quotas)
    assert by_name(world, world.policy.book.guaranteed(world.found("eq-1")), "eq-1") == expected


SIX = {CPU: 30, MEM: 30, EPH: 30, PODS: 30, GPU: 3, GM: 24}
LARGE = 2**60  # the largest exact amount, in place of the largest of 64 bits


@pytest.mark.parametrize(
    ("mins", "shares"),
    [
        pytest.param([{}], {}, id="shares-no-min"),
        pytest.param([SIX, {}], dict.fromkeys(SIX, Fraction(1)), id="shares-other-empty"),
        pytest.param([SIX], dict.fromkeys(SIX, Fraction(1)), id="shares-alone"),
        pytest.param([dict.fromkeys(SIX, LARGE)], dict.fromkeys(SIX, Fraction(1)), id="shares-largest"),
        pytest.param(
            [{CPU: 10, MEM: 10, GPU: 10}, {CPU: 10, PODS: 10, GM: 10}],
            {CPU: Fraction(1, 2), MEM: Fraction(1), GPU: Fraction(1)},
            id="shares-two",
        ),
        pytest.param(
            [
                {CPU: 50, MEM: 10, EPH: 0, PODS: 10, GPU: 5, GM: 64, NEW: 3},
                {CPU: 30, MEM: 30, EPH: 30, PODS: 30, GPU: 3, GM: 24},
                {CPU: 20, MEM: 60, EPH: 20, PODS: 0},
            ],
            {
                CPU: Fraction(1, 2),
                MEM: Fraction(1, 10),
                PODS: Fraction(1, 4),
                EPH: Fraction(0),
                NEW: Fraction(1),
                GM: Fraction(64, 88),
                GPU: Fraction(5, 8),
            },
            id="shares-three",
        ),
    ],
)
def test_shares(mins: list[dict[str, int]], shares: dict[str, Fraction]) -> None:
    """A share of the whole pool: nothing is used, so the pool is the sum of all minimums."""
    world = World(0)
    for number, least in enumerate(mins, 1):
        world.quota(f"eq-{number}", in_milli(least))
    book, quota = world.policy.book, world.found("eq-1")
    found = {
        name: Fraction(quota.floor[k], book.total_min[quota.dims[k]]) if quota.floor[k] else Fraction(0)
        for k, name in enumerate(quota.body.min.listed)
    }
    assert found == shares
    assert book.guaranteed(quota) == quota.floor


def test_guaranteed_is_exact_where_floats_are_not() -> None:
    assert guaranteed(100, 29, 100) == 29
    assert guaranteed(22, 15, 22) == 15
    assert guaranteed(10**17, 3 * 10**17, 7 * 10**17) == 10**17 * 3 // 7
    assert [guaranteed(2, 1, 3)] * 3 == [0, 0, 0]  # the remainder is guaranteed to nobody
    assert guaranteed(5, 0, 0) == 0


# Sums


def test_reserve_and_unreserve() -> None:
    world = World(16, "capacity")
    world.quota("a", {})
    start = claim_of("start", "a", {CPU: 1, MEM: 200, GPU: 2})
    assert world.decide(start).admitted
    for number, (memory, cpu, gpu) in enumerate([(50, 1, 1), (100, 2, 0), (0, 0, 2)]):
        assert world.ask(f"p{number}", "a", {MEM: memory, CPU: cpu, GPU: gpu}).admitted
    assert world.used("a") == {CPU: "4", MEM: "350", GPU: "5", GM: "80"}
    for number in range(3):
        world.engine.release(f"p{number}")
    assert world.used("a") == {CPU: "1", MEM: "200", GPU: "2", GM: "32"}


@pytest.mark.parametrize(
    ("left", "right", "total", "rest"),
    [
        pytest.param({}, {}, {}, {}, id="vectors-empty"),
        pytest.param({CPU: 10, MEM: 20}, {}, {CPU: 10, MEM: 20}, {CPU: 10, MEM: 20}, id="vectors-one"),
        pytest.param(
            {CPU: 10, MEM: 20, EPH: 10, PODS: 5, NEW: 1},
            {CPU: 20, MEM: 20, EPH: 15, PODS: 1, NEW: 1, GPU: 3},
            {CPU: 30, MEM: 40, EPH: 25, PODS: 6, NEW: 2, GPU: 3},
            {CPU: -10, EPH: -5, PODS: 4, GPU: -3},
            id="vectors-sum",
        ),
        pytest.param(
            {},
            {CPU: 10, MEM: 20, EPH: 10, PODS: 5, NEW: 1},
            {CPU: 10, MEM: 20, EPH: 10, PODS: 5, NEW: 1},
            {CPU: -10, MEM: -20, EPH: -10, PODS: -5, NEW: -1},
            id="vectors-negated",
        ),
        pytest.param(
            {CPU: 100, MEM: 10, EPH: 10, PODS: 6, NEW: 3},
            {CPU: 10, MEM: 20, EPH: 10, PODS: 5, NEW: 1, GPU: 5},
            {CPU: 110, MEM: 30, EPH: 20, PODS: 11, NEW: 4, GPU: 5},
            {CPU: 90, MEM: -10, PODS: 1, NEW: 2, GPU: -5},
            id="vectors-difference",
        ),
    ],
)
def test_vectors(left: dict[str, int], right: dict[str, int], total: dict[str, int], rest: dict[str, int]) -> None:
    one, two = parse_vector(in_milli(left)), parse_vector(in_milli(right))
    assert dict(one.plus(two).pairs()) == plain(total)
    assert dict(one.minus(two).pairs()) == plain(rest)
    positive = {name: amount for name, amount in rest.items() if amount > 0}
    assert dict(one.minus(two).peak(parse_vector({})).pairs()) == positive
