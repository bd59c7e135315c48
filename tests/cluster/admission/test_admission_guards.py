"""Forgeries, each refused by a real API server with a message that says what to do; and what is allowed."""

import re
from typing import Any

import pytest

from bursar.kube.admission.predicate import GATE, MOST
from tests.cluster.admission.users import Acting
from tests.cluster.controlplane import ApiError
from tests.cluster.controlplane.api import Object
from tests.cluster.controlplane.identities import ADMIN, ALICE, BURSAR, SCHEDULER
from tests.cluster.controlplane.objects import pod

TREE = "quota.bursar.dev/lab"


def refused(message: str) -> "pytest.RaisesExc[ApiError]":
    return pytest.raises(ApiError, match=message)


def admitted(acting: Acting, name: str, **options: dict[str, str]) -> None:
    """A pod that Bursar has let in."""
    acting.create_pod(name, **options)  # type: ignore[arg-type]
    acting.merge(BURSAR, name, {"metadata": {"annotations": {"bursar.dev/term": "1"}}})
    acting.open_gate(BURSAR, name, term="")


# The gate


@pytest.mark.parametrize("user", [ALICE, ADMIN, SCHEDULER])
def test_only_bursar_removes_the_gate(enforced: Acting, user: str) -> None:
    enforced.create_pod("one")
    with pytest.raises(ApiError) as error:
        enforced.open_gate(user, "one", term="")
    assert error.value.status == 403
    if user != SCHEDULER:
        assert "wait until quota admits the pod, or delete it" in error.value.message


def test_dropping_the_label_and_the_gate_in_one_update_is_no_way_out(ordinary: Acting) -> None:
    ordinary.create_pod("one", labels={TREE: "theory"})
    with refused("only Bursar removes the scheduling gate|label quota.bursar.dev/lab"):
        ordinary.open_gate(ALICE, "one", term="", labels={})


def test_bursar_removes_the_gate(enforced: Acting) -> None:
    enforced.create_pod("one")
    assert enforced.gates(enforced.open_gate(BURSAR, "one")) == []


def test_other_gates_are_their_owners_business(enforced: Acting) -> None:
    enforced.create_pod("one", gates=("example.com/other",))
    body = enforced.merge(ALICE, "one", {"spec": {"schedulingGates": [{"name": GATE}]}})
    assert enforced.gates(body) == [GATE]


def test_a_gated_pod_can_be_deleted_and_labelled(enforced: Acting) -> None:
    enforced.create_pod("one")
    enforced.merge(
        ALICE, "one", {"metadata": {"labels": {"example.com/a": "b"}, "annotations": {"example.com/a": "b"}}}
    )
    enforced.plane.api(ALICE).delete(f"{enforced.pods}/one")


@pytest.mark.parametrize("part", ["/resize", "/ephemeralcontainers"])
def test_no_part_of_a_pod_is_a_back_door(enforced: Acting, part: str) -> None:
    """What the API server takes for one part of a pod changes nothing else of it."""
    enforced.create_pod("one")
    forged = {"metadata": {"annotations": {"bursar.dev/admission": "forged"}}, "spec": {"schedulingGates": None}}
    enforced.merge(ADMIN, "one", forged, part)
    found = enforced.get("one")
    assert enforced.gates(found) == [GATE]
    assert "annotations" not in found["metadata"]


# Creation


@pytest.mark.parametrize("marks", ["labels", "annotations"])
@pytest.mark.parametrize("governed", [True, False])
def test_many_marks_hide_no_forgery(enforced: Acting, ordinary: Acting, marks: str, governed: bool) -> None:
    """Expressions are evaluated within a budget; a pod is judged all the same, however much there is to look at."""
    acting = enforced if governed else ordinary
    many = {f"example.com/{number}": "x" for number in range(3000)}
    labels, annotations = (many, {}) if marks == "labels" else ({}, many)
    made = acting.create_pod("one", labels=labels, annotations=annotations)
    assert acting.gates(made) == ([GATE] if governed else [])
    acting.merge(ALICE, "one", {"metadata": {"labels": {"example.com/a": "b"}}})
    with refused("label quota.bursar.dev/lab: quota depends on it"):
        acting.merge(ALICE, "one", {"metadata": {"labels": {TREE: "theory"}}})
    with refused("annotation bursar.dev/admission: only Bursar writes it"):
        acting.create_pod("two", labels=labels, annotations={**annotations, "bursar.dev/admission": "forged"})


