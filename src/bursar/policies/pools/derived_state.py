"""All state that the policy derives from the ledger: trees, node pools, names and options.

Only ``cell_changed`` and ``charged`` change it; the ledger calls them for each change that is made, undone or replayed.

Accounts of a quota, all under ``pools/<tree>/<quota>``: the quota itself (what it and its descendants use), ``/own``
(what its own pods use), ``/firm`` (of those, the non-preemptible ones), and the requests of its own pods in ``/demand``
and ``/firm-demand``. The default quota also has ``/stray-demand``: claims whose label names no quota.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account, State
from bursar.policies.pools.node_pools import NO_PROFILE, NodePools, node_of, profile_of
from bursar.policies.pools.outside_use import OutsideUse
from bursar.policies.pools.propagation import account_key
from bursar.policies.pools.quota_names import Resolver
from bursar.policies.pools.quota_node import Branch
from bursar.policies.pools.settings import DEFAULT, NAME, SYSTEM, TREE, PoolOptions, PoolQuotaBody, options_of, quota_of
from bursar.policies.pools.tree import Forest
from bursar.resources import Vector
from bursar.selectors import NodeNeeds

QUOTAS: Final = "pools.quotas"
PROFILES: Final = "pools.profiles"
NODES: Final = "pools.nodes"
OPTIONS: Final = "pools.options"
MARKS: Final = "pools.marks"  # labels and annotations of users on root quotas
RELABELLED: Final = "pools.relabelled"  # quotas whose label named another tree than that of their parent
CLOSING: Final = "pools.closing"  # accounts of removed quotas, until they hold no charge

OWN: Final = "/own"
NON_PREEMPTIBLE: Final = "/firm"
DEMAND: Final = "/demand"
NON_PREEMPTIBLE_DEMAND: Final = "/firm-demand"
STRAY_DEMAND: Final = "/stray-demand"
SUFFIXES: Final = ("", OWN, NON_PREEMPTIBLE, DEMAND, NON_PREEMPTIBLE_DEMAND)

# Positions in a binding's data, which begins with the names of the quota and its tree
COUNTED_AT: Final = 2  # whether its request counts
STRAY_AT: Final = 3  # its label names no quota
NON_PREEMPTIBLE_AT: Final = 4


def topic_of(tree: str) -> str:
    """The topic of all requests of a tree, for claims that wait for a larger runtime."""
    return account_key(tree, "")


@final
class DerivedState:
    def __init__(self) -> None:
        self.node_pools: Final = NodePools()
        self.outside: Final = OutsideUse(self.node_pools)
        self.forest: Final = Forest(self.outside)
        self.resolver: Final = Resolver()
        self.options: PoolOptions = PoolOptions()
        self.roles: Final[dict[str, tuple[Branch, str]]] = {}  # by account: the quota, and the suffix
        self.roots: Final[dict[str, PoolQuotaBody]] = {}  # root quotas by name
        self.orphans: Final[set[str]] = set()  # root quotas whose profile is gone
        self.closing: Final[set[str]] = set()  # accounts of removed quotas
        self.relabelled: Final[set[str]] = set()  # quotas whose tree is written on their object
        self.needs: Final[dict[str, NodeNeeds | None]] = {}  # by tree
        self.version: int = 0  # of what bindings depend on
        self.roots_changed: Final[set[str]] = set()  # for the status writer
        self.profiles_changed: Final[set[str]] = set()
        self.moved: Final[dict[str, dict[str, None]]] = {}  # nodes that left trees, for the status writer

    # Cells

    def cell_changed(self, state: State, table: str, key: str, old: object, new: object) -> None:
        if table == QUOTAS:
            self._quota_changed(state, quota_of(key, old), quota_of(key, new))
        elif table == NODES:
            self._node_changed(key, new)
        elif table == PROFILES:
            self._profile_changed(key, old, new)
        elif table == OPTIONS:
            self._options_changed(options_of(new))
        elif table == CLOSING:
            self._closing_changed(key, new is not None)
        elif table == MARKS:
            self.roots_changed.add(key)
        elif table == RELABELLED:
            self._relabelled_changed(key, new is not None)

    def _quota_changed(self, state: State, old: PoolQuotaBody | None, new: PoolQuotaBody | None) -> None:
        if old is None or new is None or not old.binds_like(new):
            self.version += 1
        self.resolver.quota_changed(old, new)
        for quota in (old, new):
            if quota is not None:
                self._register(quota.tree, quota.name)
        self.forest.quota_changed(old, new)
        if new is not None:
            branch = self.forest.branch(new.tree, new.name)
            branch.account = state.accounts.get(branch.key)
        self._note_root(old, new)
        if old is not None:
            self._forget_unused(account_key(old.tree, old.name))

    def _register(self, tree: str, name: str) -> None:
        branch = self.forest.branch(tree, name)
        if branch.key in self.roles:
            return
        for suffix in (*SUFFIXES, STRAY_DEMAND):
            self.roles[branch.key + suffix] = (branch, suffix)

    def _closing_changed(self, key: str, closing: bool) -> None:
        if closing:
            tree, _, name = key[len(NAME) + 1 :].rpartition("/")
            self._register(tree, name)
            self.closing.add(key)
        else:
            self.closing.discard(key)
            self._forget_unused(key)

    def _relabelled_changed(self, name: str, relabelled: bool) -> None:
        if relabelled:
            self.relabelled.add(name)
        else:
            self.relabelled.discard(name)
        quota = self.resolver.quota(name)
        if quota is not None:
            self.forest.note(self.forest.branch(quota.tree, name))

    def _forget_unused(self, key: str) -> None:
        """Forgets a quota that does not exist, and to which nothing is charged any more."""
        branch = self.forest.branches.get(key)
        if branch is None or branch.quota is not None or branch.askers or branch.members.claims:
            return
        if key in self.closing:
            return
        self.forest.forget(branch)
        for suffix in (*SUFFIXES, STRAY_DEMAND):
            del self.roles[key + suffix]

    def _note_root(self, old: PoolQuotaBody | None, new: PoolQuotaBody | None) -> None:
        for quota in (old, new):
            if quota is not None and quota.is_root:
                self.roots_changed.add(quota.name)
                self.roots.pop(quota.name, None)
                self.orphans.discard(quota.name)
        if new is not None and new.is_root:
            self.roots[new.name] = new
            self._find_orphan(new.name)

    def _find_orphan(self, name: str) -> None:
        if self.node_pools.profiles_of_root(name):
            self.orphans.discard(name)
        else:
            self.orphans.add(name)

    def _node_changed(self, name: str, cell: object) -> None:
        node_pools = self.node_pools
        before = node_pools.owners.get(name)
        tree = None if before is None else node_pools.tree_of(before)
        self.profiles_changed.update(node_pools.matches.get(name, ()))
        self.outside.leave_tree(name)
        node_pools.node_changed(name, node_of(cell))
        self.outside.enter_tree(name)
        self.profiles_changed.update(node_pools.matches.get(name, ()))
        if tree is not None:
            self._note_moved(name, tree)
        for owner in (before, node_pools.owners.get(name)):
            if owner is not None:
                self._owner_changed(owner)

    def _note_moved(self, node: str, tree: str) -> None:
        """Notes that a node left a tree for another one."""
        owner = self.node_pools.owners.get(node)
        if owner is not None and self.node_pools.tree_of(owner) != tree:
            self.moved.setdefault(node, {})[tree] = None

    def _owner_changed(self, owner: str) -> None:
        tree = self.node_pools.tree_of(owner)
        self.forest.set_total(tree, self.node_pools.tree_total(tree))
        if owner != NO_PROFILE:
            self.roots_changed.add(self.node_pools.profiles[owner].quota_name)

    def _profile_changed(self, key: str, old: object, new: object) -> None:
        self.version += 1
        self.needs.clear()
        known = set(self.node_pools.trees)
        before = {node: self.node_pools.tree_of(owner) for node, owner in self.node_pools.owners.items()}
        self.node_pools.profile_changed(key, profile_of(key, new))
        moved = known.symmetric_difference(self.node_pools.trees)
        self.outside.sum_up()
        for node, tree in before.items():
            self._note_moved(node, tree)
        for branch in self.forest.branches.values():
            if branch.tree_id in moved:
                self.forest.note(branch)
        trees = {*self.forest.trees, ""}
        for cell in (old, new):
            profile = profile_of(key, cell)
            if profile is not None:
                trees.add(profile.tree)
                self.roots_changed.add(profile.quota_name)
        for tree in sorted(trees):
            self.forest.set_total(tree, self.node_pools.tree_total(tree))
        for root in self.roots:
            self._find_orphan(root)
        self.profiles_changed.add(key)
        for other in self.node_pools.order:  # any node may belong to another one now
            self.profiles_changed.add(other.key)
            self.roots_changed.add(other.quota_name)

    def _options_changed(self, options: PoolOptions) -> None:
        if options.guarantee != self.options.guarantee:
            self.forest.set_guarantee(options.guarantee)
        if options.runtime != self.options.runtime:
            self.version += 1
            for branch in self.forest.branches.values():
                self.forest.note(branch)  # their status says what limits them
        self.options = options

    # Charges

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        branch, suffix = self.roles[account.name]
        if not suffix:
            self.forest.note(branch)
        elif suffix == OWN:
            self.forest.use(branch, cost, sign)
            if branch.name in (SYSTEM, DEFAULT):
                self.outside.charged(claim, cost, sign)
            if sign > 0:
                branch.members.add(claim)
            else:
                branch.members.remove(claim)
        elif suffix == NON_PREEMPTIBLE:
            self.forest.use_non_preemptible(branch, cost, sign)
        else:
            self._demanded(claim, branch, suffix, cost, sign)

    def _demanded(self, claim: Claim, branch: Branch, suffix: str, cost: Vector, sign: int) -> None:
        self.forest.demand(branch, cost, sign, suffix == NON_PREEMPTIBLE_DEMAND)
        if sign > 0:
            branch.askers[claim.uid] = claim
        else:
            del branch.askers[claim.uid]
        if branch.name == DEFAULT:
            self.resolver.default_demanded(claim, suffix == STRAY_DEMAND, sign)

    # Answers

    def is_tied(self, branch: Branch) -> bool:
        """Whether a quota is connected with the root of a tree that profiles make up."""
        return branch.built_in or (self.forest.is_connected(branch) and self.node_pools.has_profile(branch.tree_id))

    def why_loose(self, branch: Branch) -> str:
        """Why a quota is connected with no root, or why its tree has no nodes."""
        top = branch.top()
        quota = top.quota
        if self.forest.is_connected(branch):
            return f"no profile has tree {branch.tree_id!r}: correct the label {TREE}, or apply that profile"
        if quota is None:
            return "it does not exist"
        misplaced = self.resolver.misplaced(quota)
        problem = "" if misplaced is None else misplaced[1]
        return problem if top is branch else f"{top.name}: {problem}"
