"""The no-thrash record: who may not displace whom, and that what is derived from it is undone and replayed with it."""

from collections.abc import Callable

import pytest

from bursar.ledger.claims import Claim, ClaimSpec
from bursar.ledger.preemption_history import PreemptionHistory
from bursar.ledger.transaction import Ledger


class World:
    """A few claims of one owner each, in a ledger with an open transaction."""

    def __init__(self, uids: str = "abcd") -> None:
        self.ledger = Ledger()
        self.history = PreemptionHistory(self.ledger)
        self.tx = self.ledger.begin()
        self.claims: dict[str, Claim] = {}
        for uid in uids:
            self.enter(uid, f"owner-{uid}")

    def enter(self, uid: str, owner: str, name: str = "") -> None:
        self.claims[uid] = Claim(uid, ClaimSpec(owner=owner), 0, "ns", name)
        self.tx.add_claim(self.claims[uid])
        self.history.submitted(self.claims[uid])

    def displace(self, winner: str, loser: str) -> None:
        self.history.displaced(self.claims[winner], self.claims[loser])

    def depart(self, uid: str, *, evicted: bool) -> None:
        self.history.departed(self.claims[uid], evicted)
        self.tx.drop_claim(self.claims.pop(uid))

    def barred(self) -> list[str]:
        """Every pair (claimant, victim) that is barred."""
        uids = sorted(self.ledger.state.claims)
        return [one + other for one in uids for other in uids if self.history.barred(one, other)]

    def derived(self) -> dict[str, set[str]]:
        """What ``PreemptionHistory.losers`` must be."""
        found: dict[str, set[str]] = {}
        for loser, winners in self.ledger.state.cells("displaced").items():
            assert isinstance(winners, tuple)
            for winner in winners:
                found.setdefault(winner, set()).add(loser)
        return found


def chain(world: World) -> None:
    world.displace("a", "b")
    world.displace("b", "c")


def let_go(world: World) -> None:
    chain(world)
    world.depart("b", evicted=False)


def succeed(world: World) -> None:
    chain(world)
    world.depart("c", evicted=True)
    world.enter("e", "owner-c")


def several(world: World) -> None:
    chain(world)
    world.displace("d", "b")
    world.displace("d", "b")
    world.depart("a", evicted=False)


@pytest.mark.parametrize(
    ("story", "barred"),
    [
        pytest.param(chain, ["ba", "ca", "cb"], id="directly and through others"),
        pytest.param(let_go, [], id="not when the one between was released by its owner"),
        pytest.param(succeed, ["ba", "ea", "eb"], id="the successor of an evicted one inherits it"),
        pytest.param(several, ["bd", "cb", "cd"], id="one winner of several is released"),
    ],
)
def test_nobody_displaces_who_displaced_it(story: Callable[[World], None], barred: list[str]) -> None:
    world = World()
    story(world)
    assert world.barred() == barred


def replaced_displacer(world: World) -> None:
    """The one that displaced is evicted by a third; the heirs of both come back."""
    world.displace("a", "b")
    world.depart("b", evicted=True)
    world.displace("c", "a")
    world.depart("a", evicted=True)
    world.enter("e", "owner-a")
    world.enter("f", "owner-b")


def revoked_displacer(world: World) -> None:
    """Nobody displaced the one that displaced, but it had to leave."""
    world.displace("a", "b")
    world.depart("a", evicted=True)
    world.enter("e", "owner-a")


def bare_pod(world: World) -> None:
    world.enter("e", "", "p0")
    world.enter("f", "", "p1")
    world.displace("e", "f")
    world.depart("f", evicted=True)
    world.enter("g", "", "p1")
    world.enter("h", "", "p2")


def deleted_and_applied(world: World) -> None:
    """The loser is deleted by its owner and comes back: what ends the record is the end of the winner."""
    world.displace("a", "b")
    world.depart("b", evicted=False)
    world.enter("e", "owner-b")


def winner_ended(world: World) -> None:
    deleted_and_applied(world)
    world.depart("a", evicted=False)
    world.enter("f", "owner-a")


HEIRS = [replaced_displacer, revoked_displacer, bare_pod, deleted_and_applied, winner_ended]


