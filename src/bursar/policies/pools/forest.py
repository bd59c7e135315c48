"""All quota trees: which quota hangs where.

Everything here is derived from cells and charges, and follows them in any order: a child may come before its parent,
and quotas may be moved or form a circle. Whatever does not hang together with the root of its tree is *loose*: it has
no runtime until somebody puts it right. Results depend on what there is, not on the order in which it came.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from bursar.policies.pools.branch import NO_MAX, Branch
from bursar.policies.pools.flows import Flows, account_key
from bursar.policies.pools.names import DEFAULT, ROOT, SYSTEM
from bursar.policies.pools.quotas import Quota


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

    def quota_changed(self, old: Quota | None, new: Quota | None) -> None:
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

    def _set_aside(self, branch: Branch, quota: Quota) -> None:
        tree = self.tree(quota.tree)
        if not branch.aside:
            branch.aside = True
            tree.aside.append(branch)
        self._load(branch, quota)
        branch.sum_up(False)
        self.note(branch)

    def _place(self, branch: Branch, quota: Quota) -> None:
        if branch.quota is not None:
            self._unhook(branch, branch.quota)
        if not quota.is_parent:
            self._loosen_children(branch)
        self._load(branch, quota)
        branch.sum_up(self.guarantee)
        self.wanting.setdefault(account_key(quota.tree, quota.parent), {})[branch.key] = branch
        self.loose[branch.key] = branch
        self.note(branch)

    def _alter(self, branch: Branch, quota: Quota) -> None:
        """The quota stays where it is."""
        if not quota.is_parent:
            self._loosen_children(branch)
        lims = [int(amount) for amount in branch.lim]
        kept = [int(amount) for amount in branch.guaranteed]
        self._load(branch, quota)
        branch.sum_up(self.guarantee)
        self._carry(branch, lims, kept)

    def _remove(self, branch: Branch, quota: Quota) -> None:
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

    def _unhook(self, branch: Branch, quota: Quota) -> None:
        wanted = account_key(quota.tree, quota.parent)
        siblings = self.wanting[wanted]
        del siblings[branch.key]
        if not siblings:
            del self.wanting[wanted]
        self._untie(branch)

    def _load(self, branch: Branch, quota: Quota) -> None:
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
