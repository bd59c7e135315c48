"""The installation without Helm, and the ready-made policy about PriorityClasses, on a real API server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import ApiError
from tests.cluster.controlplane.identities import ALICE
from tests.cluster.controlplane.objects import pod
from tests.cluster.waiting import eventually

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
CRITICAL = "system-node-critical"


@pytest.fixture(scope="module")
def server() -> Iterator[ControlPlane]:
    with ControlPlane.start(scheduler=False, kwok=False) as plane:
        yield plane


def test_one_command_installs_everything(server: ControlPlane) -> None:
    server.kubectl("apply", "--server-side", "-k", str(DEPLOY))
    api = server.api()
    deployment = api.get("/apis/apps/v1/namespaces/bursar-system/deployments/bursar")
    template = deployment["spec"]["template"]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "labels": template["metadata"]["labels"]}}
    body["spec"] = template["spec"]
    api.create("/api/v1/namespaces/bursar-system/pods?dryRun=All", body)  # the namespace is restricted
    for path in ("services/bursar-webhook", "services/bursar", "serviceaccounts/bursar"):
        assert api.get(f"/api/v1/namespaces/bursar-system/{path}")
    budget = api.get("/apis/policy/v1/namespaces/bursar-system/poddisruptionbudgets/bursar")
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert api.get("/apis/networking.k8s.io/v1/namespaces/bursar-system/networkpolicies/bursar")
    names = {one["metadata"]["name"] for one in api.get(POLICIES)["items"]}
    assert {"bursar-guard-update", "bursar-guard-creation-enforced"} <= names


def test_a_config_map_says_who_may_use_a_priority_class(server: ControlPlane) -> None:
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}
    server.kubectl("apply", "-f", "-", input=yaml.safe_dump(urgent))
    allowed, other = (server.create_namespace() for _ in range(2))
    eventually(lambda: takes(server, other, CRITICAL), "people may make pods, of every class")
    server.kubectl("apply", "--server-side", "-f", str(DEPLOY / "priority-classes.yaml"))
    eventually(lambda: not takes(server, other, CRITICAL), "the policy is in force")
    eventually(lambda: takes(server, other, "urgent"), "a class that is not listed is everybody's")
    assert takes(server, other, "")
    patch = {"data": {CRITICAL: f"x, {allowed}", "urgent": allowed}}
    path = "/api/v1/namespaces/bursar-system/configmaps/bursar-priority-classes"
    server.api().patch(path, patch)
    eventually(lambda: takes(server, allowed, CRITICAL), "the namespace that is listed may")
    assert takes(server, allowed, "urgent")
    assert "is not for namespace" in refusal(server, other, "urgent")
    assert not takes(server, other, CRITICAL)


def takes(server: ControlPlane, namespace: str, name: str) -> bool:
    return not refusal(server, namespace, name)


def refusal(server: ControlPlane, namespace: str, name: str) -> str:
    """What the server says to such a pod of a user with the role edit; empty if it takes it."""
    body: dict[str, Any] = pod("probe", {})
    if name:
        body["spec"]["priorityClassName"] = name
    try:
        server.api(ALICE).create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
    except ApiError as error:
        if error.status != 403:
            raise
        return error.message
    return ""
