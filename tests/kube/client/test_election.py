"""The election in a child process: it goes on while its parent is busy, and ends with it."""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bursar.kube.client.api import LEASES, Api
from bursar.kube.client.election import ClusterAccess, ElectionChild
from bursar.kube.client.errors import Fenced
from bursar.kube.client.http import Call
from bursar.kube.client.lease import Elector, Timing
from bursar.kube.client.models import Lease
from tests.kube.fakeapi import FakeApi
from tests.kube.waiting import eventually

pytestmark = pytest.mark.anyio

TIMING = Timing(6.0, 4.0, 0.3)


@pytest.fixture(autouse=True)
def _patience() -> None:
    """Two processes share a clock, so it is the real one here."""


def kubeconfig(folder: Path, fake: FakeApi) -> Path:
    file = folder / "kubeconfig"
    named: dict[str, dict[str, dict[str, str]]] = {"clusters": {"cluster": {"server": fake.url}}, "users": {"user": {}}}
    whole = {part: [{"name": "a"} | entry] for part, entry in named.items()}
    contexts = [{"name": "a", "context": {"cluster": "a", "user": "a"}}]
    file.write_text(json.dumps({**whole, "contexts": contexts, "current-context": "a"}))
    return file


@contextlib.asynccontextmanager
async def electing(api: Api, folder: Path, fake: FakeApi) -> AsyncIterator[tuple[ElectionChild, list[object]]]:
    story: list[object] = []
    election = ElectionChild(
        api.http,
        ClusterAccess(str(kubeconfig(folder, fake))),
        *("lock", "ns", "a"),
        timing=TIMING,
        started=story.append,
        stopped=lambda: story.append("stopped"),
    )
    task = asyncio.create_task(election.run())
    try:
        await eventually(lambda: election.leading)
        yield election, story
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def held(api: Api) -> tuple[str, int]:
    spec = (await api.get(LEASES, "lock", "ns")).into(Lease).spec
    return spec.holder_identity, spec.lease_transitions


async def test_it_leads_renews_and_gives_the_lease_back(fake: FakeApi, api: Api, tmp_path: Path) -> None:
    async with electing(api, tmp_path, fake) as (election, story):
        assert await held(api) == ("a", 0)
        assert 0 < election.remaining() <= TIMING.renew_deadline
        renewals = len(fake.seen)
        await eventually(lambda: len(fake.seen) > renewals + 2)
        await eventually(lambda: api.http.calls[Call("patch", "coordination.k8s.io", "leases")] > 1)
        assert story == [0]
    assert story == [0, "stopped"]
    assert await held(api) == ("", 0)
    with pytest.raises(Fenced):
        election.remaining()
    assert election.process is not None
    assert election.process.returncode == 0


async def test_a_child_that_dies_ends_the_term_and_another_one_begins_the_next(
    fake: FakeApi, api: Api, tmp_path: Path
) -> None:
    async with electing(api, tmp_path, fake) as (election, story):
        assert election.process is not None
        election.process.kill()
        await eventually(lambda: story[:2] == [0, "stopped"])
        await eventually(lambda: election.leading)
        assert story == [0, "stopped", 1]


async def test_the_page_says_no_before_the_message_is_read(fake: FakeApi, api: Api, tmp_path: Path) -> None:
    """A loop that was busy finds out at its first write that its term is over, and that a later one is another."""
    async with electing(api, tmp_path, fake) as (election, story):
        election._page.term = 1
        assert not election.leading
        with pytest.raises(Fenced, match="does not hold"):
            election.remaining()
        election._page.term, election._page.until = 0, 0.0
        with pytest.raises(Fenced, match="the time to write ended"):
            election.remaining()
        assert story == [0]


async def test_without_progress_the_lease_is_not_renewed(fake: FakeApi, api: Api, tmp_path: Path) -> None:
    async with electing(api, tmp_path, fake) as (election, story):
        assert election._progressing is not None
        election._progressing.cancel()
        await eventually(lambda: story == [0, "stopped"])
        terms: list[int] = []
        second = Elector(api, "lock", "ns", "b", timing=TIMING, started=terms.append, stopped=terms.clear)
        task = asyncio.create_task(second.run())
        await eventually(lambda: terms)
        assert not election.leading
        task.cancel()


# Processes


async def started(folder: Path, fake: FakeApi, how: str, stretches: int) -> tuple[Process, int]:
    command = (sys.executable, "-m", "tests.kube.client.busy_leader", str(kubeconfig(folder, fake)), how)
    process = await asyncio.create_subprocess_exec(*command, str(stretches), stdout=PIPE)
    pid = await said(process)
    assert await said(process) == "leading"
    return process, int(pid)


async def said(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(120.0):
        return (await process.stdout.readline()).decode().strip()


def runs(pid: int) -> bool:
    """A process that ended and was not waited for yet does not run."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def test_a_child_renews_while_the_loop_of_its_parent_is_busy(fake: FakeApi, tmp_path: Path) -> None:
    process, _ = await started(tmp_path, fake, "child", 5)
    try:
        assert await said(process) == "kept"
    finally:
        process.kill()
        await process.wait()


async def test_a_child_ends_when_its_parent_is_killed(fake: FakeApi, api: Api, tmp_path: Path) -> None:
    process, pid = await started(tmp_path, fake, "child", 0)
    assert runs(pid)
    process.kill()
    await process.wait()
    await eventually(lambda: not runs(pid))
    assert await held(api) == ("busy", 0), "not given back: writes may be under way"
