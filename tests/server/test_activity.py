"""What was used and waited for over time is exactly what the journal says."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from bursar.quantity import parse
from bursar.server.activity import Level
from bursar.server.client import RequestFailedError
from bursar.server.demo import beats, organisation
from bursar.server.total_types import Activity
from tests.server.live import Live, ManualClock, live, pod

GPU = "nvidia.com/gpu"
HOUR = 3_600_000


def hours(found: Activity, namespace: str, resource: str = GPU) -> tuple[str, str]:
    return next((one.used, one.waited) for one in found.teams if (one.namespace, one.resource) == (namespace, resource))


def test_gpu_hours_are_exact(bed: Live, clock: ManualClock) -> None:
    bed.give(pod("a", "one", 2))
    clock.now += HOUR // 2
    bed.give(pod("b", "waits", 4))  # for all of the node
    clock.now += HOUR // 4
    bed.client.delete(["Pod/a/one"])  # b has the node now
    clock.now += HOUR
    found = bed.client.activity(**{"from": "-3h"})
    assert found.complete
    assert hours(found, "a") == ("1500m", "0")  # 2 GPUs for three quarters of an hour
    assert hours(found, "b") == ("4", "1")  # 4 GPUs for an hour, after it waited for a quarter
    assert (sum(found.submitted), sum(found.started), sum(found.finished), sum(found.evicted)) == (2, 2, 1, 0)


def test_a_series_has_averages_of_its_spans(bed: Live, clock: ManualClock) -> None:
    clock.now += 10_000 - clock.now % 10_000
    bed.give(pod("a", "one", 4))
    clock.now += 15_000
    bed.client.delete(["Pod/a/one"])
    clock.now += 5_000
    found = bed.client.activity(**{"from": "-20s"})
    (series,) = found.series
    assert (series.resource, series.used, found.step_seconds) == (GPU, ["4", "2"], 10)


def test_series_of_one_team(bed: Live, clock: ManualClock) -> None:
    bed.give(pod("a", "one", 1), pod("b", "two", 2))
    clock.now += 60_000 - clock.now % 10_000
    (series,) = bed.client.activity(**{"from": "-10s", "namespace": "b"}).series
    assert series.used[-1] == "2"


def test_evictions_are_counted(bed: Live, clock: ManualClock) -> None:
    bed.give(pod("a", "one", 2), pod("a", "lent", 2))
    clock.now += 1000
    bed.give(pod("b", "comes", 2))
    assert sum(bed.client.activity().evicted) == 1


def test_a_restart_sums_the_same(tmp_path: Path) -> None:
    clock = ManualClock()
    with live(tmp_path / "b.db", clock=clock) as first:
        first.service.apply(organisation())
        for pods, _ in zip(beats(), range(30), strict=False):
            clock.now += 2000
            if pods:
                first.service.apply(pods)
        known = first.client.activity(**{"from": "-10m"})
    with live(tmp_path / "b.db", clock=clock) as again:
        found = again.client.activity(**{"from": "-10m"})
        assert (found.teams, found.series) == (known.teams, known.series)
        now = {team.namespace: team.used.get(GPU, "0") for team in again.client.overview().teams}
        clock.now += HOUR
        again.client.info()
    assert sum(parse(one.used, 1000) for one in found.teams if one.resource == GPU) > 0
    assert now["vision"] != "0"


@pytest.mark.parametrize("width", [10_000, 300_000])
def test_levels_split_time_and_keep_sums(width: int) -> None:
    level = Level(width, 100)
    level.add(False, ("a", GPU), 3, 12_345, 912_345)
    assert sum(span.used["a", GPU] for span in level.spans.values()) == 3 * 900_000
    assert Fraction(level.spans[1].used["a", GPU], width) <= 3


def test_old_spans_are_dropped() -> None:
    level = Level(10, 5)
    level.add(True, ("a", GPU), 1, 0, 1000)
    assert sorted(level.spans) == [95, 96, 97, 98, 99]


def test_times_that_are_the_wrong_way_round_are_refused(bed: Live, clock: ManualClock) -> None:
    earlier = bed.client.info().moment.seq
    clock.now += HOUR
    bed.give(pod("a", "two"))
    later = bed.client.info().moment.seq
    with pytest.raises(RequestFailedError, match="`from` is after"):
        bed.client.activity(**{"from": str(later), "to": str(earlier)})
