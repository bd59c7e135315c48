"""The embedded cluster and Kubernetes come to the same decisions: every scenario is run on both, step by step."""

from pathlib import Path
from typing import Any

import pytest

from bursar.control.admission import known_kinds
from bursar.objects.decode import ManifestError
from bursar.policies.plugin import default_registry
from bursar.sim.cluster import Cluster
from bursar.sim.runner import act, differences
from bursar.sim.scenario import Scenario, Step, load_scenarios
from tests.kube.controller.plain_kubernetes import PlainKubernetes

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = [ROOT / "tests" / "scenarios", ROOT / "examples"]
_OF_THE_SERVER = ("uid", "lastTransitionTime", "lastUpdateTime")
SCENARIOS = load_scenarios(FOLDERS, known_kinds(default_registry()))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"{Path(s.source).stem}: {s.name}" for s in SCENARIOS])
def test_both_decide_alike(scenario: Scenario) -> None:
    embedded, kubernetes = Cluster(), PlainKubernetes()
    for step in scenario.steps:
        if step.action == "expect" or not _accepted(embedded, step):
            continue  # what admission refuses never reaches a controller
        act(kubernetes, step)
        assert_alike(embedded, kubernetes, f"step {step.number}: {step.action}")


def assert_alike(embedded: Cluster, kubernetes: PlainKubernetes, told: str) -> None:
    """Pods and all that Bursar wrote on objects."""
    found = {key: _seen(kubernetes, key) for key in embedded.pods()}
    assert found == {key: _wanted(embedded, key) for key in embedded.pods()}, told
    assert _differing(embedded, kubernetes) == [], told


def _differing(embedded: Cluster, kubernetes: PlainKubernetes) -> list[str]:
    """Where what Bursar wrote on objects differs. On pods and nodes the API server writes, too."""
    lines: list[str] = []
    for kind in embedded.objects.kinds():
        for stored in embedded.objects.all(kind) if kind not in ("Pod", "Node") else ():
            found = kubernetes.objects.get((kind, stored.key))
            if found is None:
                lines.append(f"{kind} {stored.key} is missing")
                continue
            status = stored.written.get("status", {})
            marks = {part: stored.written.get(part, {}) for part in ("labels", "annotations")}
            wanted = {"metadata": marks, "spec": stored.body.get("spec") or {}, "status": status}
            differ = differences(_comparable(wanted), _comparable(found), f"{kind} {stored.key}")
            lines += [line for one in differ for line in one.lines()]
    there = {(kind, stored.key) for kind in embedded.objects.kinds() for stored in embedded.objects.all(kind)}
    return lines + [f"{kind} {key} is left" for kind, key in kubernetes.objects if (kind, key) not in there]


def _comparable(value: Any) -> Any:  # noqa: ANN401 plain data
    """Without empty parts and texts, and without times and uids, which the API server gives."""
    if isinstance(value, dict):
        parts = {key: _comparable(part) for key, part in value.items() if key not in _OF_THE_SERVER}
        return {key: part for key, part in parts.items() if part not in ({}, "")}
    return [_comparable(part) for part in value] if isinstance(value, list) else value


def _accepted(cluster: Cluster, step: Step) -> bool:
    try:
        act(cluster, step)
    except ManifestError:
        return False
    return True


def _wanted(cluster: Cluster, key: str) -> tuple[str, str, str]:
    pod = cluster.pod(key)
    assert pod is not None
    reason = pod.reason if pod.phase == "Pending" else ""
    return pod.phase, pod.node if pod.phase in {"Running", "Terminating"} else "", reason


def _seen(kubernetes: PlainKubernetes, key: str) -> tuple[str, str, str]:
    phase = kubernetes.phases.get(key, "Absent")
    pod = kubernetes.pods.get(key)
    reason = ""
    if phase == "Pending" and pod is not None:
        reason = kubernetes.mirror.controller.reason(pod["metadata"]["uid"])[0]
    node = pod["spec"].get("nodeName", "") if pod is not None and phase in {"Running", "Terminating"} else ""
    return phase, node, reason