def test_a_pod_has_only_so_many_gates(enforced: Acting, ordinary: Acting) -> None:
    gates = tuple(f"example.com/{number}" for number in range(MOST))
    assert len(enforced.gates(enforced.create_pod("one", gates=(*gates[1:], GATE)))) == MOST
    assert len(ordinary.gates(ordinary.create_pod("one", gates=gates))) == MOST
    for acting in (enforced, ordinary):
        with refused("at most 100 scheduling gates: remove some"):
            acting.create_pod("two", gates=(*gates, "example.com/more"))
    with refused("at most 100 scheduling gates: remove some"):
        enforced.create_pod("two", gates=gates)


def test_a_pod_has_only_so_many_owners(ordinary: Acting) -> None:
    made = ordinary.plane.api().create(ordinary.pods.replace("pods", "configmaps"), {"metadata": {"name": "a"}})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}
    owners = [{**owner, "uid": made["metadata"]["uid"]}, *({**owner, "uid": str(n)} for n in range(MOST))]
    body = pod("one", {"cpu": "1"})
    with refused("at most 100 owners: remove some of its owner references"):
        ordinary.plane.api().create(ordinary.pods, {**body, "metadata": {"name": "one", "ownerReferences": owners}})
    ordinary.plane.api().create(ordinary.pods, {**body, "metadata": {"name": "one", "ownerReferences": owners[:MOST]}})
    with refused("at most 100 owners: remove some of its owner references"):
        ordinary.merge(ALICE, "one", {"metadata": {"ownerReferences": owners}})
    ordinary.merge(ALICE, "one", {"metadata": {"ownerReferences": owners[:2]}})


