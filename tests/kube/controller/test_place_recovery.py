"""Started pods that are not bound: places that are given back or taken back, nodes that are remembered, and words."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from bursar.kube.client.api import JOBS, NODES, Resource
from bursar.kube.controller import place_recovery
from bursar.kube.controller.leader_term import LeaderTerm, TermOptions
from bursar.kube.controller.patches import ADMISSION, AdmissionRecord, admission_of
from bursar.kube.controller.place_recovery import GATED, REFUSED, SILENT, UnboundWatch, ignores_disruptions
from bursar.kube.controller.pod_model import read_pod
from bursar.kube.controller.pod_sync import PodSync, TrackedPod
from bursar.ledger.claims import RESERVED
from bursar.objects.refused_pods import REFUSED_PODS, read_refusals
from tests.kube.controller.stage import GPU, Body, Stage, stage

pytestmark = pytest.mark.anyio
SAID = "0/2 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
CONFIGURATION = Resource("bursar.dev", "v1alpha1", "configurations", "Configuration", namespaced=False)
QUICK = TermOptions(pin_patience=1)
PINNING = {"tensor-fusion.ai/tflops-request": "100"}
Owner = dict[str, Any]


def owner(kind: str, name: str = "owner", group: str = "apps/v1") -> Owner:
    return {"apiVersion": group, "kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True}


def refused_by_the_scheduler(cluster: Stage, pod: Body, words: str = SAID) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    cluster.change(pod, lambda body: body.update(status={"phase": "Pending", "conditions": [condition]}))


def configure(cluster: Stage, **control: object) -> None:
    body = {"metadata": {"name": "default"}, "spec": {"control": control}}
    cluster.fake.state.create(CONFIGURATION, "", body)


def with_nodes(cluster: Stage, *names: str, gpus: int = 4) -> None:
    cluster.namespace("a")
    cluster.quota("a", 100)
    for name in names:
        cluster.node(name, gpus)


async def started(cluster: Stage, pod: Body) -> AdmissionRecord:
    await cluster.until(lambda: cluster.started(pod))
    return await seen_record(cluster, pod)


async def seen_record(cluster: Stage, pod: Body) -> AdmissionRecord:
    found = cluster.find("a", pod["metadata"]["name"])
    assert found is not None
    record = admission_of(found["metadata"]["annotations"])
    assert record is not None
    return record


def told(cluster: Stage, reason: str) -> list[str]:
    return [notice.message for notice in cluster.told if notice.reason == reason]


# The node of a pod without a pin


async def test_the_node_of_a_pod_that_the_scheduler_cannot_place_is_given_back() -> None:
    """Others get it; the pod keeps its quota, on its record too, and people read the scheduler's words."""
    async with stage(more=(CONFIGURATION,)) as cluster:
        with_nodes(cluster, "n")
        term = await cluster.lead(QUICK)
        stuck = cluster.pod("a", "stuck", 4, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "full"}}])
        assert (await started(cluster, stuck)).place == "n"
        waits = cluster.pod("a", "waits", 2)
        await cluster.until(lambda: "nodes.full" in [notice.reason for notice in cluster.told])
        refused_by_the_scheduler(cluster, stuck)
        await cluster.until(lambda: cluster.started(waits))
        (message,) = told(cluster, "control.unscheduled")
        assert SAID in message
        assert "keeps its quota, and others may have the node n" in message
        claim = term.mirror.engine.state.claims[stuck["metadata"]["uid"]]
        assert (claim.state, claim.place) == (RESERVED, "")
        account = term.mirror.engine.state.accounts["elastic/ElasticQuota/a/quota"]
        assert account.used.vector().amount(GPU) == 6
        await cluster.until(lambda: record_of(cluster, "stuck").place == "")
        assert term.places.overdue == {REFUSED: 1}
        assert term.places.recovered == {"node-given-back": 1}


def record_of(cluster: Stage, name: str) -> AdmissionRecord:
    found = cluster.find("a", name)
    assert found is not None
    return admission_of(found["metadata"]["annotations"]) or AdmissionRecord(0, 0, "?")


