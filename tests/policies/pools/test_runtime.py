"""Shares of siblings in one resource: vectors of the original (6.1) and its laws."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.policies.pools.quota_node import Branch
from bursar.policies.pools.runtime import Sharing, Trace, distribute, split

Child = tuple[int, int, int, int]  # weight, request, min, guarantee

C1 = [(40, 5, 10, 0), (60, 20, 15, 0), (50, 40, 20, 0), (80, 70, 15, 0)]
T = [(1, 60_000, 60_000, 0), (1, 90_000, 50_000, 0)]


def shared(total: int, children: list[Child], lends: bool = True) -> list[int]:
    weights = [child[0] for child in children]
    bases = [max(child[2], child[3]) for child in children]
    return distribute(total, [child[1] for child in children], bases, weights, [lends] * len(children))


@pytest.mark.parametrize(
    ("total", "children", "expected"),
    [
        pytest.param(100, C1, [5, 20, 35, 40], id="C1"),
        pytest.param(100, [*C1[:3], (0, 70, 15, 0)], [5, 20, 40, 15], id="C2 no weight, no surplus"),
        pytest.param(100, [*C1[:3], (0, 70, 15, 45)], [5, 20, 30, 45], id="C3 guaranteed"),
        pytest.param(
            50_000,
            [(i * 100_000, i * 10_000, i * 80_000, 0) for i in range(1, 6)],
            [3333, 6667, 10_000, 13_333, 16_667],
            id="C5 ruled: needs that do not fit are scaled, not granted",
        ),
        pytest.param(100, [(1, 0, 60, 0), (1, 90, 50, 0)], [0, 90], id="C6 idle min is lent"),
        pytest.param(100, [(1, 30, 60, 0), (1, 90, 50, 0)], [30, 70], id="C7"),
        pytest.param(100_000, T, [54_545, 45_455], id="C8 ruled, cpu: 110 needed of 100"),
        pytest.param(1000, [(1, 600, 600, 0), (1, 900, 500, 0)], [545, 455], id="C8 ruled, memory"),
        pytest.param(100, [(1, 90, 50, 0)], [90], id="C9 the other one deleted"),
        pytest.param(120, [(1, 80, 50, 0)], [80], id="C10 alone"),
        pytest.param(100, [(1, 70, 70, 0)], [70], id="C12 request = min"),
        pytest.param(100, [(1, 70, 50, 0)], [70], id="C12 min lowered"),
        pytest.param(100, [(1, 100, 100, 0), (1, 0, 100, 0), (99, 100, 0, 0)], [100, 0, 0], id="B7 need before weight"),
        pytest.param(0, [(1, 8, 8, 0)], [0], id="B8 nothing there, nothing granted"),
        pytest.param(81, [(1, 81, 0, 0)] * 6, [14, 14, 14, 13, 13, 13], id="pull 2876: 81 GPUs are handed out"),
    ],
)
def test_vectors(total: int, children: list[Child], expected: list[int]) -> None:
    assert shared(total, children) == expected


def test_one_that_does_not_lend_keeps_its_base() -> None:
    assert distribute(100, [120, 0], [60, 40], [1, 1], [True, False]) == [60, 40]


def test_the_worked_example_step_by_step() -> None:
    trace = Trace()
    distribute(100, [5, 20, 40, 70], [10, 15, 20, 15], [40, 60, 50, 80], [True] * 4, trace)
    assert trace.needs == [5, 15, 20, 15]
    assert not trace.scaled
    assert [(step.pool, step.handed) for step in trace.rounds] == [(45, {1: 14, 2: 12, 3: 19}), (9, {2: 3, 3: 6})]


def narrow(total: int, lims: list[int], needs: list[int], weights: list[int]) -> list[int] | None:
    """In 64-bit arithmetic; None where it refuses."""
    parent = Branch("", "p", "p", 1)
    for number, (lim, need, weight) in enumerate(zip(lims, needs, weights, strict=True)):
        child = Branch("", f"c{number:03}", f"c{number}", 1)
        child.lim[0], child.need[0], child.weights[0] = lim, need, weight
        parent.link(child)
    sharing = Sharing()
    sharing.load(parent, 0)
    if not sharing.fits(total) or not sharing.run(total):
        return None
    return [int(sharing.grants[i]) for i in range(len(lims))]


def naive_split(total: int, weights: list[int]) -> list[int]:
    whole = sum(weights)
    if whole == 0:
        return [0] * len(weights)
    exact = [Fraction(total * weight, whole) for weight in weights]
    shares = [int(part) for part in exact]
    by_remainder = sorted(range(len(weights)), key=lambda i: (shares[i] - exact[i], i))
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return shares


sizes = st.one_of(
    st.integers(0, 9), st.integers(0, 2**31), st.integers(0, 2**62), st.integers(0, 300).map(lambda gi: gi << 30)
)


bytes_or_cores = st.one_of(st.integers(0, 10**6), st.integers(0, 300).map(lambda gi: gi << 30))


@given(bytes_or_cores, st.lists(st.tuples(bytes_or_cores, bytes_or_cores, bytes_or_cores), max_size=40))
@settings(max_examples=300)
def test_everyday_numbers_are_shared_in_64_bits(total: int, rows: list[tuple[int, int, int]]) -> None:
    lims, bases, weights = ([row[i] for row in rows] for i in range(3))
    needs = [min(lim, base) for lim, base in zip(lims, bases, strict=True)]
    expected = distribute(total, lims, bases, weights, [True] * len(rows))
    found = narrow(total, lims, needs, weights)
    assert found in (None, expected)
    if all(weight < 10**6 for weight in weights) and sum(needs) <= total:
        assert found == expected


def test_numbers_that_are_too_large_are_refused() -> None:
    assert narrow(10, [2**61, 2**61], [0, 0], [1, 1]) is None
    assert narrow(2**62, [1], [0], [1]) is None
    assert narrow(10, [20, 20], [0, 0], [2**40 + 1, 1]) is None
    assert narrow(1, [2**40, 3], [2**40 + 1, 3], [1, 1]) is None


@given(sizes, st.lists(sizes, max_size=30))
@settings(max_examples=300)
def test_a_split_is_exact_and_goes_by_largest_remainder(total: int, weights: list[int]) -> None:
    assert split(total, weights) == naive_split(total, weights)


@given(sizes, st.lists(st.tuples(sizes, sizes, sizes, sizes, st.booleans()), max_size=12))
@settings(max_examples=300)
def test_laws_of_a_distribution(total: int, rows: list[tuple[int, int, int, int, bool]]) -> None:
    lims = [row[1] for row in rows]
    bases = [max(row[2], row[3]) for row in rows]
    lends = [row[4] for row in rows]
    weights = [row[0] for row in rows]
    found = distribute(total, lims, bases, weights, lends)
    needs = [min(lim, base) if lend else base for lim, base, lend in zip(lims, bases, lends, strict=True)]
    assert narrow(total, lims, needs, weights) in (None, found)
    assert sum(found) <= total
    if sum(needs) > total:
        assert found == naive_split(total, needs)
        return
    for granted, need, lim in zip(found, needs, lims, strict=True):
        assert need <= granted <= max(need, lim)
    if all(weights) and sum(max(n, lim) for n, lim in zip(needs, lims, strict=True)) >= total:
        assert sum(found) == total
