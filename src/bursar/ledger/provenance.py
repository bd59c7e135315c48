"""What a state does not say about itself, gathered while a journal is replayed.

An account knows its sums but not whose they are, a table not whose cells it holds. Watchers build their indexes from
both, so a snapshot has to tell.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.account_changes import PutCell
from bursar.ledger.changes import CHARGE, RELEASE, RETURN, VACATE, Change, Charge
from bursar.ledger.claims import costs_record
from bursar.vectors import Vector


@final
class Provenance:
    """Who is charged where, and whose table it is."""

    __slots__ = ("charges", "tables")

    def __init__(self) -> None:
        self.charges: Final[dict[str, dict[tuple[str, Vector], tuple[int, int]]]] = {}  # uid: net (used, busy)
        self.tables: Final[dict[str, str]] = {}  # table: policy

    def note(self, change: Change) -> None:
        """A change was made."""
        if isinstance(change, Charge):
            self._charged(change)
        elif isinstance(change, PutCell):
            self.tables.setdefault(change.table, change.policy)

    def _charged(self, change: Charge) -> None:
        uid = change.claim.uid
        owed = self.charges.setdefault(uid, {})
        for account, cost in zip(change.accounts, change.costs, strict=True):
            key = (account.name, cost)
            used, busy = owed.pop(key, (0, 0))
            used += int(change.used)
            busy += int(change.busy) if account.physical else int(change.used)
            if used or busy:
                owed[key] = (used, busy)
        if not owed:
            del self.charges[uid]

    def charge_effects(self, uid: str) -> list[list[object]]:
        """What a claim is charged, as effects that charge it anew."""
        by_mode: dict[int, tuple[list[object], list[Vector]]] = {}
        for (account, cost), (used, busy) in self.charges.get(uid, {}).items():
            for mode in _modes(used, busy):
                names, costs = by_mode.setdefault(mode, ([], []))
                names.append(account)
                costs.append(cost)
        return [["charge", uid, mode, names, costs_record(tuple(costs))] for mode, (names, costs) in by_mode.items()]


def _modes(used: int, busy: int) -> list[int]:
    """The charges that bring the two sums of an account there from nothing."""
    both = [CHARGE] * busy if busy > 0 else [RELEASE] * -busy
    return both + ([RETURN] * (used - busy) if used > busy else [VACATE] * (busy - used))
