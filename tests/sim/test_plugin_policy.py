"""A policy that only the registry knows of: its kinds, options, admission, statuses and revocations work end to end."""

from typing import Any

import pytest

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import load_text
from bursar.sim.runner import Result, run_scenario
from bursar.sim.scenario import read_scenario
from tests.builders import node, pod
from tests.sim.purse import registry
from tests.sim.steps import TestBed

GPU = "nvidia.com/gpu"

SCENARIO = """
name: a purse governs its namespace
objects:
  - {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {nvidia.com/gpu: 8}}}
  - apiVersion: test.dev/v1
    kind: Purse
    metadata: {namespace: red, name: money}
    spec: {max: {nvidia.com/gpu: 2, cpu: 1500m}}
steps:
  - apply:
      - &pod
        apiVersion: v1
        kind: Pod
        metadata: {namespace: red, name: p1}
        spec: {containers: [{resources: {limits: {nvidia.com/gpu: 2, cpu: "1"}}}]}
      - {<<: *pod, metadata: {namespace: red, name: p2}}
      - {<<: *pod, metadata: {namespace: blue, name: p1}}
  - expect:
      pods:
        red/p1: {phase: Running, labels: {test.dev/purse: money}}
        red/p2: {phase: Pending, reason: purse.limit.cpu, labels: {test.dev/purse: null}}
        blue/p1: {phase: Running, labels: {test.dev/purse: null}}
      objects:
        Purse/red/money:
          spec: {max: {pods: 10, cpu: "1.5"}}
          status: {used: {nvidia.com/gpu: 2, cpu: 1000m}}
        Receipt/red/money: {used: {nvidia.com/gpu: "2"}}
  - apply:
      - {apiVersion: test.dev/v1, kind: Purse, metadata: {namespace: red, name: second}, spec: {max: {}}}
    refused: the namespace has the purse money already
  - delete: [Purse/red/money]
    refused: something is still paid from it
  - apply:
      - apiVersion: bursar.dev/v1alpha1
        kind: Configuration
        metadata: {name: default}
        spec: {purse: {exempt: [red]}}
  - expect:
      pods:
        red/p2: {phase: Running, node: n1}
  - delete: [Configuration/default]
  - expect:
      pods: {red/p2: {phase: Running}}
      objects:
        Purse/red/money: {status: {used: {nvidia.com/gpu: 4}}}
  - apply:
      - apiVersion: bursar.dev/v1alpha1
        kind: Configuration
        metadata: {name: default}
        spec: {purse: {takeBack: true}}
  - expect:
      pods:
        red/p1: {phase: Running}
        red/p2: {phase: Evicted, reason: purse.overdrawn}
  - delete: [Pod/red/p1, Pod/red/p2, Pod/blue/p1]
  - delete: [Purse/red/money]
  - expect:
      pods: {red/p1: {phase: Absent}}
      objects: {Purse/red/money: {phase: Absent}}
"""


def run(text: str) -> Result:
    bed = TestBed(registry=registry())
    return run_scenario(read_scenario(load_text(text, "x.yaml")[0], bed.kinds), registry())


def test_the_policy_drives_a_scenario_end_to_end() -> None:
    result = run(SCENARIO)
    assert result.failed is None, result.failed


def test_the_policy_is_unknown_without_its_registry() -> None:
    with pytest.raises(ManifestError, match=r"kind: test\.dev/v1 Purse is not handled"):
        TestBed(purse())


def purse(name: str = "money", **maximum: Any) -> dict[str, Any]:  # noqa: ANN401 quantities of any form
    metadata = {"namespace": "red", "name": name}
    return {"apiVersion": "test.dev/v1", "kind": "Purse", "metadata": metadata, "spec": {"max": maximum or {GPU: 1}}}


def configuration(**spec: object) -> dict[str, Any]:
    kind = {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration"}
    return {**kind, "metadata": {"name": "default"}, "spec": spec}


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        (purse(cpu="lots"), "Purse red/money: spec.max.cpu: 'lots' is not a quantity"),
        (purse() | {"spce": {}}, "test.yaml: document 1: Purse red/money: [0].spce: is not a known field"),
        (configuration(purse={"exemt": []}), "spec.purse.exemt: is not a known field; did you mean exempt?"),
        (configuration(wallet={}), "spec.wallet: is not a known field"),
    ],
)
def test_its_bad_objects_are_refused_with_one_line(manifest: dict[str, Any], line: str) -> None:
    bed = TestBed(registry=registry())
    with pytest.raises(ManifestError) as caught:
        bed.give(manifest)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_admission_sees_the_other_objects_of_its_step() -> None:
    bed = TestBed(registry=registry())
    with pytest.raises(ManifestError, match="the namespace has the purse money already"):
        bed.give(purse(), purse("second"))
    assert bed.engine.version == 0


def test_its_mark_protects_from_preemption() -> None:
    bed = TestBed(node("n1", {GPU: 1}), registry=registry())
    bed.give(pod("p", "a", {GPU: 1}, labels={"test.dev/paid": "in-advance"}))
    bed.give(pod("vip", "a", {GPU: 1}, priority=9))
    assert bed.phases() == {"a/p": "Running", "a/vip": "Pending"}


def test_what_is_written_outlives_what_is_applied() -> None:
    bed = TestBed(node("n1", {GPU: 1}), purse(), registry=registry())
    bed.give(pod("p", "red", {GPU: 1}))
    bed.give(pod("p", "red", {GPU: 1}, labels={"mine": "yes", "test.dev/purse": "stolen"}))
    bed.give(purse(cpu=4) | {"status": {"used": {"cpu": 99}}})
    assert bed.whole("Pod/red/p")["metadata"]["labels"] == {"mine": "yes", "test.dev/purse": "money"}
    assert bed.whole("Purse/red/money")["status"] == {"used": {GPU: "1"}}
