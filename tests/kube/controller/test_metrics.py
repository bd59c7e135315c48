"""What a scrape tells: all quotas, sums of nodes, and that it holds nobody up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bursar.kube.controller import metrics as measuring
from bursar.kube.controller.leader_term import TermOptions
from bursar.kube.controller.metrics import ControllerMetrics
from bursar.kube.controller.replica import ProcessOptions, Replica
from bursar.ledger.claims import PENDING, RUNNING
from bursar.policies.plugin import default_registry
from tests.kube.controller.stage import GPU, Stage, stage

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def scraped(nodes: int) -> AsyncIterator[tuple[Stage, ControllerMetrics]]:
    """Somebody leads a cluster in which a pod runs and another one waits."""
    async with stage() as cluster:
        for number in range(nodes):
            cluster.node(f"n{number}", 8)
        cluster.namespace("a")
        cluster.quota("a", 2)
        first = cluster.pod("a", "first", 2)
        term = await cluster.lead()
        await cluster.until(lambda: cluster.started(first))
        cluster.schedule()
        cluster.pod("a", "second", 1)
        claims = term.mirror.engine.state.claims
        await cluster.until(lambda: sorted(claim.state for claim in claims.values()) == [PENDING, RUNNING])
        await cluster.until(lambda: any(told.reason.startswith("elastic.max") for told in cluster.told))
        only_tries = ProcessOptions(TermOptions(dry_run=True))  # and leaves the gate of the lease open
        replica = Replica(cluster.api, default_registry(), only_tries)
        replica.term = term
        yield cluster, ControllerMetrics(replica)


def series(text: bytes) -> dict[str, float]:
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_quotas_are_told_one_by_one_and_nodes_together() -> None:
    async with scraped(3) as (_, metrics):
        found = series(await metrics.render())
    quota = f'account="elastic/ElasticQuota/a/quota",policy="elastic",resource="{GPU}"'
    assert found[f"bursar_account_used{{{quota}}}"] == 2
    assert found[f"bursar_account_limit{{{quota}}}"] == 2
    room = f'policy="nodes",resource="{GPU}"'
    assert found[f"bursar_nodes_used{{{room}}}"] == 2
    assert found[f"bursar_nodes_limit{{{room}}}"] == 24
    assert (found['bursar_claims{state="running"}'], found['bursar_claims{state="pending"}']) == (1, 1)
    assert found[f'bursar_claims_pending{{reason="elastic.max.{GPU}"}}'] == 1


async def test_a_larger_cluster_has_no_more_series() -> None:
    names = []
    for nodes in (2, 20):
        async with scraped(nodes) as (_, metrics):
            names.append({name for name in series(await metrics.render()) if "api_" not in name})
    assert names[0] == names[1]


async def test_others_get_their_turn_while_much_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scraped(20) as (_, metrics):
        monkeypatch.setattr(measuring, "SLICE", 1)
        monkeypatch.setattr(asyncio, "to_thread", lambda call, *arguments: asyncio.sleep(0, call(*arguments)))
        scrape = asyncio.ensure_future(metrics.render())
        turns = 0
        while not scrape.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 20, "one for each node at least"
