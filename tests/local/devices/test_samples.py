"""What jobs use, since when they do nothing, and whose time is up."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bursar.local.devices.api import GpuProcess, GpuSample, JobUsage
from bursar.local.devices.samples import IdleEvictions, UsageBook
from tests.local.devices.machines import GIB, Owners, job

ONE, TWO = "GPU-1", "GPU-2"
TRAIN = job("train", ONE, vram=20 * GIB, percent=50, whole=False)
INFER = job("infer", ONE, vram=10 * GIB, percent=25, whole=False)
OWNERS = Owners(train=1, infer=2)
LISTED = [GpuProcess(ONE, 1, 5 * GIB), GpuProcess(ONE, 2, GIB), GpuProcess(ONE, 3, GIB)]


def measured(percent: int | None, processes: Mapping[int, int] | None = None) -> list[GpuSample]:
    return [GpuSample(ONE, percent, processes or {}, bool(processes))]


@pytest.mark.parametrize(
    ("samples", "percents"),
    [
        pytest.param(measured(0), (0, 0), id="the GPU did nothing"),
        pytest.param(measured(90, {1: 60, 3: 30}), (60, 0), id="each process is measured"),
        pytest.param(measured(90), (None, None), id="only the GPU is measured"),
        pytest.param(measured(None), (None, None), id="not measured"),
        pytest.param([], (None, None), id="no sample"),
    ],
)
def test_use_of_a_shared_gpu(samples: list[GpuSample], percents: tuple[int | None, ...]) -> None:
    found = UsageBook().update(0, [TRAIN, INFER], LISTED, samples, OWNERS)
    assert tuple(one.used_percent for one in found) == percents
    assert [(one.booked_memory // GIB, one.booked_percent, one.used_memory // GIB) for one in found] == [
        (20, 50, 5),
        (10, 25, 1),
    ]


def test_a_job_with_the_gpu_for_itself_is_as_busy_as_the_gpu() -> None:
    (found,) = UsageBook().update(0, [job("train", ONE)], LISTED, measured(70), OWNERS)
    assert (found.used_percent, found.booked_percent) == (70, 100)


def test_idle_time_runs_only_over_samples_that_show_idleness() -> None:
    book = UsageBook()
    seen = []
    steps = [(0, 10), (10, 0), (20, 0), (30, None), (40, 0), (50, 0), (60, 5), (70, 0)]
    for now, percent in steps:
        (found,) = book.update(now, [job("train", ONE)], LISTED, measured(percent), OWNERS)
        seen.append(found.idle_seconds)
    assert seen == [None, 0, 10, None, 0, 10, None, 0]


def test_a_new_job_does_not_inherit_idle_time() -> None:
    book = UsageBook()
    for now in (0, 100):
        book.update(now, [job("train", ONE)], [], measured(0), OWNERS)
    book.update(200, [], [], measured(0), OWNERS)
    (found,) = book.update(300, [job("train", ONE)], [], measured(0), OWNERS)
    assert found.idle_seconds == 0


def use(idle: int | None, gpu: str = ONE) -> JobUsage:
    return JobUsage("uid-train", "lab/train", gpu, 0, 100, 0, 0, idle)


@pytest.mark.parametrize(
    ("limit", "over_quota", "idle", "outcome"),
    [
        pytest.param(600, True, [(300,), (600,)], "warn evict", id="warned, then evicted"),
        pytest.param(600, True, [(299,)], "", id="not yet"),
        pytest.param(600, True, [(900,)], "warn", id="warned first, however long it was idle"),
        pytest.param(600, True, [(400,), (500,), (599,)], "warn", id="warned once"),
        pytest.param(600, True, [(400,), (None,), (400,), (600,)], "warn warn evict", id="it worked meanwhile"),
        pytest.param(600, True, [(900, 100), (900, 700)], "warn", id="all of its GPUs"),
        pytest.param(600, True, [(900, None), (900, None)], "", id="one of its GPUs is not measured"),
        pytest.param(600, False, [(700,), (800,)], "", id="within its quota"),
        pytest.param(0, True, [(7000,), (8000,)], "", id="switched off"),
        pytest.param(7200, True, [(6899,), (6900,), (7200,)], "warn evict", id="five minutes before"),
    ],
)
def test_idle_evictions(limit: float, over_quota: bool, idle: list[tuple[int | None, ...]], outcome: str) -> None:
    evictions = IdleEvictions()
    train = job("train", ONE, over_quota=over_quota)
    seen: list[str] = []
    for seconds in idle:
        usage = [use(each, f"GPU-{number}") for number, each in enumerate(seconds)]
        warn, evict = evictions.update(limit, [train], usage)
        seen += ["warn"] * len(warn) + ["evict"] * len(evict)
    assert " ".join(seen) == outcome


def test_what_the_job_reads() -> None:
    evictions = IdleEvictions()
    train = job("train", ONE, over_quota=True)
    assert evictions.update(3600, [train], [use(3300)]) == (
        [("uid-train", "its GPUs did nothing for 55m: it is over quota, and is evicted after 1h")],
        [],
    )
    assert evictions.update(3600, [train], [use(3600)])[1] == [
        ("uid-train", "over quota, and its GPUs did nothing for 1h")
    ]
