"""Whom a claim of an elastic quota may displace, and which sets of victims are legal.

Classes, pool and shares are those of when the search began, with the claimant in and no claim evicted. They are
computed when they are needed, and ``keep`` remembers them before a quota changes. What the claimant's quota *ends*
with, and what a victim's quota is *left* with, is judged on the final state, with all victims gone.

There are three ways to be in the right:

* ``OWN``: all victims are of its own quota, of strictly lower priority and not of a better class than itself;
* ``MIN``: the claimant is in-quota and its quota ends within min; over-quota claims of other quotas may go, too;
* ``SHARE``: it is at least within-share and its quota ends within min + guaranteed; beyond-share claims of quotas that
  use more than min + guaranteed of a short dimension may go, too. It takes no quota from at or above min to below.

On a full node a short dimension that a quota's min does not list is nothing that the quota guarantees: its use counts
as beyond-share there. If that holds for the claimant, its rights reach as far as its min: a victim must hold some of a
short dimension that the claimant's quota lists, and is in the class that it has by those. GPUs count as listed where
gpu-memory is, which is derived from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, cast, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account
from bursar.policies.elastic.fair_share import ANY_PRIORITY, ClassQueue, Standing, guaranteed
from bursar.policies.elastic.member_order import Member, before
from bursar.policies.elastic.quota import ElasticQuotaState
from bursar.policies.elastic.quotas import QuotaBook
from bursar.policies.elastic.settings import BEYOND_SHARE, IN_MIN, TOTAL, WITHIN_SHARE
from bursar.policies.rights import Allowance, Contender, Rights, Row, Shortage
from bursar.resources import Vector, dimension

_PODS: Final = dimension("pods").index  # every claim takes one of a node
OWN: Final = 0
MIN: Final = 1
SHARE: Final = 2


@final
class ElasticRights(Rights):
    """The rights of one claimant."""

    def __init__(
        self, book: QuotaBook, claim: Claim, quota: ElasticQuotaState, cost: Vector, accounts: dict[str, Account]
    ) -> None:
        super().__init__(claim)
        self.book: Final = book
        self.quota: Final = quota
        self.accounts: Final = accounts
        self.account: Final = accounts[quota.account]
        self.total: Final = accounts[TOTAL]
        measure = quota.measure(cost)
        amounts = measure.amounts
        self.amounts: Final = amounts
        used = [quota.used[k] + amounts[k] for k in range(len(amounts))]
        self.pool: Final = dict(book.pool)
        for k in range(len(amounts)):
            self.pool[quota.dims[k]] += max(0, quota.floor[k] - used[k]) - quota.idle[k]
        share = self.share(quota)
        newcomer = quota.order.member(claim, measure)
        quota.order.insert(newcomer)
        inside = quota.order.compute_first_fit(quota.floor)
        self.own: Final = Standing(used, share, inside, quota.order.compute_first_fit(share))
        quota.order.take_out(newcomer)
        self.rank: Final = self.own.rank(newcomer)
        self.above_min: Final = self._above(quota.floor)
        self.above_share: Final = self._above(share)
        self.standings: Final[dict[str, Standing]] = {quota.id: self.own}
        self.homes: Final[dict[str, ElasticQuotaState | None]] = {}  # by namespace
        self.last_shortage: Shortage | None = None
        self.last_claimed: list[Row] = []
        self.floors: Final[dict[tuple[str, int], Allowance]] = {}
        self.others: int = -1  # whether other quotas may lose anything; -1: was not asked yet

    def _above(self, caps: list[int]) -> list[Row]:
        """What of its own quota must go so that it ends within the caps, where the claimant requests something."""
        used = self.own.used
        return [
            Row(self.account, self.quota.dims[k], used[k] - caps[k])
            for k in range(len(caps))
            if self.amounts[k] > 0 and used[k] > caps[k]
        ]

    def share(self, quota: ElasticQuotaState) -> list[int]:
        """Min + guaranteed, with the claimant in."""
        total = self.book.total_min
        return [
            floor + guaranteed(self.pool[quota.dims[k]], floor, total[quota.dims[k]])
            for k, floor in enumerate(quota.floor)
        ]

    def keep(self, quota: ElasticQuotaState) -> None:
        """Remembers the classes of a quota that is about to change."""
        if quota.id not in self.standings:
            self.standing(quota)

    def standing(self, quota: ElasticQuotaState) -> Standing:
        known = self.standings.get(quota.id)
        if known is None:
            known = quota.standing(self.share(quota))
            self.standings[quota.id] = known
        return known

    # The ways

    def ways(self) -> list[int]:
        if self.rank == IN_MIN and not self.above_min:
            return [MIN]
        found: list[int] = []
        if self.rank == IN_MIN:
            found.append(MIN)
        if self.rank >= WITHIN_SHARE:
            found.append(SHARE)
            if not self.above_share:
                return found
        found.append(OWN)
        return found

    def needs(self, way: int) -> list[Row]:
        return self.above_min if way == MIN else self.above_share if way == SHARE else []

    # Contenders

    def contender(self, way: int, victim: Claim, shortage: Shortage) -> Contender | None:
        namespace = victim.namespace
        if namespace not in self.homes:
            self.homes[namespace] = self.book.governing(namespace)
        quota = self.homes[namespace]
        if quota is None:
            return None
        member = quota.members.get(victim.uid)
        if member is None:
            return None
        rank = self.rank_of(way, quota, member, shortage)
        return None if rank < 0 else self._contender(way, quota, member, rank)

    def _contender(self, way: int, quota: ElasticQuotaState, member: Member, rank: int) -> Contender | None:
        found = Contender(member.claim, rank, quota.id, member)
        if way == SHARE and quota is not self.quota:
            for k in range(len(member.shape.amounts)):
                floor = self._floor(quota, k)
                if member.shape.amounts[k] > 0 and floor.left >= 0:
                    if member.shape.amounts[k] > floor.left:
                        return None  # its loss alone would take its quota below min
                    found.load(floor, member.shape.amounts[k])
        return found

    def _floor(self, quota: ElasticQuotaState, k: int) -> Allowance:
        """What the quota may lose of one dimension without falling below min; negative if it is below already."""
        key = (quota.id, k)
        found = self.floors.get(key)
        if found is None:
            found = Allowance(f"min of {quota.id}", self.standing(quota).used[k] - quota.floor[k])
            self.floors[key] = found
        return found

    def spares(self, quota: ElasticQuotaState, member: Member) -> bool:
        """Whether fair sharing may not take the member, because its loss alone would take its quota below min."""
        return self._contender(SHARE, quota, member, BEYOND_SHARE) is None

    def rank_of(self, way: int, quota: ElasticQuotaState, member: Member, shortage: Shortage) -> int:
        """The class by which a member may be displaced at a place; -1 if the claimant may not displace it."""
        rank = self.standing(quota).rank(member)
        on_node = member.claim.place == shortage.place
        if quota is self.quota:
            if on_node and self._unlisted(quota, member.claim, shortage.on_node):
                rank = BEYOND_SHARE
            lower = member.priority < self.claimant.spec.priority
            return rank if lower and rank <= self.rank else -1
        if way == OWN:
            return -1
        claimed = self._claimed(shortage) if on_node else []
        if not _holds(member.claim, claimed) and not self._relieves_total(quota, member, shortage):
            return -1
        if self._unlisted(quota, member.claim, claimed):
            return BEYOND_SHARE
        if way == MIN:
            return rank if rank < IN_MIN else -1
        return rank if rank == BEYOND_SHARE and self._exceeds(quota, shortage) else -1

    def _claimed(self, shortage: Shortage) -> list[Row]:
        """The shortages of the node by which others may be displaced; kept for the last node."""
        if shortage is not self.last_shortage:
            rows = shortage.on_node
            if self._unlisted(self.quota, self.claimant, rows):
                rows = [row for row in rows if self.position(self.quota, row.dim) >= 0]
            self.last_shortage = shortage
            self.last_claimed = rows
        return self.last_claimed

    def _relieves_total(self, quota: ElasticQuotaState, member: Member, shortage: Shortage) -> bool:
        for row in shortage.rows:
            if row.account is self.total and member.measure.cost.get(row.dim) > 0 and quota.position(row.dim) >= 0:
                return True
        return False

    def _exceeds(self, quota: ElasticQuotaState, shortage: Shortage) -> bool:
        """Whether a quota uses more than min + guaranteed of a short dimension; of an unlisted one, any."""
        standing = self.standing(quota)
        for row in shortage.rows:
            k = self.position(quota, row.dim)
            if k >= 0 and standing.used[k] > standing.share[k]:
                return True
        for row in shortage.on_node:
            k = self.position(quota, row.dim)
            if standing.used[k] > standing.share[k] if k >= 0 else self.accounts[quota.account].used.get(row.dim) > 0:
                return True
        return False

    def _unlisted(self, quota: ElasticQuotaState, claim: Claim, rows: list[Row]) -> bool:
        """Whether the claim requests something that the node is short of and that the quota does not guarantee."""
        for row in rows:
            if claim.spec.quota_requests.get(row.dim) > 0 and self.position(quota, row.dim) < 0:
                return True
        return False

    def position(self, quota: ElasticQuotaState, dim: int) -> int:
        """The index at which a quota counts a dimension or the gpu-memory derived from it; -1 if it does not."""
        k = quota.position(dim)
        memory = self.book.memory
        return k if k >= 0 or memory.size(dim) == 0 else quota.position(memory.index)

    def precedes(self, one: Contender, other: Contender) -> bool:
        """The last in the order of a quota is its least important."""
        return before(cast("Member", other.member), cast("Member", one.member))

    def may_help(self, slot: int, least: Claim) -> bool:
        """Without lower priority on the node only other quotas can lose something: what they borrow or do not list."""
        if least.spec.priority < self.claimant.spec.priority:
            return True
        if self.others < 0:
            self.others = 1 if self._others_may_lose() else 0
        return self.others > 0

    def _others_may_lose(self) -> bool:
        book = self.book
        if len(book.quotas) - len(book.removed) < 2 or self.ways() == [OWN]:
            return False
        if self.vary_by_node():
            return True
        borrowers = len(book.refresh_heads())
        return borrowers > (1 if self.quota.id in book.heads_of else 0)

    def vary_by_node(self) -> bool:
        """Whether some quota does not list what the claimant requests: its claims are beyond-share on full nodes."""
        for dim in self.claimant.spec.quota_requests.indices():
            if self._left_out(dim):
                return True
        return False

    def vary_where(self, lacking: list[Row]) -> bool:
        for row in lacking:
            if self._left_out(row.dim):
                return True
        return False

    def _left_out(self, dim: int) -> bool:
        """Whether some quota in force does not list the dimension."""
        return self.book.listing.get(dim, 0) < len(self.book.quotas) - len(self.book.removed)

    def everywhere(self, way: int, shortage: Shortage) -> Iterator[Contender]:
        total = False
        for row in shortage.rows:
            total = total or row.account is self.total
        exceeding: dict[str, bool] = {}
        for rank in (BEYOND_SHARE, WITHIN_SHARE, IN_MIN):
            others = total and (rank < IN_MIN if way == MIN else way == SHARE and rank == BEYOND_SHARE)
            for quota, member in self.of_rank(rank, others):
                if way == SHARE and quota is not self.quota:
                    if quota.id not in exceeding:
                        exceeding[quota.id] = self._exceeds(quota, shortage)
                    if not exceeding[quota.id]:
                        continue
                found = self._contender(way, quota, member, rank)
                if found is not None:
                    yield found

    def of_rank(self, rank: int, others: bool) -> Iterator[tuple[ElasticQuotaState, Member]]:
        """The members of one class: lower priority first, then newest, then by quota.

        Quotas come by the first of their over-quota claims, so that only those whose turn may have come are evaluated.
        A heap holds the next member of each of them.
        """
        below = self.claimant.spec.priority
        queues: list[tuple[ElasticQuotaState, ClassQueue]] = []
        heap: list[tuple[int, int, str, int]] = []
        if rank <= self.rank:
            queues.append((self.quota, ClassQueue(self.quota.order, self.own, rank, below)))
            _push(heap, queues, 0)
        heads = iter(self.book.refresh_heads() if others else ())
        head = next(heads, None)
        while head is not None or heap:
            if head is not None and (not heap or head < heap[0][:3]):
                quota = self.book.quotas[cast("str", head[2])]
                if quota is not self.quota:
                    queues.append((quota, ClassQueue(quota.order, self.standing(quota), rank, ANY_PRIORITY)))
                    _push(heap, queues, len(queues) - 1)
                head = next(heads, None)
                continue
            number = heappop(heap)[3]
            quota, queue = queues[number]
            member = queue.advance()
            if member is not None:
                yield quota, member
            _push(heap, queues, number)

    # The last word

    def judge(self, victims: list[Claim], returning: list[Claim], shortage: Shortage) -> str:
        """Why the set of victims is not legal in any way, or ""."""
        why = ""
        for way in (MIN, SHARE, OWN):
            if (way == MIN and self.rank < IN_MIN) or (way == SHARE and self.rank < WITHIN_SHARE):
                continue
            why = self._wrong(way, victims, returning, shortage)
            if not why:
                return ""
        return why

    def _wrong(self, way: int, victims: list[Claim], returning: list[Claim], shortage: Shortage) -> str:
        lost: dict[str, list[int]] = {}
        for victim in victims:
            quota = self.book.governing(victim.namespace)
            member = None if quota is None else quota.members.get(victim.uid)
            if quota is None or member is None or self.rank_of(way, quota, member, shortage) < 0:
                return f"it may not displace {victim.key}"
            _count(lost, quota, member.shape.amounts, 1)
        for claim in returning:
            quota = self.book.governing(claim.namespace)
            if quota is not None:
                _count(lost, quota, quota.measure(self.book.memory.cost(claim.spec.quota_requests)).amounts, -1)
        return self._ends_wrong(way, lost)

    def _ends_wrong(self, way: int, lost: dict[str, list[int]]) -> str:
        """Whether its quota ends above what the way allows, or another one falls below its min."""
        freed = lost.get(self.quota.id)
        for row in self.needs(way):
            if freed is None or freed[self.quota.position(row.dim)] < row.amount:
                return "its quota would end above " + ("min" if way == MIN else "min + guaranteed")
        if way == SHARE:
            for id, amounts in lost.items():  # noqa: A001 as the ledger calls it
                quota = self.book.quotas[id]
                for k in range(len(amounts)):
                    if quota is not self.quota and 0 <= self._floor(quota, k).left < amounts[k]:
                        return f"{quota.body.subject} would fall below its min"
        return ""


def _holds(claim: Claim, rows: list[Row]) -> bool:
    for row in rows:
        if claim.spec.quota_requests.get(row.dim) > 0 or row.dim == _PODS:
            return True
    return False


def _count(lost: dict[str, list[int]], quota: ElasticQuotaState, amounts: list[int], sign: int) -> None:
    sums = lost.setdefault(quota.id, [0] * len(amounts))
    for k in range(len(amounts)):
        sums[k] += sign * amounts[k]


def _push(
    heap: list[tuple[int, int, str, int]], queues: list[tuple[ElasticQuotaState, ClassQueue]], number: int
) -> None:
    """Adds the next member of one of the queues to the heap, if there is one."""
    quota, queue = queues[number]
    member = queue.upcoming
    if member is not None:
        heappush(heap, (member.priority, -member.created, quota.id, number))
