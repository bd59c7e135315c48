"""The structure of all quota trees, and which quota a claim belongs to.

Objects come in any order: a child may come before its parent, and quotas may be moved or form a cycle. A quota that is
not connected with the root of its tree is *loose*: it has no runtime until that is corrected. Results depend on the
objects, not on their order.

A claim belongs to the quota that its label names; else to the quota with the name of its namespace in that namespace;
else to the first quota, by name, whose annotation lists the namespace; else to the default quota. A claim whose label
names no quota belongs to the default quota.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from typing import Final, final

from mypy_extensions import i64

from bursar.ledger.claims import Claim
from bursar.objects.decode import ManifestError
from bursar.policies.pools.propagation import Propagation, account_key
from bursar.policies.pools.quota_node import NO_MAX, Branch
from bursar.policies.pools.settings import DEFAULT, PARENT, QUOTA_OF_POD, ROOT, SYSTEM, TREE, PoolQuotaBody


@final
class Forest(Propagation):
    """All trees, with the quotas below their parents."""

    def __init__(self) -> None:
        super().__init__()
        self.by_parent: Final[dict[str, dict[str, Branch]]] = {}  # by the account of the parent that they name
        self.loose: Final[dict[str, Branch]] = {}
        self.in_cycle: Final[set[str]] = set()  # loose quotas below themselves

    # Structure

    def quota_changed(self, old: PoolQuotaBody | None, new: PoolQuotaBody | None) -> None:
        """A quota was added, changed or removed."""
        todo: list[str] = []
        if old is not None and (new is None or new.tree != old.tree):
            self._remove(self.branch(old.tree, old.name), old)
        if new is not None:
            for resource in new.maximum:
                self.slot(resource)
            branch = self.branch(new.tree, new.name)
            if new.name in (SYSTEM, DEFAULT):
                self._place_built_in(branch, new)
            elif branch.quota is not None and branch.quota.parent == new.parent and branch.parent is not None:
                self._alter(branch, new)
            else:
                self._place(branch, new)
            todo.append(branch.key)
        self._attach_loose(todo)

    def _place_built_in(self, branch: Branch, quota: PoolQuotaBody) -> None:
        tree = self.tree(quota.tree)
        if not branch.built_in:
            branch.built_in = True
            tree.built_in.append(branch)
        self._load(branch, quota)
        branch.sum_up(False)
        self.note(branch)

    def _place(self, branch: Branch, quota: PoolQuotaBody) -> None:
        if branch.quota is not None:
            self._unhook(branch, branch.quota)
        if not quota.is_parent:
            self._loosen_children(branch)
        self._load(branch, quota)
        branch.sum_up(self.guarantee)
        self.by_parent.setdefault(account_key(quota.tree, quota.parent), {})[branch.key] = branch
        self.loose[branch.key] = branch
        self.note(branch)

    def _alter(self, branch: Branch, quota: PoolQuotaBody) -> None:
        """The quota keeps its parent."""
        if not quota.is_parent:
            self._loosen_children(branch)
        lims = [int(amount) for amount in branch.lim]
        guaranteed = [int(amount) for amount in branch.guaranteed]
        self._load(branch, quota)
        branch.sum_up(self.guarantee)
        self._carry(branch, lims, guaranteed)

    def _remove(self, branch: Branch, quota: PoolQuotaBody) -> None:
        if quota.name in (SYSTEM, DEFAULT):
            self.tree(quota.tree).built_in.remove(branch)
            branch.built_in = False
        else:
            self._unhook(branch, quota)
            self.loose.pop(branch.key, None)
            self.in_cycle.discard(branch.key)
        branch.quota = None
        self._loosen_children(branch)
        self.changed.pop(branch.key, None)

    def _unhook(self, branch: Branch, quota: PoolQuotaBody) -> None:
        wanted = account_key(quota.tree, quota.parent)
        siblings = self.by_parent[wanted]
        del siblings[branch.key]
        if not siblings:
            del self.by_parent[wanted]
        self._detach(branch)

    def _load(self, branch: Branch, quota: PoolQuotaBody) -> None:
        branch.quota = quota
        branch.lends = quota.lends and not self.guarantee
        for slot in range(len(self.dims)):
            branch.maxima[slot] = NO_MAX
            branch.minima[slot] = 0
            branch.weights[slot] = 0
        for resource, most in quota.maximum.items():
            slot = self.slot(resource)
            branch.maxima[slot] = i64(most)
            branch.minima[slot] = i64(quota.minimum.get(resource, 0))
            branch.weights[slot] = i64(quota.weight_of(resource))
        self._set_inner(branch, quota.is_parent)

    def _set_inner(self, branch: Branch, wanted: bool) -> None:
        """Own pods of a parent are an implicit child without min or max, with the weight of the parent."""
        inner = branch.inner
        if wanted and inner is None:
            inner = Branch(branch.tree_id, branch.name, branch.key, len(self.dims))
            branch.inner = inner
            branch.link(inner)
        elif not wanted and inner is not None:
            branch.unlink(inner)
            branch.inner = None
            return
        if inner is not None:
            for slot in range(len(self.dims)):
                inner.weights[slot] = branch.weights[slot]
            inner.own_request = list(branch.own_request)
            inner.own_used = list(branch.own_used)
            inner.lends = not self.guarantee
            inner.sum_up(self.guarantee)
            self._all_stale(branch)

    def _loosen_children(self, branch: Branch) -> None:
        """Children of a quota that may have none become loose."""
        for child in branch.child_quotas():
            self._detach(child)
            self.loose[child.key] = child

    def _attach_loose(self, todo: list[str]) -> None:
        """Attaches these and the quotas of cycles where possible, and then the loose quotas below them."""
        todo.extend(sorted(self.in_cycle))
        for key in todo:  # grows during the loop
            branch = self.loose.get(key)
            if branch is not None:
                above = self._parent_for(branch)
                if above is None:
                    continue
                del self.loose[key]
                self.in_cycle.discard(key)
                self._attach(above, branch)
            waiting = self.by_parent.get(key)
            if waiting is not None:
                todo.extend(sorted([other for other in waiting if other in self.loose]))

    def _parent_for(self, branch: Branch) -> Branch | None:
        quota = branch.quota
        if quota is None:
            return None
        if quota.parent == ROOT:
            return self.tree(quota.tree).root
        found = self.find(quota.tree, quota.parent)
        if found is None or found.quota is None or not found.quota.is_parent:
            return None
        if found.top() is branch:
            self.in_cycle.add(branch.key)
            return None
        return found

    def _attach(self, above: Branch, branch: Branch) -> None:
        above.link(branch)
        self._carry(branch, [0] * len(branch.lim), [0] * len(branch.lim))
        for slot in range(len(branch.own_request)):
            request, used = branch.non_preemptible_request[slot], branch.non_preemptible_used[slot]
            self._add_non_preemptible(above, slot, request, used)

    def _detach(self, branch: Branch) -> None:
        above = branch.parent
        if above is None:
            return
        above.unlink(branch)
        for slot in range(len(branch.own_request)):
            self._add_request(above, slot, -int(branch.lim[slot]))
            self._add_allocated(above, slot, -int(branch.guaranteed[slot]))
            request, used = branch.non_preemptible_request[slot], branch.non_preemptible_used[slot]
            self._add_non_preemptible(above, slot, -request, -used)
        self._all_stale(above)

    def _carry(self, branch: Branch, lims: list[int], guaranteed: list[int]) -> None:
        """Propagates how the limited request and the guaranteed amounts differ from before."""
        self.note(branch)
        above = branch.parent
        if above is None:
            return
        for slot in range(len(branch.own_request)):
            self._add_request(above, slot, int(branch.lim[slot]) - lims[slot])
            self._add_allocated(above, slot, int(branch.guaranteed[slot]) - guaranteed[slot])
        self._all_stale(above)

    # Options

    def set_guarantee(self, guarantee: bool) -> None:
        """Sets whether usage is guaranteed, and computes everything again."""
        self.guarantee = guarantee
        for key in sorted(self.branches):
            branch = self.branches[key]
            if branch.quota is not None and branch.quota.name not in (SYSTEM, DEFAULT):
                self._place(branch, branch.quota)
        self._attach_loose(sorted(self.loose))
        for tree in self.trees.values():
            tree.root.sum_up(guarantee)


@final
class Resolver:
    """All quotas by name, with the rules that hold among them, and the claims of the default quota.

    The policy fills it from cells and admission from manifests, so both apply the same rules.
    """

    def __init__(self) -> None:
        self.quotas: Final[dict[str, PoolQuotaBody]] = {}
        self.children: Final[dict[str, list[str]]] = {}  # by the parent that they name, sorted
        self.lists: Final[dict[str, list[str]]] = {}  # namespace -> quotas that list it, sorted
        self.by_namespace: Final[dict[str, dict[str, Claim]]] = {}  # unlabelled claims of the default quota
        self.strays: Final[dict[str, Claim]] = {}  # those whose label names no quota

    def quota_changed(self, old: PoolQuotaBody | None, new: PoolQuotaBody | None) -> None:
        if old is not None:
            del self.quotas[old.name]
            _leave(self.children, old.parent, old.name)
            for namespace in old.namespaces:
                _leave(self.lists, namespace, old.name)
        if new is not None:
            self.quotas[new.name] = new
            insort(self.children.setdefault(new.parent, []), new.name)
            for namespace in new.namespaces:
                insort(self.lists.setdefault(namespace, []), new.name)

    # Rules

    def check_name(self, name: str, namespace: str, path: str) -> None:
        """Raises ``ManifestError`` if another namespace has a quota of this name."""
        known = self.quotas.get(name)
        if known is not None and known.namespace != namespace and name not in (SYSTEM, DEFAULT):
            problem = f"there is a quota of this name in namespace {known.namespace}: names are unique in the cluster"
            raise ManifestError(problem, path)

    def misplaced(self, quota: PoolQuotaBody) -> tuple[str, str] | None:
        """(label, problem) that keeps a quota from its parent; None if nothing does."""
        if quota.parent == ROOT:
            return None
        parent = self.quotas.get(quota.parent)
        if parent is None:
            return PARENT, f"there is no quota {quota.parent}"
        if parent.tree != quota.tree:
            return TREE, f"{quota.tree!r} is not {parent.tree!r}, the tree of its parent {parent.name}"
        if not parent.is_parent:
            return PARENT, f"{parent.name} may have no children: its label is-parent is not 'true'"
        if self._is_below(parent.name, quota.name):
            return PARENT, f"{parent.name} is this quota or below it: a quota cannot be below itself"
        return None

    def _is_below(self, name: str, ancestor: str) -> bool:
        """Whether a quota is the ancestor or below it."""
        seen: set[str] = set()
        while name != ancestor:
            quota = self.quotas.get(name)
            if quota is None or name in seen:
                return False
            seen.add(name)
            name = quota.parent
        return True

    # Claims

    def name_of(self, namespace: str, labels: Mapping[str, str]) -> str:
        """The name of the quota of a pod."""
        wanted = labels.get(QUOTA_OF_POD, "")
        if wanted:
            return wanted if wanted in self.quotas and wanted != ROOT else DEFAULT
        found = self.quotas.get(namespace)
        if found is not None and found.namespace == namespace:
            return namespace
        listing = self.lists.get(namespace)
        return listing[0] if listing else DEFAULT

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