async def test_the_next_leader_keeps_no_node_for_it_and_charges_its_quota() -> None:
    async with stage(more=(CONFIGURATION,)) as cluster:
        with_nodes(cluster, "n")
        await cluster.lead(QUICK)
        stuck = cluster.pod("a", "stuck", 4)
        await started(cluster, stuck)
        refused_by_the_scheduler(cluster, stuck)
        await cluster.until(lambda: record_of(cluster, "stuck").place == "")
        other = cluster.pod("a", "other", 4, labels={"app": "other"})
        await cluster.until(lambda: cluster.started(other))
        await cluster.depose()
        term = await cluster.lead(TermOptions(compared_every=0.2))
        claims = term.mirror.engine.state.claims
        assert [(claim.name, claim.state, claim.place) for claim in claims.values()] == [
            ("stuck", RESERVED, ""),
            ("other", RESERVED, "n"),
        ]
        assert term.mirror.engine.state.accounts["elastic/ElasticQuota/a/quota"].used.vector().amount(GPU) == 8
        await asyncio.sleep(1.5)
        assert term.differences == 0
        cluster.check_running()


async def test_a_pod_whose_node_was_given_back_counts_where_it_is_bound_in_the_end() -> None:
    async with stage(more=(CONFIGURATION,)) as cluster:
        with_nodes(cluster, "n", "m")
        term = await cluster.lead(QUICK)
        stuck = cluster.pod("a", "stuck", 4)
        await started(cluster, stuck)
        refused_by_the_scheduler(cluster, stuck)
        await cluster.until(lambda: told(cluster, "control.unscheduled"))
        cluster.bind(stuck, "m")
        claim = term.mirror.engine.state.claims[stuck["metadata"]["uid"]]
        await cluster.until(lambda: claim.place == "m")
        assert term.mirror.engine.state.accounts["nodes/m"].used.vector().amount(GPU) == 4
        assert term.mirror.engine.state.accounts["nodes/n"].used.vector().amount(GPU) == 0


async def test_a_pod_of_a_scheduler_that_never_bound_any_keeps_no_node() -> None:
    """A scheduler that works may be away for long: what it is to bind keeps its node."""
    async with stage(more=(CONFIGURATION,)) as cluster:
        with_nodes(cluster, "n")
        await cluster.lead(QUICK)
        usual = cluster.pod("a", "usual", 1, schedulerName="default-scheduler")
        await started(cluster, usual)
        stranger = cluster.pod("a", "stranger", 3, schedulerName="nos-scheduler")
        await started(cluster, stranger)
        await cluster.until(lambda: told(cluster, "control.unscheduled"))
        (message,) = told(cluster, "control.unscheduled")
        assert "'nos-scheduler'" in message
        cluster.pod("a", "next", 4)
        await asyncio.sleep(1.2)
        assert record_of(cluster, "usual").place == "n"
        assert record_of(cluster, "stranger").place == ""
        assert not read_refusals(annotations_of(cluster, "n")), "nothing was refused"


# Pinned pods: who is evicted, and who stays


def pinned(cluster: Stage, name: str, owners: list[Owner]) -> Body:
    pod = cluster.pod("a", name, gated=False, ownerReferences=owners)
    record = msgspec.json.encode(AdmissionRecord(1, 0, "n", pinned=True)).decode()
    cluster.change(pod, lambda body: body["metadata"].update(annotations={ADMISSION: record}))
    refused_by_the_scheduler(cluster, pod)
    return pod


@pytest.mark.parametrize(
    "given",
    [owner("ReplicaSet"), owner("StatefulSet"), owner("ReplicationController", group="v1")],
    ids=lambda given: given["kind"],
)
async def test_a_pinned_pod_that_is_recreated_at_no_cost_is_evicted(given: Owner) -> None:
    async with stage(more=(CONFIGURATION,)) as cluster:
        with_nodes(cluster, "n")
        pinned(cluster, "p", [given])
        term = await cluster.lead(QUICK)
        await cluster.until(lambda: cluster.find("a", "p") is None)
        (message,) = told(cluster, "control.place-lost")
        assert message.startswith("the scheduler cannot place it on n, which was chosen for it: ")
        assert term.places.recovered == {"taken-back": 1}


