"""Whose term it is, on Bursar's own namespace."""

from __future__ import annotations

import asyncio
import copy

import pytest

from bursar.kube.client.errors import Fenced, NotFound, Unanswered
from bursar.kube.client.resources import NAMESPACES
from bursar.kube.controller.fencing import announce, announced
from bursar.kube.controller.names import TERM
from bursar.kube.controller.process import ProcessOptions, Replica
from bursar.kube.controller.term import TermOptions
from bursar.policies.plugin import default_registry
from tests.kube.controller.stage import OWN, Stage, stage
from tests.kube.waiting import eventually

pytestmark = pytest.mark.anyio
WRITE = f"PATCH /api/v1/namespaces/{OWN}"


def annotate(cluster: Stage, marks: dict[str, str]) -> None:
    """Somebody changes the namespace."""
    own = copy.deepcopy(cluster.fake.state.get(NAMESPACES, "", OWN))
    own["metadata"]["annotations"] = marks
    cluster.fake.state.replace(NAMESPACES, "", OWN, own, status=False)


def written(cluster: Stage) -> int:
    return sum(f"{seen.method} {seen.path}" == WRITE for seen in cluster.fake.seen)


async def test_a_term_is_written_once_and_the_rest_of_the_namespace_stays() -> None:
    async with stage() as cluster:
        annotate(cluster, {"who": "somebody"})
        assert await announced(cluster.api, OWN) == 0
        for _ in range(2):
            await announce(cluster.api, OWN, 7)
        assert await announced(cluster.api, OWN) == 7
        assert cluster.fake.state.get(NAMESPACES, "", OWN)["metadata"]["annotations"] == {"who": "somebody", TERM: "7"}
        assert written(cluster) == 1


async def test_who_changes_the_namespace_meanwhile_is_not_overwritten() -> None:
    async with stage() as cluster:
        cluster.fake.fail(WRITE, hang=0.2)
        writing = asyncio.create_task(announce(cluster.api, OWN, 7))
        await eventually(lambda: written(cluster) == 1)
        annotate(cluster, {"who": "somebody", TERM: "3"})
        await writing
        assert cluster.fake.state.get(NAMESPACES, "", OWN)["metadata"]["annotations"] == {"who": "somebody", TERM: "7"}
        assert written(cluster) == 2


async def test_a_leader_that_was_frozen_before_its_write_arrived_changes_nothing() -> None:
    """Its successor wrote meanwhile: the write is a conflict, and the lease lets no other one pass."""
    async with stage() as cluster:
        leads = True

        def remaining() -> float:
            if not leads:
                raise Fenced("another one leads")
            return 10.0

        cluster.api.http.gate = remaining
        cluster.fake.fail(WRITE, hang=0.2)
        writing = asyncio.create_task(announce(cluster.api, OWN, 7))
        await eventually(lambda: written(cluster) == 1)
        leads = False
        cluster.announce(8)
        with pytest.raises(Fenced):
            await writing
        assert cluster.present == "8"


async def test_what_was_written_though_the_answer_was_lost_is_found_at_the_next_try() -> None:
    async with stage() as cluster:
        cluster.fake.fail(WRITE, cut=True, carried_out=True)
        with pytest.raises(Unanswered):
            await announce(cluster.api, OWN, 7)
        await announce(cluster.api, OWN, 7)
        assert cluster.present == "7"
        assert written(cluster) == 1


@pytest.mark.parametrize("found", ["", "x", "-1", "\u0661x"])
async def test_what_is_no_term_is_none(found: str) -> None:
    async with stage() as cluster:
        annotate(cluster, {TERM: found})
        assert await announced(cluster.api, OWN) == 0


async def test_without_a_namespace_nobody_leads() -> None:
    async with stage() as cluster:
        cluster.fake.state.delete(NAMESPACES, "", OWN)
        assert await announced(cluster.api, OWN) == 0
        with pytest.raises(NotFound):
            await announce(cluster.api, OWN, 1)


async def test_a_term_that_somebody_takes_away_is_written_again() -> None:
    """The fence refuses the next start; the leader says anew whose term it is, and builds its ledger again."""
    async with stage() as cluster:
        cluster.node("n", 4)
        cluster.namespace("a")
        cluster.quota("a", 4)
        made = Replica(cluster.api, default_registry(), ProcessOptions(TermOptions(), settle=0.0))
        running = asyncio.create_task(made.run())
        await eventually(lambda: made.term is not None and made.term.ready)
        annotate(cluster, {TERM: "99"})
        pod = cluster.pod("a", "p", 1)
        await eventually(lambda: cluster.started(pod))
        assert made.ended["fenced"] == 1
        assert cluster.present == str(made.elector.term)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
