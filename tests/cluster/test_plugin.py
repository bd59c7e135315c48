"""``kubectl bursar`` against a live cluster: what it says is what the cluster is like, and it writes nothing."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.identities import BOB
from tests.cluster.installation import install, replicas
from tests.cluster.waiting import eventually

GPU = "nvidia.com/gpu"


def _pod(name: str, gpus: int) -> dict[str, Any]:
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _quota(namespace: str, most: int) -> dict[str, Any]:
    return {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "quota", "namespace": namespace},
        "spec": {"min": {GPU: most}, "max": {GPU: most}},
    }


@pytest.fixture(scope="module")
def team(plane: ControlPlane) -> Iterator[str]:
    """A namespace with a quota of four GPUs: one pod of three runs, one of two waits."""
    install(plane)
    namespace = plane.create_namespace("plugin-team", {"bursar.dev/quota": "enforced"})
    nodes = plane.add_nodes(1, {GPU: "8"})
    plane.kubectl("apply", "-f", "-", input=json.dumps(_quota(namespace, 4)))
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with replicas(plane):
        plane.api().create(pods, _pod("runs", 3))
        eventually(lambda: plane.api().get(f"{pods}/runs")["spec"].get("nodeName"), "the first pod is bound")
        plane.api().create(pods, _pod("waits", 2))
        yield namespace
    plane.delete_namespace(namespace)
    plane.remove_nodes(nodes)


def _ask(plane: ControlPlane, *arguments: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
    """As kubectl runs its plugins: by the name of the program."""
    plugin = Path(sys.executable).parent / "kubectl-bursar"
    environment = os.environ | {"KUBECONFIG": str(plane.kubeconfig_of(user)), "COLUMNS": "120"}
    command = [str(plugin)] if plugin.exists() else [sys.executable, "-m", "bursar"]
    flags = [] if plugin.exists() else ["--cluster"]
    return subprocess.run([*command, *arguments, *flags], env=environment, capture_output=True, text=True, check=False)


def test_explain_says_why_a_pod_waits_and_what_would_help(plane: ControlPlane, team: str) -> None:
    done = _ask(plane, "explain", f"{team}/waits")
    assert done.returncode == 0, done.stderr
    assert f"elastic.max.{GPU}" in done.stdout
    assert "raise" in done.stdout.lower()


def test_get_lists_the_queue_and_the_quotas(plane: ControlPlane, team: str) -> None:
    queue = _ask(plane, "get", "queue").stdout.splitlines()
    assert [line.split()[1:3] for line in queue[1:]] == [[team, "waits"]]
    assert team in _ask(plane, "get", "quotas").stdout
    assert team in _ask(plane, "top").stdout


def test_what_if_tries_a_pod_without_creating_it(plane: ControlPlane, team: str, tmp_path: Path) -> None:
    small = tmp_path / "small.json"
    pod = _pod("small", 1)
    pod["metadata"]["namespace"] = team
    small.write_text(json.dumps(pod))
    done = _ask(plane, "what-if", "-f", str(small))
    assert done.returncode == 0, done.stderr
    assert re.search(rf"{team}/small +now +node-\S+ +- ", done.stdout), done.stdout
    assert "small" not in plane.kubectl("get", "pods", "-n", team)


def test_a_pod_that_waits_for_somebody_else_takes_no_room(plane: ControlPlane, team: str, tmp_path: Path) -> None:
    """Bursar does not decide over it: so neither the controller nor the copy gives it a place."""
    free = plane.create_namespace()
    gates = {"schedulingGates": [{"name": "example.com/wait"}]}
    other = _pod("elsewhere", 5)
    plane.api().create(f"/api/v1/namespaces/{free}/pods", {**other, "spec": {**other["spec"], **gates}})
    small = tmp_path / "small.json"
    pod = _pod("small", 1)
    pod["metadata"]["namespace"] = team
    small.write_text(json.dumps(pod))
    assert "elsewhere" not in _ask(plane, "get", "pods").stdout
    assert _ask(plane, "what-if", "-f", str(small), "--fail-unless-now").returncode == 0
    plane.delete_namespace(free)


def test_plan_says_who_would_start(plane: ControlPlane, team: str, tmp_path: Path) -> None:
    larger = tmp_path / "quota.json"
    larger.write_text(json.dumps(_quota(team, 6)))
    done = _ask(plane, "plan", "-f", str(larger))
    assert f"{team}/waits" in done.stdout, done.stderr


def test_changes_are_kubectls_business(plane: ControlPlane, team: str, tmp_path: Path) -> None:
    file = tmp_path / "quota.json"
    file.write_text(json.dumps(_quota(team, 6)))
    done = _ask(plane, "apply", "-f", str(file))
    assert done.returncode != 0
    assert "kubectl" in done.stderr


@pytest.mark.usefixtures("team")
def test_who_may_not_read_is_told_what_to_ask_for(plane: ControlPlane) -> None:
    done = _ask(plane, "get", "queue", user=BOB)
    assert done.returncode != 0
    assert "pods and nodes of all namespaces must be readable" in done.stderr
