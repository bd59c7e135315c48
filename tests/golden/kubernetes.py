"""The part of the golden record that the controller leaves when it follows the same scenarios on Kubernetes."""

from __future__ import annotations

from typing import Any

from bursar.objects.decode import ManifestError
from bursar.sim.cluster import Cluster
from bursar.sim.runner import act
from bursar.sim.scenario import Scenario
from tests.golden.record import Part
from tests.golden.scenarios import BOOKKEEPING, all_scenarios, by_file, in_short
from tests.kube.controller.plain_kubernetes import PlainKubernetes

KEPT_OF_SPEC = ("nodeName", "schedulingGates", "affinity", "priority")


def kubernetes() -> Part:
    return by_file(all_scenarios(), _run)


def _run(scenario: Scenario) -> dict[str, Any]:
    """The journal in short, and what the controller wrote on pods and objects by the end."""
    embedded, kubernetes = Cluster(), PlainKubernetes()
    for step in scenario.steps:
        try:
            act(embedded, step)
        except ManifestError:
            continue  # what admission refuses never reaches a controller
        act(kubernetes, step)
    return {
        "journal": [in_short(line) for line in kubernetes.mirror.engine.journal.take()],
        "phases": kubernetes.phases,
        "pods": {key: _written(body) for key, body in kubernetes.pods.items()},
        "objects": {" ".join(key): _written(body) for key, body in kubernetes.objects.items()},
    }


def _written(body: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in body["metadata"].items() if key not in BOOKKEEPING and value}
    spec = {key: body["spec"][key] for key in KEPT_OF_SPEC if body.get("spec", {}).get(key)}
    return {**metadata, **spec, "status": body.get("status")}
