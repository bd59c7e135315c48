"""A search for victims: which claims a claimant may preempt, by the state before any of them has left.

Classes, pool and guaranteed shares are those of when the search began, with the claimant admitted and no claim evicted.
They are computed when they are needed: ``keep`` is called before a quota changes, and remembers its state.

The rights of a claimant:

* in its own quota: strictly lower priority, and not of a better class than itself;
* in other quotas, when it is in-quota and its quota ends within min: over-quota claims;
* in other quotas, when it is at least within-share and its quota ends within min + guaranteed: beyond-share claims of
  quotas that use more than min + guaranteed of a short dimension.

On a full node a short dimension that a quota's min does not list is nothing that the quota guarantees: its use counts
as beyond-share there, the claimant's own use too. GPUs count as listed where gpu-memory is, which is derived from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, cast, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import Ordered
from bursar.policies.elastic.fair_share import (
    Member,
    Standing,
    guaranteed,
    in_victim_order,
    standing_of,
    victim_key,
    walk_against_min,
)
from bursar.policies.elastic.quota import ElasticQuotaState
from bursar.policies.elastic.quotas import QuotaBook
from bursar.policies.elastic.settings import BEYOND_SHARE, IN_MIN, WITHIN_SHARE
from bursar.resources import Vector


@final
class Candidate:
    """A claim that might be preempted."""

    __slots__ = ("member", "quota")

    def __init__(self, quota: ElasticQuotaState, member: Member) -> None:
        self.quota: Final = quota
        self.member: Final = member


@final
class Search:
    """The rights of one claimant, and the candidates in their order."""

    __slots__ = (
        "amounts",
        "book",
        "claim",
        "claims_min",
        "claims_share",
        "heads",
        "kept",
        "members",
        "own",
        "pool",
        "quota",
        "rank",
    )

    def __init__(self, book: QuotaBook, claim: Claim, quota: ElasticQuotaState, cost: Vector) -> None:
        self.book: Final = book
        self.claim: Final = claim
        self.quota: Final = quota
        measure = quota.measure(cost)
        amounts = measure.amounts
        self.amounts: Final = amounts
        used = [quota.used[k] + amounts[k] for k in range(len(amounts))]
        self.pool: Final = dict(book.pool)
        for k in range(len(amounts)):
            self.pool[quota.dims[k]] += max(0, quota.floor[k] - used[k]) - quota.idle[k]
        newcomer = Member(claim, cost, amounts)
        newcomer.key = quota.key(claim, measure)
        self.members: Final = _insert(quota.in_order(), newcomer)
        share = self.share(quota)
        self.own: Final = standing_of(walk_against_min(self.members, quota.floor), used, share)
        self.rank: Final = self.own.rank(claim.uid)
        self.claims_min: Final = self.rank == IN_MIN and _within(used, amounts, quota.floor)
        self.claims_share: Final = self.rank >= WITHIN_SHARE and _within(used, amounts, share)
        self.kept: Final[dict[str, Standing]] = {}
        self.heads: Final = book.refresh_heads() if self.claims_share else Ordered()

    def share(self, quota: ElasticQuotaState) -> list[int]:
        """Min + guaranteed, with the claimant admitted."""
        total = self.book.total_min
        return [
            floor + guaranteed(self.pool[quota.dims[k]], floor, total[quota.dims[k]])
            for k, floor in enumerate(quota.floor)
        ]

    def keep(self, quota: ElasticQuotaState) -> None:
        """Remembers the state of a quota that is about to change."""
        if quota is not self.quota and quota.id not in self.kept:
            self.kept[quota.id] = quota.standing(self.share(quota))

    def standing(self, quota: ElasticQuotaState) -> Standing:
        if quota is self.quota:
            return self.own
        known = self.kept.get(quota.id)
        if known is None:
            known = quota.standing(self.share(quota))
            self.kept[quota.id] = known
        return known

    # Candidates

    def candidates(self, own_only: bool) -> Iterator[Candidate]:
        """The claims that might be preempted, the worst class first; ``may_take`` decides."""
        for rank in (BEYOND_SHARE, WITHIN_SHARE, IN_MIN):
            others = rank < IN_MIN and (self.claims_min or (self.claims_share and rank == BEYOND_SHARE))
            yield from self._of_rank(rank, others and not own_only)

    def _of_rank(self, rank: int, others: bool) -> Iterator[Candidate]:
        """Lower priority first, then newest, then by quota.

        Quotas come by the first of their over-quota claims, so that only those whose turn may have come are evaluated.
        A heap holds the next candidate of each of them.
        """
        lists: list[tuple[ElasticQuotaState, list[Member]]] = [(self.quota, self._own_of(rank))]
        heap: list[tuple[int, int, str, int, int]] = []
        _push(heap, lists, 0, 0)
        heads = iter(self.heads) if others else iter(())
        head = next(heads, None)
        while head is not None or heap:
            if head is not None and (not heap or head < heap[0][:3]):
                quota = self.book.quotas[cast("str", head[2])]
                if quota is not self.quota:
                    standing = self.standing(quota)
                    lists.append((quota, standing.beyond if rank == BEYOND_SHARE else standing.within))
                    _push(heap, lists, len(lists) - 1, 0)
                head = next(heads, None)
                continue
            at, number = heappop(heap)[3:]
            quota, members = lists[number]
            yield Candidate(quota, members[at])
            _push(heap, lists, number, at + 1)

    def _own_of(self, rank: int) -> list[Member]:
        """The claims of its own quota that it outranks, of one class."""
        if rank > self.rank:
            return []
        priority = self.claim.spec.priority
        found = [
            member
            for member in self.members
            if member.claim.spec.priority < priority and self.own.rank(member.claim.uid) == rank
        ]
        return in_victim_order(found)

    def may_take(self, candidate: Candidate, short: Vector) -> bool:
        """Whether the claimant may preempt a candidate for dimensions that the quotas are short of."""
        quota = candidate.quota
        member = candidate.member
        own = quota is self.quota
        touches = False
        for dim in short.indices():
            touches = touches or (member.cost.get(dim) > 0 and (own or quota.position(dim) >= 0))
        if not touches or own:
            return touches
        standing = self.standing(quota)
        rank = standing.rank(member.claim.uid)
        if self.claims_min:
            return rank < IN_MIN
        return self.claims_share and rank == BEYOND_SHARE and self._exceeds(quota, standing, short)

    def _exceeds(self, quota: ElasticQuotaState, standing: Standing, short: Vector) -> bool:
        for dim in short.indices():
            k = self.position(quota, dim)
            if k >= 0 and standing.used[k] > standing.share[k]:
                return True
        return False

    # On a node

    def contest(self, occupants: list[Claim], short: Vector) -> list[Claim]:
        """The occupants of a node that the claimant may preempt for what the node is short of, in order."""
        found: list[tuple[int, ElasticQuotaState, Member]] = []
        exposed = self._unlisted(self.quota, self.claim.spec.requests, short)
        for claim in occupants:
            quota = self.book.governing(claim.namespace)
            member = None if quota is None else quota.members.get(claim.uid)
            if quota is None or member is None:
                continue
            rank = self._rank_on_node(quota, member, short, exposed)
            if rank >= 0:
                found.append((rank, quota, member))
        found.sort(key=_order_key, reverse=True)
        found.sort(key=_contest_key)  # stable: of ties, the last in order comes first
        return [member.claim for _, _, member in found]

    def _rank_on_node(self, quota: ElasticQuotaState, member: Member, short: Vector, exposed: bool) -> int:
        """The class by which an occupant is preempted; -1 if the claimant may not preempt it."""
        claim = member.claim
        standing = self.standing(quota)
        rank = standing.rank(claim.uid)
        if quota is self.quota:
            return rank if claim.spec.priority < self.claim.spec.priority and rank <= self.rank else -1
        if exposed:
            return -1
        unlisted = self._unlisted(quota, claim.spec.requests, short)
        if unlisted:
            rank = BEYOND_SHARE
        if self.claims_min:
            return rank if rank < IN_MIN else -1
        if self.claims_share and rank == BEYOND_SHARE and (unlisted or self._exceeds(quota, standing, short)):
            return rank
        return -1

    def _unlisted(self, quota: ElasticQuotaState, requests: Vector, short: Vector) -> bool:
        """Whether the requests hold something short that the quota does not guarantee."""
        for dim in short.indices():
            if requests.get(dim) > 0 and self.position(quota, dim) < 0:
                return True
        return False

    def position(self, quota: ElasticQuotaState, dim: int) -> int:
        """The index at which a quota counts a dimension or the gpu-memory derived from it; -1 if it does not."""
        k = quota.position(dim)
        memory = self.book.memory
        return k if k >= 0 or memory.size(dim) == 0 else quota.position(memory.index)

    # The last word

    def leaves_min(self, victims: list[Claim]) -> bool:
        """Whether a preemption that does not claim a min leaves all quotas at their min. The victims have left."""
        if self.claims_min:
            return True
        lost: dict[str, list[Claim]] = {}
        for victim in victims:
            quota = self.book.governing(victim.namespace)
            if quota is not None and quota.id != self.quota.id:
                lost.setdefault(quota.id, []).append(victim)
        for id, claims in lost.items():  # noqa: A001 as the ledger calls it
            if not self._keeps_floor(self.book.quotas[id], claims):
                return False
        return True

    def _keeps_floor(self, quota: ElasticQuotaState, left: list[Claim]) -> bool:
        before = list(quota.used)
        for claim in left:
            amounts = quota.measure(self.book.memory.cost(claim.spec.requests)).amounts
            for k in range(len(before)):
                before[k] += amounts[k]
        for k in range(len(before)):
            if quota.used[k] < quota.floor[k] <= before[k]:
                return False
        return True


def _order_key(entry: tuple[int, ElasticQuotaState, Member]) -> tuple[object, ...]:
    return entry[2].key


def _contest_key(entry: tuple[int, ElasticQuotaState, Member]) -> tuple[int, int, int, str]:
    priority, newest = victim_key(entry[2])
    return (entry[0], priority, newest, entry[1].id)


def _within(used: list[int], amounts: list[int], caps: list[int]) -> bool:
    for k in range(len(caps)):
        if amounts[k] > 0 and used[k] > caps[k]:
            return False
    return True


def _insert(members: list[Member], newcomer: Member) -> list[Member]:
    at = 0
    high = len(members)
    while at < high:
        middle = (at + high) // 2
        if members[middle].key < newcomer.key:
            at = middle + 1
        else:
            high = middle
    return [*members[:at], newcomer, *members[at:]]


def _push(
    heap: list[tuple[int, int, str, int, int]],
    lists: list[tuple[ElasticQuotaState, list[Member]]],
    number: int,
    at: int,
) -> None:
    """Adds the candidate at an index of one of the lists to the heap, if there is one."""
    quota, members = lists[number]
    if at < len(members):
        priority, newest = victim_key(members[at])
        heappush(heap, (priority, newest, quota.id, at, number))
