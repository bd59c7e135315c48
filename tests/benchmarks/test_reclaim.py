"""The worlds of part reclaim are what its rows say, at a small size."""

import pytest

from benchmarks.work import everything, loading, reclaim
from benchmarks.work.lending import BORROWER, ELASTIC, OWNER, PER_NODE, THIRD, TREES, Lent


@pytest.mark.parametrize("kind", [ELASTIC, TREES])
def test_every_gpu_is_lent(kind: str) -> None:
    world = Lent(kind, 3, 3 * PER_NODE)
    assert [claim.namespace for claim in world.engine.state.claims.values()] == [BORROWER] * 24
    assert {claim.place for claim in world.engine.state.claims.values()} == {"n00000", "n00001", "n00002"}


@pytest.mark.parametrize("kind", [ELASTIC, TREES])
def test_a_guarded_node_cannot_be_emptied(kind: str) -> None:
    world = Lent(kind, 3, 3 * PER_NODE, guarded=True)
    kept = [claim.place for claim in world.engine.state.claims.values() if claim.namespace == THIRD]
    assert sorted(kept) == ["n00000", "n00001", "n00002"]
    assert len(world.engine.decide(world.claim(OWNER, PER_NODE - 1), 2).victims) == PER_NODE - 1
    assert not world.engine.decide(world.claim(OWNER, PER_NODE), 2).admitted


@pytest.mark.parametrize("kind", [ELASTIC, TREES])
def test_each_call_counts_the_first_included(kind: str) -> None:
    assert reclaim.one_claim(kind, 2, 1, 3)["calls"] == 3
    assert reclaim.one_claim(kind, 2, PER_NODE, 2)["calls"] == 2
    assert reclaim.refused(kind, 2, 2)["calls"] == 2
    assert reclaim.without_nodes(kind, 20, 10, 1)["calls"] == 1
    assert reclaim.budgeted(kind, 10, 0, 2)["calls"] == 2
    assert reclaim.budgeted(kind, 10, 1, 2)["calls"] == 2


def test_a_gang_displaces_eight_for_each_member() -> None:
    found = reclaim.gang(4, 2, 1)
    assert found["calls"] == 1


def test_the_first_call_is_in_the_median_and_the_worst() -> None:
    found = reclaim.calls(list, lambda _: None, 1)
    assert found["first"] == found["median"] == found["worst"]


def test_the_first_search_follows_a_load_or_a_restart() -> None:
    assert set(loading.first_search(4, 12)) == {"load", "compared", "first", "loads"}
    assert loading.search_after_restart(4, 12)["first"] > 0


def test_a_large_quota_is_searched_and_its_labels_are_counted() -> None:
    assert loading.big_searches(900, 4)["first"] > 0
    found = loading.big_labels(900, 2, 20)
    assert found["labels"] > 10


def test_one_of_the_waiting_pods_starts_for_each_that_ends() -> None:
    found = everything.one_admission(nodes=2, waiting=20, classes=4, count=3)
    assert found["entries"] >= 1


def test_seven_policies_govern_the_claims_together() -> None:
    for own in (False, True):
        found = everything.pairs(nodes=10, count=60, own_specs=own)
        assert found["refused"] == 0
        assert found["policies"] > 4
