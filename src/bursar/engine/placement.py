"""Finding a node: bulk filter and score over all nodes, then the best one that every policy accepts.

The order of nodes is total: rank (lower first), score (higher first), spread (higher first), name.
"""

from __future__ import annotations

from librt.vecs import vec
from mypy_extensions import i64

from bursar.engine.charging import Core
from bursar.ledger.claims import Claim
from bursar.policies.policy import PlacementPolicy
from bursar.policies.results import Refusal


def open_nodes(core: Core, claim: Claim) -> bytearray:
    """Nodes that every placement policy would take the claim on now, as a mask over slots."""
    mask = bytearray(b"\x01" * len(core.nodes))
    for policy in core.concerned(claim).placing:
        policy.filter(claim, mask)
    return mask


def possible_nodes(core: Core, claim: Claim) -> list[str]:
    """Nodes on which the claim could run if they were empty, by name."""
    return _named(core, _possible(core, claim))


def is_possible(core: Core, claim: Claim, node: str) -> bool:
    """Whether the claim could run on the node if that were empty. Without a node there is nothing in the way."""
    slot = core.nodes.slots.get(node, -1)
    if slot < 0:
        return not node
    mask = bytearray(len(core.nodes))
    mask[slot] = 1
    for policy in core.concerned(claim).placing:
        policy.feasible(claim, mask)
    return mask[slot] == 1


def possible_slots(core: Core, claim: Claim) -> list[int]:
    """The slots of the nodes on which the claim could run if they were empty."""
    return _slots(_possible(core, claim))


def open_to_all_but(core: Core, claim: Claim, spared: PlacementPolicy | None) -> bytearray:
    """Nodes that every placement policy but one would take the claim on now."""
    mask = bytearray(b"\x01" * len(core.nodes))
    for policy in core.concerned(claim).placing:
        if policy is not spared:
            policy.filter(claim, mask)
    return mask


def _possible(core: Core, claim: Claim) -> bytearray:
    mask = bytearray(b"\x01" * len(core.nodes))
    for policy in core.concerned(claim).placing:
        policy.feasible(claim, mask)
    return mask


def _named(core: Core, mask: bytearray) -> list[str]:
    return sorted([core.nodes.names[slot] for slot in _slots(mask)])


def best_first(core: Core, claim: Claim, mask: bytearray) -> list[str]:
    """The nodes of a mask, best first."""
    slots = _slots(mask)
    if len(slots) > 1:
        ranks = [0] * len(mask)
        for policy in core.concerned(claim).placing:
            policy.rank(claim, mask, ranks)
        scores, spread = _scores(core, claim, mask)
        keyed = [(ranks[slot], -scores[slot], -spread[slot], core.nodes.names[slot]) for slot in slots]
        keyed.sort()
        return [name for _, _, _, name in keyed]
    return [core.nodes.names[slot] for slot in slots]


def best_node(core: Core, claim: Claim, mask: bytearray) -> str:
    """The first of ``best_first``, or "" for an empty mask. It sorts nothing and scores only the lowest rank."""
    ranks = [0] * len(mask)
    ranked = False
    for policy in core.concerned(claim).placing:
        ranked = policy.rank(claim, mask, ranks) or ranked
    front = _lowest(bytes(mask), ranks) if ranked else mask
    scores, spread = _scores(core, claim, front)
    best = _highest(core.nodes.places(), bytes(front), scores, spread)
    return "" if best < 0 else core.nodes.names[best]


def _scores(core: Core, claim: Claim, mask: bytearray) -> tuple[vec[i64], vec[i64]]:
    """The sums of the scores and of the spreads by slot. Mostly one policy gives one, and its array is not copied."""
    scores: vec[i64] | None = None
    spread: vec[i64] | None = None
    seen = bytes(mask)
    for policy in core.concerned(claim).placing:
        own = policy.score(claim, mask)
        if own is not None:
            scores = own if scores is None else _sum(seen, scores, own)
        own = policy.spread(claim, mask)
        if own is not None:
            spread = own if spread is None else _sum(seen, spread, own)
    if scores is None or spread is None:
        both = scores if scores is not None else spread
        alike = vec[i64]([0] * len(seen)) if both is None else both
        return alike, alike
    return scores, spread


def _sum(mask: bytes, left: vec[i64], right: vec[i64]) -> vec[i64]:
    total = vec[i64]([0] * len(mask))
    for slot in range(len(mask)):
        if mask[slot] != 0:
            total[slot] = left[slot] + right[slot]
    return total


def _lowest(mask: bytes, ranks: list[int]) -> bytearray:
    """The slots of the mask that share the lowest rank."""
    lowest = -1
    for slot in range(len(mask)):
        if mask[slot] != 0 and (lowest < 0 or ranks[slot] < ranks[lowest]):
            lowest = slot
    found = bytearray(len(mask))
    for slot in range(len(mask)):
        if mask[slot] != 0 and ranks[slot] == ranks[lowest]:
            found[slot] = 1
    return found


def _highest(places: vec[i64], mask: bytes, scores: vec[i64], spread: vec[i64]) -> i64:
    """The slot with the highest score, then spread, the first by name among equals; -1 for an empty mask."""
    best: i64 = -1
    count: i64 = len(mask)
    for slot in range(count):
        if mask[slot] == 0:
            continue
        if best < 0 or scores[slot] > scores[best]:
            best = slot
        elif scores[slot] < scores[best] or spread[slot] < spread[best]:
            continue
        elif spread[slot] > spread[best] or places[slot] < places[best]:
            best = slot
    return best


def _slots(mask: bytearray) -> list[int]:
    found: list[int] = []
    at = mask.find(1)
    while at >= 0:
        found.append(at)
        at = mask.find(1, at + 1)
    return found


def try_nodes(core: Core, claim: Claim) -> tuple[Refusal, ...] | None:
    """Charge the claim on the best node that takes it.

    Returns () on success, None if no node is open at all, and else the refusals of the best node.
    """
    mask = open_nodes(core, claim)
    best = best_node(core, claim, mask)
    if not best:
        return None
    first = core.attempt(claim, best, False)
    if not first or not _place_matters(core, first):
        return first
    for name in best_first(core, claim, mask)[1:]:
        refusals = core.attempt(claim, name, False)
        if not refusals:
            return ()
        if not _place_matters(core, refusals):
            break
    return first


def _place_matters(core: Core, refusals: tuple[Refusal, ...]) -> bool:
    """Whether another node could make a difference: only if a placement policy refused."""
    names = {policy.name for policy in core.placing}
    for refusal in refusals:
        if refusal.policy in names:
            return True
    return False


def no_node(core: Core, claim: Claim) -> tuple[Refusal, ...]:
    """The refusal of a claim that fits on no node; ``explain`` finds out where, and by how much."""
    shut = _why_no_node(core, claim)
    if shut is not None:
        return (shut,)
    if not possible_nodes(core, claim):
        note = "no node could ever take it" if len(core.nodes) else "there are no nodes"
        return (Refusal("nodes", "nodes.none", note, "nodes", topics=("nodes",)),)
    note = "every node that could take it is full"
    return (Refusal("nodes", "nodes.full", note, "nodes", topics=("nodes",)),)


def _why_no_node(core: Core, claim: Claim) -> Refusal | None:
    """The refusal of the policy that filters out the last nodes, if it has one of its own."""
    mask = bytearray(b"\x01" * len(core.nodes))
    for policy in core.concerned(claim).placing:
        before = bytearray(mask)
        policy.filter(claim, mask)
        if 1 not in mask:
            return policy.why_no_node(claim, before)
    return None
