"""The pages about coming and leaving, done as they say: quotas checked, switched on, upgraded, removed, pods let go.

The commands are taken from the pages and run by a shell against a real control plane with the stock scheduler.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bursar._version import __version__
from tests.cluster.chart import CHART, NAMESPACE, Helm
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import ApiError
from tests.cluster.installation import await_definitions, install_original
from tests.cluster.waiting import eventually

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "docs" / "kubernetes"
THEIRS = "gpus.tensor-fusion.ai"
GPU = """
apiVersion: tensor-fusion.ai/v1
kind: GPU
metadata: {name: theirs}
"""
DEPLOYMENT = {
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "volcano"},
        },
    },
}
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
    """Runs what a page says, with kubectl and helm as the reader has them, in a folder with what the repository has."""

    def __init__(self, plane: ControlPlane, helm: Helm, folder: Path) -> None:
        for name, path in (("kubectl", plane.binaries["kubectl"].path), ("helm", helm.binary)):
            (folder / name).symlink_to(path)
        for name in ("charts", "deploy"):
            (folder / name).symlink_to(ROOT / name)
        self.folder = folder
        self._environment = {**helm.environment, "PATH": f"{folder}:{os.environ['PATH']}"}

    def __call__(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-c", script],  # noqa: S607 the reader's shell
            env=self._environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A cluster with an original's quotas, one of them wrong, and one node."""
    with ControlPlane.start() as plane:
        plane.create_namespace(NAMESPACE)
        plane.add_nodes(1, labels={"kubernetes.io/os": "linux"})
        install_original(plane, "elasticquotas.n8s.nebuly.ai")
        plane.kubectl("create", "-f", "-", input=QUOTA.format(name="good", least=1) + QUOTA.format(name="bad", least=3))
        yield plane


def test_check_switch_uninstall_and_let_go(plane: ControlPlane, tmp_path: Path) -> None:
    helm = Helm(tmp_path, plane.kubeconfig)
    shell = Shell(plane, helm, tmp_path)
    helm("install", "bursar", str(CHART), "-n", NAMESPACE, "--take-ownership", "--set", "controller.shadow=true")
    await_definitions(plane)

    told = eventually(lambda: checked(shell), "the new schema to be in force")
    assert re.search(r"goodw?\w* created \(server dry run\)", told)

    namespace = plane.create_namespace(labels={"bursar.dev/quota": "enforced"})
    before = f"/api/v1/namespaces/{namespace}/pods/runs"
    assert not gated(plane, before.rpartition("/")[0], "runs"), "nothing is gated by who only watches"
    eventually(lambda: plane.api().get(before)["status"].get("phase") == "Running", "the pod to run")
    uid = plane.api().get(before)["metadata"]["uid"]
    helm("upgrade", "bursar", str(CHART), "-n", NAMESPACE, "--reuse-values", "--set", "controller.shadow=false")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": "example.org/theirs"}]}
    eventually(lambda: gated(plane, pods, "probe?dryRun=All"), "the gate to be in force")
    for name in ("waits", "waits-too"):
        assert gated(plane, pods, name)
    plane.api().create(pods, {"metadata": {"name": "twice"}, "spec": spec})
    plane.api().create(f"/apis/apps/v1/namespaces/{namespace}/deployments", DEPLOYMENT)
    eventually(lambda: schedulers(plane, pods) == ["default-scheduler"], "the pod of the Deployment, at the gate")

    eventually(lambda: not opens(plane, f"{pods}/waits?dryRun=All"), "the guards to be in force")
    refused = let_go(shell)
    assert refused.count("denied request") == 4
    assert "patched" not in refused
    shell(command_of("uninstall.md", "Remove it"))
    eventually(lambda: hand_over(plane, shell, pods) == ["volcano"], "another pod of the Deployment, for the original")
    eventually(lambda: let_go(shell) == "", "the policies to be forgotten, and nobody left to let go")
    eventually(lambda: running(plane, pods) == ["runs", "waits", "waits-too"], "the pods to run")
    assert plane.api().get(before)["metadata"]["uid"] == uid, "it ran all along"
    assert plane.api().get(f"{pods}/twice")["spec"]["schedulingGates"] == [{"name": "example.org/theirs"}]
    assert "good" in plane.kubectl("get", "eq.n8s.nebuly.ai")
    assert "unlabeled" in shell(command_of("uninstall.md", "Tidy up").replace("kubectl delete namespace", ": "))


