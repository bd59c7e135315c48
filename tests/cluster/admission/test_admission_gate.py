"""The gate on a real API server: who gets it, and what else becomes of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bursar.kube.admission.policies import policies
from bursar.kube.admission.predicate import GATE, AdmissionOptions
from tests.cluster.admission.late_webhook import LABEL, latecomer
from tests.cluster.admission.users import NODE, Acting, apply
from tests.cluster.controlplane import ApiError, ControlPlane
from tests.cluster.controlplane.api import Object
from tests.cluster.controlplane.identities import ADMIN
from tests.cluster.controlplane.objects import pod
from tests.cluster.waiting import eventually

MARKS = [
    ({"quota.bursar.dev/lab": "theory"}, {}),
    ({"quota.scheduling.koordinator.sh/name": "team-a"}, {}),
    ({"tensor-fusion.ai/component": "worker"}, {}),
    ({}, {"tensor-fusion.ai/tflops-request": "10"}),
    ({}, {"tensor-fusion.ai/gpu-count": "2"}),
]
THEIRS, OURS = "koord-scheduler", "default-scheduler"


def test_a_pod_of_an_enforced_namespace_gets_the_gate(enforced: Acting) -> None:
    assert enforced.gates(enforced.create_pod("one")) == [GATE]


def test_gates_that_are_there_stay(enforced: Acting) -> None:
    assert set(enforced.gates(enforced.create_pod("one", gates=("example.com/other",)))) == {"example.com/other", GATE}


def test_lists_with_duplicates_are_no_obstacle(enforced: Acting) -> None:
    """The API server takes variables and ports of the same name, and merges them by name elsewhere."""
    container = {
        "name": "main",
        "image": "none",
        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        "ports": [{"containerPort": 80}, {"containerPort": 80, "name": "b"}],
    }
    made = enforced.create_pod("one", containers=[container], imagePullSecrets=[{"name": "a"}, {"name": "a"}])
    assert enforced.gates(made) == [GATE]
    assert [one["value"] for one in made["spec"]["containers"][0]["env"]] == ["1", "2"]
    assert len(made["spec"]["containers"][0]["ports"]) == 2


def test_a_pod_that_brings_the_gate_has_it_once(enforced: Acting) -> None:
    assert enforced.gates(enforced.create_pod("one", gates=(GATE,))) == [GATE]


def test_a_gated_pod_keeps_its_managed_fields(enforced: Acting, ordinary: Acting) -> None:
    assert len(enforced.create_pod("one")["metadata"]["managedFields"]) == 1
    assert enforced.merge(ADMIN, "one", {"metadata": {"annotations": {"a": "b"}}})["metadata"]["managedFields"]
    assert len(ordinary.create_pod("one")["metadata"]["managedFields"]) == 1


def test_what_was_applied_keeps_its_managers(enforced: Acting) -> None:
    applied = _apply_pod(enforced, "one", {"team": "a"})
    assert enforced.gates(applied) == [GATE]
    assert [one["operation"] for one in applied["metadata"]["managedFields"]] == ["Apply"]
    assert "team" not in _apply_pod(enforced, "one", {"tier": "b"})["metadata"]["labels"]


def test_a_gated_pod_can_be_applied_later(enforced: Acting) -> None:
    enforced.create_pod("one", labels={"team": "a"})
    assert _apply_pod(enforced, "one", {"tier": "b"})["metadata"]["labels"] == {"team": "a", "tier": "b"}
    assert _apply_pod(enforced, "one", {"tier": "c"})["metadata"]["labels"] == {"team": "a", "tier": "c"}
    assert _apply_pod(enforced, "one", {})["metadata"]["labels"] == {"team": "a"}


def _apply_pod(acting: Acting, name: str, labels: dict[str, str]) -> Object:
    """As `kubectl apply --server-side` does."""
    body = pod(name, {"cpu": "1"}, labels=labels)
    path = f"{acting.pods}/{name}?fieldManager=somebody"
    return acting.plane.api().request("PATCH", path, body, "application/apply-patch+yaml")


@pytest.mark.parametrize(("labels", "annotations"), MARKS)
def test_a_pod_that_names_a_quota_is_gated_anywhere(
    ordinary: Acting, labels: dict[str, str], annotations: dict[str, str]
) -> None:
    assert ordinary.gates(ordinary.create_pod("one", labels=labels, annotations=annotations)) == [GATE]


def test_an_ungoverned_pod_is_left_alone(ordinary: Acting) -> None:
    made = ordinary.create_pod("one", schedulerName="volcano", annotations={"example.com/a": "b"})
    assert ordinary.gates(made) == []
    assert made["spec"]["schedulerName"] == "volcano"


def test_a_client_component_of_tensor_fusion_is_no_worker(ordinary: Acting) -> None:
    marks = {"tensor-fusion.ai/component": "client"}
    made = ordinary.create_pod("one", labels=marks, annotations={"tensor-fusion.ai/gpupool": "a"})
    assert ordinary.gates(made) == []


@pytest.mark.parametrize("name", ["n8s-scheduler", "koord-scheduler", "volcano", "tensor-fusion-scheduler"])
def test_the_originals_scheduler_becomes_the_clusters(enforced: Acting, name: str) -> None:
    assert enforced.create_pod("one", schedulerName=name)["spec"]["schedulerName"] == "default-scheduler"


@pytest.fixture
def late(guarded: ControlPlane, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Labels of pods on which a webhook writes the scheduler of an original."""
    labels = {LABEL: "here"}
    namespace = guarded.create_namespace()
    with latecomer(guarded, tmp_path, [{"op": "replace", "path": "/spec/schedulerName", "value": THEIRS}]):
        eventually(lambda: _scheduler(Acting(guarded, namespace), labels=labels) == THEIRS, "the webhook is called")
        yield labels
    eventually(lambda: _scheduler(Acting(guarded, namespace), labels=labels) == OURS, "no webhook is called")
    guarded.delete_namespace(namespace)