def test_a_pod_without_a_name_of_its_own_is_judged_like_any_other(enforced: Acting) -> None:
    body: Object = {"metadata": {"generateName": "one-"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    assert enforced.gates(enforced.plane.api(ALICE).create(enforced.pods, body)) == [GATE]
    body["spec"]["nodeName"] = "somewhere"
    with refused("remove spec.nodeName, use node affinity"):
        enforced.plane.api(ALICE).create(enforced.pods, body)


def test_a_governed_pod_must_not_choose_its_node(enforced: Acting) -> None:
    with refused("remove spec.nodeName, use node affinity"):
        enforced.create_pod("one", nodeName="somewhere")


@pytest.mark.parametrize("user", [ALICE, ADMIN])
def test_nor_later(enforced: Acting, user: str) -> None:
    """The API server itself lets nobody set it but by a binding, whether or not the gate goes with it."""
    enforced.create_pod("one")
    for gates in ([{"name": GATE}], None):
        with refused("Forbidden|only Bursar removes"):
            enforced.merge(user, "one", {"spec": {"nodeName": "somewhere", "schedulingGates": gates}})


def test_nor_where_only_its_label_governs_it(ordinary: Acting) -> None:
    with refused("remove spec.nodeName, use node affinity"):
        ordinary.create_pod("one", labels={TREE: "theory"}, nodeName="somewhere")


def test_an_ungoverned_pod_may_choose_its_node(ordinary: Acting) -> None:
    assert ordinary.create_pod("one", nodeName="somewhere", dry_run=True)["spec"]["nodeName"] == "somewhere"


def test_nobody_passes_for_a_pod_of_a_daemon_set(enforced: Acting) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a", "uid": "1", "controller": True}
    with refused("only the DaemonSet controller makes pods of a DaemonSet"):
        enforced.create_pod("one", owner=owner)


def test_nobody_passes_for_a_mirror_pod(enforced: Acting) -> None:
    with refused("only a node makes mirror pods"):
        enforced.create_pod("one", annotations={"kubernetes.io/config.mirror": "abc"}, nodeName="somewhere")


def test_an_owner_that_is_no_controller_frees_nobody(enforced: Acting) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a", "uid": "1"}
    assert enforced.gates(enforced.create_pod("one", owner=owner, dry_run=True)) == [GATE]


def test_nobody_makes_a_pod_one_of_a_daemon_set_later(enforced: Acting) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a", "uid": "1", "controller": True}
    enforced.create_pod("one")
    with refused("only the DaemonSet controller makes pods of a DaemonSet"):
        enforced.merge(ALICE, "one", {"metadata": {"ownerReferences": [owner]}})


# Annotations and labels


@pytest.mark.parametrize(
    "key", ["bursar.dev/admission", "bursar.dev/hold", "bursar.dev/term", "tensor-fusion.ai/gpu-ids"]
)
@pytest.mark.parametrize("governed", [True, False])
def test_nobody_creates_a_pod_with_bursars_annotations(
    enforced: Acting, ordinary: Acting, key: str, governed: bool
) -> None:
    with refused(f"annotation {re.escape(key)}: only Bursar writes it"):
        (enforced if governed else ordinary).create_pod("one", annotations={key: "forged"})


def test_nobody_adds_changes_or_removes_bursars_annotations(enforced: Acting) -> None:
    admitted(enforced, "one")
    for value in ("2", None):
        with refused("annotation bursar.dev/term: only Bursar writes it"):
            enforced.merge(ALICE, "one", {"metadata": {"annotations": {"bursar.dev/term": value}}})
    with refused("annotation tensor-fusion.ai/container-gpus: only Bursar writes it"):
        enforced.merge(ALICE, "one", {"metadata": {"annotations": {"tensor-fusion.ai/container-gpus": "{}"}}})


def test_bursar_writes_its_annotations(enforced: Acting) -> None:
    enforced.create_pod("one")
    marks = {"bursar.dev/hold": "{}", "tensor-fusion.ai/gpu-ids": "gpu-0"}
    assert (
        marks.items()
        <= enforced.merge(BURSAR, "one", {"metadata": {"annotations": marks}})["metadata"]["annotations"].items()
    )
    enforced.merge(BURSAR, "one", {"metadata": {"annotations": dict.fromkeys(marks)}})


def test_other_changes_of_an_admitted_pod_are_free(enforced: Acting) -> None:
    admitted(enforced, "one", labels={TREE: "theory"})
    changed = {"labels": {"example.com/a": "b", "n8s.nebuly.ai/capacity": "x"}, "annotations": {"example.com/a": "b"}}
    enforced.merge(ALICE, "one", {"metadata": changed})


@pytest.mark.parametrize(
    "labels",
    [
        {TREE: "safety"},
        {TREE: None},
        {"quota.bursar.dev/other": "x"},
        {"quota.scheduling.koordinator.sh/name": "x"},
        {"quota.scheduling.koordinator.sh/preemptible": "false"},
        {"bursar.dev/preemptible": "false"},
        {"bursar.dev/group": "x"},
        {"tensor-fusion.ai/component": "client"},
    ],
)
def test_quota_labels_stay_as_they_were(enforced: Acting, labels: dict[str, str | None]) -> None:
    enforced.create_pod("one", labels={TREE: "theory"})
    key = re.escape(next(iter(labels)))
    with refused(f"label {key}: quota depends on it"):
        enforced.merge(ALICE, "one", {"metadata": {"labels": labels}})


def test_quota_annotations_stay_as_they_were(ordinary: Acting) -> None:
    ordinary.create_pod("one", annotations={"tensor-fusion.ai/tflops-request": "10"})
    with refused("annotation tensor-fusion.ai/tflops-request: quota depends on it"):
        ordinary.merge(ALICE, "one", {"metadata": {"annotations": {"tensor-fusion.ai/tflops-request": "1"}}})


def test_an_ungoverned_pod_cannot_enter_a_quota_later(ordinary: Acting) -> None:
    ordinary.create_pod("one")
    with refused("label quota.bursar.dev/lab: quota depends on it"):
        ordinary.merge(ALICE, "one", {"metadata": {"labels": {TREE: "theory"}}})


# Growth


def test_a_governed_pod_cannot_grow(enforced: Acting) -> None:
    enforced.create_pod("one")
    with refused("cannot grow in place"):
        enforced.resize(ALICE, "one", "2")


def test_nor_where_only_its_label_governs_it_though_running(ordinary: Acting) -> None:
    admitted(ordinary, "one", labels={TREE: "theory"})
    with refused("cannot grow in place"):
        ordinary.resize(ALICE, "one", "1001m")


def test_a_governed_pod_may_shrink(enforced: Acting) -> None:
    enforced.create_pod("one")
    room = enforced.resize(ALICE, "one", "500m")["spec"]["containers"][0]["resources"]
    assert room["requests"] == {"cpu": "500m"}


def sized(name: str, cpu: str, memory: str, **more: str) -> Object:
    room = {"cpu": cpu, "memory": memory}
    return {"name": name, "image": "none", "resources": {"requests": room}, **more}


TWO: dict[str, Any] = {
    "containers": [sized("main", "1", "1Gi"), {"name": "free", "image": "none"}],
    "initContainers": [sized("side", "1", "1Gi", restartPolicy="Always")],
}


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [sized("main", "500m", "1025Mi")]},
        {"containers": [sized("free", "1m", "1Mi")]},
        {"initContainers": [sized("side", "2", "1Gi")]},
    ],
)
def test_no_container_grows_in_any_resource(enforced: Acting, spec: Object) -> None:
    enforced.create_pod("one", **TWO)
    with refused("cannot grow in place"):
        enforced.resize_all(ALICE, "one", spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [sized("main", "1", "1024Mi")]},
        {"containers": [sized("main", "900m", "0.5Gi")], "initContainers": [sized("side", "1000m", "1Gi")]},
    ],
)
def test_equal_amounts_are_no_growth_however_they_are_written(enforced: Acting, spec: Object) -> None:
    enforced.create_pod("one", **TWO)
    enforced.resize_all(ALICE, "one", spec)


