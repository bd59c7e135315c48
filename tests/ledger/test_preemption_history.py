"""The no-thrash record: who may not displace whom, and that what is derived from it is undone and replayed with it."""

from collections.abc import Callable

import pytest

from bursar.ledger.claims import Claim, ClaimSpec
from bursar.ledger.preemption_history import Lineages
from bursar.ledger.transaction import Ledger


class World:
    """A few claims of one owner each, in a ledger with an open transaction."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.lineages = Lineages(self.ledger)
        self.tx = self.ledger.begin()
        self.claims: dict[str, Claim] = {}
        for uid in "abcd":
            self.enter(uid, f"owner-{uid}")

    def enter(self, uid: str, owner: str) -> None:
        self.claims[uid] = Claim(uid, ClaimSpec(owner=owner))
        self.tx.add_claim(self.claims[uid])
        self.lineages.submitted(self.claims[uid])

    def displace(self, winner: str, loser: str) -> None:
        self.lineages.displaced(self.claims[winner], self.claims[loser])

    def depart(self, uid: str, *, evicted: bool) -> None:
        self.lineages.departed(self.claims[uid], evicted)
        self.tx.drop_claim(self.claims[uid])

    def barred(self) -> list[str]:
        """Every pair (claimant, victim) that is barred."""
        uids = sorted(self.ledger.state.claims)
        return [one + other for one in uids for other in uids if self.lineages.barred(one, other)]

    def derived(self) -> dict[str, set[str]]:
        """What ``Lineages.losers`` must be."""
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


@pytest.mark.parametrize("story", [chain, let_go, succeed, several])
def test_what_is_derived_follows_done_undone_and_replayed_changes(story: Callable[[World], None]) -> None:
    world = World()
    story(world)
    assert world.lineages.losers == world.derived()
    world.ledger.commit(0, ())
    other = Ledger()
    repeated = Lineages(other)
    list(other.replay(world.ledger.journal.take()))
    assert repeated.losers == world.lineages.losers
    world.ledger.begin()
    before = world.derived()
    world.displace("a", "d")
    world.depart("d", evicted=False)
    world.ledger.abort()
    assert world.lineages.losers == world.derived() == before


def test_a_displacement_that_was_written_down_before_counts_like_one_of_now() -> None:
    world = World()
    world.lineages.displaced_before(world.claims["a"], "gone", "owner-gone")
    world.enter("e", "owner-gone")
    assert world.barred() == ["ea"]
