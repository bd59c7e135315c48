"""The fence: a leader whose term is over cannot open a gate, whatever it still believes."""

import json
from collections.abc import Iterator

import pytest

from bursar.kube.admission.policies import policies
from bursar.kube.admission.predicate import TERM_ANNOTATION, AdmissionOptions
from tests.cluster.admission.users import Acting, apply
from tests.cluster.controlplane import ApiError
from tests.cluster.controlplane.identities import ALICE, BURSAR
from tests.cluster.installation import OWN, announce
from tests.cluster.waiting import eventually


@pytest.fixture
def gated(enforced: Acting) -> Iterator[Acting]:
    enforced.create_pod("one")
    yield enforced
    _begin(enforced, "1")


def _begin(acting: Acting, term: str) -> None:
    """A term begins; the API server knows of it."""
    announce(acting.plane, term)
    acting.create_pod("probe", user="admin")
    eventually(lambda: acting.allowed(BURSAR, acting.open_gate, "probe", term=term), f"term {term} is known")
    acting.plane.api().delete(f"{acting.pods}/probe")


@pytest.mark.parametrize("term", ["0", "2", "01", "", "one"])
def test_a_wrong_term_is_refused(gated: Acting, term: str) -> None:
    told = r"the annotation bursar\.dev/term is not that of the namespace bursar-system, 1: another leader decides now"
    with pytest.raises(ApiError, match=told):
        gated.open_gate(BURSAR, "one", term)


def test_the_right_term_opens_the_gate(gated: Acting) -> None:
    assert gated.gates(gated.open_gate(BURSAR, "one", "1")) == []


def test_a_leader_whose_term_is_over_is_refused(gated: Acting) -> None:
    _begin(gated, "2")
    with pytest.raises(ApiError, match="bursar-system, 2: another leader decides now"):
        gated.open_gate(BURSAR, "one", "1")
    assert gated.gates(gated.open_gate(BURSAR, "one", "2")) == []


def test_before_anybody_leads_no_gate_is_opened_and_pods_can_be_changed(gated: Acting) -> None:
    announce(gated.plane, None)
    eventually(lambda: not gated.allowed(BURSAR, gated.open_gate, "one", term="1"), "nobody leads")
    with pytest.raises(
        ApiError, match=r"the namespace bursar-system has no annotation bursar\.dev/term: no replica leads yet"
    ):
        gated.open_gate(BURSAR, "one", "")
    gated.merge(ALICE, "one", {"metadata": {"labels": {"example.com/a": "b"}}})
    assert not gated.allowed(ALICE, gated.open_gate, "one", term="")


def test_the_fence_knows_the_term_also_after_it_was_taken_away_and_put_back(gated: Acting) -> None:
    """A server stops following a kind that no policy asks for any more, and most kinds for good (decision 10)."""
    fence = [one for one in policies(AdmissionOptions()) if one["metadata"]["name"] == "bursar-guard-update"]
    gated.plane.kubectl("delete", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": fence}))
    try:
        eventually(lambda: gated.allowed(BURSAR, gated.open_gate, "one", term="7"), "the fence is away")
    finally:
        for one in fence:
            apply(gated.plane, one)
    eventually(lambda: not gated.allowed(BURSAR, gated.open_gate, "one", term="7"), "the fence stands again")
    _begin(gated, "2")
    assert not gated.allowed(BURSAR, gated.open_gate, "one", term="1")
    assert gated.gates(gated.open_gate(BURSAR, "one", "2")) == []


def test_without_bursars_namespace_updates_are_not_guarded(gated: Acting) -> None:
    """A server that refused them instead would let nobody change any pod of the cluster."""
    _read(gated, "nowhere")
    try:
        eventually(lambda: gated.allowed(ALICE, gated.open_gate, "one", term=""), "a gate can be opened by hand")
    finally:
        _read(gated, "bursar-system")
    eventually(lambda: not gated.allowed(ALICE, gated.open_gate, "one", term=""), "the guard stands again")


def _read(acting: Acting, namespace: str) -> None:
    """Let the guard take this namespace as its parameter."""
    bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    acting.plane.api().patch(f"{bindings}/bursar-guard-update", {"spec": {"paramRef": {"name": namespace}}})


def test_who_edits_what_is_in_a_namespace_does_not_say_whose_term_it_is(gated: Acting) -> None:
    with pytest.raises(ApiError, match="cannot patch resource"):
        gated.plane.api(ALICE).patch(OWN, {"metadata": {"annotations": {TERM_ANNOTATION: "9"}}})


def test_patches_that_leave_the_gate_need_no_term(gated: Acting) -> None:
    gated.merge(BURSAR, "one", {"metadata": {"annotations": {"bursar.dev/hold": "{}"}}})
