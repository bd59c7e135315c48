"""The clock of these tests: what a busy machine takes does not count, what is waited for does."""

import asyncio
import time

import pytest

from bursar.kube.client.lease import steady
from tests.kube.process_clock import STEP, PatientClock


def test_only_what_was_meant_to_pass_counts() -> None:
    real = [100.0]
    clock = PatientClock(lambda: real[0])
    real[0] += 10
    assert clock() == 100 + STEP
    real[0] += 10
    assert clock.passed(3.0) == 103 + STEP
    real[0] += 1
    assert clock.passed(3.0) == 104 + STEP
    assert clock.passed(3.0) == 104 + STEP


@pytest.mark.anyio
async def test_a_loop_that_did_not_get_to_run_keeps_its_time_outs() -> None:
    async with asyncio.timeout(0.2):
        time.sleep(0.5)  # noqa: ASYNC251 as if the process were stopped
        await asyncio.sleep(0.01)


@pytest.mark.anyio
async def test_who_waits_waits_as_long_as_he_meant_to() -> None:
    real, began, leased = time.perf_counter(), time.monotonic(), steady()
    await asyncio.sleep(0.05)
    assert time.perf_counter() - real >= 0.05
    assert time.monotonic() - began >= 0.05
    assert steady() - leased >= 0.05


@pytest.mark.anyio
async def test_who_only_looks_at_the_clock_sees_it_go_on() -> None:
    end = time.monotonic() + 0.01
    while time.monotonic() < end:  # noqa: ASYNC110 what is waited for is time
        await asyncio.sleep(0)
