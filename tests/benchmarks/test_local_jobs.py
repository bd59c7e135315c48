"""Part local measures what its rows say, at a small size."""

from __future__ import annotations

from benchmarks.work import local_jobs


def test_a_gpu_is_passed_on_through_the_queue() -> None:
    found = local_jobs.queued(1, 3, 2)
    assert found["queued"] == 4
    assert 0 < found["median"] <= found["worst"]
    assert found["memory"] > 1


def test_both_commands_are_timed() -> None:
    found = local_jobs.starting(1)
    assert found["more"] == found["run"] - found["version"]
