"""Pods of any size: what nobody reads is not kept, and a pod beyond a bound waits with a reason, or counts."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from bursar.kube.client.api import PODS
from bursar.kube.client.models import meta_of
from bursar.kube.client.watch import Typed
from bursar.kube.controller.informers import narrowed_pod
from bursar.kube.controller.patches import ADMISSION, TOO_LARGE
from bursar.kube.controller.pod_model import SeenPod, identity
from bursar.objects.bounds import MOST_ANNOTATION_BYTES, MOST_TERMS
from tests.kube.controller.stage import GPU, Stage, stage

pytestmark = pytest.mark.anyio

Body = dict[str, Any]
TREE = "quota.bursar.dev/org"
MODEL = "tensor-fusion.ai/gpu-model"


def seen(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any) -> SeenPod:  # noqa: ANN401
    """A pod as it is kept when it comes as an event, and as it is kept when it comes in a list."""
    containers = [{"name": "c", "resources": {"limits": {GPU: "1"}}}]
    metadata = {"namespace": "a", "name": "p", "labels": labels or {}, "annotations": annotations or {}}
    raw = msgspec.json.encode({"metadata": metadata, "spec": {"containers": containers, **spec}})
    read = Typed(SeenPod, identity, narrowed_pod)
    event = read.line(b'{"type": "ADDED", "object": ' + raw + b"}")
    assert event is not None
    assert event.item == read(meta_of(raw), raw)
    assert event.item is not None
    return event.item


def terms(count: int) -> Body:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term] * count}}
    return {"affinity": {"nodeAffinity": required}}


def test_of_annotations_only_those_are_kept_that_policies_read() -> None:
    read = {MODEL: "A100", ADMISSION: "{}", "kubernetes.io/config.mirror": "x"}
    others = {"note": "x" * 200_000, "workflow.example.com/node": "{}"}
    assert seen(annotations=read | others).metadata.annotations == read


def test_a_pod_beyond_a_bound_keeps_what_it_is_charged_for_and_loses_its_constraints() -> None:
    labels = {TREE: "ml", "bursar.dev/preemptible": "false", "app": "web"}
    pod = seen(labels, tolerations=[{"operator": "Exists"}], nodeSelector={"a": "b"}, **terms(MOST_TERMS + 1))
    assert "257 terms, and at most 256 are read" in pod.excess
    assert pod.metadata.labels == {TREE: "ml", "bursar.dev/preemptible": "false"}
    assert (pod.spec.node_selector, pod.spec.tolerations, pod.spec.affinity.node_affinity.required) == ({}, (), None)
    assert pod.spec.containers[0].resources.limits == {GPU: "1"}


def test_what_bursar_writes_does_not_make_a_pod_too_large() -> None:
    pod = seen(annotations={ADMISSION: "x" * (MOST_ANNOTATION_BYTES + 1)})
    assert not pod.excess
    assert ADMISSION in pod.metadata.annotations


def told(cluster: Stage, name: str) -> list[str]:
    return [notice.reason for notice in cluster.told if notice.key == name]


async def test_a_gated_pod_beyond_a_bound_is_named_in_an_event_and_others_go_on() -> None:
    async with stage() as cluster:
        cluster.node("n", 4)
        cluster.quota("team", 4)
        large = cluster.pod("team", "large", **terms(MOST_TERMS + 1))
        await cluster.lead()
        small = cluster.pod("team", "small", **terms(1))
        await cluster.until(lambda: cluster.told)
        assert told(cluster, "team/large") == ["control.too-large"]
        cluster.delete(small)
        free = cluster.pod("team", "free")
        await cluster.until(lambda: cluster.started(free))
        assert cluster.gated(large)


async def test_a_gated_pod_that_becomes_too_large_gives_its_demand_back_and_one_that_shrinks_is_decided() -> None:
    async with stage() as cluster:
        cluster.node("n", 1)
        cluster.quota("team", 1)
        await cluster.lead()
        pod = cluster.pod("team", "p", gpus=2)
        await cluster.until(lambda: told(cluster, "team/p"))
        marks = {f"k{number}": "x" * 60 for number in range(600)}

        def grow(body: Body) -> None:
            body["metadata"]["labels"] = marks

        def shrink(body: Body) -> None:
            body["metadata"]["labels"] = {}

        cluster.change(pod, grow)
        await cluster.until(lambda: TOO_LARGE in told(cluster, "team/p"))
        assert cluster.term is not None
        assert not cluster.term.mirror.engine.state.claims
        cluster.change(pod, shrink)
        await cluster.until(lambda: cluster.term is not None and cluster.term.mirror.engine.state.claims)


async def test_a_running_pod_beyond_a_bound_counts() -> None:
    async with stage() as cluster:
        cluster.node("n", 2)
        cluster.quota("team", 4)
        pod = cluster.pod("team", "runs", gpus=2, gated=False, nodeName="n", **terms(MOST_TERMS + 1))
        await cluster.lead()
        second = cluster.pod("team", "second")
        await cluster.until(lambda: told(cluster, "team/second"))
        assert cluster.gated(second)
        cluster.delete(pod)
        await cluster.until(lambda: cluster.started(second))


async def test_labels_added_to_an_admitted_pod_change_nothing_about_its_charge() -> None:
    async with stage() as cluster:
        cluster.node("n", 2)
        cluster.quota("team", 4)
        term = await cluster.lead()
        pod = cluster.pod("team", "p", gpus=2)
        await cluster.until(lambda: cluster.started(pod))
        cluster.schedule()
        claim = term.mirror.engine.state.claims[pod["metadata"]["uid"]]
        await cluster.until(lambda: claim.state == 4)
        before = copy.deepcopy([binding and binding.record() for binding in claim.bindings])

        def grow(body: Body) -> None:
            body["metadata"].setdefault("labels", {}).update({f"k{number}": "x" * 60 for number in range(600)})

        cluster.change(pod, grow)
        key = pod["metadata"]["uid"]
        await cluster.until(lambda: term.mirror.pods.by_uid[key].seen.excess)
        claim = term.mirror.engine.state.claims[key]
        assert [binding and binding.record() for binding in claim.bindings] == before
        assert cluster.fake.state.get(PODS, "team", "p")["spec"]["nodeName"] == "n"
