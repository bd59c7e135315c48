"""Preemption history: who displaced whom, so that claims do not displace each other in a circle.

A claim never preempts one that preempted it, directly or through others, until the owner of that one releases it. The
history belongs to a *lineage*: a claim and its heirs. An heir is the pod that a controller creates in place of one that
is gone, or a bare pod that comes back under the same namespace and name. It inherits both sides: whom its lineage
displaced, and by whom it was displaced. So the eviction of a displacer does not end what it did.

The history is in cells, so that it is undone, journaled and replayed like everything else:

* ``lineage``: uid -> lineage, only where a claim is an heir (otherwise it is the uid);
* ``displaced``: lineage -> lineages that displaced it;
* ``orphans``: owner, or name of a bare pod -> its lineages that have a history and no claim now.

Lineages that are connected with no claim in the ledger are forgotten: no claim is left that could go on in a circle.

What is derived from the cells follows them by watching. ``record`` and ``recall`` carry the history of one claim over
to a ledger that is rebuilt from what stands on pods.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import State, Watcher
from bursar.ledger.transaction import Ledger, Transaction

_POLICY: Final = "engine"
_LINEAGE: Final = "lineage"
_DISPLACED: Final = "displaced"
_ORPHANS: Final = "orphans"
_RECORDED: Final = 1000  # displacements in the record of a claim, which has to fit on a pod

Displacement = tuple[str, str, str]
"""(lineage that was displaced, key of its heirs, lineage that displaced it)"""


def lineage_of(state: State, uid: str) -> str:
    found = state.cell(_LINEAGE, uid)
    return uid if found is None else cast("str", found)


def displaced_by(state: State, uid: str) -> object:
    """The lineages that displaced the claim's, as a plain value; None, as for nearly all, if there are none.

    Claims with equal values are barred from the same victims.
    """
    return state.cell(_DISPLACED, lineage_of(state, uid))


def heir_key(claim: Claim) -> str:
    """What an heir of the claim shares with it: the owner, or the name of a bare pod. "" if there can be no heir."""
    if claim.spec.owner:
        return claim.spec.owner
    return f"bare/{claim.key}" if claim.namespace else ""


@final
class PreemptionHistory(Watcher):
    """The preemption history of one ledger. It watches the ledger from the first cell on."""

    def __init__(self, ledger: Ledger) -> None:
        self.state: Final[State] = ledger.state
        self.tx: Final[Transaction] = ledger.tx
        self.losers: Final[dict[str, set[str]]] = {}  # lineage -> those that it displaced
        self.bearers: Final[dict[str, str]] = {}  # lineage -> the heir that has it now
        self.orphaned: Final[dict[str, str]] = {}  # lineage -> the key under which it is an orphan
        self.asked: str = ""  # the lineage whose displacers were asked for last
        self.found: set[str] = set()  # and those; a search for victims asks once for each candidate
        ledger.watch(_POLICY, self)

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        if table == _DISPLACED:
            self._displaced_changed(key, _lineages(old), _lineages(new))
        elif table == _LINEAGE:
            if old is not None and self.bearers.get(cast("str", old)) == key:
                del self.bearers[cast("str", old)]
            if new is not None:
                self.bearers[cast("str", new)] = key
        elif table == _ORPHANS:
            for lineage in _lineages(old):
                self.orphaned.pop(lineage, None)
            for lineage in _lineages(new):
                self.orphaned[lineage] = key

    def _displaced_changed(self, loser: str, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        if self.asked:
            self.asked = ""
            self.found = set()
        for winner in before:
            if winner not in after:
                self._unlist(winner, loser)
        for winner in after:
            if winner not in before:
                self.losers.setdefault(winner, set()).add(loser)

    def _unlist(self, winner: str, loser: str) -> None:
        losers = self.losers[winner]
        losers.discard(loser)
        if not losers:
            del self.losers[winner]

    # Asking

    def barred(self, claimant: str, victim: str) -> bool:
        """Whether the victim displaced the claimant, directly or through others."""
        own = lineage_of(self.state, claimant)
        if self.state.cell(_DISPLACED, own) is None:
            return False  # nearly always: no claim displaced it
        return lineage_of(self.state, victim) in self._displacers(own)

    def _displacers(self, lineage: str) -> set[str]:
        """All lineages that displaced this one, directly or through others."""
        if self.asked != lineage:
            todo = [lineage]
            found: set[str] = set()
            while todo:
                for other in _lineages(self.state.cell(_DISPLACED, todo.pop())):
                    if other not in found:
                        found.add(other)
                        todo.append(other)
            self.asked = lineage
            self.found = found
        return self.found

    def _alive(self, lineage: str) -> bool:
        """Whether a claim of the lineage is in the ledger."""
        if lineage in self.bearers:
            return True
        return lineage in self.state.claims and self.state.cell(_LINEAGE, lineage) is None

    # Claims come and go

    def submitted(self, claim: Claim) -> None:
        """A new claim inherits a lineage without a claim: the one that was orphaned first."""
        if not self.orphaned:
            return
        if claim.uid in self.orphaned:
            self._adopt(claim.uid)  # it is that claim itself, in a rebuilt ledger
            return
        key = heir_key(claim)
        waiting = _lineages(self.state.cell(_ORPHANS, key)) if key else ()
        if waiting:
            self._adopt(waiting[0])
            self.tx.put(_POLICY, _LINEAGE, claim.uid, waiting[0])

    def displaced(self, claimant: Claim, victim: Claim) -> None:
        """Record that the claimant displaced the victim."""
        self._add(_DISPLACED, lineage_of(self.state, victim.uid), lineage_of(self.state, claimant.uid))

    def spared(self, claimant: Claim, victim: Claim) -> None:
        """The victim stays after all: the claimant did not displace it."""
        loser = lineage_of(self.state, victim.uid)
        winner = lineage_of(self.state, claimant.uid)
        known = _lineages(self.state.cell(_DISPLACED, loser))
        if winner in known:
            rest = [other for other in known if other != winner]
            self.tx.put(_POLICY, _DISPLACED, loser, tuple(rest) or None)

    def departed(self, claim: Claim, evicted: bool) -> None:
        """The claim is gone. If its owner released it, those that it displaced may displace it again."""
        state = self.state
        if not (state.cells(_DISPLACED) or state.cells(_LINEAGE)):
            return
        lineage = lineage_of(state, claim.uid)
        touched = [] if evicted else sorted(self.losers.get(lineage, set()))
        for loser in touched:
            winners = [other for other in _lineages(state.cell(_DISPLACED, loser)) if other != lineage]
            self.tx.put(_POLICY, _DISPLACED, loser, tuple(winners) or None)
        self.tx.put(_POLICY, _LINEAGE, claim.uid, None)
        if state.cell(_DISPLACED, lineage) is not None or lineage in self.losers:
            key = heir_key(claim)
            if key:
                self._add(_ORPHANS, key, lineage)
            touched.append(lineage)
        for each in touched:
            for dead in self._dead_kin(each, lineage):
                self.tx.put(_POLICY, _DISPLACED, dead, None)
                self._adopt(dead)

    def _dead_kin(self, start: str, gone: str) -> list[str]:
        """All lineages that are connected with this one; none if one of them has a claim. ``gone`` has none now."""
        kin = [start]
        seen = {start}
        for lineage in kin:  # grows
            if lineage != gone and self._alive(lineage):
                return []
            for other in (*_lineages(self.state.cell(_DISPLACED, lineage)), *sorted(self.losers.get(lineage, set()))):
                if other not in seen:
                    seen.add(other)
                    kin.append(other)
        return kin

    def _adopt(self, lineage: str) -> None:
        """The lineage is no orphan any more."""
        key = self.orphaned.get(lineage)
        if key is not None:
            rest = [other for other in _lineages(self.state.cell(_ORPHANS, key)) if other != lineage]
            self.tx.put(_POLICY, _ORPHANS, key, tuple(rest) or None)

    def _add(self, table: str, key: str, item: str) -> None:
        known = _lineages(self.state.cell(table, key))
        if item not in known:
            self.tx.put(_POLICY, table, key, (*known, item))

    # From one ledger to the next

    def record(self, claim: Claim) -> tuple[str, list[Displacement]]:
        """The claim's lineage ("" if that is its uid), and what it displaced, directly and through others."""
        own = lineage_of(self.state, claim.uid)
        found: list[Displacement] = []
        winners = [own]
        seen = {own}
        for winner in winners:  # grows
            for loser in sorted(self.losers.get(winner, set())):
                if len(found) == _RECORDED:
                    break
                found.append((loser, self._key(loser), winner))
                if loser not in seen:
                    seen.add(loser)
                    winners.append(loser)
        return "" if own == claim.uid else own, found

    def _key(self, lineage: str) -> str:
        known = self.orphaned.get(lineage)
        if known is not None:
            return known
        claim = self.state.claims.get(self.bearers.get(lineage, lineage))
        return "" if claim is None else heir_key(claim)

    def recall(self, claim: Claim, lineage: str, displacements: list[Displacement]) -> None:
        """The inverse of ``record``; a displacement without a winner is one by the claim itself."""
        own = lineage_of(self.state, claim.uid)
        if lineage and own != lineage:
            self._adopt(lineage)
            if own != claim.uid:
                self._add(_ORPHANS, heir_key(claim), own)  # that one was of another heir
            self.tx.put(_POLICY, _LINEAGE, claim.uid, lineage)
            own = lineage
        for loser, key, winner in displacements:
            self._add(_DISPLACED, loser, winner or own)
            if key and loser not in self.orphaned and not self._alive(loser):
                self._add(_ORPHANS, key, loser)


def _lineages(cell: object) -> tuple[str, ...]:
    return () if cell is None else cast("tuple[str, ...]", cell)
