"""Scores are exact: the fast way and fractions agree to the last millionth, wherever the fast way answers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.policies.crossquota.cost import UNKNOWN, ScoreSum, Weighing
from bursar.policies.crossquota.table import exact_score, fast_score
from tests.policies.crossquota.world import GPU, World, arguments, body, claim

NAMES = ("cpu", "memory", "example.com/a")
CAPS = st.sampled_from([1, 2, 3, 7, 11, 32_000, 10**9 + 7, 2**38, 2**47 - 1, 2**47, 2**60, 0])


def naive(weight: int, rows: list[tuple[int, int, int, int]], least: bool) -> int:
    """(used, wanted, cap, resource weight) of the requested resources, by the seed's formula."""
    if any(cap and used + wanted > cap for used, wanted, cap, _ in rows):
        return 0
    total = Fraction(0)
    for used, wanted, cap, by in rows:
        share = Fraction(cap - used - wanted if least else used + wanted, cap) if cap else Fraction(0)
        total += share * by
    weights = sum(row[3] for row in rows)
    return 0 if not weights else int(total / weights * weight * 1_000_000)


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int, int]], bool]:
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        cap = draw(CAPS)
        used = draw(st.integers(0, cap))
        wanted = draw(st.integers(1, max(1, cap - used + draw(st.sampled_from([0, 0, 0, 1])))))
        rows.append((used, wanted, cap, draw(st.sampled_from([0, 1, 2, 3, 10, 1_000_000]))))
    return draw(st.sampled_from([0, 1, 10, 1000, 1_000_000])), rows, draw(st.booleans())


@given(cases())
@settings(max_examples=300)
def test_scores_agree_with_fractions(case: tuple[int, list[tuple[int, int, int, int]], bool]) -> None:
    weight, rows, least = case
    names = NAMES[: len(rows)]
    given_: dict[str, object] = {"crossQuotaWeight": weight}
    used: dict[str, object] = {}
    wanted: dict[str, object] = {}
    for name, (taken, asked, cap, by) in zip(names, rows, strict=True):
        unit = "m" if name == "cpu" else ""
        given_ |= {f"quota.{name}": f"{cap}{unit}", f"weight.{name}": by}
        used[name], wanted[name] = f"{taken}{unit}", f"{asked}{unit}"
    world = World(arguments(quota_resources=",".join(names)) | given_)
    world.node("g", body({GPU: 1}))
    world.place(claim("there", used), "g", forced=True)
    marks = {"volcano.sh/crossquota-scoring-strategy": "least-allocated"} if least else {}
    asked_for = claim("c", wanted, annotations=marks)
    assert world.score(asked_for, "g") == naive(weight, rows, least)
    _both_ways_agree(world, wanted, weight, [row[3] for row in rows], least)


def _both_ways_agree(world: World, wanted: dict[str, object], weight: int, weights: list[int], least: bool) -> None:
    columns = world.policy.index.columns.quotas
    weighing = Weighing(weight, weights, least)
    amounts = [world.policy.wanted(claim("x", wanted)).get(column.dim) for column in columns]
    if weighing.scores_nothing() or not weighing.fast:
        return
    fast = fast_score(columns, amounts, weighing, 0, ScoreSum())
    assert fast in {UNKNOWN, exact_score(columns, amounts, weighing, 0)}


@pytest.mark.parametrize(
    ("shares", "divisor", "expected"),
    [
        ([(1, 3, 1), (2, 3, 1)], 1, UNKNOWN),  # together exactly 1: only the exact way can tell
        ([(1, 3, 1), (1, 3, 1)], 1, 0),
        ([(1, 3, 10), (1, 3, 10)], 7, 0),
        ([(1, 1, 2**45 - 1)], 1, 2**45 - 1),
        ([(2**47 - 2, 2**47 - 1, 2**45 - 1)], 1, 2**45 - 2),
    ],
)
def test_the_fast_way_says_when_it_cannot_tell(shares: list[tuple[int, int, int]], divisor: int, expected: int) -> None:
    total = ScoreSum()
    for share, cap, factor in shares:
        total.add(share, cap, factor)
    assert total.floor_by(divisor) == expected


def test_thirds_that_make_a_whole_do() -> None:
    given_ = arguments(quota_resources="cpu,memory") | {"weight.cpu": 1, "weight.memory": 1}
    world = World(given_ | {"quota.cpu": "3m", "quota.memory": 3})
    world.node("g", body({GPU: 1}))
    assert world.score(claim("c", {"cpu": "1m", "memory": 2}), "g") == 5_000_000


def test_a_node_that_does_not_list_cpu_has_it_without_limit() -> None:
    world = World(arguments())
    world.node("g", body({GPU: 1}))
    least = {"volcano.sh/crossquota-scoring-strategy": "least-allocated"}
    assert world.score(claim("a", {"cpu": 1}), "g") == 0
    assert world.score(claim("b", {"cpu": 1}, annotations=least), "g") == 10_000_000
