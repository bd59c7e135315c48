"""Vectors of the notes, 5A PreFilter and 5C sums and comparisons: what is admitted, and what it is refused for."""

from __future__ import annotations

import pytest

from tests.policies.elastic.world import GM, GPU, HIGH, World

CPU, MEM, EPH = "cpu", "memory", "ephemeral-storage"


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        pytest.param({MEM: 500}, "", id="PF1-1"),
        pytest.param({MEM: 10}, "", id="PF1-2"),
        pytest.param({CPU: "10m", MEM: 10}, "", id="PF1-3"),  # ruled: cpu is not in min, so nobody limits it
        pytest.param({GPU: 1}, "", id="PF1-4"),
    ],
)
def test_pf1(requests: dict[str, object], reason: str) -> None:
    world = World(8)
    world.quota("ns1", {MEM: 1000})
    assert world.ask("p", "ns1", requests).reason == reason


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        pytest.param({MEM: 500, GPU: 1}, "", id="PF2-1"),
        pytest.param({MEM: 1800}, "elastic.total.memory", id="PF2-2"),
        pytest.param({GPU: 2}, f"elastic.total.{GM}", id="PF2-3"),
    ],
)
def test_pf2(requests: dict[str, object], reason: str) -> None:
    world = World(8)
    world.quota("ns1", {MEM: 1000, GM: 40})  # the vector's max is not in force
    world.fact("used", "ns1", {MEM: 300, GPU: 4})
    assert world.ask("p", "ns1", requests).reason == reason


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        pytest.param({MEM: 500}, "elastic.total.memory", id="PF4-1"),
        pytest.param({GPU: 2}, f"elastic.total.{GM}", id="PF4-2"),
    ],
)
def test_pf4(requests: dict[str, object], reason: str) -> None:
    world = World(8)
    world.quota("ns1", {MEM: 1000, GM: 40})
    world.quota("ns2", {MEM: 1000, GM: 8})
    world.fact("u1", "ns1", {MEM: 1800, GPU: 4})
    world.fact("u2", "ns2", {MEM: 200, GPU: 1})
    decision = world.ask("p", "ns2", requests)
    if requests == {MEM: 500}:  # within ns2's min: it takes back what ns1 borrows, which the vector does not look at
        assert decision.victims == ("u1",)
    else:
        assert decision.reason == reason


@pytest.mark.parametrize(
    ("used", "cap", "asked", "refused"),
    [
        pytest.param(100, None, 100, False, id="max-not-enforced"),
        pytest.param(100, 100, 100, True, id="max-full"),
        pytest.param(50, 100, 50, False, id="max-exact"),
        pytest.param(300, 2000, 500, False, id="5C-prefilter-1"),
        pytest.param(300, 2000, 1800, True, id="5C-prefilter-2"),
    ],
)
def test_max(used: int, cap: int | None, asked: int, refused: bool) -> None:
    world = World(16, "capacity")
    world.quota("a", {MEM: 10}, {} if cap is None else {MEM: cap})
    world.fact("u", "a", {MEM: used})
    assert world.ask("p", "a", {MEM: asked}).reason == ("elastic.max.memory" if refused else "")


def test_5c_prefilter_sum_of_minimums() -> None:
    """ns1 1000/2000 used 1800, ns2 1000/2000 used 200: 500 more do not fit; by the rules ns2 may claim its min."""
    world = World()
    world.quota("ns1", {MEM: 1000}, {MEM: 2000})
    world.quota("ns2", {MEM: 1000}, {MEM: 2000})
    world.fact("u1", "ns1", {MEM: 900})
    world.fact("u2", "ns1", {MEM: 900})
    world.fact("u3", "ns2", {MEM: 200})
    decision = world.ask("p", "ns2", {MEM: 500})
    assert decision.victims == ("u2",)


def test_5c_no_quotas() -> None:
    assert World().ask("p", "ns1", {MEM: 500}).admitted


