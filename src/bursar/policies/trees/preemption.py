"""Phase 2 of an allocation in one tree: the claims of lower priority that leave so that the climb works.

Candidates are the claims on all nodes of the way that are of lower priority and of the same type, and that nothing
protects. A set of them is legal if the climb works once they have left. The search finds one if there is one:

* it takes candidates away in order, the least important first, until the climb works;
* then it gives back those that are not needed, the most important first. What the climb itself pushes out of the root
  comes on top: owners take back what is borrowed, whatever its priority.

To take more away can make a climb fail that works otherwise, because other claims are pushed then. That needs claims on
the way that may be pushed up but may not leave. Where it is possible, and there are few candidates, all sets are tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bursar.ledger.claims import Claim
from bursar.policies.trees.climb import Climb
from bursar.policies.trees.model import QuotaTreeModel
from bursar.policies.trees.tree_nodes import AllocationClass, TreeAllocation, TreeNode, in_order
from bursar.resources import Vector

_ONE_BY_ONE: Final = 32  # so many candidates are tried one by one; more of them in steps that double
_ALL_SETS: Final = 12  # up to so many candidates all sets are tried


def find_victims(climb: Climb) -> bool:
    """Take the victims away and work out the climb. False if that cannot be: ``last`` and ``missing`` say where."""
    if _is_hopeless(climb):
        return False
    candidates = in_candidate_order(climb)
    chosen = _first_that_do(climb, candidates)
    if chosen:
        _spare(climb, chosen)
        return True
    return False


def is_legal(climb: Climb, victims: list[TreeAllocation]) -> bool:
    """Whether the claim may displace exactly these: each is a candidate, and the climb works once they have left."""
    for allocation in victims:
        if not is_candidate(climb, allocation):
            return False
    for allocation in victims:
        climb.take(allocation)
    works = climb.run()
    for allocation in victims:
        climb.give_back(allocation)
    return works


def needed_at_root(tree: QuotaTreeModel, root: TreeNode, cost: Vector, victims: list[Claim]) -> list[str]:
    """The uids of those without which the others do not free what the root of a tree lacks."""
    gone = [tree.allocations[victim.uid] for victim in victims if victim.uid in tree.allocations]
    found: list[str] = []
    for dim in cost.indices():
        over = root.account.used.get(dim) + cost.get(dim) - root.account.limits.get(dim)
        freed = sum([one.request.cost.get(dim) for one in gone])
        found.extend([one.claim.uid for one in gone if freed - one.request.cost.get(dim) < over])
    return found


def is_candidate(climb: Climb, allocation: TreeAllocation) -> bool:
    """Whether priority allows to preempt this allocation: it is on the way, and nothing protects its claim."""
    request = allocation.request
    if request.priority >= climb.request.priority or request.kind != climb.request.kind:
        return False
    return allocation.node in climb.nodes and not climb.permission.obstacle(allocation)


def _is_candidate_class(climb: Climb, one: AllocationClass) -> bool:
    return one.priority < climb.request.priority and one.kind == climb.request.kind and not one.pinned


def in_candidate_order(climb: Climb) -> Iterator[TreeAllocation]:
    """Those that hold what is short on their node or above it, in order."""
    classes: list[AllocationClass] = []
    short: list[int] = []
    for at in range(len(climb.nodes) - 1, -1, -1):
        short.extend([climb.dims[j] for j in climb.short(at)])
        alike = climb.nodes[at].classes.values()
        classes.extend([one for one in alike if _is_candidate_class(climb, one) and one.holds(short)])
    for uid in in_order(classes):
        allocation = climb.tree.allocations[uid]
        if uid not in climb.gone and not climb.permission.obstacle(allocation):
            yield allocation


# Whether it can be


def _is_hopeless(climb: Climb) -> bool:
    """Whether a node that the claim must count in lacks more than all claims could give back there, by their sums."""
    top = 0  # the highest node on which the claim may settle; it counts there in any case
    while not climb.nodes[top].hard and top < len(climb.nodes) - 1:
        top += 1
    for at in range(top, len(climb.nodes)):
        row = climb.row(at)
        for j in range(len(row)):
            if row[j] > 0 and row[j] > _gain(climb, at, j):
                climb.last = at
                climb.missing = j
                return True
    return False


def _gain(climb: Climb, at: int, j: int) -> int:
    """How much of a resource could get free on a node at most: by victims there and below, and by pushing up."""
    found = -climb.held_on_root(j, lower_only=False) if climb.nodes[at].parent is None else 0
    flows = climb.nodes[at].parent is None or not climb.nodes[at].hard  # claims can get from here over the node
    root = climb.nodes[at].parent is None
    for below in range(at, -1, -1):
        flows = flows and (below == at or not climb.nodes[below].hard)
        for one in climb.nodes[below].classes.values():
            pushed = flows and not (root and (one.pinned or one.kind != climb.request.kind))
            if pushed or _is_candidate_class(climb, one):
                found += climb.held_in(one, j)
    return found


# The search


def _first_that_do(climb: Climb, candidates: Iterator[TreeAllocation]) -> list[TreeAllocation]:
    """The shortest list of candidates, in order, after which the climb works; empty if there is none."""
    chosen: list[TreeAllocation] = []
    failed = 0  # so many do not do
    due = 1
    for allocation in candidates:
        climb.take(allocation)
        chosen.append(allocation)
        if len(chosen) < due:
            continue
        if climb.run():
            return _shortest(climb, chosen, failed)
        failed = len(chosen)
        due = failed + 1 if failed < _ONE_BY_ONE else 2 * failed
    if failed < len(chosen) and climb.run():
        return _shortest(climb, chosen, failed)
    climb.short_of()  # while all are away
    found = _any_set(climb, chosen)
    _resize(climb, chosen, len(chosen), 0)
    for allocation in found:
        climb.take(allocation)
    return found


def _shortest(climb: Climb, chosen: list[TreeAllocation], failed: int) -> list[TreeAllocation]:
    """Halve the distance between a length that fails and one that works; the rest is given back."""
    works = len(chosen)
    now = works
    while works - failed > 1:
        middle = (works + failed) // 2
        _resize(climb, chosen, now, middle)
        now = middle
        if climb.run():
            works = middle
        else:
            failed = middle
    _resize(climb, chosen, now, works)
    return chosen[:works]


def _resize(climb: Climb, chosen: list[TreeAllocation], now: int, wanted: int) -> None:
    """Let the first ``wanted`` of the chosen be away, where the first ``now`` are."""
    for at in range(now, wanted):
        climb.take(chosen[at])
    for at in range(wanted, now):
        climb.give_back(chosen[at])


def _spare(climb: Climb, chosen: list[TreeAllocation]) -> None:
    """Give back those that are not needed, the most important first, and work out the climb for the rest."""
    for allocation in reversed(chosen):
        climb.give_back(allocation)
        if not climb.run():
            climb.take(allocation)
    for allocation in chosen:  # those that stay away, in order again
        if climb.gone.pop(allocation.claim.uid, None) is not None:
            climb.gone[allocation.claim.uid] = allocation
    climb.run()


def _any_set(climb: Climb, candidates: list[TreeAllocation]) -> list[TreeAllocation]:
    """The legal set whose most important member is least important; all candidates are away, and the climb failed."""
    if len(candidates) > _ALL_SETS or not could_be_pushed(climb):
        return []
    last, missing = climb.last, climb.short_of()
    _resize(climb, candidates, len(candidates), 0)
    found: list[TreeAllocation] = []
    for number in range(1, 2 ** len(candidates)):
        members = [candidates[i] for i in range(len(candidates)) if number >> i & 1]
        if is_legal(climb, members):
            found = members
            break
    _resize(climb, candidates, 0, len(candidates))
    climb.last, climb.missing = last, missing
    return found


def could_be_pushed(climb: Climb) -> bool:
    """Whether claims that may not leave could be pushed over the node where the climb ended, and would do."""
    at = climb.last
    if climb.nodes[at].hard and climb.nodes[at].parent is not None:
        return False
    for j in climb.short(at):
        found = 0
        for below in range(at, -1, -1):
            if climb.nodes[below].hard and below != at:
                break
            for one in climb.nodes[below].classes.values():
                found += climb.held_in(one, j)
        if climb.row(at)[j] > found:
            return False
    return True