RULES: dict[str, tuple[list[Body], bool]] = {
    "ignored": ([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}], True),
    "counted first": (
        [
            {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ],
        False,
    ),
    "another rule first": (
        [
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ],
        True,
    ),
    "another status": (
        [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]}],
        False,
    ),
    "another condition": ([{"action": "Ignore", "onPodConditions": [{"type": "ConfigIssue"}]}], False),
    "no rules": ([], False),
}


@pytest.mark.parametrize(("rules", "ignores"), RULES.values(), ids=RULES)
async def test_of_a_job_only_if_its_failure_policy_ignores_the_eviction(rules: list[Body], ignores: bool) -> None:
    job: dict[str, object] = {"spec": {"podFailurePolicy": {"rules": rules}}}
    assert ignores_disruptions(job) is ignores
    assert not ignores_disruptions({"spec": {}})


@pytest.mark.parametrize("ignores", [True, False])
async def test_the_job_of_a_pinned_pod_is_asked_about(ignores: bool) -> None:
    async with stage(more=(CONFIGURATION,)) as cluster:
        with_nodes(cluster, "n")
        rules = RULES["ignored" if ignores else "no rules"][0]
        spec = {"podFailurePolicy": {"rules": rules}}
        job = cluster.fake.state.create(JOBS, "a", {"metadata": {"name": "job"}, "spec": spec})
        pinned(cluster, "p", [{**owner("Job", "job", "batch/v1"), "uid": job["metadata"]["uid"]}])
        await cluster.lead(QUICK)
        reason = "control.place-lost" if ignores else "control.unscheduled"
        await cluster.until(lambda: told(cluster, reason))
        if ignores:
            await cluster.until(lambda: cluster.find("a", "p") is None)
        else:
            await asyncio.sleep(1.5)
            assert cluster.find("a", "p") is not None


@pytest.mark.parametrize(
    "owners",
    [[], [owner("Job", "gone", "batch/v1")], [owner("RayCluster", group="ray.io/v1")]],
    ids=["bare", "a job that is gone", "an unknown owner"],
)
async def test_other_pinned_pods_stay_and_keep_their_place(owners: list[Owner]) -> None:
    async with stage(more=(CONFIGURATION,)) as cluster:
        with_nodes(cluster, "n")
        pod = pinned(cluster, "p", owners)
        term = await cluster.lead(QUICK)
        await cluster.until(lambda: told(cluster, "control.unscheduled"))
        (message,) = told(cluster, "control.unscheduled")
        assert SAID in message
        assert "keeps its quota and its place on n" in message
        await asyncio.sleep(1.5)
        assert cluster.find("a", "p") is not None
        claim = term.mirror.engine.state.claims[pod["metadata"]["uid"]]
        assert (claim.state, claim.place) == (RESERVED, "n")
        assert len(told(cluster, "control.unscheduled")) == 1


@pytest.mark.parametrize(("option", "kind", "leaves"), [("all", "", True), ("never", "ReplicaSet", False)])
async def test_an_option_says_whom_to_take_back(option: str, kind: str, leaves: bool) -> None:
    async with stage(more=(CONFIGURATION,)) as cluster:
        with_nodes(cluster, "n")
        configure(cluster, takeBack=option)
        pinned(cluster, "p", [owner(kind)] if kind else [])
        await cluster.lead(QUICK)
        await cluster.until(lambda: told(cluster, "control.place-lost" if leaves else "control.unscheduled"))
        if leaves:
            await cluster.until(lambda: cluster.find("a", "p") is None)
        else:
            await asyncio.sleep(1.5)
            assert cluster.find("a", "p") is not None


# The memory of refused nodes


def annotations_of(cluster: Stage, node: str) -> dict[str, str]:
    return dict(cluster.fake.state.get(NODES, "", node)["metadata"].get("annotations") or {})


async def refused_once(cluster: Stage, monkeypatch: pytest.MonkeyPatch, seconds: int) -> tuple[LeaderTerm, str]:
    """The scheduler refused a pod on the node that was chosen; the node's name."""
    monkeypatch.setattr(place_recovery, "_LEAST_REFUSED_FOR", seconds * 1000)
    with_nodes(cluster, "n", "m")
    term = await cluster.lead(QUICK)
    first = cluster.pod("a", "first", 4, labels={"app": "x"})
    place = (await started(cluster, first)).place
    refused_by_the_scheduler(cluster, first)
    await cluster.until(lambda: read_refusals(annotations_of(cluster, place)))
    cluster.delete(first)
    return term, place


