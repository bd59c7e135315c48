"""All quota trees: which quota hangs where, what each tree has, and the runtime of every quota.

Everything here is derived from cells and charges, and follows them through the methods below, in any order: a child
may come before its parent, and quotas may be moved or form a circle. Whatever does not hang together with the root of
its tree is *loose*: it has no runtime until somebody puts it right. Results depend on what there is, not on the
order in which it came.

Each tree shares out what its nodes have, less what its system and default quota use; those two stand outside.
"""

from __future__ import annotations

from typing import Final, final

from bursar.policies.pools.branch import NO_MAX, Branch
from bursar.policies.pools.names import DEFAULT, NAME, ROOT, SYSTEM
from bursar.policies.pools.quotas import Quota
from bursar.vectors import Vector, dimension


def account_key(tree: str, name: str) -> str:
    """The name of a quota's account."""
    return f"{NAME}/{tree}/{name}"


@final
class Tree:
    """One tree: its root, what it has, and the branches that must share anew."""

    __slots__ = ("aside", "id", "root", "stale", "total")

    def __init__(self, tree_id: str, size: int) -> None:
        self.id: Final = tree_id
        self.root: Final = Branch(tree_id, ROOT, account_key(tree_id, ROOT), size)
        self.total: dict[int, int] = {}  # by dimension
        self.aside: Final[list[Branch]] = []  # system and default: served before anything is shared
        self.stale: dict[str, Branch] = {}  # by account

    def mark(self, branch: Branch) -> None:
        branch.stale = True
        self.stale[branch.key] = branch


