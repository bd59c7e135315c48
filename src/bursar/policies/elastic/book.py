"""All quotas, and the sums over them: what is lent to the pool, the sum of all minimums, who borrows.

Changed only by cells and charges, done, undone or replayed. A quota takes part in a dimension only if its min lists it;
a removed one takes part in nothing, but is known as long as claims stand on its accounts.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.ledger.ordered import Ordered
from bursar.policies.elastic.classes import first_victim, guaranteed
from bursar.policies.elastic.gpu_memory import GpuMemory
from bursar.policies.elastic.quota import Quota
from bursar.policies.elastic.settings import BY_PRIORITY, DEFAULT_OPTIONS, IN_FORCE, OptionsBody, body_of, state_of
from bursar.vectors import Vector


@final
class Book:
    """Quotas by id, by account and by namespace."""

    __slots__ = (
        "by_account",
        "by_namespace",
        "heads",
        "heads_of",
        "listing",
        "memory",
        "options",
        "pool",
        "quotas",
        "removed",
        "stale",
        "total_min",
    )

    def __init__(self) -> None:
        self.options: OptionsBody = DEFAULT_OPTIONS
        self.memory: GpuMemory = GpuMemory(DEFAULT_OPTIONS.gpu_gb, DEFAULT_OPTIONS.slices)
        self.quotas: Final[dict[str, Quota]] = {}
        self.by_account: Final[dict[str, Quota]] = {}
        self.by_namespace: Final[dict[str, str]] = {}  # ids
        self.removed: Final[set[str]] = set()  # ids of those no longer in force
        self.pool: Final[dict[int, int]] = {}  # by dimension: what quotas leave unused of their min
        self.total_min: Final[dict[int, int]] = {}
        self.listing: Final[dict[int, int]] = {}  # how many quotas list the dimension; it has sums only while some do
        self.heads: Final = Ordered()  # of the quotas with over-quota claims; see refresh_heads
        self.heads_of: Final[dict[str, tuple[object, ...]]] = {}  # by id
        self.stale: Final[set[str]] = set()  # ids whose head may be another one now

    # Settings

    def set_options(self, options: OptionsBody) -> None:
        reorder = options.order != self.options.order
        self.options = options
        self.memory = GpuMemory(options.gpu_gb, options.slices)
        for quota in list(self.quotas.values()):
            if reorder:
                self._replace(quota, Quota(quota.id, quota.body, options.order == BY_PRIORITY, quota.state))
            else:
                quota.bindings.clear()  # they hold costs

    def set_quota(self, id: str, cell: tuple[object, ...] | None) -> None:  # noqa: A002 as the ledger calls it
        """The quota's cell changed. Whoever counts in its account still does."""
        known = self.quotas.get(id)
        new = None
        if cell is not None:
            new = Quota(id, body_of(cell), self.options.order == BY_PRIORITY, state_of(cell))
        self._replace(known, new)

    def _replace(self, old: Quota | None, new: Quota | None) -> None:
        if old is not None:
            self._take_out(old)
        if new is not None:
            self._put_in(new)
            if old is not None:
                for member in old.members.values():
                    self.shift(new, member.claim, member.cost, 1)

    def _take_out(self, quota: Quota) -> None:
        del self.quotas[quota.id]
        del self.by_account[quota.account]
        self.stale.add(quota.id)
        self.removed.discard(quota.id)
        if quota.state != IN_FORCE:
            return
        self._lend(quota, -1)
        for namespace in quota.body.namespaces:
            del self.by_namespace[namespace]

    def _put_in(self, quota: Quota) -> None:
        self.quotas[quota.id] = quota
        self.by_account[quota.account] = quota
        if quota.state != IN_FORCE:
            self.removed.add(quota.id)
            return
        self._lend(quota, 1)
        for namespace in quota.body.namespaces:
            self.by_namespace[namespace] = quota.id

    def _lend(self, quota: Quota, sign: int) -> None:
        for k in range(len(quota.dims)):
            dim = quota.dims[k]
            self.pool[dim] = self.pool.get(dim, 0) + sign * quota.idle[k]
            self.total_min[dim] = self.total_min.get(dim, 0) + sign * quota.floor[k]
            self.listing[dim] = self.listing.get(dim, 0) + sign
            if self.listing[dim] == 0:
                del self.pool[dim]
                del self.total_min[dim]
                del self.listing[dim]

    # Charges

    def shift(self, quota: Quota, claim: Claim, cost: Vector, sign: int) -> None:
        """The claim starts (+1) or stops (-1) to count in the quota."""
        amounts = quota.add(claim, cost) if sign > 0 else quota.remove(claim)
        used = quota.used
        if quota.state != IN_FORCE:
            for k in range(len(amounts)):
                used[k] += sign * amounts[k]
            return
        idle = quota.idle
        over = False
        for k in range(len(amounts)):
            now = used[k] + sign * amounts[k]
            used[k] = now
            left = quota.floor[k] - now
            if left < 0:
                over = True
                left = 0
            if left != idle[k]:
                self.pool[quota.dims[k]] += left - idle[k]
                idle[k] = left
        if over or quota.id in self.heads_of:
            self.stale.add(quota.id)

    def refresh_heads(self) -> Ordered:
        """The quotas that have over-quota claims, by the claim that would have to go first."""
        for id in sorted(self.stale):  # noqa: A001 as the ledger calls it
            old = self.heads_of.pop(id, None)
            if old is not None:
                self.heads.remove(old)
            quota = self.quotas.get(id)
            first = None if quota is None or quota.state != IN_FORCE else first_victim(quota.walk())
            if first is not None:
                head: tuple[object, ...] = (*first, id)
                self.heads_of[id] = head
                self.heads.add(head)
        self.stale.clear()
        return self.heads

    # Answers

    def governing(self, namespace: str) -> Quota | None:
        found = self.by_namespace.get(namespace)
        return None if found is None else self.quotas[found]

    def guaranteed(self, quota: Quota) -> list[int]:
        """The over-quota guaranteed to the quota now, aligned with its dimensions."""
        return [guaranteed(self.pool[dim], quota.floor[k], self.total_min[dim]) for k, dim in enumerate(quota.dims)]

    def share(self, quota: Quota) -> list[int]:
        """Min + guaranteed."""
        extra = self.guaranteed(quota)
        return [quota.floor[k] + extra[k] for k in range(len(extra))]

    def live(self) -> list[Quota]:
        """The quotas in force, by id."""
        return [self.quotas[id] for id in sorted(self.quotas) if self.quotas[id].state == IN_FORCE]  # noqa: A001
