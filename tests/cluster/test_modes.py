"""Shadow mode and dry run on a real control plane: what is told, and that nothing is kept, by the server's own log."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import yaml

from bursar.kube.rbac import controller_roles
from bursar.policies.plugin import default_registry
from tests.cluster import metrics_text
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.auditing import WRITES, events, flags
from tests.cluster.controlplane.identities import BURSAR
from tests.cluster.controlplane.objects import may, unique
from tests.cluster.controlplane.processes import Component
from tests.cluster.installation import CRDS, LEASE, NAMESPACE, await_definitions, install, replicas
from tests.cluster.waiting import eventually

GPU = "nvidia.com/gpu"
Body = dict[str, Any]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def plane(log: Path) -> Iterator[ControlPlane]:
    """With definitions and roles, and nothing that gates: as the chart installs it for shadow mode."""
    with ControlPlane.start(apiserver_flags=flags(log.with_suffix(".json"), log, BURSAR)) as plane:
        plane.create_namespace(NAMESPACE)
        plane.kubectl("apply", "--server-side", "-f", str(CRDS))
        roles = yaml.safe_dump_all(controller_roles(default_registry(), NAMESPACE, shadow=True))
        plane.kubectl("apply", "--server-side", "-f", "-", input=roles)
        await_definitions(plane)
        eventually(lambda: may(plane.api(), BURSAR, "watch", "pods"), "the roles are known")
        yield plane


@contextmanager
def controller(plane: ControlPlane, *mode: str) -> Iterator[Component]:
    """A replica that only watches, or only tries."""
    command = [sys.executable, "-m", "bursar", "controller", "--kubeconfig", str(plane.kubeconfig_of(BURSAR))]
    process = plane.spawn(unique("controller"), [*command, "--host", "127.0.0.1", "--health-port", "0", *mode])
    try:
        yield process
    except BaseException:
        print(process.tail(60))  # noqa: T201 for whoever reads the failure
        raise
    finally:
        process.stop()


def metrics(process: Component) -> str:
    return metrics_text.get(metrics_text.announced_port(process.log), "/metrics")


def findings(process: Component) -> dict[str, float]:
    lines = re.findall(r'bursar_shadow_findings_total\{verdict="([\w-]+)"\} ([\d.]+)', metrics(process))
    return {verdict: float(count) for verdict, count in lines}


def writes(log: Path) -> list[Body]:
    """What Bursar asked the API server to change, so far."""
    return [event for event in events(log) if event["verb"] in WRITES]


def team(plane: ControlPlane, least: int, most: int) -> str:
    namespace = plane.create_namespace()
    body = {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "quota", "namespace": namespace},
        "spec": {"min": {GPU: least}, "max": {GPU: most}},
    }
    plane.kubectl("apply", "-f", "-", input=json.dumps(body))
    return namespace


def pod(plane: ControlPlane, namespace: str, name: str, gpus: int = 1, cpu: int = 0) -> str:
    """With GPUs, or without and with processors."""
    room = {"cpu": str(cpu)} if cpu else {GPU: str(gpus)}
    resources = {"requests": room, "limits": room}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}], "terminationGracePeriodSeconds": 0}
    path = f"/api/v1/namespaces/{namespace}/pods"
    plane.api().create(path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    return f"{path}/{name}"


def wait_running(plane: ControlPlane, paths: list[str]) -> None:
    for path in paths:
        eventually(lambda path=path: plane.api().get(path)["status"].get("phase") == "Running", f"{path} runs")  # type: ignore[misc]


@pytest.fixture
def node(plane: ControlPlane) -> Iterator[str]:
    names = plane.add_nodes(1, {GPU: "4"})
    yield names[0]
    plane.remove_nodes(names)


@pytest.mark.usefixtures("node")
def test_shadow_mode_reports_each_verdict_and_asks_for_no_change(plane: ControlPlane, log: Path) -> None:
    lender, owner = team(plane, 2, 3), team(plane, 2, 4)
    before = len(writes(log))
    with controller(plane, "--shadow") as process:
        eventually(lambda: "bursar_claims" in metrics(process), "the cluster is read")
        paths = [pod(plane, lender, f"p{number}") for number in range(3)]
        wait_running(plane, paths)
        eventually(lambda: findings(process).get("agreed") == 3, "both let three pods start")
        wait_running(plane, [pod(plane, lender, "more")])
        eventually(lambda: findings(process).get("would-wait") == 1, "the fourth is over its max")
        pod(plane, owner, "owner")
        eventually(lambda: findings(process).get("would-evict", 0) >= 1, "who borrows would give way")
        assert findings(process)["would-start"] >= 3
        assert 'code="403"' not in metrics(process), "its roles are enough to look on"
        told = process.log.read_text()
    assert f"shadow: {lender}/p0 agreed" in told
    assert re.search(rf"shadow: {lender}/more would-wait .*ElasticQuota {lender}/quota: needs 1 ", told)
    assert re.search(rf"shadow: {lender}/\w+ would-evict ", told)
    assert writes(log)[before:] == []
    assert "term ends" not in told
    for namespace in (lender, owner):
        plane.delete_namespace(namespace)


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("everywhere", [True, False])
def test_shadow_mode_judges_cpu_pods_when_it_governs_all_namespaces(plane: ControlPlane, everywhere: bool) -> None:
    """As the page says: without the option nothing is said about them."""
    plane.kubectl("apply", "-f", "-", input=CROSSQUOTA)
    free = plane.create_namespace()
    with controller(plane, "--shadow", *(["--crossquota"] if everywhere else [])) as process:
        eventually(lambda: "bursar_claims" in metrics(process), "the cluster is read")
        wait_running(plane, [pod(plane, free, "first", cpu=2)])
        wait_running(plane, [pod(plane, free, "second", cpu=2)])
        if everywhere:
            eventually(lambda: findings(process).get("would-wait") == 1, "two of two cpu are in use")
            assert findings(process)["agreed"] == 1
            assert re.search(rf"shadow: {free}/second would-wait .*cpu", process.log.read_text())
        else:
            sleep(2)
            assert findings(process) == {}
    plane.kubectl("delete", "-f", "-", input=CROSSQUOTA)
    plane.delete_namespace(free)


CROSSQUOTA = """
apiVersion: bursar.dev/v1alpha1
kind: Configuration
metadata: {name: default}
spec: {crossquota: {gpu-resource-names: nvidia.com/gpu, quota-resources: cpu, quota.cpu: "2"}}
"""


@pytest.mark.usefixtures("node")
def test_a_dry_run_tries_everything_and_changes_nothing(plane: ControlPlane, log: Path) -> None:
    install(plane)
    lender, owner = team(plane, 2, 4), team(plane, 2, 4)
    with replicas(plane):
        eventually(lambda: _enforced(plane, lender) and _enforced(plane, owner), "both namespaces are labelled")
        wait_running(plane, [pod(plane, lender, f"p{number}") for number in range(4)])
    spare = plane.add_nodes(1, {GPU: "1"})
    small = team(plane, 1, 1)
    plane.kubectl("label", "namespace", small, "bursar.dev/quota=enforced")
    pod(plane, owner, "owner", 2)
    pod(plane, small, "starts")
    before = eventually(lambda: _at_rest(plane), "nothing changes any more")
    asked = len(writes(log))
    with controller(plane, "--dry-run"):
        eventually(lambda: _tried(log, asked, f"/{small}/pods/starts?"), "the start is tried")
        eventually(lambda: _tried(log, asked, f"/{lender}/pods/p\\d/eviction"), "an eviction is tried")
        eventually(lambda: _tried(log, asked, "elasticquotas/quota/status"), "a status is tried")
    assert _everything(plane) == before
    made = writes(log)[asked:]
    kept = [one["requestURI"] for one in made if "dryRun=All" not in one["requestURI"]]
    assert [uri for uri in kept if not uri.partition("?")[0].endswith("/eviction")] == []  # theirs is in the body
    assert {one["objectRef"]["resource"] for one in made}.isdisjoint({"leases", "events", "secrets"})
    plane.remove_nodes(spare)
    for namespace in (lender, owner, small):
        plane.delete_namespace(namespace)


def _enforced(plane: ControlPlane, namespace: str) -> bool:
    labels = plane.api().get(f"/api/v1/namespaces/{namespace}")["metadata"]["labels"]
    return bool(labels.get("bursar.dev/quota") == "enforced")


def _tried(log: Path, after: int, pattern: str) -> bool:
    """Whether the API server accepted such a write."""
    return any(
        re.search(pattern, one["requestURI"]) and one["responseStatus"]["code"] < 300 for one in writes(log)[after:]
    )


def _at_rest(plane: ControlPlane) -> dict[str, Any]:
    """Everything, when it is the same a second later; else nothing."""
    found = _everything(plane)
    sleep(1)
    return found if _everything(plane) == found else {}


def _everything(plane: ControlPlane) -> dict[str, Any]:
    """All that Bursar might write to, with its version; of nodes, which tell of themselves, the marks.

    Namespaces of a test before may still be going away, with all that is in them: they are not looked at.
    """
    found: dict[str, Any] = {}
    spaces = plane.api().get("/api/v1/namespaces")["items"]
    going = {one["metadata"]["name"] for one in spaces if "deletionTimestamp" in one["metadata"]}
    for path in ("/api/v1/pods", "/api/v1/namespaces", "/apis/n8s.nebuly.ai/v1alpha1/elasticquotas"):
        for one in plane.api().get(path)["items"]:
            if not going & {one["metadata"]["name"], one["metadata"].get("namespace")}:
                found[f"{path} {one['metadata']['uid']}"] = one["metadata"]["resourceVersion"]
    for one in plane.api().get("/api/v1/nodes")["items"]:
        found[one["metadata"]["name"]] = one["metadata"].get("labels")
    events = plane.api().get("/apis/events.k8s.io/v1/events")["items"]
    found["events"] = [one["metadata"]["name"] for one in events if one.get("reportingController", "").startswith("bu")]
    found["lease"] = plane.api().get(LEASE)["metadata"]["resourceVersion"]
    return found
