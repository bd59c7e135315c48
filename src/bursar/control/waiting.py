"""Waiting: which claims must end, so that one that waits gets in: the fewest, and those that end soonest."""

from __future__ import annotations

from collections.abc import Callable

from bursar.control.trying import Attempt, Tries
from bursar.ledger.claims import RESERVED, Claim

ALONE_AT_MOST = 24  # claims of which it is tried whether the end of one alone is enough
TOGETHER_AT_MOST = 64
NODES_AT_MOST = 4


def fewest_to_end(tries: Tries) -> list[Claim]:
    """The claims whose end lets it in, none of whom can be spared; empty: there are no such claims."""

    def enough(claims: list[Claim]) -> bool:
        return tries.admits(Attempt(ended=tuple(claim.uid for claim in claims)))

    return _fewest(_in_the_way(tries), enough)


def _in_the_way(tries: Tries) -> list[Claim]:
    """Claims that count where it was refused, then others of the policies that refused it; in each part those that end
    soonest first, then the least urgent and youngest.
    """
    topics = {topic for refusal in tries.refusals for topic in (*refusal.topics, refusal.account) if topic}
    policies = {refusal.policy for refusal in tries.refusals}
    own = {claim.uid for claim in tries.unit}
    found: list[tuple[bool, Claim]] = []
    for claim in tries.engine.state.claims.values():
        if claim.state < RESERVED or claim.leaving or claim.uid in own:
            continue
        bindings = [binding for binding in claim.bindings if binding is not None]
        near = any(not topics.isdisjoint((a.topic, a.name)) for binding in bindings for a in binding.accounts)
        if near or any(binding.policy in policies for binding in bindings):
            found.append((not near, claim))
    found.sort(key=lambda pair: (pair[0], _end(tries, pair[1]), *_harm(pair[1])))
    return [claim for _, claim in found]


def _harm(claim: Claim) -> tuple[int, int, str, str]:
    return claim.spec.priority, -claim.created, claim.key, claim.uid


def _end(tries: Tries, claim: Claim) -> tuple[bool, int]:
    end = tries.desk.ends(claim.uid)
    return end is None, end or 0


def _fewest(candidates: list[Claim], enough: Callable[[list[Claim]], bool]) -> list[Claim]:
    """One that is enough; else the smallest that is found among all, and among those of a node."""
    for claim in candidates[:ALONE_AT_MOST]:
        if enough([claim]):
            return [claim]
    found = [_needed(line[:TOGETHER_AT_MOST], enough) for line in (candidates, *_by_node(candidates))]
    return min((claims for claims in found if claims), key=len, default=[])


def _by_node(candidates: list[Claim]) -> list[list[Claim]]:
    """The claims of each node, for the nodes of the first few candidates: room has to be in one place."""
    lines: dict[str, list[Claim]] = {}
    for claim in candidates:
        if claim.place in lines or (claim.place and len(lines) < NODES_AT_MOST):
            lines.setdefault(claim.place, []).append(claim)
    return list(lines.values())


def _needed(line: list[Claim], enough: Callable[[list[Claim]], bool]) -> list[Claim]:
    """The shortest beginning of the line that is enough, without those who can be spared; empty: not even all are."""
    if len(line) < 2 or not enough(line):
        return []
    low, high = 1, len(line)  # the first ``high`` are enough
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(line[:middle]) else (middle + 1, high)
    chosen = line[:high]
    for claim in reversed(line[: high - 1]):
        fewer = [other for other in chosen if other is not claim]
        if enough(fewer):
            chosen = fewer
    return chosen