@pytest.mark.parametrize(
    ("story", "barred"),
    [
        pytest.param(replaced_displacer, ["ec", "fc", "fe"], id="heirs of both sides"),
        pytest.param(revoked_displacer, ["be"], id="the heir of a displacer that was revoked"),
        pytest.param(bare_pod, ["ge"], id="a bare pod of the same name"),
        pytest.param(deleted_and_applied, ["ea"], id="a loser that its owner deletes and applies again"),
        pytest.param(winner_ended, [], id="not when the winner has ended"),
    ],
)
def test_heirs_inherit_both_sides(story: Callable[[World], None], barred: list[str]) -> None:
    world = World()
    story(world)
    assert world.barred() == barred


def test_displacers_are_collected_once_for_a_search() -> None:
    world = World()
    chain(world)
    assert not world.history.barred("c", "d")
    collected = world.history.found
    assert world.history.barred("c", "a")
    assert world.history.found is collected, "it was asked for the same claim"
    world.displace("d", "a")
    assert world.history.barred("c", "d"), "the history has changed"


@pytest.mark.parametrize("story", [chain, let_go, succeed, several, *HEIRS])
def test_what_is_derived_follows_done_undone_and_replayed_changes(story: Callable[[World], None]) -> None:
    world = World()
    story(world)
    assert world.history.losers == world.derived()
    world.ledger.commit(0, ())
    other = Ledger()
    repeated = PreemptionHistory(other)
    list(other.replay(world.ledger.journal.take()))
    assert repeated.losers == world.history.losers
    assert repeated.bearers == world.history.bearers
    assert repeated.orphaned == world.history.orphaned
    world.ledger.begin()
    before = world.derived()
    first, last = world.claims[min(world.claims)], world.claims[max(world.claims)]
    world.history.displaced(first, last)
    for claim in (last, first):
        world.history.departed(claim, claim is last)
        world.tx.drop_claim(claim)
    world.ledger.abort()
    assert world.history.losers == world.derived() == before
    assert repeated.bearers == world.history.bearers
    assert repeated.orphaned == world.history.orphaned


def test_a_history_that_was_recorded_before_counts_like_one_of_now() -> None:
    world = World()
    world.history.recall(world.claims["a"], "", [("gone", "owner-gone", ""), ("before", "owner-before", "gone")])
    world.enter("e", "owner-gone")
    world.enter("f", "owner-before")
    assert world.barred() == ["ea", "fa", "fe"]


def test_a_claim_that_took_another_lineage_gives_it_back_when_its_own_is_recalled() -> None:
    world = World()
    world.history.recall(world.claims["a"], "", [("one", "set", ""), ("two", "set", "")])
    for uid in "ef":
        world.enter(uid, "set")
    world.depart("f", evicted=True)
    world.history.recall(world.claims["e"], "two", [])
    world.enter("g", "set")
    assert world.ledger.state.cells("lineage") == {"e": "two", "g": "one"}
    assert not world.history.orphaned


@pytest.mark.parametrize("story", [chain, let_go, succeed, several, *HEIRS])
def test_a_recorded_history_bars_the_same_in_a_new_ledger(story: Callable[[World], None]) -> None:
    """Claims enter it in any order, each with its own record."""
    world = World()
    story(world)
    records = {uid: world.history.record(claim) for uid, claim in sorted(world.claims.items())}
    for order in (sorted(records), sorted(records, reverse=True)):
        again = World("")
        for uid in order:
            old = world.claims[uid]
            again.enter(uid, old.spec.owner, old.name)
            again.history.recall(again.claims[uid], *records[uid])
        assert again.barred() == world.barred()


@pytest.mark.parametrize("story", [chain, let_go, succeed, several, *HEIRS])
def test_nothing_is_left_of_claims_that_are_gone(story: Callable[[World], None]) -> None:
    for evicted in (True, False):
        world = World()
        story(world)
        for uid in sorted(world.claims):
            world.depart(uid, evicted=evicted)
        assert world.ledger.state.plain()["tables"] == {}
        history = world.history
        assert (history.losers, history.bearers, history.orphaned) == ({}, {}, {})
