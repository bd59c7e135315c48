"""The structure of all quota trees.

Objects come in any order: a child may come before its parent, and quotas may be moved or form a cycle. A quota that is
not connected with the root of its tree is *loose*: it has no runtime until that is corrected. Results depend on the
objects, not on their order.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from bursar.ledger.claims import Binding
from bursar.policies.pools.outside_use import OutsideUse
from bursar.policies.pools.propagation import Propagation, account_key
from bursar.policies.pools.quota_node import NO_MAX, Branch
from bursar.policies.pools.settings import DEFAULT, ROOT, SYSTEM, PoolQuotaBody


@final
class Forest(Propagation):
    """All trees, with the quotas below their parents."""

    def __init__(self, outside: OutsideUse) -> None:
        super().__init__(outside)
        self.by_parent: Final[dict[str, dict[str, Branch]]] = {}  # by the account of the parent that they name
        self.loose: Final[dict[str, Branch]] = {}
        self.in_cycle: Final[set[str]] = set()  # loose quotas below themselves
        self.doubtful: bool = False  # a quota changed, so quotas may be loose for another reason

    # Structure

    def quota_changed(self, old: PoolQuotaBody | None, new: PoolQuotaBody | None) -> None:
        """A quota was added, changed or removed."""
        self.doubtful = True
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
        branch.built_in = True
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
            branch.move(inner)
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
        tried: set[str] = set()
        for key in todo:  # grows during the loop
            branch = self.loose.get(key)
            above = None if branch is None else self._parent_for(branch)
            if branch is not None and above is None:
                if key in tried:
                    continue
                tried.add(key)  # it stays loose, and those below it are attached to it once
            if branch is not None and above is not None:
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
        self.note_all(branch)
        self._carry(branch, [0] * len(branch.lim), [0] * len(branch.lim))
        for slot in range(len(branch.own_request)):
            request, used = branch.non_preemptible_request[slot], branch.non_preemptible_used[slot]
            self._add_non_preemptible(above, slot, request, used)

    def _detach(self, branch: Branch) -> None:
        above = branch.parent
        if above is None:
            return
        above.unlink(branch)
        self._cut_off(branch)
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
        above.move(branch)
        self._all_stale(above)

    def _cut_off(self, branch: Branch) -> None:
        """The branch and all below it have no runtime."""
        self.note(branch)
        if branch.children:
            self._all_stale(branch)
        branch.plenty = 0
        for slot in range(len(branch.runtime)):
            branch.runtime[slot] = 0
        for child in branch.children:
            self._cut_off(child)

    def note_all(self, branch: Branch) -> None:
        """Notes the branch and all below it."""
        self.note(branch)
        for child in branch.child_quotas():
            self.note_all(child)

    def note_loose(self) -> None:
        """Notes the loose quotas if what they hang on may have changed."""
        if self.doubtful:
            for branch in self.loose.values():
                self.note_all(branch)
            self.doubtful = False

    # Answers

    def fits_needs(self, branch: Branch, binding: Binding) -> bool:
        """Whether a claim of a connected quota stays within what its quotas get before anything is shared.

        Where the needs of siblings fit what their parent has for sure, each has its need for sure. So no level has to
        be shared out to admit the claim.
        """
        cost, accounts = binding.costs[0], binding.accounts
        path, tree = self.path(branch), self.tree(branch.tree_id)
        for managed in binding.costs:
            if len(managed.dims) != len(cost.dims):
                return False  # the quotas of the path manage different resources
        for i in range(len(cost.dims)):
            dim, amount = int(cost.dims[i]), int(cost.amounts[i])
            slot = self.slot_of(dim)
            above, sure = tree.root, self.available(tree, slot)
            for k in range(len(path) - 1, -1, -1):
                fits = above.needed[slot] <= sure
                above = path[k]
                sure = int(above.need[slot])
                if not fits or accounts[k + 1].used.get(dim) + amount > sure:
                    return False
            if branch.inner is not None:
                own = accounts[0].used.get(dim) + amount
                if branch.needed[slot] > sure or own > int(branch.inner.need[slot]):
                    return False
        return True

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