MANY = [sized(f"c{number}", "1m", "1Mi") for number in range(101)]


@pytest.mark.parametrize("part", ["containers", "initContainers"])
def test_nor_is_a_governed_pod_with_many_containers_resized(enforced: Acting, part: str) -> None:
    more = {} if part == "containers" else {"restartPolicy": "Always"}
    given: dict[str, Any] = {"containers": [sized("main", "1m", "1Mi")], part: [{**one, **more} for one in MANY]}
    enforced.create_pod("one", **given)
    with refused("more than 100 containers cannot be resized in place"):
        enforced.resize_all(ALICE, "one", {part: [sized("c0", "1m", "0.5Mi", **more)]})


def test_nor_one_with_a_container_that_asks_for_more_than_anybody_does(enforced: Acting) -> None:
    more = {f"example.com/{number}": "0" for number in range(100)}
    room = {"requests": {"cpu": "2m", **more}, "limits": more}
    enforced.create_pod("one", containers=[{"name": "main", "image": "none", "resources": room}])
    with refused("cannot grow in place"):
        enforced.resize_all(ALICE, "one", {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1m"}}}]})


def test_an_ungoverned_pod_may_grow(ordinary: Acting) -> None:
    ordinary.create_pod("one")
    room = ordinary.resize(ALICE, "one", "2")["spec"]["containers"][0]["resources"]
    assert room["requests"] == {"cpu": "2"}


# Binding


@pytest.mark.parametrize("legacy", [False, True])
def test_nobody_binds_a_governed_pod_by_hand(enforced: Acting, legacy: bool) -> None:
    admitted(enforced, "one")
    for user in (ALICE, ADMIN):
        with refused("bound by the cluster's scheduler only"):
            enforced.bind(user, "one", "somewhere", legacy=legacy)


def test_the_scheduler_binds_it(enforced: Acting) -> None:
    admitted(enforced, "one")
    enforced.bind(SCHEDULER, "one", "somewhere")
    assert enforced.get("one")["spec"]["nodeName"] == "somewhere"


def test_an_ungoverned_pod_can_be_bound_by_anybody_who_may(ordinary: Acting) -> None:
    ordinary.create_pod("one")
    ordinary.bind(ALICE, "one", "somewhere")


def test_a_gated_pod_cannot_be_bound_by_anybody(ordinary: Acting) -> None:
    ordinary.create_pod("one", labels={TREE: "theory"})
    with refused("schedulingGates"):
        ordinary.bind(ALICE, "one", "somewhere")


@pytest.mark.parametrize("key", ["bursar.dev/admission", "tensor-fusion.ai/tflops-request"])
def test_a_binding_smuggles_no_annotations_in(ordinary: Acting, key: str) -> None:
    ordinary.create_pod("one")
    with refused("a binding must not bring annotations"):
        ordinary.bind(ALICE, "one", "somewhere", {key: "forged"})
