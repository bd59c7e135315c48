"""What docs/kubernetes/bad-days.md promises, on a real control plane."""

import json
import threading
import time

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import ApiError
from tests.cluster.installing import replicas
from tests.cluster.robustness.scene import GPU, Scene
from tests.cluster.waiting import eventually

MAX = f"elastic.max.{GPU}"


def test_without_bursar_governed_pods_wait_and_all_others_go_on(plane: ControlPlane, scene: Scene) -> None:
    scene.nodes(1)
    scene.quota(4)
    free = plane.create_namespace()
    scene.pod("waits")
    scene.pod("goes", namespace=free)
    path = f"/api/v1/namespaces/{free}/pods/goes"
    eventually(lambda: plane.api().get(path)["status"].get("phase") == "Running", "a pod nobody governs runs")
    assert scene.gated("waits")
    with replicas(plane):
        scene.wait_running("waits")
    plane.delete_namespace(free)


def test_running_pods_go_on_when_bursar_stops_and_count_when_it_is_back(plane: ControlPlane, scene: Scene) -> None:
    scene.nodes(1)
    scene.quota(4)
    with replicas(plane):
        scene.wait_running(scene.pod("first", 3))
    assert scene.runs("first")
    scene.pod("second", 2)
    with replicas(plane):
        assert "3 of 4" in scene.wait_told("second", MAX)
        scene.delete("first")
        scene.wait_running("second")


def test_the_api_server_is_restarted(plane: ControlPlane, scene: Scene) -> None:
    scene.nodes(1)
    scene.quota(4)
    with replicas(plane) as running:
        scene.wait_running(scene.pod("before", 3))
        plane.restart_component("kube-apiserver")
        scene.pod("within", 1)
        scene.wait_running("within", seconds=150)
        scene.pod("beyond", 1)
        scene.wait_told("beyond", MAX, seconds=150)
        assert len(running.running) == 1


def test_a_decision_that_was_never_written_is_made_again(plane: ControlPlane, scene: Scene) -> None:
    """The leader decides, cannot write, and is killed: the next one decides anew, and nothing counts twice."""
    scene.nodes(1)
    scene.quota(4)
    with replicas(plane) as running:
        leader = running.leader()
        term = running.lease()[1]
        with _nobody_writes_pods(plane):
            scene.pod("first", 3)
            eventually(lambda: "not today" in leader.process.log.read_text(), "the leader tried to write")
            leader.process.kill()
            running.remove(leader)
        running.start()
        running.leader(term)
        scene.wait_running("first")
        scene.pod("second", 2)
        assert "3 of 4" in scene.wait_told("second", MAX)


