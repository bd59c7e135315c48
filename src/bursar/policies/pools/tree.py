"""All quota trees: which quota hangs where.

Everything here is derived from cells and charges, and follows them in any order: a child may come before its parent,
and quotas may be moved or form a circle. Whatever does not hang together with the root of its tree is *loose*: it has
no runtime until somebody puts it right. Results depend on what there is, not on the order in which it came.

Which quota a claim belongs to: one answer for everything, and whom a change of quotas may concern.

In order: the quota that the claim's label names; the quota that is called like its namespace and lives in it; the
first quota (by name) whose annotation lists the namespace; else the default quota. A label that names no quota means
the default quota too, so that it holds nobody up.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from typing import Final, final

from mypy_extensions import i64

from bursar.ledger.claims import Claim
from bursar.objects.decode import ManifestError
from bursar.policies.pools.propagation import Flows, account_key
from bursar.policies.pools.quota_node import NO_MAX, Branch
from bursar.policies.pools.settings import DEFAULT, PARENT, QUOTA_OF_POD, ROOT, SYSTEM, TREE, PoolQuotaBody


@final
class Forest(Flows):
    """All trees, with the quotas in their places."""

    __slots__ = ("circling", "loose", "wanting")

    def __init__(self) -> None:
        super().__init__()
        self.wanting: Final[dict[str, dict[str, Branch]]] = {}  # by the account of the parent that they name
        self.loose: Final[dict[str, Branch]] = {}
        self.circling: Final[set[str]] = set()  # of those, the ones below themselves

    # Structure

    def quota_changed(self, old: PoolQuotaBody | None, new: PoolQuotaBody | None) -> None:
        """A quota came, changed or went."""
        todo: list[str] = []
        if old is not None and (new is None or new.tree != old.tree):
            self._remove(self.branch(old.tree, old.name), old)
        if new is not None:
            for resource in new.maximum:
                self.slot(resource)
            branch = self.branch(new.tree, new.name)
            if new.name in (SYSTEM, DEFAULT):
                self._set_aside(branch, new)
            elif branch.quota is not None and branch.quota.parent == new.parent and branch.parent is not None:
                self._alter(branch, new)
            else:
                self._place(branch, new)
            todo.append(branch.key)
        self._tie_loose(todo)

    def _set_aside(self, branch: Branch, quota: PoolQuotaBody) -> None:
        tree = self.tree(quota.tree)
        if not branch.aside:
            branch.aside = True
            tree.aside.append(branch)
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
        self.wanting.setdefault(account_key(quota.tree, quota.parent), {})[branch.key] = branch
        self.loose[branch.key] = branch
        self.note(branch)

    def _alter(self, branch: Branch, quota: PoolQuotaBody) -> None:
        """The quota stays where it is."""
        if not quota.is_parent:
            self._loosen_children(branch)
        lims = [int(amount) for amount in branch.lim]
        kept = [int(amount) for amount in branch.guaranteed]
        self._load(branch, quota)
        branch.sum_up(self.guarantee)
        self._carry(branch, lims, kept)

    def _remove(self, branch: Branch, quota: PoolQuotaBody) -> None:
        if quota.name in (SYSTEM, DEFAULT):
            self.tree(quota.tree).aside.remove(branch)
            branch.aside = False
        else:
            self._unhook(branch, quota)
            self.loose.pop(branch.key, None)
            self.circling.discard(branch.key)
        branch.quota = None
        self._loosen_children(branch)
        self.changed.pop(branch.key, None)

    def _unhook(self, branch: Branch, quota: PoolQuotaBody) -> None:
        wanted = account_key(quota.tree, quota.parent)
        siblings = self.wanting[wanted]
        del siblings[branch.key]
        if not siblings:
            del self.wanting[wanted]
        self._untie(branch)

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
        """Own pods of a parent are an implicit child: no min, no max, the parent's weight."""
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
            inner.own = list(branch.own)
            inner.taken = list(branch.taken)
            inner.lends = not self.guarantee
            inner.sum_up(self.guarantee)
            branch.whole = True
            self._stale(branch)

    def _loosen_children(self, branch: Branch) -> None:
        """Whoever hangs on a branch that can have no children (any more) waits for better times."""
        for child in list(branch.children):
            if child is not branch.inner:
                self._untie(child)
                self.loose[child.key] = child

    def _tie_loose(self, todo: list[str]) -> None:
        """Hang up whoever of these can be, those in a circle, and whoever waited for one that came."""
        todo.extend(sorted(self.circling))
        for key in todo:  # grows meanwhile
            branch = self.loose.get(key)
            if branch is not None:
                above = self._parent_for(branch)
                if above is None:
                    continue
                del self.loose[key]
                self.circling.discard(key)
                self._tie(above, branch)
            waiting = self.wanting.get(key)
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
            self.circling.add(branch.key)
            return None
        return found

    def _tie(self, above: Branch, branch: Branch) -> None:
        above.link(branch)
        self._carry(branch, [0] * len(branch.lim), [0] * len(branch.lim))
        for slot in range(len(branch.own)):
            self._firm(above, slot, branch.firm_request[slot], branch.firm_used[slot])

    def _untie(self, branch: Branch) -> None:
        above = branch.parent
        if above is None:
            return
        above.unlink(branch)
        for slot in range(len(branch.own)):
            self._ask(above, slot, -int(branch.lim[slot]))
            self._keep(above, slot, -int(branch.guaranteed[slot]))
            self._firm(above, slot, -branch.firm_request[slot], -branch.firm_used[slot])
        above.whole = True
        self._stale(above)

    def _carry(self, branch: Branch, lims: list[int], kept: list[int]) -> None:
        """What the branch asks for and keeps differs from before: its parent hears of it, and shares anew."""
        self.note(branch)
        above = branch.parent
        if above is None:
            return
        for slot in range(len(branch.own)):
            self._ask(above, slot, int(branch.lim[slot]) - lims[slot])
            self._keep(above, slot, int(branch.guaranteed[slot]) - kept[slot])
        above.whole = True
        self._stale(above)

    # Options

    def set_guarantee(self, guarantee: bool) -> None:
        """Whether what is in use is never taken back for others; everything is computed anew."""
        self.guarantee = guarantee
        for key in sorted(self.branches):
            branch = self.branches[key]
            if branch.quota is not None and branch.quota.name not in (SYSTEM, DEFAULT):
                self._place(branch, branch.quota)
        self._tie_loose(sorted(self.loose))
        for tree in self.trees.values():
            tree.root.sum_up(guarantee)


