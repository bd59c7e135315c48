"""A control plane of its own with the admission policies in force, and who acts on it.

Policies act on the whole cluster, so they are kept off the plane that other tests share. It ends with this folder.
"""

from collections.abc import Iterator

import pytest

from bursar.kube.admission.policies import policies
from bursar.kube.admission.predicate import ENFORCED, NAMESPACE_LABEL, AdmissionOptions
from tests.cluster.admission.users import NODE, Acting, apply
from tests.cluster.controlplane import ApiError, ControlPlane
from tests.cluster.controlplane.identities import ALICE, BURSAR, User
from tests.cluster.controlplane.objects import may
from tests.cluster.installation import announce
from tests.cluster.waiting import eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane.start(kwok=False, users=[User(NODE, ("system:nodes",))]) as plane:
        yield plane


@pytest.fixture(scope="package")
def guarded(plane: ControlPlane) -> ControlPlane:
    """The plane once the policies are in force. Alice may also do what ``edit`` alone does not allow."""
    plane.create_namespace("bursar-system")
    announce(plane, "1")
    _grant(plane, "bursar-test", BURSAR, [("", ["pods", "pods/status"], ["*"])])
    _grant(plane, "alice-more", ALICE, [("", ["pods/resize", "pods/status", "pods/binding", "bindings"], ["*"])])
    _grant(plane, "node-test", NODE, [("", ["pods"], ["*"])])
    for one in policies(AdmissionOptions()):
        apply(plane, one)
    _wait(plane)
    return plane


def _grant(plane: ControlPlane, name: str, user: str, rules: list[tuple[str, list[str], list[str]]]) -> None:
    given = [{"apiGroups": [group], "resources": resources, "verbs": verbs} for group, resources, verbs in rules]
    plane.api().create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": given})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    plane.api().create(f"{RBAC}/clusterrolebindings", body)
    asked = rules[-1][1][-1]
    eventually(lambda: may(plane.api(), user, "patch", asked), f"{user} may write {asked}")


def _wait(plane: ControlPlane) -> None:
    """The gate is in force, and the last of the guards; the server takes all guards into force at once."""
    namespace = plane.create_namespace(labels={NAMESPACE_LABEL: ENFORCED})
    acting = Acting(plane, namespace)
    eventually(lambda: _gated(acting), "the gate is added")
    acting.create_pod("probe")
    eventually(lambda: acting.allowed(BURSAR, acting.open_gate, "probe", term="1"), "the term is known")
    eventually(lambda: not acting.allowed(BURSAR, acting.open_gate, "probe", term="0"), "the fence stands")
    eventually(lambda: not acting.allowed(ALICE, acting.open_gate, "probe", term=""), "the guards stand")
    plane.delete_namespace(namespace)


def _gated(acting: Acting) -> bool:
    try:
        return bool(acting.gates(acting.create_pod("probe", dry_run=True)))
    except ApiError as error:
        if "needs the scheduling gate" not in error.message:  # the guards are quicker than the gate
            raise
        return False


@pytest.fixture
def enforced(guarded: ControlPlane) -> Iterator[Acting]:
    """A namespace in which quota is enforced."""
    name = guarded.create_namespace(labels={NAMESPACE_LABEL: ENFORCED})
    yield Acting(guarded, name)
    guarded.delete_namespace(name)


@pytest.fixture
def ordinary(guarded: ControlPlane) -> Iterator[Acting]:
    """A namespace that no quota names."""
    name = guarded.create_namespace()
    yield Acting(guarded, name)
    guarded.delete_namespace(name)
