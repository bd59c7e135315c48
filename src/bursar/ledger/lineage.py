"""The no-thrash record: who displaced whom, so that nobody takes the same place back and forth.

Ruling: a claim never preempts one that preempted it, directly or through others, until that one is released by its
owner. A pod that a controller creates in place of an evicted one carries on its *lineage*, so the rule holds for it.

Kept in cells, so that it is undone, journaled and replayed like everything else:

* ``lineage``: uid -> lineage, only where a claim took over that of an evicted one (otherwise it is the uid);
* ``displaced``: lineage -> lineages that displaced it;
* ``displaces``: the same, the other way round;
* ``orphans``: owner -> lineages of its evicted claims that nobody has taken over yet.
"""

from __future__ import annotations

from typing import Final, cast

from bursar.ledger.claims import Claim
from bursar.ledger.state import State
from bursar.ledger.transactions import Transaction

_POLICY: Final = "engine"


def lineage_of(state: State, uid: str) -> str:
    found = state.cell("lineage", uid)
    return uid if found is None else cast("str", found)


def barred(state: State, claimant: str, victim: str) -> bool:
    """Whether the victim displaced the claimant, directly or through others."""
    own = lineage_of(state, claimant)
    if not _list(state, "displaced", own):
        return False  # nearly always: nobody displaced it
    target = lineage_of(state, victim)
    todo = [own]
    seen = {own}
    while todo:
        for other in _list(state, "displaced", todo.pop()):
            if other == target:
                return True
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return False


def submitted(tx: Transaction, claim: Claim) -> None:
    """A new claim takes over the lineage of an evicted one of the same owner, oldest eviction first."""
    owner = claim.spec.owner
    waiting = _list(tx.state, "orphans", owner) if owner else ()
    if waiting:
        tx.put(_POLICY, "lineage", claim.uid, waiting[0])
        tx.put(_POLICY, "orphans", owner, waiting[1:] or None)


def displaced(tx: Transaction, claimant: Claim, victim: Claim) -> None:
    """Record that the claimant took the victim's place."""
    winner = lineage_of(tx.state, claimant.uid)
    loser = lineage_of(tx.state, victim.uid)
    _add(tx, "displaced", loser, winner)
    _add(tx, "displaces", winner, loser)


def displaced_before(tx: Transaction, claimant: Claim, victim: str, owner: str) -> None:
    """The same for a victim that is gone by now, as it was written down then."""
    winner = lineage_of(tx.state, claimant.uid)
    _add(tx, "displaced", victim, winner)
    _add(tx, "displaces", winner, victim)
    if owner:
        _add(tx, "orphans", owner, victim)


def departed(tx: Transaction, claim: Claim, evicted: bool) -> None:
    """The claim is gone: by its owner (its record ends) or evicted (it waits for a successor)."""
    state = tx.state
    if not (evicted or state.cells("displaced") or state.cells("lineage")):
        return
    lineage = lineage_of(state, claim.uid)
    tx.put(_POLICY, "lineage", claim.uid, None)
    if not evicted:
        _forget(tx, lineage)
    elif claim.spec.owner and _list(state, "displaced", lineage):
        _add(tx, "orphans", claim.spec.owner, lineage)


def _forget(tx: Transaction, lineage: str) -> None:
    """Drop every edge from and to a lineage that will not come back."""
    for loser in _list(tx.state, "displaces", lineage):
        _remove(tx, "displaced", loser, lineage)
    for winner in _list(tx.state, "displaced", lineage):
        _remove(tx, "displaces", winner, lineage)
    tx.put(_POLICY, "displaces", lineage, None)
    tx.put(_POLICY, "displaced", lineage, None)


def _list(state: State, table: str, key: str) -> tuple[str, ...]:
    found = state.cell(table, key)
    return () if found is None else cast("tuple[str, ...]", found)


def _add(tx: Transaction, table: str, key: str, item: str) -> None:
    known = _list(tx.state, table, key)
    if item not in known:
        tx.put(_POLICY, table, key, (*known, item))


def _remove(tx: Transaction, table: str, key: str, item: str) -> None:
    rest = tuple([other for other in _list(tx.state, table, key) if other != item])
    tx.put(_POLICY, table, key, rest or None)
