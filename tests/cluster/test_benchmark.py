"""What `make bench PART=cluster` measures with, in the smallest size."""

import pytest

from benchmarks.work.arena import Figures, Size, Starter, arena, bursar, joined, passing
from benchmarks.work.passing import PIN

SMALL = Size(nodes=3, pods=20, waiting=5)


def test_pods_are_timed_without_anything_of_bursars() -> None:
    with arena(SMALL, governed=False) as place, place.ready(None, runs=2) as run:
        stock, again = run(), run()
    assert stock.rate > 0
    assert stock.cpu == pytest.approx(stock.etcd_cpu + stock.apiserver_cpu + stock.scheduler_cpu + stock.load_cpu)
    assert (again.pod_writes, again.memory) == (0, 0)


def test_runs_are_joined_by_their_times() -> None:
    """A thousand pods in ten seconds and a thousand in five are two thousand in fifteen."""
    slow, fast = (Figures(rate, 1, cpu, 1, 1, 400, 1, memory) for rate, cpu, memory in ((100, 6.0, 80), (200, 3.0, 90)))
    found = joined([slow, fast])
    assert found.rate == pytest.approx(2000 / 15)
    assert (found.apiserver_cpu, found.allocated, found.memory) == (4.5, 400, 90)


def test_every_controller_writes_once_on_each_pod_under_the_same_policies() -> None:
    controllers: dict[str, Starter] = {"passing": passing(PIN), "bursar": bursar(), "pinning": bursar("--pin-all")}
    with arena(SMALL, governed=True) as place:
        for name, start in controllers.items():
            with place.ready(start, runs=2) as run:
                found = [run(), run()]
            assert [figures.pod_writes for figures in found] == [1, 1], name
            assert min(figures.memory for figures in found) > 1
