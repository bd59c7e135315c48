"""The pages about coming and leaving, done as they say: quotas checked, switched on, uninstalled, pods let go.

The commands are taken from the pages and run by a shell against a real control plane with the stock scheduler.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.charting import CHART, NAMESPACE, Helm
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import ApiError
from tests.cluster.installing import await_definitions, install_original
from tests.cluster.waiting import eventually

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "docs" / "kubernetes"
QUOTA = """
apiVersion: n8s.nebuly.ai/v1alpha1
kind: ElasticQuota
metadata: {{name: {name}, namespace: default}}
spec: {{min: {{cpu: {least}}}, max: {{cpu: 2}}}}
---
"""


def command_of(page: str, heading: str) -> str:
    """The first shell block below a heading."""
    text = (PAGES / page).read_text()
    part = text[text.index(f"\n## {heading}\n") :]
    found = re.search(r"```sh\n(.*?)```", part, re.DOTALL)
    assert found is not None
    return found[1]


class Shell:
    """Runs what a page says, with kubectl and helm as the reader has them."""

    def __init__(self, plane: ControlPlane, helm: Helm, folder: Path) -> None:
        for name, path in (("kubectl", plane.binaries["kubectl"].path), ("helm", helm.binary)):
            (folder / name).symlink_to(path)
        self._environment = {**helm.environment, "PATH": f"{folder}:{os.environ['PATH']}"}

    def __call__(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-c", script],  # noqa: S607 the reader's shell
            env=self._environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A cluster with an original's quotas, one of them wrong, and one node."""
    with ControlPlane.start() as plane:
        plane.create_namespace(NAMESPACE)
        plane.add_nodes(1)
        install_original(plane, "elasticquotas.n8s.nebuly.ai")
        plane.kubectl("create", "-f", "-", input=QUOTA.format(name="good", least=1) + QUOTA.format(name="bad", least=3))
        yield plane


def test_check_switch_uninstall_and_let_go(plane: ControlPlane, tmp_path: Path) -> None:
    helm = Helm(tmp_path, plane.kubeconfig)
    shell = Shell(plane, helm, tmp_path)
    helm("install", "bursar", str(CHART), "-n", NAMESPACE, "--take-ownership", "--set", "controller.shadow=true")
    await_definitions(plane)

    told = shell(command_of("install.md", "Check quotas that are there already"))
    assert re.search(r"goodw?\w* created \(server dry run\)", told)
    assert re.search(r'"bad\w*" is invalid: spec\.max: .*max must not be less than min', told)

    namespace = plane.create_namespace(labels={"bursar.dev/quota": "enforced"})
    helm("upgrade", "bursar", str(CHART), "-n", NAMESPACE, "--reuse-values", "--set", "controller.shadow=false")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": "example.org/theirs"}]}
    eventually(lambda: gated(plane, pods, "probe?dryRun=All"), "the gate to be in force")
    for name in ("waits", "waits-too"):
        assert gated(plane, pods, name)
    plane.api().create(pods, {"metadata": {"name": "twice"}, "spec": spec})

    eventually(lambda: not opens(plane, f"{pods}/waits?dryRun=All"), "the guards to be in force")
    refused = let_go(shell)
    assert refused.count("denied request") == 3
    assert "patched" not in refused
    shell(command_of("uninstall.md", "Remove it"))
    eventually(lambda: let_go(shell) == "", "the policies to be forgotten, and nobody left to let go")
    eventually(lambda: running(plane, pods) == ["waits", "waits-too"], "the pods to run")
    assert plane.api().get(f"{pods}/twice")["spec"]["schedulingGates"] == [{"name": "example.org/theirs"}]
    assert "good" in plane.kubectl("get", "eq.n8s.nebuly.ai")
    assert "unlabeled" in shell(command_of("uninstall.md", "Tidy up").replace("kubectl delete namespace", ": "))


def let_go(shell: Shell) -> str:
    return shell(command_of("uninstall.md", "Let waiting pods go"))


def gated(plane: ControlPlane, pods: str, name: str) -> bool:
    name, _, query = name.partition("?")
    body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    try:
        made = plane.api().create(f"{pods}?{query}", body)
    except ApiError:
        return False  # the guard is in force before the gate
    return bool(made["spec"].get("schedulingGates") == [{"name": "bursar.dev/quota"}])


def opens(plane: ControlPlane, pod: str) -> bool:
    """Whether anybody may open the gate."""
    patch = {"spec": {"schedulingGates": [{"$patch": "delete", "name": "bursar.dev/quota"}]}}
    try:
        plane.api().patch(pod, patch, "application/strategic-merge-patch+json")
    except ApiError:
        return False
    return True


def running(plane: ControlPlane, pods: str) -> list[str]:
    found = plane.api().get(pods)["items"]
    return sorted(pod["metadata"]["name"] for pod in found if pod["status"].get("phase") == "Running")