async def test_pods_of_the_same_class_go_elsewhere_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(more=(CONFIGURATION,)) as cluster:
        _, place = await refused_once(cluster, monkeypatch, 1000)
        (entry,) = read_refusals(annotations_of(cluster, place)).values()
        assert (entry.namespace, entry.times) == ("a", 1)
        alike = cluster.pod("a", "alike", 4, labels={"app": "x"})
        assert (await started(cluster, alike)).place == ({"n", "m"} - {place}).pop()
        other = cluster.pod("a", "other", 4, labels={"app": "y"})
        assert (await started(cluster, other)).place == place


async def test_a_pod_that_finds_no_other_node_says_so_and_gets_the_node_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage(more=(CONFIGURATION,)) as cluster:
        _, place = await refused_once(cluster, monkeypatch, 10)
        blocker = cluster.pod("a", "blocker", 4, labels={"app": "x"})
        await started(cluster, blocker)
        late = cluster.pod("a", "late", 4, labels={"app": "x"})
        await cluster.until(lambda: told(cluster, "nodes.refused"))
        assert f"refused such pods on node {place}" in told(cluster, "nodes.refused")[0]
        assert SAID in told(cluster, "nodes.refused")[0]
        assert (await started(cluster, late)).place == place


async def test_the_memory_survives_a_change_of_leader() -> None:
    async with stage(more=(CONFIGURATION,)) as cluster:
        with_nodes(cluster, "n", "m")
        await cluster.lead(TermOptions(pin_patience=20_000))
        first = cluster.pod("a", "first", 4, labels={"app": "x"})
        place = (await started(cluster, first)).place
        term = cluster.term
        assert term is not None
        term.mirror.refuse(place, read_pod(json.dumps(first).encode()), SAID, 100_000)
        await cluster.until(lambda: read_refusals(annotations_of(cluster, place)))
        cluster.delete(first)
        await cluster.depose()
        await cluster.lead()
        alike = cluster.pod("a", "alike", 4, labels={"app": "x"})
        assert (await started(cluster, alike)).place == ({"n", "m"} - {place}).pop()


async def test_an_edit_of_the_annotation_by_others_changes_nothing() -> None:
    async with stage(more=(CONFIGURATION,)) as cluster:
        with_nodes(cluster, "n", "m")
        term = await cluster.lead(TermOptions(pin_patience=20_000))
        first = cluster.pod("a", "first", 4, labels={"app": "x"})
        place = (await started(cluster, first)).place
        term.mirror.refuse(place, read_pod(json.dumps(first).encode()), SAID, 100_000)
        await cluster.until(lambda: read_refusals(annotations_of(cluster, place)))
        cluster.delete(first)
        node = dict(cluster.fake.state.get(NODES, "", place))
        node["metadata"] = {**node["metadata"], "annotations": {}, "labels": {"seen": "now"}}
        cluster.fake.state.replace(NODES, "", place, node, status=False)
        await cluster.until(
            lambda: "seen" in (term.mirror.cache.get("Node", place) or {})["metadata"].get("labels", {})
        )
        alike = cluster.pod("a", "alike", 4, labels={"app": "x"})
        assert (await started(cluster, alike)).place == ({"n", "m"} - {place}).pop()


# Anti-affinity of others


