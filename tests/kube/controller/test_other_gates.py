"""Pods that carry scheduling gates of others: not decided, and not counted, before those are gone."""

from __future__ import annotations

import pytest

from bursar.kube.admission.predicate import GATE
from tests.kube.controller.stage import Body, Stage, stage
from tests.kube.controller.test_place_recovery import CONFIGURATION, configure, told, with_nodes

pytestmark = pytest.mark.anyio
OTHER = "example.org/wait"


def gated_twice(cluster: Stage, name: str, gpus: int = 4, other: str = OTHER) -> Body:
    return cluster.pod("a", name, gpus, gated=False, schedulingGates=[{"name": GATE}, {"name": other}])


def without_other_gates(body: Body) -> None:
    body["spec"]["schedulingGates"] = [{"name": GATE}]


async def test_a_pod_that_others_gate_is_decided_when_they_let_it_go() -> None:
    async with stage(more=(CONFIGURATION,)) as cluster:
        with_nodes(cluster, "n")
        term = await cluster.lead()
        pod = gated_twice(cluster, "p")
        await cluster.until(lambda: told(cluster, "control.other-gates"))
        assert told(cluster, "control.other-gates") == [f"other scheduling gates hold it back: {OTHER}"]
        next_one = cluster.pod("a", "next", 4)
        await cluster.until(lambda: cluster.started(next_one))
        assert cluster.gated(pod)
        assert pod["metadata"]["uid"] not in term.mirror.engine.state.claims, "nor does its demand count"
        cluster.delete(next_one)
        cluster.change(pod, without_other_gates)
        await cluster.until(lambda: cluster.started(pod))


async def test_a_gate_that_is_ignored_holds_no_pod_back() -> None:
    async with stage(more=(CONFIGURATION,)) as cluster:
        with_nodes(cluster, "n")
        await cluster.lead()
        pod = gated_twice(cluster, "p")
        other = gated_twice(cluster, "q", other="example.org/another")
        await cluster.until(lambda: len(told(cluster, "control.other-gates")) == 2)
        configure(cluster, ignoredGates=[OTHER])
        await cluster.until(lambda: cluster.started(pod))
        assert cluster.gated(other)


async def test_a_started_pod_that_an_ignored_gate_keeps_gives_its_node_back() -> None:
    from bursar.kube.controller.leader_term import TermOptions

    async with stage(more=(CONFIGURATION,)) as cluster:
        with_nodes(cluster, "n")
        configure(cluster, ignoredGates=[OTHER])
        await cluster.lead(TermOptions(pin_patience=1))
        pod = gated_twice(cluster, "p")
        await cluster.until(lambda: cluster.started(pod))
        await cluster.until(lambda: told(cluster, "control.unscheduled"))
        next_one = cluster.pod("a", "next", 4)
        await cluster.until(lambda: cluster.started(next_one))