def test_a_scheduler_that_is_written_after_the_gate_is_refused(enforced: Acting, late: dict[str, str]) -> None:
    """Where all pods are governed the gate is put on once."""
    advice = (
        f"schedulerName {THEIRS} was written after the gate: remove what writes it, or see admission.reinvocationPolicy"
    )
    assert advice in _scheduler(enforced, labels=late)
    assert _scheduler(enforced) == OURS


def test_who_takes_the_gate_away_is_refused(enforced: Acting, tmp_path: Path) -> None:
    with latecomer(enforced.plane, tmp_path, [{"op": "remove", "path": "/spec/schedulingGates"}]):
        late = "or a webhook took it away (see admission.reinvocationPolicy)"
        eventually(lambda: late in _scheduler(enforced, labels={LABEL: "here"}), "the webhook is called")
        with in_force(enforced.plane, AdmissionOptions(reinvocation="IfNeeded")):
            eventually(lambda: _scheduler(enforced, labels={LABEL: "here"}) == OURS, "the gate looks again")


def test_who_is_marked_too_late_is_refused_where_not_all_are_governed(
    ordinary: Acting, enforced: Acting, tmp_path: Path
) -> None:
    """No policy is asked for the first time when all are asked again."""
    mark = {"op": "add", "path": "/metadata/labels/quota.bursar.dev~1lab", "value": "x"}
    with latecomer(ordinary.plane, tmp_path, [mark]):
        late = "or a webhook marked the pod too late (label the namespace bursar.dev/quota=enforced)"
        eventually(lambda: late in _scheduler(ordinary, labels={LABEL: "here"}), "the webhook is called")
        assert enforced.gates(enforced.create_pod("one", labels={LABEL: "here"})) == [GATE]


def test_where_pods_are_governed_by_their_marks_the_gate_looks_again(ordinary: Acting, late: dict[str, str]) -> None:
    made = ordinary.create_pod("one", labels={**late, "quota.bursar.dev/lab": "x"})
    assert ordinary.gates(made) == [GATE]
    assert made["spec"]["schedulerName"] == OURS
    assert _scheduler(ordinary, labels=late) == THEIRS


def test_the_gate_can_be_told_to_look_again(enforced: Acting, late: dict[str, str]) -> None:
    with in_force(enforced.plane, AdmissionOptions(reinvocation="IfNeeded")):
        eventually(lambda: _scheduler(enforced, labels=late) == OURS, "the gate looks again")
        made = enforced.create_pod("one", labels=late, gates=("example.com/other",))
        assert set(enforced.gates(made)) == {"example.com/other", GATE}
    eventually(lambda: "was written after the gate" in _scheduler(enforced, labels=late), "the gate is put on once")


