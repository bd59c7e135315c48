"""With CrossQuota in force all namespaces but the exempt ones are governed."""

from collections.abc import Iterator

import pytest

from bursar.kube.admission.policies import policies
from bursar.kube.admission.predicate import ENFORCED, GATE, NAMESPACE_LABEL, AdmissionOptions, Governed, facts_of
from tests.cluster.admission.users import Acting, apply
from tests.cluster.controlplane import ApiError, ControlPlane
from tests.cluster.controlplane.api import Object
from tests.cluster.controlplane.identities import ALICE, BURSAR
from tests.cluster.waiting import eventually

EXEMPT = ("exempt-one", "exempt-two")
OPTIONS = AdmissionOptions(everywhere=True, exempt_namespaces=EXEMPT)
TREE = {"quota.bursar.dev/lab": "theory"}


@pytest.fixture(scope="module")
def everywhere(guarded: ControlPlane) -> Iterator[ControlPlane]:
    """The arm for all namespaces, beside those that are there; taken away again in the end."""
    added = [one for one in policies(OPTIONS) if one["metadata"]["name"].endswith("-everywhere")]
    for one in added:
        apply(guarded, one)
    guarded.create_namespace(EXEMPT[0])
    guarded.create_namespace(EXEMPT[1], {NAMESPACE_LABEL: ENFORCED})
    probe = Acting(guarded, guarded.create_namespace())
    probe.create_pod("probe", gates=(GATE,))
    probe.open_gate(BURSAR, "probe")
    eventually(lambda: GATE in _gates(probe), "the gate is in force everywhere")
    eventually(lambda: not _may_bind(probe), "the last of the guards is in force everywhere")
    yield guarded
    for one in added:
        guarded.kubectl("delete", one["kind"], one["metadata"]["name"])
    eventually(lambda: GATE not in _gates(probe), "the gate is gone")
    eventually(lambda: _may_bind(probe), "the last of the guards is gone")


def _gates(acting: Acting) -> list[str]:
    try:
        return acting.gates(acting.create_pod("one", dry_run=True))
    except ApiError as error:
        if "needs the scheduling gate" not in error.message:
            raise
        return []


def _may_bind(acting: Acting) -> bool:
    """Whether anybody may bind a pod: the guard of that is applied, and removed, after all others."""
    return acting.allowed(ALICE, acting.bind, "probe", "somewhere")


@pytest.mark.parametrize("marks", [{}, TREE])
@pytest.mark.parametrize("namespace", ["", *EXEMPT])
def test_who_is_gated(everywhere: ControlPlane, namespace: str, marks: dict[str, str]) -> None:
    name = namespace or everywhere.create_namespace()
    made = Acting(everywhere, name).create_pod("one", labels=marks, dry_run=True)
    labels = everywhere.api().get(f"/api/v1/namespaces/{name}")["metadata"]["labels"]
    before: Object = {"metadata": {"labels": marks}, "spec": {}}
    assert (GATE in Acting.gates(made)) is Governed(OPTIONS).holds(name, labels, facts_of(before))


def test_guards_reach_as_far(everywhere: ControlPlane) -> None:
    acting = Acting(everywhere, everywhere.create_namespace())
    acting.create_pod("one")
    with pytest.raises(ApiError, match="cannot grow in place"):
        acting.resize(ALICE, "one", "2")
    acting.open_gate(BURSAR, "one")
    with pytest.raises(ApiError, match="bound by the cluster's scheduler only"):
        acting.bind(ALICE, "one", "somewhere")