def test_upgrade_go_back_and_remove_all_but_what_is_an_originals(plane: ControlPlane, tmp_path: Path) -> None:
    helm = Helm(tmp_path, plane.kubeconfig)
    shell = Shell(plane, helm, tmp_path)
    plane.kubectl("delete", "crd", THEIRS, "--ignore-not-found")
    install_original(plane, THEIRS)
    plane.kubectl("create", "-f", "-", input=GPU)
    skip = f"crds.skip={{{THEIRS}}}"
    helm("install", "bursar", str(CHART), "-n", NAMESPACE, "--take-ownership", "--set", f"replicas=1,{skip}")

    shown = shell(command_of("upgrade.md", "See what would change"))
    images = set(re.findall(r"^([<>]) +image: (.*)$", shown, re.MULTILINE))
    assert images == {("<", f'"bursar:{__version__}"'), (">", '"bursar:NEW"')}, shown
    assert THEIRS not in shown, "values that were given before stay"
    assert "kind: MutatingWebhookConfiguration" not in shown, "the gate is that of the cluster's version"
    assert "successfully rolled out" in shell(command_of("upgrade.md", "Upgrade"))
    assert deployed(plane) == (1, "bursar:NEW")
    shell(command_of("upgrade.md", "Back"))
    assert deployed(plane) == (1, f"bursar:{__version__}")

    shell(command_of("uninstall.md", "Remove it"))
    told = shell(command_of("uninstall.md", "Remove CRDs and all quotas"))
    assert told.count(" deleted") == len(list((ROOT / "deploy" / "crds").glob("*.yaml"))) - 1, told
    assert plane.kubectl("get", "crd", "-o", "name").split() == [
        f"customresourcedefinition.apiextensions.k8s.io/{THEIRS}"
    ]
    assert "theirs" in plane.kubectl("get", THEIRS)
    kept = yaml.safe_load((tmp_path / "quotas-backup.yaml").read_text())["items"]
    assert {one["metadata"]["name"] for one in kept if one["kind"] == "ElasticQuota"} == {"good", "bad"}


def deployed(plane: ControlPlane) -> tuple[int, str]:
    spec = plane.api().get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/bursar")["spec"]
    return spec["replicas"], spec["template"]["spec"]["containers"][0]["image"]


def checked(shell: Shell) -> str:
    """What is said about quotas that are there already; nothing before the bad one is refused."""
    told = shell(command_of("install.md", "Check quotas that are there already"))
    return told if re.search(r'"bad\w*" is invalid: spec\.max: .*max must not be less than min', told) else ""


def let_go(shell: Shell) -> str:
    return shell(command_of("uninstall.md", "Ungate pending pods"))


def hand_over(plane: ControlPlane, shell: Shell, pods: str) -> list[str]:
    """As the page says; the schedulers that pods of the Deployment name then. Only they are deleted."""
    function, _, _ = command_of("uninstall.md", "Ungate pending pods").partition("waiting |")
    told = shell(function + command_of("uninstall.md", "Hand pending pods to an upstream project"))
    assert {line.rpartition("/")[2] for line in told.splitlines() if "create it again" in line} == {
        "twice",
        "waits",
        "waits-too",
    }
    return schedulers(plane, pods)


def schedulers(plane: ControlPlane, pods: str) -> list[str]:
    found = plane.api().get(f"{pods}?labelSelector=app%3Dweb")["items"]
    return [pod["spec"]["schedulerName"] for pod in found if "deletionTimestamp" not in pod["metadata"]]


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
