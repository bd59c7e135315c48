"""A pod that waits for an hour of the day is admitted at that hour, without any other event."""

from bursar.audit.auditor import Auditor
from bursar.objects.manifests import load_text
from bursar.sim.runner import run_scenario
from bursar.sim.scenario import read_scenario
from tests.builders import node, pod
from tests.engine.hours import CLOSES, HOUR, OPENS, hours_registry
from tests.sim.steps import TestBed

GPU = "nvidia.com/gpu"

SCENARIO = """
name: two pods by day
objects:
  - {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {nvidia.com/gpu: 8}}}
steps:
  - apply:
      - &pod
        apiVersion: v1
        kind: Pod
        metadata: {namespace: red, name: p1}
        spec: {containers: [{resources: {limits: {nvidia.com/gpu: 1}}}]}
      - {<<: *pod, metadata: {namespace: red, name: p2}}
  - advance: 8h
  - expect:
      pods:
        red/p1: {phase: Running}
        red/p2: {phase: Pending, reason: hours.limit.pods}
  - advance: 1h
  - expect:
      pods: {red/p2: {phase: Running}}
"""


def two_pods() -> TestBed:
    pods = [pod("p1", "red", {GPU: 1}), pod("p2", "red", {GPU: 1})]
    return TestBed(node("n1", {GPU: 8}), *pods, registry=hours_registry())


def test_it_is_admitted_at_the_hour() -> None:
    bed = TestBed(
        node("n1", {GPU: 8}), pod("p1", "red", {GPU: 1}), pod("p2", "red", {GPU: 1}), registry=hours_registry()
    )
    assert (bed.see("red/p2").phase, bed.next_due) == ("Pending", OPENS)
    bed.advance(OPENS - 1)
    version = bed.engine.version
    assert bed.see("red/p2").phase == "Pending"
    bed.advance(1)
    assert bed.see("red/p2").phase == "Running"
    assert bed.engine.journal.records[version].cause == ("advance", "hours")
    assert bed.next_due == CLOSES


def test_a_pod_that_comes_at_the_hour_is_held_to_the_new_limit() -> None:
    bed = TestBed(node("n1", {GPU: 8}), pod("p1", "red", {GPU: 1}), registry=hours_registry())
    bed.advance(CLOSES)
    bed.give(pod("p2", "red", {GPU: 1}))
    assert bed.see("red/p2").reason == "hours.limit.pods"
    bed.advance(CLOSES + HOUR)
    assert bed.see("red/p2").phase == "Running"


def test_time_alone_makes_no_records() -> None:
    bed = TestBed(node("n1", {GPU: 8}), pod("p1", "red", {GPU: 1}), registry=hours_registry())
    version = bed.engine.version
    for _ in range(8):
        bed.advance(HOUR)
    assert bed.engine.version == version


def test_in_virtual_time_of_a_scenario_and_its_journal_audits() -> None:
    bed = TestBed(registry=hours_registry())
    result = run_scenario(read_scenario(load_text(SCENARIO, "x.yaml")[0], bed.kinds), hours_registry())
    assert result.failed is None, result.failed


def test_its_journal_audits() -> None:
    bed = TestBed(
        node("n1", {GPU: 8}), pod("p1", "red", {GPU: 1}), pod("p2", "red", {GPU: 1}), registry=hours_registry()
    )
    bed.advance(2 * CLOSES)
    auditor = Auditor()
    for line in bed.engine.journal.take():
        auditor.feed(line)
    assert auditor.digest == f"{bed.engine.digest:016x}"
