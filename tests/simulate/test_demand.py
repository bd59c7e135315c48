"""Demand: shares, capacities, peaks and samples."""

import pytest

from bursar.objects.decode import ManifestError
from bursar.simulate.demand import GPU, MILLI, capacity_of, peak, resampled, split, with_capacity
from tests.simulate.traces import demand_of


@pytest.mark.parametrize(
    ("total", "weights", "expected"),
    [
        (10, {"a": 1, "b": 1}, {"a": 5, "b": 5}),
        (10, {"a": 1, "b": 2}, {"a": 3, "b": 7}),
        (11, {"b": 1, "a": 1}, {"a": 6, "b": 5}),
        (0, {"a": 3}, {"a": 0}),
        (745, {"a": 64, "b": 32, "c": 16}, {"a": 426, "b": 213, "c": 106}),
    ],
)
def test_split_gives_everything_by_largest_remainder(
    total: int, weights: dict[str, int], expected: dict[str, int]
) -> None:
    assert split(total, weights) == expected
    assert sum(split(total, weights).values()) == total


def test_split_refuses_weights_without_a_sum() -> None:
    with pytest.raises(ManifestError, match="add up to nothing"):
        split(10, {"a": 0})


def test_peak_counts_a_job_that_ends_when_another_arrives_once() -> None:
    demand = demand_of(("a", 4, 0, 1), ("a", 2, 0.5, 2), ("b", 4, 1, 1))
    assert peak(demand) == 6 * MILLI


@pytest.mark.parametrize(("text", "gpus"), [("50%", 3), ("100%", 6), ("12", 12)])
def test_capacity_is_a_part_of_the_peak_or_a_number(text: str, gpus: int) -> None:
    assert capacity_of(text, demand_of(("a", 4, 0, 1), ("b", 2, 0.5, 1))) == gpus * MILLI


@pytest.mark.parametrize("text", ["", "%", "0", "-3", "1.5", "x%", "٣"])
def test_capacity_refuses_anything_else(text: str) -> None:
    with pytest.raises(ManifestError, match="is no capacity"):
        capacity_of(text, demand_of(("a", 4, 0, 1)))


def test_jobs_larger_than_a_node_become_pods_that_start_together() -> None:
    demand = with_capacity(demand_of(("a", 12, 0, 1), ("a", 2, 0, 1)), 16 * MILLI, per_node=8)
    small, large = demand.shapes
    assert (small.pods, small.gpus) == (1, 2 * MILLI)
    assert (large.pods, large.gpus) == (2, 8 * MILLI)
    assert [document.body["status"]["allocatable"] for document in demand.objects] == [{GPU: 8}, {GPU: 8}]


def test_fewer_gpus_than_a_node_are_refused() -> None:
    with pytest.raises(ManifestError, match="less than one node"):
        with_capacity(demand_of(("a", 1, 0, 1)), 4 * MILLI, per_node=8)


def test_resampling_repeats_with_its_seed_and_reaches_the_load() -> None:
    demand = demand_of(("a", 4, 0, 1), ("b", 2, 0.5, 1), ("c", 1, 1, 1))
    one, again, other = (resampled(demand, 300, seed) for seed in (1, 1, 2))
    assert one.jobs == again.jobs
    assert one.jobs != other.jobs
    assert one.asked >= 3 * demand.capacity > one.asked - 4 * MILLI
    assert len({job.name for job in one.jobs}) == len(one.jobs)
