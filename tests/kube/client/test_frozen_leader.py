"""A leader that is frozen past its lease and woken again writes nothing any more."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from bursar.kube.client.api import CONFIG_MAPS, Api
from bursar.kube.client.lease import Elector, Timing
from tests.kube.client.test_election import kubeconfig
from tests.kube.fakeapi import FakeApi
from tests.kube.waiting import eventually

pytestmark = pytest.mark.anyio


async def read_until(stream: asyncio.StreamReader, word: str) -> None:
    async with asyncio.timeout(60.0):
        while (line := await stream.readline()).decode().strip() != word:
            assert line, f"it ended before it said {word}"


@pytest.mark.parametrize("how", ["alone", "child"])
async def test_a_frozen_leader_wakes_up_fenced(fake: FakeApi, api: Api, tmp_path: Path, how: str) -> None:
    """A child that goes on is no help: it stops renewing when its parent makes no progress."""
    module, config = "tests.kube.client.frozen_leader", str(kubeconfig(tmp_path, fake))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, config, "frozen", how), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        await read_until(process.stdout, "leading")
        process.send_signal(signal.SIGSTOP)
        terms: list[int] = []
        timing = Timing(3.0, 2.0, 0.2)
        second = Elector(api, "lock", "ns", "second", timing=timing, started=terms.append, stopped=terms.clear)
        task = asyncio.create_task(second.run())
        await eventually(lambda: terms)
        before = {key[2] for key in fake.state.objects if key[0] == CONFIG_MAPS}
        process.send_signal(signal.SIGCONT)
        await read_until(process.stdout, "fenced")
        after = {key[2] for key in fake.state.objects if key[0] == CONFIG_MAPS}
        assert after == before
        assert second.leading
        task.cancel()
    finally:
        process.kill()
        await process.wait()
