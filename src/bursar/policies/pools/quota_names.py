"""All quotas by name, the rules that hold among them, and which quota a claim belongs to.

A claim belongs to the quota that its label names; else to the quota with the name of its namespace in that namespace;
else to the first quota, by name, whose annotation lists the namespace; else to the default quota. A claim whose label
names no quota belongs to the default quota.

The rules are in ``QuotaNames``. The policy fills it from cells (``Resolver``) and admission from manifests
(``topology``), so both apply the same rules.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.objects.decode import ManifestError
from bursar.policies.pools.settings import DEFAULT, PARENT, QUOTA_OF_POD, ROOT, SYSTEM, TREE, PoolQuotaBody


class QuotaNames:
    """Quotas that can be asked for by name, and the namespaces that they list."""

    def quota(self, name: str) -> PoolQuotaBody | None:
        raise NotImplementedError

    def listing(self, namespace: str) -> list[str]:
        """The quotas that list a namespace, sorted."""
        raise NotImplementedError

    def tree_of(self, quota: PoolQuotaBody) -> str:
        return quota.tree

    def check_name(self, name: str, namespace: str, path: str) -> None:
        """Raises ``ManifestError`` if another namespace has a quota of this name."""
        known = self.quota(name)
        if known is not None and known.namespace != namespace and name not in (SYSTEM, DEFAULT):
            problem = f"there is a quota of this name in namespace {known.namespace}: names are unique in the cluster"
            raise ManifestError(problem, path)

    def misplaced(self, quota: PoolQuotaBody) -> tuple[str, str] | None:
        """(label, problem) that keeps a quota from its parent; None if nothing does."""
        if quota.parent == ROOT:
            return None
        parent = self.quota(quota.parent)
        if parent is None:
            return PARENT, f"there is no quota {quota.parent}"
        tree = self.tree_of(parent)
        if tree != quota.tree:
            return TREE, f"{quota.tree!r} is not {tree!r}, the tree of its parent {parent.name}"
        if not parent.is_parent:
            return PARENT, f"{parent.name} may have no children: its label is-parent is not 'true'"
        if self._is_below(parent.name, quota.name):
            return PARENT, f"{parent.name} is this quota or below it: a quota cannot be below itself"
        return None

    def _is_below(self, name: str, ancestor: str) -> bool:
        """Whether a quota is the ancestor or below it."""
        seen: set[str] = set()
        while name != ancestor:
            quota = self.quota(name)
            if quota is None or name in seen:
                return False
            seen.add(name)
            name = quota.parent
        return True

    def name_of(self, namespace: str, labels: Mapping[str, str]) -> str:
        """The name of the quota of a pod."""
        wanted = labels.get(QUOTA_OF_POD, "")
        if wanted:
            return wanted if wanted != ROOT and self.quota(wanted) is not None else DEFAULT
        found = self.quota(namespace)
        if found is not None and found.namespace == namespace:
            return namespace
        listing = self.listing(namespace)
        return listing[0] if listing else DEFAULT


_NONE: Final[list[str]] = []


@final
class Resolver(QuotaNames):
    """The quotas in force, and the claims of the default quota."""

    def __init__(self) -> None:
        self.quotas: Final[dict[str, PoolQuotaBody]] = {}
        self.lists: Final[dict[str, list[str]]] = {}  # namespace -> quotas that list it, sorted
        self.below: Final[dict[str, list[str]]] = {}  # quota -> those that name it as their parent, sorted
        self.by_namespace: Final[dict[str, dict[str, Claim]]] = {}  # unlabelled claims of the default quota
        self.strays: Final[dict[str, Claim]] = {}  # those whose label names no quota

    def quota_changed(self, old: PoolQuotaBody | None, new: PoolQuotaBody | None) -> None:
        if old is not None:
            del self.quotas[old.name]
            if old.parent != ROOT:
                _leave(self.below, old.parent, old.name)
            for namespace in old.namespaces:
                _leave(self.lists, namespace, old.name)
        if new is not None:
            self.quotas[new.name] = new
            if new.parent != ROOT:
                insort(self.below.setdefault(new.parent, []), new.name)
            for namespace in new.namespaces:
                insort(self.lists.setdefault(namespace, []), new.name)

    def quota(self, name: str) -> PoolQuotaBody | None:
        return self.quotas.get(name)

    def in_its_tree(self, quota: PoolQuotaBody) -> PoolQuotaBody:
        """The quota in the tree of its parent, whatever its label says."""
        parent = self.quotas.get(quota.parent)
        if parent is None or parent.tree == quota.tree or self._is_below(parent.name, quota.name):
            return quota
        return replace(quota, tree=parent.tree)

    def listing(self, namespace: str) -> list[str]:
        return self.lists.get(namespace, _NONE)

    # Claims

    def resolve(self, claim: Claim) -> PoolQuotaBody | None:
        """The quota of a claim; None while there is no default quota."""
        return self.quotas.get(self.name_of(claim.namespace, claim.spec.labels))

    def is_stray(self, claim: Claim, quota: PoolQuotaBody) -> bool:
        return quota.name == DEFAULT and claim.spec.labels.get(QUOTA_OF_POD, "") not in ("", DEFAULT)

    def default_demanded(self, claim: Claim, stray: bool, sign: int) -> None:
        """A claim of the default quota was submitted (sign 1) or is gone (-1)."""
        held = self.strays if stray else self.by_namespace.setdefault(claim.namespace, {})
        if sign > 0:
            held[claim.uid] = claim
            return
        del held[claim.uid]
        if not held and not stray:
            del self.by_namespace[claim.namespace]

    def maybe_concerned(self, quota: PoolQuotaBody) -> list[Claim]:
        """Claims of the default quota that may belong to this quota, which was added or changed."""
        found = list(self.strays.values())
        for namespace in (*quota.namespaces, quota.name):
            found.extend(self.by_namespace.get(namespace, {}).values())
        return found


def _leave(names: dict[str, list[str]], key: str, name: str) -> None:
    names[key].remove(name)
    if not names[key]:
        del names[key]
