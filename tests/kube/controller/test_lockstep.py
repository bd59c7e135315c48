"""The embedded cluster and Kubernetes come to the same decisions: every scenario is run on both, step by step."""

from pathlib import Path

import pytest

from bursar.control.admission import known_kinds
from bursar.objects.decode import ManifestError
from bursar.policies.plugin import default_registry
from bursar.sim.cluster import Cluster
from bursar.sim.runner import act
from bursar.sim.scenario import Scenario, Step, load_scenarios
from tests.kube.controller.plain_kubernetes import PlainKubernetes

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = [ROOT / "tests" / "scenarios", ROOT / "examples"]
SCENARIOS = load_scenarios(FOLDERS, known_kinds(default_registry()))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"{Path(s.source).stem}: {s.name}" for s in SCENARIOS])
def test_both_decide_alike(scenario: Scenario) -> None:
    embedded, kubernetes = Cluster(), PlainKubernetes()
    for step in scenario.steps:
        if step.action == "expect" or not _accepted(embedded, step):
            continue  # what admission refuses never reaches a controller
        act(kubernetes, step)
        found = {key: _seen(kubernetes, key) for key in embedded.pods()}
        assert found == {key: _wanted(embedded, key) for key in embedded.pods()}, f"step {step.number}: {step.action}"


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
