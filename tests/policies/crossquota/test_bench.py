"""The benchmark compares two ways that find the same nodes and scores; it checks that by itself."""

from benchmarks.work.crossquota import bulk


def test_the_benchmark_runs_at_any_size() -> None:
    assert bulk(nodes=8, pods=20)["open"] == 8
