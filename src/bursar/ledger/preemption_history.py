"""Preemption history: who displaced whom, so that claims do not displace each other in a circle.

A claim never preempts one that preempted it, directly or through others, until its owner releases that one. A pod that
a controller creates in place of an evicted one inherits its *lineage*, so the rule holds for it too.

The history is in cells, so that it is undone, journaled and replayed like everything else:

* ``lineage``: uid -> lineage, only where a claim inherited that of an evicted one (otherwise it is the uid);
* ``displaced``: lineage -> lineages that displaced it;
* ``orphans``: owner -> lineages of its evicted claims that no claim has inherited yet.

The reverse of ``displaced`` is derived by watching it.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import State, Watcher
from bursar.ledger.transaction import Ledger, Transaction

_POLICY: Final = "engine"
_DISPLACED: Final = "displaced"


def lineage_of(state: State, uid: str) -> str:
    found = state.cell("lineage", uid)
    return uid if found is None else cast("str", found)


def displaced_by(state: State, uid: str) -> object:
    """The lineages that displaced the claim's, as a plain value; None, as for nearly all, if there are none.

    Claims with equal values are barred from the same victims.
    """
    return state.cell(_DISPLACED, lineage_of(state, uid))


@final
class Lineages(Watcher):
    """The preemption history of one ledger. It watches the ledger from the first cell on."""

    def __init__(self, ledger: Ledger) -> None:
        self.state: Final[State] = ledger.state
        self.tx: Final[Transaction] = ledger.tx
        self.losers: Final[dict[str, set[str]]] = {}  # lineage -> those that it displaced
        ledger.watch(_POLICY, self)

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        if table == _DISPLACED:
            before = _lineages(old)
            after = _lineages(new)
            for winner in before:
                if winner not in after:
                    self._unlist(winner, key)
            for winner in after:
                if winner not in before:
                    self.losers.setdefault(winner, set()).add(key)

    def _unlist(self, winner: str, loser: str) -> None:
        losers = self.losers[winner]
        losers.discard(loser)
        if not losers:
            del self.losers[winner]

    def barred(self, claimant: str, victim: str) -> bool:
        """Whether the victim displaced the claimant, directly or through others."""
        state = self.state
        own = lineage_of(state, claimant)
        if state.cell(_DISPLACED, own) is None:
            return False  # nearly always: nobody displaced it
        target = lineage_of(state, victim)
        todo = [own]
        seen = {own}
        while todo:
            for other in _lineages(state.cell(_DISPLACED, todo.pop())):
                if other == target:
                    return True
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return False

    def submitted(self, claim: Claim) -> None:
        """A new claim inherits the lineage of an evicted one of the same owner, oldest eviction first."""
        owner = claim.spec.owner
        waiting = _lineages(self.state.cell("orphans", owner)) if owner else ()
        if waiting:
            self.tx.put(_POLICY, "lineage", claim.uid, waiting[0])
            self.tx.put(_POLICY, "orphans", owner, waiting[1:] or None)

    def displaced(self, claimant: Claim, victim: Claim) -> None:
        """Record that the claimant displaced the victim."""
        self._add(_DISPLACED, lineage_of(self.state, victim.uid), lineage_of(self.state, claimant.uid))

    def displaced_before(self, claimant: Claim, victim: str, owner: str) -> None:
        """The same for a victim that is gone by now."""
        self._add(_DISPLACED, victim, lineage_of(self.state, claimant.uid))
        if owner:
            self._add("orphans", owner, victim)

    def departed(self, claim: Claim, evicted: bool) -> None:
        """The claim is gone: released by its owner (its history ends) or evicted (a successor inherits it)."""
        state = self.state
        if not (evicted or state.cells(_DISPLACED) or state.cells("lineage")):
            return
        lineage = lineage_of(state, claim.uid)
        self.tx.put(_POLICY, "lineage", claim.uid, None)
        if not evicted:
            self._forget(lineage)
        elif claim.spec.owner and state.cell(_DISPLACED, lineage) is not None:
            self._add("orphans", claim.spec.owner, lineage)

    def _forget(self, lineage: str) -> None:
        """Drop every edge from and to a lineage that has ended."""
        for loser in sorted(self.losers.get(lineage, set())):
            winners = [other for other in _lineages(self.state.cell(_DISPLACED, loser)) if other != lineage]
            self.tx.put(_POLICY, _DISPLACED, loser, tuple(winners) or None)
        self.tx.put(_POLICY, _DISPLACED, lineage, None)

    def _add(self, table: str, key: str, item: str) -> None:
        known = _lineages(self.state.cell(table, key))
        if item not in known:
            self.tx.put(_POLICY, table, key, (*known, item))


def _lineages(cell: object) -> tuple[str, ...]:
    return () if cell is None else cast("tuple[str, ...]", cell)
