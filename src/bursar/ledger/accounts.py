"""Accounts: places where usage is counted against limits.

An account keeps two sums. ``used`` is what decisions count. ``busy`` is what is physically taken: a claim that was
told to leave is no longer in ``used`` but stays in ``busy`` until it is gone. Only *physical* accounts (a node, a
GPU) keep ``busy``. Both sums are changed only by ``ledger.changes``.

``topic`` names what a waiting claim listens to: the account itself, or a wider one that several accounts share
(all nodes), so that a change of any of them wakes the claims that any of them may help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from bursar.fingerprints import PRIME_A, PRIME_B, fingerprint
from bursar.limits import NO_LIMITS, Limits, first_short, shortfall
from bursar.vectors import Tally, Vector

if TYPE_CHECKING:
    from bursar.ledger.claims import Claim


@mypyc_attr(allow_interpreted_subclasses=True)
class Watcher:
    """Hears of every change of what it watches, whether done, undone or replayed.

    Policies keep what they derive (indexes, sorted lists) by it, so that undo and replay need no code of theirs.
    """

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        """``sign`` +1: the claim now counts in the account; -1: it no longer does."""

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        """A cell of a watched table changed; None stands for no cell."""


@final
@mypyc_attr(acyclic=True)
class Account:
    """One place where usage is counted."""

    __slots__ = (
        "busy",
        "busy_a",
        "busy_b",
        "lane_a",
        "lane_b",
        "limits",
        "mark",
        "name",
        "opened",
        "physical",
        "policy",
        "topic",
        "used",
    )

    def __init__(self, policy: str, name: str, topic: str = "", physical: bool = False) -> None:
        self.policy: Final = policy
        self.name: Final = name  # unique in the ledger: <policy>/<whatever the policy says>
        self.topic: Final = topic or name
        self.physical: Final = physical
        self.used: Final = Tally()
        self.busy: Final = Tally()
        self.limits: Limits = NO_LIMITS
        self.opened: bool = False  # only accounts of the ledger can be charged
        # The mark stands for all that never changes; the lanes weigh what is used and what is busy in the digest.
        self.mark: Final[i64] = fingerprint(f"{len(policy)} {len(name)} {policy}{name}{self.topic} {physical}")
        busy_mark = fingerprint(f"busy {name}")
        self.lane_a: Final[i64] = self.mark % PRIME_A
        self.lane_b: Final[i64] = self.mark % PRIME_B
        self.busy_a: Final[i64] = busy_mark % PRIME_A
        self.busy_b: Final[i64] = busy_mark % PRIME_B

    def __repr__(self) -> str:
        return f"Account({self.name}, used {self.used.vector().show()}, limits {self.limits.show()})"

    def short_dimension(self, cost: Vector) -> int:
        """Index of the first requested dimension that does not fit, or -1."""
        return first_short(self.used, cost, self.limits)

    def missing(self, cost: Vector) -> Vector:
        """How much is missing for the cost, per requested dimension."""
        return shortfall(self.used, cost, self.limits)


def first_unfit(accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> int:
    """The position of the first account in which its cost does not fit, or -1."""
    for i, account in enumerate(accounts):
        if first_short(account.used, costs[i], account.limits) >= 0:
            return i
    return -1
