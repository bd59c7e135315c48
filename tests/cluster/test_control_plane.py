import json
import time

import pytest

from tests.cluster.controlplane import ApiError, ControlPlane
from tests.cluster.controlplane.api import Object
from tests.cluster.controlplane.identities import ALICE, BURSAR
from tests.cluster.controlplane.objects import pod, unique
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.usefixtures("nodes")


def create(plane: ControlPlane, namespace: str, body: Object) -> str:
    plane.api().create(f"/api/v1/namespaces/{namespace}/pods", body)
    return f"/api/v1/namespaces/{namespace}/pods/{body['metadata']['name']}"


def phase(plane: ControlPlane, path: str) -> str:
    return str(plane.api().get(path)["status"].get("phase"))


def wait_for_phase(plane: ControlPlane, path: str, wanted: str) -> None:
    eventually(lambda: phase(plane, path) == wanted, f"{path} is {wanted}")


def is_gone(plane: ControlPlane, path: str) -> bool:
    try:
        plane.api().get(path)
    except ApiError as error:
        return error.status == 404
    return False


def test_is_the_pinned_kubernetes(plane: ControlPlane) -> None:
    assert plane.api().get("/version")["gitVersion"] == plane.binaries["kube-apiserver"].version


def test_schedules_and_runs_a_pod(plane: ControlPlane, namespace: str, nodes: list[str]) -> None:
    path = create(plane, namespace, pod("one", {"cpu": "1"}))
    wait_for_phase(plane, path, "Running")
    assert plane.api().get(path)["spec"]["nodeName"] in nodes


def test_a_gated_pod_waits_until_its_gate_is_removed(plane: ControlPlane, namespace: str) -> None:
    path = create(plane, namespace, pod("gated", gates=["bursar.dev/quota"]))
    gated = '[?(@.reason=="SchedulingGated")]'
    eventually(
        lambda: plane.kubectl("get", "pod", "gated", f"-n{namespace}", f"-ojsonpath={{.status.conditions{gated}}}"),
        "the pod says that it is gated",
    )
    plane.api().patch(path, {"spec": {"schedulingGates": None}})
    wait_for_phase(plane, path, "Running")


@pytest.mark.parametrize("grace", [0, 30])
def test_a_deleted_pod_goes_whatever_its_grace_period(plane: ControlPlane, namespace: str, grace: int) -> None:
    path = create(plane, namespace, pod("one"))
    wait_for_phase(plane, path, "Running")
    plane.api().delete(path, {"gracePeriodSeconds": grace})
    eventually(lambda: is_gone(plane, path), "the pod is gone")


def test_a_pod_leaves_as_late_as_its_annotation_says(plane: ControlPlane, namespace: str) -> None:
    path = create(plane, namespace, pod("slow", annotations={"sim.bursar.dev/leaves-after": "2s"}))
    wait_for_phase(plane, path, "Running")
    started = time.monotonic()
    plane.api().delete(path)
    eventually(lambda: is_gone(plane, path), "the pod is gone")
    assert time.monotonic() - started >= 1.5


@pytest.mark.parametrize(("annotation", "end"), [("runs-for", "Succeeded"), ("fails-after", "Failed")])
def test_a_pod_ends_when_its_annotation_says(plane: ControlPlane, namespace: str, annotation: str, end: str) -> None:
    path = create(plane, namespace, pod("short", annotations={f"sim.bursar.dev/{annotation}": "1s"}))
    wait_for_phase(plane, path, end)


def test_a_node_applied_by_kubectl_becomes_ready_and_loses_its_taint(plane: ControlPlane) -> None:
    name = unique("applied")
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    plane.kubectl("apply", "-f", "-", input=json.dumps(manifest))
    plane.kubectl("wait", f"node/{name}", "--for=condition=Ready", "--timeout=60s")
    eventually(lambda: not plane.api().get(f"/api/v1/nodes/{name}")["spec"].get("taints"), "the taint is gone")
    plane.remove_nodes([name])


def test_many_nodes_are_added_at_once(plane: ControlPlane) -> None:
    names = plane.add_nodes(50, {"nvidia.com/gpu": "8"}, {"pool": "a"})
    assert plane.api().get(f"/api/v1/nodes/{names[49]}")["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    plane.remove_nodes(names)


def test_an_editor_may_create_pods_but_no_nodes(plane: ControlPlane) -> None:
    assert plane.kubectl("auth", "can-i", "create", "pods", user=ALICE).strip() == "yes"
    assert plane.kubectl("auth", "can-i", "create", "nodes", user=ALICE, check=False).startswith("no")


def test_the_controllers_account_has_no_rights_of_its_own(plane: ControlPlane) -> None:
    with pytest.raises(ApiError, match=r"system:serviceaccount:bursar-system:bursar.* cannot list resource") as refused:
        plane.api(BURSAR).get("/api/v1/pods")
    assert refused.value.status == 403


def test_anyone_else_is_played_by_the_administrator(plane: ControlPlane) -> None:
    said = plane.kubectl("auth", "whoami", "--as=dave", "--as-group=team-a", "-ojson")
    assert json.loads(said)["status"]["userInfo"]["username"] == "dave"


def test_tokens_of_service_accounts_are_signed(plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    token = plane.api().create(path, {"spec": {"expirationSeconds": 600}})["status"]["token"]
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = plane.api().create("/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
    assert status["user"]["username"] == f"system:serviceaccount:{namespace}:default"


def test_mutating_admission_policies_are_served(plane: ControlPlane) -> None:
    served = plane.api().get("/apis/admissionregistration.k8s.io/v1")["resources"]
    assert "mutatingadmissionpolicies" in {resource["name"] for resource in served}


def test_the_api_server_restarts_with_all_it_had(plane: ControlPlane, namespace: str) -> None:
    before = create(plane, namespace, pod("before"))
    plane.component("kube-scheduler").kill()  # as it ends when the server goes while it starts
    plane.restart_component("kube-apiserver")
    wait_for_phase(plane, before, "Running")
    after = create(plane, namespace, pod("after"))
    wait_for_phase(plane, after, "Running")


def test_pods_wait_while_the_scheduler_is_stopped(plane: ControlPlane, namespace: str) -> None:
    plane.stop_component("kube-scheduler")
    path = create(plane, namespace, pod("one"))
    time.sleep(1)
    assert phase(plane, path) == "Pending"
    plane.start_component("kube-scheduler")
    wait_for_phase(plane, path, "Running")