def repelling(selector: Body, **more: object) -> Body:
    term = {"topologyKey": "zone", "labelSelector": selector, **more}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize(
    ("affinity", "repels"),
    [
        (repelling({}, namespaceSelector={}), True),
        (repelling({"matchLabels": {"app": "x"}}, namespaces=["a"]), True),
        (repelling({"matchLabels": {"app": "y"}}, namespaces=["a"]), False),
        (repelling({}), False),
        (repelling({}, namespaceSelector={"matchLabels": {"kind": "other"}}), False),
    ],
    ids=["everyone", "by label", "others", "its own namespace", "namespaces by label, which is not judged"],
)
async def test_a_pod_is_kept_off_the_nodes_of_others_that_repel_it(affinity: Body, repels: bool) -> None:
    """Also by pods that ask for no GPU and run in another namespace, and on all nodes of the topology."""
    async with stage(more=(CONFIGURATION,)) as cluster:
        with_nodes(cluster)
        for name, zone in (("n1", "one"), ("n2", "one"), ("n3", "two")):
            body = {"metadata": {"name": name, "labels": {"zone": zone}}}
            cluster.fake.state.create(
                NODES, "", {**body, "status": {"allocatable": {GPU: "4", "cpu": "64", "pods": "200"}}}
            )
        cluster.namespace("b")
        guard = cluster.pod("b", "guard", 0, gated=False, affinity=affinity)
        cluster.bind(guard, "n1")
        await cluster.lead()
        pods = [cluster.pod("a", f"p{number}", 4, labels={"app": "x"}) for number in range(2)]
        await started(cluster, pods[0])
        if repels:
            await cluster.until(lambda: told(cluster, "nodes.anti-affinity"))
            (message,) = told(cluster, "nodes.anti-affinity")
            assert "b/guard keeps such pods off node n1" in message
            assert record_of(cluster, "p0").place == "n3"
            cluster.delete(guard)
        await started(cluster, pods[1])


# The watch


def watched(**more: Any) -> tuple[TrackedPod, SimpleNamespace]:  # noqa: ANN401 parts of a pod
    body = {"metadata": {"name": "p", "namespace": "a", "uid": "u"}, **more}
    pod = read_pod(msgspec.json.encode(body))
    tracked = TrackedPod(pod, None, governed=True, record=AdmissionRecord(1, 0, "n", pinned=True))
    return tracked, SimpleNamespace(unbound={"u": tracked}, schedulers=set())


def conditions(reason: str) -> Body:
    return {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": reason}]}}


PATIENCE = 60_000


def test_only_the_time_counts_in_which_the_scheduler_finds_no_node() -> None:
    """Not the time in which it does not get to the pod."""
    tracked, pods = watched(**conditions("SchedulingGated"))
    now = 0
    watch = UnboundWatch(cast("PodSync", pods), lambda: now, PATIENCE, "default-scheduler", deadline=lambda: 0)
    assert list(watch.overdue()) == []
    now += 2 * PATIENCE
    tracked.seen = watched(**conditions("Unschedulable"))[0].seen
    assert list(watch.overdue()) == [], "it was tried a moment ago"
    now += PATIENCE - 1
    assert list(watch.overdue()) == []
    now += 1
    assert [one for one, _ in watch.overdue()] == [tracked]
    pods.unbound.clear()
    assert list(watch.overdue()) == []
    pods.unbound["u"] = tracked
    assert list(watch.overdue()) == [], "it was somewhere meanwhile"


@pytest.mark.parametrize(
    ("more", "known", "kind"),
    [
        ({"spec": {"schedulingGates": [{"name": "x/y"}]}}, set(), GATED),
        (conditions("Unschedulable"), set(), REFUSED),
        ({"spec": {"schedulerName": "mine"}}, set(), SILENT),
        ({"spec": {"schedulerName": "mine"}}, {"mine"}, None),
        ({"spec": {"schedulerName": "default-scheduler"}}, set(), None),
        ({}, set(), None),
    ],
    ids=["gated", "refused", "silent", "one that works", "the cluster's", "none named"],
)
def test_what_keeps_a_started_pod(more: Body, known: set[str], kind: str | None) -> None:
    _, pods = watched(**more)
    pods.schedulers = known
    now = 0
    watch = UnboundWatch(cast("PodSync", pods), lambda: now, PATIENCE, "default-scheduler", deadline=lambda: 0)
    list(watch.overdue())
    now = PATIENCE
    assert [obstacle.kind for _, obstacle in watch.overdue()] == ([kind] if kind else [])


def test_memory_annotation_name_is_read_from_nodes() -> None:
    from bursar.kube.controller.informers import READ_MARKS

    assert REFUSED_PODS.startswith(READ_MARKS)