class _nobody_writes_pods:  # noqa: N801 reads as a sentence
    """While this holds, the API server refuses all changes of pods by Bursar."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def __enter__(self) -> None:
        constraints = {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
            ]
        }
        rule = {"expression": "!request.userInfo.username.endsWith(':bursar')", "message": "not today"}
        policy = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "not-today"},
            "spec": {"matchConstraints": constraints, "validations": [rule], "failurePolicy": "Fail"},
        }
        binding = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "not-today"},
            "spec": {"policyName": "not-today", "validationActions": ["Deny"]},
        }
        for body in (policy, binding):
            self._plane.kubectl("apply", "-f", "-", input=json.dumps(body))
        time.sleep(2)  # until it is in force

    def __exit__(self, *_: object) -> None:
        self._plane.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "not-today")


def test_a_pod_that_is_deleted_while_others_leave_for_it_holds_nothing(plane: ControlPlane, scene: Scene) -> None:
    scene.nodes(1, gpus=4)
    scene.quota(4)
    with replicas(plane):
        scene.wait_running(scene.pod("victim", 4, annotations={"sim.bursar.dev/leaves-after": "6s"}))
        _priority_class(plane)
        scene.pod("claimant", 4, priorityClassName="bad-day-urgent")
        eventually(lambda: scene.leaves("victim"), "the victim is told to leave")
        scene.delete("claimant")
        eventually(lambda: scene.get("victim") is None, "the victim left")
        scene.wait_running(scene.pod("third", 4))


def test_a_pin_that_cannot_be_honoured_is_given_up(plane: ControlPlane, scene: Scene) -> None:
    node, other = scene.nodes(2)
    scene.quota(8)
    with replicas(plane, 1, "--pin-all", "--pin-patience", "2"):
        plane.stop_component("kube-scheduler")
        try:
            scene.pod("pinned", 2)
            eventually(lambda: not scene.gated("pinned"), "the pod is let go")
            chosen = json.loads(_pod_annotation(scene, "pinned", "bursar.dev/admission"))["place"]
            assert chosen in {node, other}
            plane.kubectl("cordon", chosen)
        finally:
            plane.start_component("kube-scheduler")
        scene.wait_told("pinned", "control.place-lost")
        eventually(lambda: scene.get("pinned") is None, "it is evicted, for its owner to create it anew")
        scene.wait_running(scene.pod("again", 8))


def _pod_annotation(scene: Scene, name: str, mark: str) -> str:
    pod = scene.get(name)
    assert pod is not None
    return str(pod["metadata"]["annotations"][mark])


def test_pods_on_a_node_that_is_gone_count_until_they_are_gone(plane: ControlPlane, scene: Scene) -> None:
    first, _second = scene.nodes(2, gpus=4)
    scene.quota(4)
    with replicas(plane):
        scene.wait_running(scene.pod("stays", 3, nodeSelector={"kubernetes.io/hostname": first}))
        scene.lose_node(first)
        scene.pod("next", 2)
        scene.wait_told("next", MAX)
        plane.api().delete(f"{scene.pods}/stays", {"gracePeriodSeconds": 0})
        scene.wait_running("next")


def test_a_quota_that_is_deleted_and_made_anew_sees_the_true_usage(plane: ControlPlane, scene: Scene) -> None:
    scene.nodes(1)
    scene.quota(4)
    with replicas(plane):
        scene.wait_running(scene.pod("first", 3))
        scene.delete_quota()
        scene.quota(4)
        scene.pod("second", 2)
        assert "3 of 4" in scene.wait_told("second", MAX)


def test_conflict_storms_change_nothing(plane: ControlPlane, scene: Scene) -> None:
    """Somebody writes on the same pods all the time; each is admitted, once."""
    scene.nodes(2)
    scene.quota(8)
    over = threading.Event()

    def storm() -> None:
        number = 0
        while not over.is_set():
            number += 1
            for name in names:
                try:
                    plane.api().patch(f"{scene.pods}/{name}", {"metadata": {"labels": {"storm": str(number)}}})
                except ApiError as error:
                    assert error.status in {404, 409}  # noqa: PT017 anything else is a fault

    names = [f"p{number}" for number in range(8)]
    with replicas(plane):
        for name in names:
            scene.pod(name)
        thread = threading.Thread(target=storm)
        thread.start()
        try:
            scene.wait_running(*names)
        finally:
            over.set()
            thread.join()
    terms = {json.loads(_pod_annotation(scene, name, "bursar.dev/admission"))["term"] for name in names}
    assert len(terms) == 1


def test_a_victim_that_the_api_never_evicts_is_left_alone(plane: ControlPlane, scene: Scene) -> None:
    """Two budgets over one pod: the API answers 500. Somebody else has to go, if there is somebody."""
    scene.nodes(1, gpus=4)
    scene.quota(4)
    for name in ("one", "two"):
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": scene.namespace},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
        }
        plane.kubectl("apply", "-f", "-", input=json.dumps(budget))
    with replicas(plane):
        scene.wait_running(scene.pod("plain", 2))
        time.sleep(1.1)  # the guarded one is the newer, and would be the victim
        scene.wait_running(scene.pod("guarded", 2, labels={"app": "guarded"}))
        _priority_class(plane)
        scene.pod("claimant", 2, priorityClassName="bad-day-urgent")
        scene.wait_running("claimant", seconds=60)
        assert scene.runs("guarded")
        assert scene.get("plain") is None


def _priority_class(plane: ControlPlane) -> None:
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "bad-day-urgent"},
        "value": 1000,
    }
    plane.kubectl("apply", "-f", "-", input=json.dumps(body))
