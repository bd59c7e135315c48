"""The fence: a leader whose term is over cannot open a gate, whatever it still believes."""

from collections.abc import Iterator

import pytest

from tests.cluster.admission.acting import LEASE_PATH, Acting, lease
from tests.cluster.controlplane import ApiError
from tests.cluster.controlplane.identities import ALICE, BURSAR
from tests.cluster.waiting import eventually


@pytest.fixture
def gated(enforced: Acting) -> Iterator[Acting]:
    enforced.create_pod("one")
    yield enforced
    _set_term(enforced, 1)


def _set_term(acting: Acting, term: int | None) -> None:
    acting.plane.api().patch(LEASE_PATH, {"spec": {"leaseTransitions": term}})
    shown = str(term or 0)
    acting.create_pod("probe", user="admin")
    eventually(lambda: acting.allowed(BURSAR, acting.open_gate, "probe", term=shown), f"term {shown} is known")
    acting.plane.api().delete(f"{acting.pods}/probe")


@pytest.mark.parametrize("term", ["0", "2", "01", "", "one"])
def test_a_wrong_term_is_refused(gated: Acting, term: str) -> None:
    with pytest.raises(ApiError, match=r"bursar\.dev/term must be 1, the term of the Lease bursar-controller"):
        gated.open_gate(BURSAR, "one", term)


def test_the_right_term_opens_the_gate(gated: Acting) -> None:
    assert gated.gates(gated.open_gate(BURSAR, "one", "1")) == []


def test_a_leader_whose_term_is_over_is_refused(gated: Acting) -> None:
    _set_term(gated, 2)
    with pytest.raises(ApiError, match="must be 2"):
        gated.open_gate(BURSAR, "one", "1")
    assert gated.gates(gated.open_gate(BURSAR, "one", "2")) == []


def test_a_lease_that_never_changed_hands_is_term_zero(gated: Acting) -> None:
    _set_term(gated, None)
    assert gated.gates(gated.open_gate(BURSAR, "one", "0")) == []


def test_without_a_lease_pods_can_be_changed_all_the_same(gated: Acting) -> None:
    """And nobody else can have become the leader without one."""
    gated.plane.api().delete(LEASE_PATH)
    try:
        eventually(lambda: gated.allowed(BURSAR, gated.open_gate, "one", term="7"), "the Lease is gone")
        gated.merge(ALICE, "one", {"metadata": {"labels": {"example.com/a": "b"}}})
        assert not gated.allowed(ALICE, gated.open_gate, "one", term="")
    finally:
        gated.plane.api().create(LEASE_PATH.rpartition("/")[0], lease(1))


def test_patches_that_leave_the_gate_need_no_term(gated: Acting) -> None:
    gated.merge(BURSAR, "one", {"metadata": {"annotations": {"bursar.dev/hold": "{}"}}})
