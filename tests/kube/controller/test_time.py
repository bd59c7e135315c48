"""A gated pod that waits for an hour of the day is ungated at that hour, without any other event."""

import time

import pytest

from bursar.kube.controller import leader_term, mirror
from tests.engine.hours import DAY, OPENS, hours_registry
from tests.kube.controller.stage import stage

pytestmark = pytest.mark.anyio

NINE = 20_000 * DAY + OPENS


async def test_it_is_ungated_at_the_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    monkeypatch.setattr(leader_term, "TICK", 3600.0)  # only a policy that is due ends the wait
    monkeypatch.setattr(mirror, "_clock", lambda: lambda: NINE - 4_000 + int((time.monotonic() - began) * 1000))
    async with stage() as cluster:
        cluster.registry = hours_registry()
        cluster.node("n", 8)
        cluster.namespace("red")
        pods = [cluster.pod("red", "first"), cluster.pod("red", "second")]
        term = await cluster.lead()
        await cluster.until(lambda: any(map(cluster.started, pods)))
        if term.mirror.notes.now() < NINE:
            assert sum(map(cluster.started, pods)) == 1
        await cluster.until(lambda: all(map(cluster.started, pods)))
        assert term.mirror.notes.now() >= NINE
        assert term.mirror.engine.state.accounts["hours/red"].limits.cap("pods") == 2
