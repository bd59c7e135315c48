"""Shadow mode and dry run on a server in memory: nothing changes, whatever there is to do."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from bursar.kube.client.api import NODES
from bursar.kube.controller.leader_term import TermOptions
from bursar.kube.controller.main import Process, RunOptions
from bursar.kube.controller.metrics import ControllerMetrics
from bursar.kube.controller.mirror import MirrorOptions
from bursar.kube.controller.patches import HOLD, AdmissionRecord, HoldRecord, written
from bursar.kube.controller.replica import ProcessOptions, Replica
from bursar.policies.plugin import default_registry
from bursar.resources import from_amounts
from tests.kube.controller.stage import ELASTIC, GPU, Body, Stage, replica, stage
from tests.kube.waiting import eventually

WRITES = {"POST", "PUT", "PATCH", "DELETE"}
SHADOW = TermOptions(MirrorOptions(shadow=True), pin_patience=0, compared_every=0.5)
DRY = TermOptions(dry_run=True, pin_patience=0, compared_every=0.5)


pytestmark = pytest.mark.anyio


def prepare(cluster: Stage) -> None:
    """Something of everything that leads to writes."""
    cluster.node("n", 4)
    for name in ("a", "b"):
        cluster.namespace(name)
        cluster.quota(name, 4, 2)
    second = {"metadata": {"name": "second"}, "spec": {"max": {GPU: 2}}}  # where one is allowed
    cluster.fake.state.create(ELASTIC, "a", second)
    hold = {HOLD: written(HoldRecord("n", (("gone", ""),)))}
    _annotate(cluster, cluster.pod("a", "held"), hold)
    _annotate(cluster, cluster.pod("b", "never", 6), hold)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    lost = cluster.pod("b", "lost", gated=False, ownerReferences=[owner])
    record = AdmissionRecord(1, 0, "n", pinned=True)
    _annotate(cluster, lost, {"bursar.dev/admission": written(record)})
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    cluster.change(lost, lambda pod: pod.update(status={"phase": "Pending", "conditions": [unplaced]}))


def _annotate(cluster: Stage, pod: Body, marks: dict[str, str]) -> None:
    cluster.change(pod, lambda body: body["metadata"].update(annotations=marks))


def writes(cluster: Stage) -> list[tuple[str, str, dict[str, str]]]:
    return [(seen.method, seen.path, seen.query) for seen in cluster.fake.seen if seen.method in WRITES]


async def test_in_shadow_mode_no_write_is_even_tried() -> None:
    async with stage() as cluster:
        prepare(cluster)
        async with replica(cluster, SHADOW) as watching:
            term = watching.term
            await asyncio.sleep(2.5)
            assert watching.term is term, "the term went on"
            assert not watching.ended
        assert writes(cluster) == []


@pytest.mark.parametrize("mode", [SHADOW, DRY], ids=["shadow", "dry run"])
async def test_who_only_looks_on_is_ready_when_it_sees_the_cluster(mode: TermOptions) -> None:
    async with stage() as cluster:
        prepare(cluster)
        options = RunOptions(ProcessOptions(mode, settle=0.3), "127.0.0.1", health_port=0, webhook_port=None)
        process = Process(cluster.api, options)
        running = asyncio.create_task(process.run(lambda _: None))
        try:
            assert process.unready() == ["the cluster is not listed yet"]
            await eventually(lambda: not process.unready())
            term = process.replica.term
            assert term is not None
            assert term.ready
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def test_shadow_mode_governs_namespaces_that_quotas_name() -> None:
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 2)
        async with replica(cluster, SHADOW) as watching:
            verdicts = _verdicts(watching)
            first = cluster.pod("a", "first", 2, gated=False)
            await eventually(lambda: verdicts().get("would-start") == 1)
            cluster.bind(first, "n")
            await eventually(lambda: verdicts().get("agreed") == 1)
            second = cluster.pod("a", "second", 1, gated=False)
            cluster.bind(second, "n")
            await eventually(lambda: verdicts().get("would-wait") == 1)
            assert verdicts() == {"would-start": 1, "agreed": 1, "would-wait": 1}


async def test_a_pod_that_is_bound_at_once_is_judged_by_what_came_before() -> None:
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 8)
        async with replica(cluster, SHADOW) as watching:
            for number in range(8):
                cluster.bind(cluster.pod("a", f"p{number}", 1, gated=False), "n")
            verdicts = _verdicts(watching)
            await eventually(lambda: verdicts().get("agreed") == 8)
            assert "would-wait" not in verdicts()
            assert watching.term is not None
            assert watching.term.mirror.shadow is not None
            for number in range(8):
                found = [one for one in watching.term.mirror.shadow.findings if one.pod == f"a/p{number}"]
                assert [one.verdict for one in found] == ["would-start", "agreed"]


async def test_shadow_mode_says_who_would_be_evicted() -> None:
    async with stage() as cluster:
        cluster.node("n", 4)
        for name in ("a", "b"):
            cluster.namespace(name)
            cluster.quota(name, 4, 2)
        async with replica(cluster, SHADOW) as watching:
            verdicts = _verdicts(watching)
            for number in range(4):
                cluster.bind(cluster.pod("a", f"p{number}", 1, gated=False), "n")
            await eventually(lambda: verdicts().get("agreed") == 4)
            cluster.pod("b", "owner", 1, gated=False)
            await eventually(lambda: verdicts().get("would-evict") == 1)


def _verdicts(watching: Replica) -> Callable[[], dict[str, int]]:
    term = watching.term
    assert term is not None
    shadow = term.mirror.shadow
    assert shadow is not None
    return lambda: dict(shadow.counts)


async def test_a_dry_run_changes_nothing_and_takes_nobodys_lease() -> None:
    async with stage() as cluster:
        prepare(cluster)
        cluster.announce(7)
        before = cluster.fake.state.version
        async with replica(cluster, DRY) as trying:
            term = trying.term
            assert term is not None
            assert term.number == 7
            await eventually(lambda: term.writer.started and term.evictor.evicted)
            await asyncio.sleep(1.5)
            assert trying.term is term, "the term went on"
        assert cluster.fake.state.version == before
        tried = writes(cluster)
        assert [one for one in tried if one[2].get("dryRun") != "All" and not one[1].endswith("/eviction")] == []
        assert {("PATCH", "/api/v1/namespaces/a/pods/held"), ("POST", "/api/v1/namespaces/b/pods/lost/eviction")} <= {
            (method, path) for method, path, _ in tried
        }


async def test_differences_are_counted_beyond_the_ledger_that_was_given_up_for_them() -> None:
    async with stage() as cluster:
        prepare(cluster)
        options = TermOptions(pin_patience=0, compared_every=0.1)
        async with replica(cluster, options) as made:
            assert made.term is not None
            state = made.term.mirror.engine.state
            state.account("nodes/n").busy.add(from_amounts({GPU: 1}))
            await eventually(lambda: made.ended["rebuilt"] == 1 and made.term is not None and made.term.ready)
            assert made.term.mirror.engine.state is not state
            assert made.differences == 1
            assert b"bursar_ledger_differences_total 1.0" in await ControllerMetrics(made).render()


async def test_who_leads_again_waits_for_the_end_of_the_term_before() -> None:
    async with stage() as cluster:
        cluster.fake.state.create(NODES, "", {"metadata": {"name": "n"}, "status": {"allocatable": {GPU: "8"}}})
        made = Replica(cluster.api, default_registry(), ProcessOptions(settle=0.0))
        slow = asyncio.Event()

        async def ending() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                await slow.wait()
                made.term = None

        made._leading = asyncio.create_task(ending())
        await asyncio.sleep(0)
        made._deposed()
        cluster.announce(3)  # by nobody who holds the lease, else it could not be written
        made._elected(3)
        await asyncio.sleep(0.2)
        assert made.term is None
        slow.set()
        await eventually(lambda: made.term is not None and made.term.ready)
        made._deposed()
        assert made._leading is not None
        await asyncio.gather(made._leading, return_exceptions=True)