def test_a_scheduler_of_the_clusters_own_may_be_an_originals(enforced: Acting) -> None:
    """In a cluster whose scheduler is Volcano's, nobody is refused for naming it."""
    with in_force(enforced.plane, AdmissionOptions(cluster_scheduler="volcano")):
        eventually(lambda: _scheduler(enforced, schedulerName=THEIRS) == "volcano", "pods get Volcano's scheduler")
        eventually(lambda: _scheduler(enforced, schedulerName="volcano") == "volcano", "nor are others refused")
    eventually(lambda: _scheduler(enforced, schedulerName="volcano") == OURS, "pods get the default scheduler")


@contextmanager
def in_force(plane: ControlPlane, options: AdmissionOptions) -> Iterator[None]:
    """Other policies, until the end."""
    for one in policies(options):
        apply(plane, one)
    try:
        yield
    finally:
        for one in policies(AdmissionOptions()):
            apply(plane, one)


def test_any_other_scheduler_stays(enforced: Acting) -> None:
    assert enforced.create_pod("one", schedulerName="mine")["spec"]["schedulerName"] == "mine"


@pytest.mark.parametrize("namespace", ["kube-system", "bursar-system"])
def test_kube_system_and_bursar_itself_are_never_governed(guarded: ControlPlane, namespace: str) -> None:
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts?fieldSelector=metadata.name=default"
    eventually(lambda: guarded.api().get(account)["items"], f"the default service account of {namespace}")
    acting = Acting(guarded, namespace)
    made = acting.create_pod("one", user=ADMIN, labels={"quota.bursar.dev/lab": "x"}, dry_run=True)
    assert acting.gates(made) == []


def test_pods_of_a_daemon_set_are_left_alone(enforced: Acting) -> None:
    metadata = {"labels": {"app": "agent", "quota.bursar.dev/lab": "x"}}
    containers = [{"name": "main", "image": "none"}]
    body = {
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": metadata, "spec": {"containers": containers}},
        },
    }
    nodes = enforced.plane.add_nodes(1)
    path = f"/apis/apps/v1/namespaces/{enforced.namespace}/daemonsets"
    enforced.plane.api().create(path, body)
    made = eventually(lambda: enforced.plane.api().get(enforced.pods)["items"], "the pod of the DaemonSet")
    assert enforced.gates(made[0]) == []
    enforced.plane.api().delete(f"{path}/agent")
    enforced.plane.remove_nodes(nodes)


def test_pods_of_a_deployment_are_gated(enforced: Acting) -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    body = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    enforced.plane.api().create(f"/apis/apps/v1/namespaces/{enforced.namespace}/deployments", body)
    made = eventually(lambda: enforced.plane.api().get(enforced.pods)["items"], "the pod of the Deployment")
    assert enforced.gates(made[0]) == [GATE]


def test_a_mirror_pod_is_left_alone(enforced: Acting) -> None:
    node = enforced.plane.add_nodes(1, prefix="one")[0]
    marks = {"kubernetes.io/config.mirror": "abc"}
    made = enforced.create_pod("one", user=NODE, annotations=marks, nodeName=node, dry_run=True)
    assert enforced.gates(made) == []
    enforced.plane.remove_nodes([node])


def test_a_dry_run_leaves_nothing(enforced: Acting) -> None:
    assert enforced.gates(enforced.create_pod("one", dry_run=True)) == [GATE]
    assert enforced.plane.api().get(enforced.pods)["items"] == []


def test_without_the_gate_policy_governed_pods_are_refused_and_others_are_not(
    enforced: Acting, ordinary: Acting
) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/bursar-gate-enforced"
    binding = enforced.plane.api().get(path)
    enforced.plane.api().delete(path)
    try:
        eventually(lambda: "needs the scheduling gate" in _refusal(enforced), "governed pods are refused")
        assert ordinary.gates(ordinary.create_pod("one")) == []
    finally:
        apply(enforced.plane, {**binding, "metadata": {"name": binding["metadata"]["name"]}})
        eventually(lambda: not _refusal(enforced), "the gate is back")


def _scheduler(acting: Acting, **pod: Any) -> str:  # noqa: ANN401 as for create_pod
    """Whose pod it would be, or why it is refused."""
    try:
        return str(acting.create_pod("probe", dry_run=True, **pod)["spec"]["schedulerName"])
    except ApiError as error:
        return error.message


def _refusal(acting: Acting) -> str:
    try:
        acting.create_pod("probe", dry_run=True)
    except ApiError as error:
        return error.message
    return ""