def test_the_sum_over_all_minimums_is_the_bound() -> None:
    """aggOverMinWith: min cpu 20+10+10, used 0+40+0, 10 more."""
    world = World()
    for name, least in (("a", 20), ("b", 10), ("c", 10)):
        world.quota(name, {CPU: least})
    world.fact("u", "b", {CPU: 40})
    assert world.ask("p", "b", {CPU: 10}).reason == "elastic.total.cpu"


@pytest.mark.parametrize(
    ("minimum", "used", "asked", "over"),
    [
        pytest.param({CPU: 3, MEM: 100, GPU: 5}, {CPU: 4, MEM: 200, GPU: 5}, {CPU: "1500m", MEM: 100}, True, id="1"),
        pytest.param(
            {CPU: 4, MEM: 200, GPU: 5}, {CPU: "300m", MEM: 100, GPU: 5}, {CPU: "100m", MEM: 50}, False, id="2"
        ),
        pytest.param({}, {CPU: 4}, {CPU: 1}, False, id="no-min"),  # ruled: absent is unlimited, there is no min to pass
        pytest.param({CPU: 9}, {CPU: 1}, {GPU: 5}, False, id="min-without-gpu"),  # ruled the same way
        pytest.param({EPH: 100}, {EPH: 10}, {EPH: 10}, False, id="ephemeral"),
    ],
)
def test_used_over_min_with(
    minimum: dict[str, object], used: dict[str, object], asked: dict[str, object], over: bool
) -> None:
    """5C usedOverMinWith: whether the quota would leave its min by this claim."""
    world = World(16, "capacity")
    world.quota("a", minimum)
    world.fact("u", "a", used, HIGH)
    assert world.ask("p", "a", asked).admitted
    assert world.found("a").is_over() == over


@pytest.mark.parametrize(
    ("maximum", "used", "asked", "over"),
    [
        pytest.param({CPU: 4, MEM: 200}, {CPU: 4, MEM: 200}, {CPU: "100m", MEM: 100}, True, id="1"),
        pytest.param({CPU: 4, MEM: 200}, {CPU: "3900m", MEM: 100}, {CPU: "100m", MEM: 100}, False, id="2"),
        pytest.param({}, {CPU: 4}, {CPU: 1}, False, id="no-max"),
        pytest.param({CPU: 9}, {CPU: 1}, {GPU: 5}, False, id="max-without-gpu"),
        pytest.param({EPH: 100}, {EPH: 10}, {EPH: 100}, True, id="ephemeral"),
    ],
)
def test_used_over_max_with(
    maximum: dict[str, object], used: dict[str, object], asked: dict[str, object], over: bool
) -> None:
    """5C usedOverMaxWith; ephemeral-storage counts like everything else."""
    world = World(16, "capacity")
    world.quota("a", {}, maximum)
    world.fact("u", "a", used, HIGH)
    assert world.ask("p", "a", asked).admitted != over


@pytest.mark.parametrize(
    ("minimum", "used", "over"),
    [
        pytest.param({CPU: 3, MEM: 300}, {CPU: 4, MEM: 200}, True, id="1"),
        pytest.param({CPU: 4, MEM: 200}, {CPU: "300m", MEM: 100}, False, id="2"),
        pytest.param({}, {CPU: 1}, False, id="no-min"),  # ruled
        pytest.param({CPU: 9}, {GPU: 5}, False, id="min-without-gpu"),  # ruled
        pytest.param({EPH: 10}, {EPH: 100}, True, id="ephemeral"),
    ],
)
def test_used_over_min(minimum: dict[str, object], used: dict[str, object], over: bool) -> None:
    world = World(16, "capacity")
    world.quota("a", minimum)
    world.fact("u", "a", used)
    assert world.found("a").is_over() == over