def resolve_name(
    namespace: str, labels: Mapping[str, str], homes: Mapping[str, str], annotated: Mapping[str, str]
) -> str:
    """The name of the quota. ``homes``: quota -> its namespace; ``annotated``: namespace -> quota."""
    wanted = labels.get(QUOTA_OF_POD, "")
    if wanted:
        return wanted if wanted in homes and wanted != ROOT else DEFAULT
    if namespace and homes.get(namespace) == namespace:
        return namespace
    return annotated.get(namespace, DEFAULT)


@final
class Resolver:
    """All quotas by name, with the rules that hold among them, and the claims of the default quota.

    The policy fills it from cells and admission from manifests, so both apply the same rules.
    """

    __slots__ = ("annotated", "by_namespace", "children", "homes", "lists", "quotas", "strays")

    def __init__(self) -> None:
        self.quotas: Final[dict[str, PoolQuotaBody]] = {}
        self.children: Final[dict[str, list[str]]] = {}  # by the parent that they name, sorted
        self.homes: Final[dict[str, str]] = {}  # quota -> its namespace
        self.lists: Final[dict[str, list[str]]] = {}  # namespace -> quotas that list it, sorted
        self.annotated: Final[dict[str, str]] = {}  # namespace -> the first of those
        self.by_namespace: Final[dict[str, dict[str, Claim]]] = {}  # unlabelled claims of the default quota
        self.strays: Final[dict[str, Claim]] = {}  # those whose label names no quota

    def quota_changed(self, old: PoolQuotaBody | None, new: PoolQuotaBody | None) -> None:
        if old is not None:
            del self.quotas[old.name]
            del self.homes[old.name]
            _leave(self.children, old.parent, old.name)
            for namespace in old.namespaces:
                _leave(self.lists, namespace, old.name)
                self._first(namespace)
        if new is not None:
            self.quotas[new.name] = new
            self.homes[new.name] = new.namespace
            insort(self.children.setdefault(new.parent, []), new.name)
            for namespace in new.namespaces:
                insort(self.lists.setdefault(namespace, []), new.name)
                self._first(namespace)

    def _first(self, namespace: str) -> None:
        if namespace in self.lists:
            self.annotated[namespace] = self.lists[namespace][0]
        else:
            self.annotated.pop(namespace, None)

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

    def resolve(self, claim: Claim) -> PoolQuotaBody | None:
        """None while there is not even a default quota."""
        return self.quotas.get(resolve_name(claim.namespace, claim.spec.labels, self.homes, self.annotated))

    def is_stray(self, claim: Claim, quota: PoolQuotaBody) -> bool:
        return quota.name == DEFAULT and claim.spec.labels.get(QUOTA_OF_POD, "") not in ("", DEFAULT)

    # Claims of the default quota

    def default_asks(self, claim: Claim, sign: int) -> None:
        if sign > 0:
            self.by_namespace.setdefault(claim.namespace, {})[claim.uid] = claim
            return
        known = self.by_namespace[claim.namespace]
        del known[claim.uid]
        if not known:
            del self.by_namespace[claim.namespace]

    def stray_asks(self, claim: Claim, sign: int) -> None:
        if sign > 0:
            self.strays[claim.uid] = claim
        else:
            del self.strays[claim.uid]

    def maybe_concerned(self, quota: PoolQuotaBody) -> list[Claim]:
        """Claims of the default quota that may belong to this one, now that it came or changed."""
        found = list(self.strays.values())
        for namespace in (*quota.namespaces, quota.name):
            found.extend(self.by_namespace.get(namespace, {}).values())
        return found


def _leave(names: dict[str, list[str]], key: str, name: str) -> None:
    names[key].remove(name)
    if not names[key]:
        del names[key]
