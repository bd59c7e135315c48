"""A replica whose terms fail, one after the other."""

from __future__ import annotations

import asyncio

import pytest

from bursar.kube.controller import replica
from bursar.kube.controller.leader_term import LeaderTerm, TermOptions
from bursar.kube.controller.replica import ProcessOptions, Replica
from bursar.policies.plugin import default_registry
from tests.kube.controller.stage import stage

pytestmark = pytest.mark.anyio


async def test_terms_that_fail_at_once_follow_each_other_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them begins with lists of everything."""

    async def fail(_term: LeaderTerm) -> None:
        raise ValueError("a pod that nobody foresaw")

    monkeypatch.setattr(replica, "_PAUSE", 0.02)
    monkeypatch.setattr(LeaderTerm, "run", fail)
    async with stage() as cluster:
        made = Replica(cluster.api, default_registry(), ProcessOptions(TermOptions(dry_run=True), settle=0.0))
        running = asyncio.create_task(made.run())
        await asyncio.sleep(1.0)
        assert 3 <= made.ended["failed"] <= 8
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