@pytest.mark.parametrize(
    ("used", "asked", "cap", "fits"),
    [
        pytest.param({GPU: 2}, {"nvidia.com/mig-1g.1gb": 1}, {GM: 40}, True, id="within-1"),
        pytest.param(
            {GPU: 2}, {GPU: 2, "nvidia.com/mig-1g.1gb": 1}, {GM: 25, "nvidia.com/mig-1g.1gb": 0}, False, id="2"
        ),
    ],
)
def test_within(used: dict[str, object], asked: dict[str, object], cap: dict[str, object], fits: bool) -> None:
    """5A within: only what the bound lists is compared."""
    world = World(10, "capacity")
    world.quota("a", {}, cap)
    world.fact("u", "a", used)
    assert world.ask("p", "a", asked).admitted == fits


def test_only_requested_dimensions_are_checked() -> None:
    """After a min was lowered below its use, a claim that asks for something else still gets in (B20)."""
    world = World()
    world.quota("a", {CPU: 4, MEM: 100})
    world.fact("u", "a", {CPU: 4})
    world.quota("a", {CPU: 1, MEM: 100})
    assert world.ask("p", "a", {MEM: 10}).admitted
    assert world.ask("q", "a", {CPU: 1}).reason == "elastic.total.cpu"


# Quotas come and go


def test_quotas_by_namespace() -> None:
    """ElasticQuotaInfos: an added quota leaves others alone, an update takes up and drops namespaces."""
    world = World()
    world.quota("ns-1", {CPU: 1})
    world.composite("x", ("ns-2", "ns-3", "ns-4"), {CPU: 2})
    assert sorted(world.policy.book.by_namespace) == ["ns-1", "ns-2", "ns-3", "ns-4"]
    world.composite("x", ("ns-3", "ns-5"), {CPU: 2})
    assert sorted(world.policy.book.by_namespace) == ["ns-1", "ns-3", "ns-5"]


def test_a_quota_sees_the_true_usage_at_once() -> None:
    """B6: also when it comes late, changes its namespaces, goes and comes back."""
    world = World()
    world.fact("p1", "a", {CPU: 2})
    world.fact("p2", "b", {CPU: 3})
    world.quota("a", {CPU: 10})
    assert world.used("a") == {CPU: "2"}
    world.remove("a")
    assert "elastic/ElasticQuota/a/quota" not in world.engine.state.accounts
    world.composite("c", ("a", "b"), {CPU: 10})
    assert world.used("a") == world.used("b") == {CPU: "5"}
    world.composite("c", ("b",), {CPU: 10})
    assert world.used("b") == {CPU: "3"}
    world.remove("c", "CompositeElasticQuota")
    world.quota("a", {CPU: 10})
    assert world.used("a") == {CPU: "2"}


def test_a_composite_counts_once() -> None:
    """B3: CEQ{n1, n2} min 100 used 60, n3 min 100 used 90: 60 more are 210 of 200."""
    world = World()
    world.composite("x", ("n1", "n2"), {MEM: 100})
    world.quota("n3", {MEM: 100})
    world.fact("u1", "n1", {MEM: 60})
    world.fact("u3", "n3", {MEM: 90})
    assert world.ask("p", "n2", {MEM: 60}).reason == "elastic.total.memory"
    assert world.ask("q", "n2", {MEM: 50}).reason == ""


def test_non_preemptible_use_stays_within_min() -> None:
    world = World()
    world.quota("a", {CPU: 4})
    world.quota("b", {CPU: 4})
    assert world.ask("p1", "a", {CPU: 3}, preemptible=False).admitted
    assert world.ask("p2", "a", {CPU: 2}, preemptible=False).reason == "elastic.min.cpu"
    assert world.ask("p3", "a", {CPU: 5}, preemptible=False).name == "never"
    assert world.ask("p4", "a", {CPU: 2}).admitted


def test_borrowing_by_capacity() -> None:
    world = World(borrowing="capacity", placed=True)
    world.node("n1", {CPU: 10})
    world.quota("a", {CPU: 2}, {CPU: 9})
    assert world.ask("p1", "a", {CPU: 8}).admitted
    assert world.ask("p2", "a", {CPU: 2}).reason == "elastic.max.cpu"
    world.options(borrowing="min")
    assert world.ask("p3", "a", {CPU: 1}).reason == "elastic.total.cpu"