@final
class Forest:
    """All trees, over shared slots."""

    __slots__ = (
        "branches",
        "changed",
        "circling",
        "dims",
        "guarantee",
        "loose",
        "slot_at",
        "suspects",
        "trees",
        "wanting",
    )

    def __init__(self) -> None:
        self.guarantee: bool = False
        self.dims: Final[list[int]] = []  # by slot
        self.slot_at: Final[list[int]] = []  # by dimension, -1 where nobody manages it
        self.trees: Final[dict[str, Tree]] = {}
        self.branches: Final[dict[str, Branch]] = {}  # by account; removed quotas stay, their charges may
        self.wanting: Final[dict[str, dict[str, Branch]]] = {}  # by the account of the parent that they name
        self.loose: Final[dict[str, Branch]] = {}
        self.circling: Final[set[str]] = set()  # of those, the ones below themselves
        # Accounts of quotas of which anything changed, until cleared: by who writes statuses, by who revokes.
        self.changed: Final[dict[str, None]] = {}
        self.suspects: Final[dict[str, None]] = {}

    def note(self, branch: Branch) -> None:
        """Something about the branch changed."""
        self.changed[branch.key] = None
        self.suspects[branch.key] = None

    # Slots

    def slot(self, resource: str) -> int:
        dim = dimension(resource).index
        known = self.slot_of(dim)
        return known if known >= 0 else self._new_slot(dim)

    def slot_of(self, dim: int) -> int:
        return self.slot_at[dim] if dim < len(self.slot_at) else -1

    def _new_slot(self, dim: int) -> int:
        while len(self.slot_at) <= dim:
            self.slot_at.append(-1)
        self.slot_at[dim] = len(self.dims)
        self.dims.append(dim)
        size = len(self.dims)
        for branch in self.branches.values():
            branch.grow(size)
            if branch.inner is not None:
                branch.inner.grow(size)
            if branch.children:
                self._stale(branch)
        for tree in self.trees.values():
            tree.root.grow(size)
            self._stale(tree.root)
        return size - 1

    # Structure

    def tree(self, tree_id: str) -> Tree:
        found = self.trees.get(tree_id)
        if found is None:
            found = Tree(tree_id, len(self.dims))
            self.trees[tree_id] = found
        return found

    def branch(self, tree_id: str, name: str) -> Branch:
        key = account_key(tree_id, name)
        found = self.branches.get(key)
        if found is None:
            found = Branch(tree_id, name, key, len(self.dims))
            self.branches[key] = found
        return found

    def find(self, tree_id: str, name: str) -> Branch | None:
        """The branch of a quota that exists."""
        found = self.branches.get(account_key(tree_id, name))
        return None if found is None or found.quota is None else found

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
        lims = list(branch.lim)
        kept = list(branch.guaranteed)
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
            branch.maxima[slot] = most
            branch.minima[slot] = quota.minimum.get(resource, 0)
            branch.weights[slot] = quota.weight_of(resource)
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
            inner.weights = list(branch.weights)
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
            self._ask(above, slot, -branch.lim[slot])
            self._keep(above, slot, -branch.guaranteed[slot])
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
            self._ask(above, slot, branch.lim[slot] - lims[slot])
            self._keep(above, slot, branch.guaranteed[slot] - kept[slot])
        above.whole = True
        self._stale(above)

    # Upwards

    def demand(self, branch: Branch, cost: Vector, sign: int, firm: bool) -> None:
        """Own pods of a quota ask for more (sign 1) or less (-1)."""
        for i in range(len(cost.dims)):
            slot = self.slot_of(int(cost.dims[i]))
            if slot < 0:
                slot = self._new_slot(int(cost.dims[i]))
            amount = int(cost.amounts[i]) * sign
            branch.own[slot] += amount
            if firm:
                branch.firm_own[slot] += amount
                self._firm(branch, slot, amount, 0)
            if branch.inner is not None:
                branch.inner.own[slot] += amount
                self._ask(branch.inner, slot, amount)
            else:
                self._ask(branch, slot, amount)

    def use(self, branch: Branch, cost: Vector, sign: int) -> None:
        """Own pods of a quota use more or less."""
        for i in range(len(cost.dims)):
            slot = self.slot_of(int(cost.dims[i]))
            if slot < 0:
                slot = self._new_slot(int(cost.dims[i]))
            amount = int(cost.amounts[i]) * sign
            branch.taken[slot] += amount
            if branch.inner is not None:
                branch.inner.taken[slot] += amount
            if self.guarantee:
                self._keep(branch if branch.inner is None else branch.inner, slot, amount)

    def use_firm(self, branch: Branch, cost: Vector, sign: int) -> None:
        """The same, of pods that may not be preempted."""
        for i in range(len(cost.dims)):
            slot = self.slot_of(int(cost.dims[i]))
            if slot < 0:
                slot = self._new_slot(int(cost.dims[i]))
            amount = int(cost.amounts[i]) * sign
            branch.firm_taken[slot] += amount
            self._firm(branch, slot, 0, amount)

    def _ask(self, branch: Branch, slot: int, more: int) -> None:
        at: Branch | None = branch
        while at is not None and more != 0:
            at.below[slot] += more
            below = at.below[slot]
            request = below if at.lends or below > at.minima[slot] else at.minima[slot]
            at.request[slot] = request
            most = at.maxima[slot]
            lim = request if most == NO_MAX or request < most else most
            more = lim - at.lim[slot]
            at.lim[slot] = lim
            self.note(at)
            at = self._tell_parent(at, more)

    def _keep(self, branch: Branch, slot: int, more: int) -> None:
        if not self.guarantee:
            return
        at: Branch | None = branch
        while at is not None and more != 0:
            at.allocated[slot] += more
            kept = max(at.allocated[slot], at.minima[slot])
            more = kept - at.guaranteed[slot]
            at.guaranteed[slot] = kept
            self.note(at)
            at = self._tell_parent(at, more)

    def _tell_parent(self, branch: Branch, more: int) -> Branch | None:
        above = branch.parent
        if above is not None and more != 0 and above.touch(branch):
            self.trees[above.tree_id].mark(above)
        return above

    def _firm(self, branch: Branch, slot: int, request: int, used: int) -> None:
        if request == 0 and used == 0:
            return
        at: Branch | None = branch
        while at is not None:
            at.firm_request[slot] += request
            at.firm_used[slot] += used
            self.note(at)
            at = at.parent

    # Downwards

    def _stale(self, branch: Branch) -> None:
        if not branch.stale:
            self.tree(branch.tree_id).mark(branch)

    def set_total(self, tree_id: str, total: dict[int, int]) -> None:
        """What the nodes of a tree have, by dimension."""
        self.tree(tree_id).total = total

    def available(self, tree: Tree, slot: int) -> int:
        """What a tree has to share: never negative, whatever the quotas outside of the distribution use."""
        dim = self.dims[slot]
        left = tree.total.get(dim, 0)
        for branch in tree.aside:
            left -= branch.taken[slot]
        return max(0, left)

    def _fill(self, tree: Tree) -> None:
        root = tree.root
        for slot in range(len(self.dims)):
            left = self.available(tree, slot)
            if root.runtime[slot] != left:
                root.runtime[slot] = left
                self.note(root)
                self._stale(root)

    def refresh(self, branch: Branch) -> bool:
        """Make the runtime of a branch, and of all above it, true. False: it hangs on no root."""
        path: list[Branch] = []
        above = branch.parent
        while above is not None:
            path.append(above)
            above = above.parent
        tree = self.trees.get(branch.tree_id)
        top = path[-1] if path else branch
        if tree is None or top is not tree.root:
            return False
        self._fill(tree)
        for i in range(len(path) - 1, -1, -1):
            if path[i].stale:
                self._share(tree, path[i])
        return True

    def refresh_all(self, tree_id: str) -> None:
        """Make every runtime of a tree true; only what changed is computed, from the top."""
        tree = self.tree(tree_id)
        self._fill(tree)
        while tree.stale:
            todo = list(tree.stale.values())
            todo.sort(key=_depth)
            for branch in todo:
                if branch.stale:
                    self._share(tree, branch)

    def _share(self, tree: Tree, branch: Branch) -> None:
        tree.stale.pop(branch.key, None)
        for child in branch.share():
            self.note(child)
            if child.children:
                self._stale(child)

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


def _depth(branch: Branch) -> int:
    return branch.depth()
