"""Victims for a claim that needs several trees, where they cannot be found tree by tree.

A victim leaves every tree it holds. So the victims that one tree needs may be what makes room in another, in which they
are no candidates: they sit elsewhere, or are of higher priority there. A set of victims is legal for a forest if the
claim climbs in each of its trees once they have left, and each victim is needed in a tree where it is a candidate.

All sets are tried if there are few candidates. Otherwise the trees take turns, until each of them has what it needs.
"""

from __future__ import annotations

from typing import Final

from bursar.ledger.claims import Claim
from bursar.policies.trees.climb import Climb
from bursar.policies.trees.preemption import could_be_pushed, find_victims, in_candidate_order, is_candidate

_ALL_SETS: Final = 12  # up to so many candidates all sets are tried


def find_together(climbs: list[Climb]) -> list[Claim]:
    """A legal set for all trees; empty if none is found."""
    candidates = _candidates(climbs)
    if len(candidates) > _ALL_SETS:
        return _in_turn(climbs)
    if not _is_promising(climbs, candidates):
        return []
    for number in range(1, 2 ** len(candidates)):
        members = [candidates[i] for i in range(len(candidates)) if number >> i & 1]
        if is_legal_together(climbs, members):
            return members
    return []


def is_legal_together(climbs: list[Climb], victims: list[Claim]) -> bool:
    """Whether the claim may displace exactly these, in all its trees."""
    if _failing(climbs, victims):
        return False
    for victim in victims:
        if not _is_needed(climbs, victim, [other for other in victims if other is not victim]):
            return False
    return True


def _candidates(climbs: list[Climb]) -> list[Claim]:
    """Those of all trees, in the order of the first tree that has them; of many, a few more than can be tried."""
    found: dict[str, Claim] = {}
    for climb in climbs:
        for allocation in in_candidate_order(climb):
            found.setdefault(allocation.claim.uid, allocation.claim)
            if len(found) > _ALL_SETS:
                return list(found.values())
    return list(found.values())


def _is_promising(climbs: list[Climb], candidates: list[Claim]) -> bool:
    """Whether the claim climbs when all have left, or would but for what may be pushed then."""
    for at in _failing(climbs, candidates):
        _leave(climbs, candidates)
        climbs[at].run()
        promising = could_be_pushed(climbs[at])
        _return(climbs, candidates)
        if not promising:
            return False
    return True


def _leave(climbs: list[Climb], claims: list[Claim]) -> None:
    for climb in climbs:
        for claim in claims:
            allocation = climb.tree.allocations.get(claim.uid)
            if allocation is not None and claim.uid not in climb.gone:
                climb.take(allocation)


def _return(climbs: list[Climb], claims: list[Claim]) -> None:
    for climb in climbs:
        for claim in claims:
            allocation = climb.gone.get(claim.uid)
            if allocation is not None:
                climb.give_back(allocation)


def _failing(climbs: list[Climb], victims: list[Claim]) -> list[int]:
    """The positions of the trees in which the claim does not climb once these have left.

    Who is pushed out of the root of one tree leaves the later ones too.
    """
    gone = list(victims)
    _leave(climbs, victims)
    failing: list[int] = []
    for at in range(len(climbs)):
        if climbs[at].run():
            pushed = [allocation.claim for allocation in climbs[at].leavers()]
            _leave(climbs[at + 1 :], pushed)
            gone.extend(pushed)
        else:
            failing.append(at)
    _return(climbs, gone)
    return failing


def _is_needed(climbs: list[Climb], victim: Claim, others: list[Claim]) -> bool:
    """Whether the climb fails without it in a tree where it is a candidate."""
    for at in _failing(climbs, others):
        allocation = climbs[at].tree.allocations.get(victim.uid)
        if allocation is not None and is_candidate(climbs[at], allocation):
            return True
    return False


def _in_turn(climbs: list[Climb]) -> list[Claim]:
    """Each tree takes the victims that it needs, until all climb; those that are not needed then stay."""
    victims: list[Claim] = []
    for _ in climbs:
        waiting = False
        for climb in climbs:
            known = set(climb.gone)
            if climb.run():
                continue
            if not find_victims(climb):
                waiting = True
                continue
            found = [allocation.claim for uid, allocation in climb.gone.items() if uid not in known]
            victims.extend(found)
            _leave(climbs, found)
        if not waiting:
            break
    _return(climbs, victims)
    for victim in reversed(victims.copy()):
        others = [other for other in victims if other is not victim]
        if not _is_needed(climbs, victim, others) and not _failing(climbs, others):
            victims = others
    return victims if is_legal_together(climbs, victims) else []
