"""Decisions that must find victims on a full cluster, by the single call: milliseconds of processor time each.

A call is what a user waits for: the claim is made, decided, and its records are sealed, all on the clock. The first
call after the load counts like every other: it is in the median and in the worst, and it has a figure of its own.
Between calls, off the clock, the victims leave.
"""

import time
from collections.abc import Callable
from statistics import median

from benchmarks.timing import collector
from benchmarks.work.lending import BORROWER, ELASTIC, OWNER, PER_NODE, Lent
from bursar.ledger.claims import Claim

_SECONDS = 10  # no further call after so long


def calls(call: Callable[[], list[str]], after: Callable[[list[str]], None], most: int) -> dict[str, float]:
    """The first of these calls, their median and the worst, and how many there were."""
    took: list[float] = []
    with collector(enabled=False):
        while len(took) < most and sum(took) < _SECONDS * 1000:
            begun = time.process_time()
            found = call()
            took.append((time.process_time() - begun) * 1000)
            after(found)
    return {"first": took[0], "median": median(took), "worst": max(took), "calls": len(took)}


class _Calls:
    """Claims of one size by the owner; what its claims displaced leaves after each."""

    def __init__(self, world: Lent, gpus: int, victims: int) -> None:
        self.world = world
        self.gpus = gpus
        self.victims = victims

    def decide(self) -> list[str]:
        world = self.world
        claim = world.claim(OWNER, self.gpus)
        decision = world.engine.decide(claim, 2)
        world.engine.journal.take()
        if decision.admitted is not (self.victims > 0) or len(decision.victims) != self.victims:
            raise RuntimeError(f"{self.victims} victims wanted, not {decision}")
        return [*decision.victims] if decision.admitted else [claim.uid]

    def after(self, gone: list[str]) -> None:
        for uid in gone:
            self.world.engine.release(uid, 2)
        self.world.engine.journal.drop()


def one_claim(kind: str, nodes: int, gpus: int, most: int) -> dict[str, float]:
    """The owner asks for so many GPUs of one node, and as many borrowers of one GPU leave."""
    asking = _Calls(Lent(kind, nodes, nodes * PER_NODE), gpus, gpus)
    return calls(asking.decide, asking.after, most)


def refused(kind: str, nodes: int, most: int) -> dict[str, float]:
    """The owner asks for a whole node, and its quota has the right; but on every node one claim may stay."""
    asking = _Calls(Lent(kind, nodes, nodes * PER_NODE, guarded=True), PER_NODE, 0)
    return calls(asking.decide, asking.after, most)


def without_nodes(kind: str, units: int, asked: int, most: int) -> dict[str, float]:
    """The quotas alone: the owner asks for many units at once, and as many borrowers of one leave."""
    world = Lent(kind, 0, units)
    asking = _Calls(world, asked, asked)

    def lend_again(gone: list[str]) -> None:
        asking.after(gone)
        world.engine.release(f"{OWNER}-{world.count}", 2)
        for _ in gone:
            world.run(BORROWER)
        world.engine.journal.drop()

    return calls(asking.decide, lend_again, most)


def budgeted(kind: str, borrowers: int, evictable: int, most: int) -> dict[str, float]:
    """A disruption budget covers all borrowers; the owner asks for one unit. ``evictable`` 0: it is refused."""
    world = Lent(kind, 0, borrowers)
    world.budget(evictable)
    asking = _Calls(world, 1, min(evictable, 1))
    return calls(asking.decide, asking.after, most)


def gang(nodes: int, members: int, most: int) -> dict[str, float]:
    """A gang of whole nodes, decided together: eight victims for each member."""
    world = Lent(ELASTIC, nodes, nodes * PER_NODE)
    asking = _Calls(world, PER_NODE, PER_NODE)

    def decide() -> list[str]:
        decisions = world.engine.decide_group(_members(world, members), 2)
        world.engine.journal.take()
        victims = [uid for decision in decisions for uid in decision.victims]
        assert len(victims) == members * PER_NODE
        return victims

    return calls(decide, asking.after, most)


def _members(world: Lent, count: int) -> list[Claim]:
    return [world.claim(OWNER, PER_NODE) for _ in range(count)]
