"""The predicate on a real API server: what the server gates is what Python calls governed."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from bursar.kube.admission.predicate import (
    ENFORCED,
    GATE,
    MIRROR,
    NAMESPACE_LABEL,
    AdmissionOptions,
    Governed,
    facts_of,
)
from tests.cluster.admission.users import Acting
from tests.cluster.controlplane import ApiError, ControlPlane
from tests.cluster.controlplane.api import Object
from tests.cluster.controlplane.identities import BURSAR
from tests.cluster.waiting import eventually
from tests.kube.admission.random_pods import accepted, pods


def gated(acting: Acting, body: Object) -> bool:
    """Whether the server would gate the pod. One that would be spared for what it says it is, is refused instead."""
    try:
        return GATE in acting.gates(acting.plane.api(BURSAR).create(f"{acting.pods}?dryRun=All", body))
    except ApiError as error:
        if "only the DaemonSet controller" not in error.message:
            raise
        return False


@given(body=pods)
@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
def test_the_server_gates_exactly_the_governed_pods(enforced: Acting, ordinary: Acting, body: Object) -> None:
    if not acceptable(body):
        return
    governed = Governed(AdmissionOptions())
    for acting, labels in ((enforced, {NAMESPACE_LABEL: ENFORCED}), (ordinary, {})):
        assert gated(acting, body) is governed.holds(acting.namespace, labels, facts_of(body)), body


def acceptable(body: Object) -> bool:
    """A pod that the API server takes at all: mirror pods need a node, and a pod has one controller."""
    metadata = body["metadata"]
    keys = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    controllers = [owner for owner in metadata.get("ownerReferences", ()) if owner.get("controller")]
    named = MIRROR not in keys and not any(key.endswith("/") for key in keys)
    return named and len(controllers) <= 1 and accepted(body)


def test_the_server_finds_nothing_odd_about_any_expression(guarded: ControlPlane) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def checked() -> list[Object]:
        found = [one for one in guarded.api().get(path)["items"] if one["metadata"]["name"].startswith("bursar-")]
        return found if all("typeChecking" in one.get("status", {}) for one in found) else []

    for one in eventually(checked, "the controller manager has checked all expressions"):
        assert one["status"]["typeChecking"] == {}, one["metadata"]["name"]


@pytest.mark.parametrize("kind", ["mutatingadmissionpolicies", "validatingadmissionpolicies"])
def test_every_policy_is_bound(guarded: ControlPlane, kind: str) -> None:
    path = f"/apis/admissionregistration.k8s.io/v1/{kind}"
    names = {one["metadata"]["name"] for one in guarded.api().get(path)["items"]}
    bound = {one["spec"]["policyName"] for one in guarded.api().get(path.replace("ies", "ybindings"))["items"]}
    assert {name for name in names if name.startswith("bursar-")} == {n for n in bound if n.startswith("bursar-")}
