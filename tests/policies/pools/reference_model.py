"""The reference model of the pools policy: every answer from scratch, with dictionaries and fractions."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from bursar.policies.pools.settings import DEFAULT, ROOT, SYSTEM

Amounts = dict[str, int]
RESOURCES = ("cpu", "memory")
INNER = "(own pods)"


@dataclass
class ReferenceQuota:
    parent: str
    maximum: Amounts
    minimum: Amounts
    weight: Amounts
    is_parent: bool = False
    lends: bool = True
    tree: str = ""
    namespaces: tuple[str, ...] = ()
    is_root: bool = False


@dataclass
class ReferenceClaim:
    namespace: str
    label: str
    wants: Amounts
    firm: bool
    placed: bool = False


@dataclass
class ReferenceModel:
    """What there is; nothing derived is kept."""

    quotas: dict[str, ReferenceQuota] = field(default_factory=dict)
    nodes: dict[str, tuple[str, Amounts]] = field(default_factory=dict)  # pool, amounts
    pools: dict[str, str] = field(default_factory=dict)  # pool -> tree
    claims: dict[str, ReferenceClaim] = field(default_factory=dict)
    guarantee: bool = False

    # Structure

    def path(self, name: str) -> list[str] | None:
        """From the quota to the top; None when it hangs on no root."""
        found = [name]
        while self.quotas[found[-1]].parent != ROOT:
            above = self.quotas[found[-1]].parent
            if above not in self.quotas or above in found or not self.quotas[above].is_parent:
                return None
            if self.quotas[above].tree != self.quotas[name].tree:
                return None
            found.append(above)
        return found

    def settle_trees(self) -> None:
        """A quota belongs to the tree of its parent, unless that is below it."""
        moved = True
        while moved:
            moved = False
            for name, quota in self.quotas.items():
                above = self.quotas.get(quota.parent)
                if above is not None and above.tree != quota.tree and not self._is_below(quota.parent, name):
                    quota.tree = above.tree
                    moved = True

    def _is_below(self, name: str, ancestor: str) -> bool:
        seen: list[str] = []
        while name in self.quotas and name not in seen and name != ancestor:
            seen.append(name)
            name = self.quotas[name].parent
        return name == ancestor

    def children(self, tree: str, name: str) -> list[str]:
        """Tied ones; for ROOT the first level."""
        return sorted(
            child
            for child, quota in self.quotas.items()
            if quota.parent == name and quota.tree == tree and self.path(child) is not None
        )

    def quota_of(self, claim: ReferenceClaim) -> str:
        if claim.label:
            return claim.label if claim.label in self.quotas else DEFAULT
        listing = sorted(name for name, quota in self.quotas.items() if claim.namespace in quota.namespaces)
        return listing[0] if listing else DEFAULT

    def total(self, tree: str, resource: str) -> int:
        return sum(has.get(resource, 0) for pool, has in self.nodes.values() if self.pools.get(pool, "") == tree)

    # Demand and use

    def counted(self, claim: ReferenceClaim, name: str) -> bool:
        if claim.placed:
            return True
        for at in self.path(name) or [name]:
            maximum = self.quotas[at].maximum
            if any(claim.wants[r] > maximum[r] for r in RESOURCES if r in maximum):
                return False
        tree = self.quotas[name].tree
        return any(
            self.pools.get(pool, "") == tree and all(claim.wants[r] <= has[r] for r in RESOURCES)
            for pool, has in self.nodes.values()
        )

    def own(self, name: str, resource: str, *, used: bool = False, firm: bool = False) -> int:
        return sum(
            claim.wants[resource]
            for claim in self.claims.values()
            if self.quota_of(claim) == name
            and resource in self.quotas[name].maximum
            and (claim.placed if used else self.counted(claim, name))
            and (claim.firm or not firm)
        )

    def used(self, name: str, resource: str) -> int:
        quota = self.quotas[name]
        below = sum(self.used(child, resource) for child in self.children(quota.tree, name))
        return below + self.own(name, resource, used=True) if resource in quota.maximum else below

    def least(self, name: str, resource: str) -> int:
        """The min; of a root quota what its tree has."""
        quota = self.quotas[name]
        return self.total(quota.tree, resource) if quota.is_root else quota.minimum.get(resource, 0)

    def base(self, name: str, resource: str) -> int:
        least = self.least(name, resource)
        return max(least, self.kept(name, resource)) if self.guarantee else least

    def kept(self, name: str, resource: str) -> int:
        quota = self.quotas[name]
        below = sum(self.kept(child, resource) for child in self.children(quota.tree, name))
        return max(self.least(name, resource), below + self.own(name, resource, used=True))

    def lim(self, name: str, resource: str) -> int:
        quota = self.quotas[name]
        asked = self.own(name, resource) + sum(self.lim(c, resource) for c in self.children(quota.tree, name))
        if not self.lends(name):
            asked = max(asked, self.least(name, resource))
        return min(asked, quota.maximum.get(resource, asked))

    def lends(self, name: str) -> bool:
        return self.quotas[name].lends and not self.guarantee

    # Runtime

    def available(self, tree: str, resource: str) -> int:
        aside = sum(
            claim.wants[resource]
            for claim in self.claims.values()
            if claim.placed and self.quota_of(claim) in (DEFAULT, SYSTEM)
        )
        return max(0, self.total(tree, resource) - (aside if tree == "" else 0))

    def runtimes(self, tree: str, resource: str) -> dict[str, int]:
        """Of every tied quota of a tree; of own pods of parents under ``INNER + name``."""
        found: dict[str, int] = {}
        self._share(tree, resource, ROOT, self.available(tree, resource), found)
        return found

    def _share(self, tree: str, resource: str, parent: str, total: int, found: dict[str, int]) -> None:
        rows: list[tuple[str, int, int, int, bool]] = []  # name, lim, base, weight, lends
        if parent != ROOT and self.quotas[parent].is_parent:
            own = self.own(parent, resource)
            kept = self.own(parent, resource, used=True) if self.guarantee else 0
            rows.append((INNER + parent, own, kept, self.weight(parent, resource), not self.guarantee))
        for name in self.children(tree, parent):
            base = self.base(name, resource)
            rows.append((name, self.lim(name, resource), base, self.weight(name, resource), self.lends(name)))
        rows.sort(key=lambda row: (row[0].removeprefix(INNER), not row[0].startswith(INNER)))
        shares = share(total, [row[1:] for row in rows])
        for row, amount in zip(rows, shares, strict=True):
            found[row[0]] = amount
            if not row[0].startswith(INNER):
                self._share(tree, resource, row[0], amount, found)

    def weight(self, name: str, resource: str) -> int:
        quota = self.quotas[name]
        return quota.weight.get(resource, quota.maximum[resource]) if resource in quota.maximum else 0

    # Admission

    def admits(self, claim: ReferenceClaim) -> bool:
        name = self.quota_of(claim)
        if name in (DEFAULT, SYSTEM):
            return True
        path = self.path(name)
        if path is None or not self.counted(claim, name):
            return False
        for resource in RESOURCES:
            runtimes = self.runtimes(self.quotas[name].tree, resource)
            wanted = claim.wants[resource]
            if wanted == 0 or resource not in self.quotas[name].maximum:
                continue
            if self.quotas[name].is_parent and self.own(name, resource, used=True) + wanted > runtimes[INNER + name]:
                return False
            if any(self.used(at, resource) + wanted > runtimes[at] for at in path):
                return False
            firm = self.own(name, resource, used=True, firm=True)
            if claim.firm and firm + wanted > self.quotas[name].minimum.get(resource, 0):
                return False
        return True


def share(total: int, rows: list[tuple[int, int, int, bool]]) -> list[int]:
    """The rule of the proposal and its rulings; rows: lim, base, weight, lends."""
    needs = [min(lim, base) if lends else base for lim, base, _, lends in rows]
    if sum(needs) > total:
        return split(total, needs)
    granted = list(needs)
    pool = total - sum(needs)
    hungry = [i for i, (lim, _, weight, _) in enumerate(rows) if lim > granted[i] and weight > 0]
    while pool and hungry:
        for i, more in zip(hungry, split(pool, [rows[i][2] for i in hungry]), strict=True):
            granted[i] += more
        pool = sum(max(0, granted[i] - rows[i][0]) for i in hungry)
        for i in hungry:
            granted[i] = min(granted[i], rows[i][0])
        hungry = [i for i in hungry if granted[i] < rows[i][0]]
    return granted


def split(total: int, weights: list[int]) -> list[int]:
    exact = [Fraction(total * weight, sum(weights)) for weight in weights]
    shares = [int(part) for part in exact]
    for i in sorted(range(len(weights)), key=lambda i: (shares[i] - exact[i], i))[: total - sum(shares)]:
        shares[i] += 1
    return shares
