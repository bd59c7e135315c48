"""A forest without a ledger, in words of the vectors: cores and units of memory, quotas by name."""

from __future__ import annotations

from collections.abc import Iterable

from bursar.ledger.claims import Claim, ClaimSpec
from bursar.policies.pools.node_pools import NodePools
from bursar.policies.pools.outside_use import OutsideUse
from bursar.policies.pools.quota_node import NO_MAX, Branch
from bursar.policies.pools.settings import DEFAULT, ROOT, SYSTEM, PoolQuotaBody
from bursar.policies.pools.tree import Forest
from bursar.resources import dimension, dimension_at, from_amounts

Amounts = dict[str, int]
G = 2**30


def cm(cores: float, memory: int = 0) -> Amounts:
    """[cores, memory] of the vectors; cpu in thousandths."""
    return {"cpu": round(cores * 1000), "memory": memory}


def cg(cores: float, gibibytes: int) -> Amounts:
    return cm(cores, gibibytes * G)


class Grove:
    """One tree of quotas with demand set by hand."""

    def __init__(self, total: Amounts, guarantee: bool = False) -> None:
        self.outside = OutsideUse(NodePools())
        self.forest = Forest(self.outside)
        self.quotas: dict[str, PoolQuotaBody] = {}
        if guarantee:
            self.forest.set_guarantee(True)
        self.total(total)

    def total(self, amounts: Amounts) -> None:
        self.forest.set_total("", {dimension(name).index: amount for name, amount in amounts.items()})

    def quota(
        self,
        name: str,
        maximum: Amounts,
        minimum: Amounts | None = None,
        parent: str = ROOT,
        *,
        is_parent: bool = False,
        lends: bool = True,
        weight: Amounts | None = None,
    ) -> None:
        quota = PoolQuotaBody(name, "ns", parent, "", is_parent, lends, maximum, minimum or {}, weight or {})
        self.forest.quota_changed(self.quotas.get(name), quota)
        self.quotas[name] = quota

    def remove(self, name: str) -> None:
        self.forest.quota_changed(self.quotas.pop(name), None)

    def ask(self, name: str, amounts: Amounts, sign: int = 1, firm: bool = False) -> None:
        """More (or less) demand of the quota's own pods."""
        self.forest.demand(self.branch(name), from_amounts(amounts), sign, firm)

    def use(self, name: str, amounts: Amounts, sign: int = 1, firm: bool = False) -> None:
        self.forest.use(self.branch(name), from_amounts(amounts), sign)
        if name in (SYSTEM, DEFAULT):
            self.outside.charged(Claim("outside", ClaimSpec()), from_amounts(amounts), sign)
        if firm:
            self.forest.use_non_preemptible(self.branch(name), from_amounts(amounts), sign)

    def branch(self, name: str) -> Branch:
        return self.forest.tree("").root if name == ROOT else self.forest.branch("", name)

    def runtime(self, name: str) -> Amounts:
        """Masked by the keys of max, zeros dropped."""
        branch = self.branch(name)
        assert self.forest.refresh(branch)
        return self._managed(branch, branch.runtime)

    def request(self, name: str) -> Amounts:
        return self._shown(self.branch(name).request)

    def child_request(self, name: str) -> Amounts:
        return self._shown(self.branch(name).child_request)

    def lim(self, name: str) -> Amounts:
        return self._shown(self.branch(name).lim)

    def kept(self, name: str) -> tuple[Amounts, Amounts]:
        """(allocated, guaranteed)"""
        branch = self.branch(name)
        return self._shown(branch.allocated), self._shown(branch.guaranteed)

    def floor(self, name: str) -> Amounts:
        branch = self.branch(name)
        self.forest.refresh(branch)
        return self._shown([branch.floor(slot) for slot in range(len(branch.own_request))])

    def _shown(self, amounts: Iterable[int]) -> Amounts:
        return {dimension_at(self.forest.dims[slot]).name: a for slot, a in enumerate(amounts) if a}

    def _managed(self, branch: Branch, amounts: Iterable[int]) -> Amounts:
        return self._shown([a if branch.maxima[slot] != NO_MAX else 0 for slot, a in enumerate(amounts)])


def shown(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in sorted(amounts.items()) if amount}
