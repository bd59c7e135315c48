"""Propagates requests up a quota tree at once, and runtimes down when they are needed.

Each tree distributes what its nodes have, less what its system and default quota use. Amounts are kept in slots, one
for each resource that any quota manages; a slot is never removed.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from bursar.policies.pools.outside_use import OutsideUse
from bursar.policies.pools.quota_node import Branch
from bursar.policies.pools.runtime import Sharing, share_slot
from bursar.policies.pools.settings import NAME, ROOT
from bursar.quantity import MAX_AMOUNT
from bursar.resources import Vector, dimension


def account_key(tree: str, name: str) -> str:
    """The name of a quota's account."""
    return f"{NAME}/{tree}/{name}"


@final
class PoolTree:
    """One tree: its root, what it has, and its stale branches."""

    def __init__(self, tree_id: str, size: int) -> None:
        self.id: Final = tree_id
        self.root: Final = Branch(tree_id, ROOT, account_key(tree_id, ROOT), size)
        self.total: dict[int, int] = {}  # by dimension
        self.count: int = 0  # of branches, also of removed quotas
        self.stale: dict[str, Branch] = {}  # by account


class Propagation:
    """All trees, over shared slots; ``Forest`` adds their structure."""

    def __init__(self, outside: OutsideUse) -> None:
        self.outside: Final = outside
        self.guarantee: bool = False
        self.sharing: Final = Sharing()
        self.dims: Final[list[int]] = []  # by slot
        self.slot_at: Final[list[int]] = []  # by dimension, -1 where no quota manages it
        self.trees: Final[dict[str, PoolTree]] = {}
        self.branches: Final[dict[str, Branch]] = {}  # by account; removed quotas stay while charged
        # Accounts of changed quotas. The status writer clears the first. Revocation drops those of the second that are
        # not over-used, so an over-used quota always stays in it.
        self.changed: Final[dict[str, None]] = {}
        self.suspects: Final[dict[str, None]] = {}
        self.shifted: list[Branch] = []  # whose runtime changed; noted when all are computed

    def note(self, branch: Branch) -> None:
        """Notes that something about the branch changed."""
        self.changed[branch.key] = None
        if branch.key in self.branches:  # no root; the implicit child stands for its quota
            self.suspects[branch.key] = None

    def tree(self, tree_id: str) -> PoolTree:
        found = self.trees.get(tree_id)
        if found is None:
            found = PoolTree(tree_id, len(self.dims))
            self.trees[tree_id] = found
        return found

    def branch(self, tree_id: str, name: str) -> Branch:
        key = account_key(tree_id, name)
        found = self.branches.get(key)
        if found is None:
            found = Branch(tree_id, name, key, len(self.dims))
            self.branches[key] = found
            self.tree(tree_id).count += 1
        return found

    def forget(self, branch: Branch) -> None:
        """The quota is gone, and no claim has to do with it any more."""
        del self.branches[branch.key]
        self.changed[branch.key] = None  # the status writer forgets it, too
        self.suspects.pop(branch.key, None)
        tree = self.tree(branch.tree_id)
        tree.stale.pop(branch.key, None)
        tree.count -= 1
        self.forget_tree(tree)

    def forget_tree(self, tree: PoolTree) -> None:
        """Forgets a tree without quotas and nodes."""
        if not tree.count and not tree.total:
            self.trees.pop(tree.id, None)

    def find(self, tree_id: str, name: str) -> Branch | None:
        """The branch of a quota that exists."""
        found = self.branches.get(account_key(tree_id, name))
        return None if found is None or found.quota is None else found

    # Slots

    def slot(self, resource: str) -> int:
        return self._slot_for(dimension(resource).index)

    def _slot_for(self, dim: int) -> int:
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
        for tree in self.trees.values():
            tree.root.grow(size)
        return size - 1

    # Upwards

    def demand(self, branch: Branch, cost: Vector, sign: int, non_preemptible: bool) -> None:
        """Own pods of a quota request more (sign 1) or less (-1)."""
        for i in range(len(cost.dims)):
            slot = self._slot_for(int(cost.dims[i]))
            amount = int(cost.amounts[i]) * sign
            branch.own_request[slot] += amount
            if non_preemptible:
                self._add_non_preemptible(branch, slot, amount, 0)
            self._add_request(branch.own(), slot, amount)

    def use(self, branch: Branch, cost: Vector, sign: int) -> None:
        """Own pods of a quota use more or less."""
        for i in range(len(cost.dims)):
            slot = self._slot_for(int(cost.dims[i]))
            amount = int(cost.amounts[i]) * sign
            branch.own_used[slot] += amount
            self._add_allocated(branch.own(), slot, amount)

    def use_non_preemptible(self, branch: Branch, cost: Vector, sign: int) -> None:
        """Own non-preemptible pods of a quota use more or less."""
        for i in range(len(cost.dims)):
            slot = self._slot_for(int(cost.dims[i]))
            self._add_non_preemptible(branch, slot, 0, int(cost.amounts[i]) * sign)

    def _add_request(self, branch: Branch, slot: int, more: int) -> None:
        at: Branch | None = branch
        while at is not None and more != 0:
            at.child_request[slot] += more
            more = at.update_request(slot)
            at = self._propagated(at, slot, more, more)

    def _add_allocated(self, branch: Branch, slot: int, more: int) -> None:
        at: Branch | None = branch
        while self.guarantee and at is not None and more != 0 and not at.built_in:
            at.allocated[slot] += more
            more = at.update_guaranteed(slot, True)
            at = self._propagated(at, slot, more, 0)

    def _propagated(self, branch: Branch, slot: int, more: int, wider: int) -> Branch | None:
        """Notes a changed branch, whose limited request grew by ``wider``; returns its parent.

        The parent is stale if ``more`` counts there. A child that got less than it asked for, and asks for more than it
        has now as before, changes nothing: what it asks for only matters once it is met.
        """
        self.note(branch)
        above = branch.parent
        needs_other = more != 0 and branch.weigh(slot)
        if above is None or more == 0:
            return above
        bit = 1 << slot
        lim = int(branch.lim[slot])
        if above.plenty & bit:
            above.move(branch)
            self._stale(above, bit)
        elif needs_other or int(branch.runtime[slot]) >= min(lim, lim - wider):
            self._stale(above, bit)
        return above

    def _add_non_preemptible(self, branch: Branch, slot: int, request: int, used: int) -> None:
        if request == 0 and used == 0:
            return
        at: Branch | None = branch
        while at is not None:
            at.non_preemptible_request[slot] += request
            at.non_preemptible_used[slot] += used
            self.note(at)
            at = at.parent

    # Downwards

    def _stale(self, branch: Branch, slots: int) -> None:
        if branch.stale == 0:
            self.tree(branch.tree_id).stale[branch.key] = branch
        branch.stale |= slots

    def _all_stale(self, branch: Branch) -> None:
        self._stale(branch, (1 << len(self.dims)) - 1)

    def set_total(self, tree_id: str, total: dict[int, int]) -> None:
        """What the nodes of a tree have, by dimension."""
        tree = self.tree(tree_id)
        tree.total = total
        self.forget_tree(tree)

    def total(self, tree_id: str) -> dict[int, int]:
        """What the nodes of a tree have, by dimension."""
        tree = self.trees.get(tree_id)
        return {} if tree is None else tree.total

    def available(self, tree: PoolTree, slot: int) -> int:
        """What a tree distributes: its total less what pods outside of all quotas use on its nodes, at least zero."""
        dim = self.dims[slot]
        left = tree.total.get(dim, 0) - self.outside.of(tree.id).get(dim, 0)
        return min(max(0, left), MAX_AMOUNT)

    def _fill(self, tree: PoolTree) -> None:
        root = tree.root
        for slot in range(len(self.dims)):
            left = self.available(tree, slot)
            if int(root.runtime[slot]) != left:
                root.runtime[slot] = i64(left)
                self.note(root)
                self._stale(root, 1 << slot)

    def is_connected(self, branch: Branch) -> bool:
        """Whether the branch is below the root of its tree, or is that root."""
        return branch.top() is self.tree(branch.tree_id).root

    def path(self, branch: Branch) -> list[Branch]:
        """The quota and its ancestors, without the root, or only the quota while it is loose."""
        return [branch, *branch.ancestors()[:-1]] if self.is_connected(branch) else [branch]

    def refresh(self, branch: Branch) -> bool:
        """Computes the runtime of a branch and of its ancestors; returns False if it is loose."""
        if not self.is_connected(branch):
            return False
        tree = self.tree(branch.tree_id)
        self._fill(tree)
        for above in reversed(branch.ancestors()):
            if above.stale:
                self._share(tree, above)
        return True

    def refresh_all(self, tree_id: str) -> None:
        """Computes every runtime of a tree from the top, where an input changed."""
        tree = self.tree(tree_id)
        self._fill(tree)
        while tree.stale:
            for branch in sorted(tree.stale.values(), key=lambda branch: len(branch.ancestors())):
                if branch.stale:
                    self._share(tree, branch)
        for child in self.shifted:
            child.is_shifted = False
            self.note(child)
        self.shifted = []

    def _share(self, tree: PoolTree, branch: Branch) -> None:
        tree.stale.pop(branch.key, None)
        for slot in range(len(self.dims)):
            if branch.stale >> slot & 1:
                for child in share_slot(branch, slot, self.sharing):
                    if not child.is_shifted:
                        child.is_shifted = True
                        self.shifted.append(child)
                    if child.children:
                        self._stale(child, 1 << slot)
        branch.stale = 0
        branch.forget_moved()
