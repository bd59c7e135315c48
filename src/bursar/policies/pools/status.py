"""The status of quotas and profiles, and the objects of root quotas."""

from __future__ import annotations

from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from bursar.ledger.state import State
from bursar.policies.ownership import OwnerRules
from bursar.policies.placement_kit import NodeIndex
from bursar.policies.pools.derived_state import DerivedState
from bursar.policies.pools.propagation import account_key
from bursar.policies.pools.quota_node import NO_MAX, Branch
from bursar.policies.pools.root_quotas import as_json, ignores_default_tree, listing, root_manifest, shown
from bursar.policies.pools.settings import (
    ALLOCATED,
    CHILD_REQUEST,
    GUARANTEED,
    NON_PREEMPTIBLE_REQUEST,
    NON_PREEMPTIBLE_USED,
    PROFILE_OBJECT,
    QUOTA_OBJECT,
    REQUEST,
    RUNTIME,
    TREE,
    PoolQuotaBody,
)
from bursar.policies.results import Output
from bursar.policies.status import StatusWriter, condition
from bursar.resources import dimension_at

_OVERLAP: Final = "Overlap"


@final
class PoolStatusWriter(StatusWriter):
    """Writes root quotas, profiles, and the status of quotas."""

    def __init__(self, derived: DerivedState) -> None:
        super().__init__()
        self.derived: Final = derived
        self.owner_rules: OwnerRules = OwnerRules()
        self.touched: dict[str, None] = {}  # objects whose owners may have changed
        self.roots: Final[dict[str, str]] = {}  # by name: the key of a root quota that was written

    def follow(self, rules: OwnerRules) -> None:
        self.owner_rules, self.touched = rules, rules.follow()

    def outputs(self, state: State, nodes: NodeIndex) -> list[Output]:
        for name in sorted(self.derived.roots_changed):
            self._root(state, name)
        for key in sorted(self.derived.profiles_changed):
            self._profile(key)
        self.derived.roots_changed.clear()
        self.derived.profiles_changed.clear()
        self._statuses(nodes)
        if self.derived.moved:
            self._lost_nodes()
            self.derived.moved.clear()
        return self.take()

    # Root quotas and profiles

    def _root(self, state: State, name: str) -> None:
        quota = self.derived.roots.get(name)
        if quota is None:
            if self.changed("root", name, None):
                self.write(QUOTA_OBJECT, self.roots.pop(name), "object", None)
            return
        profiles = self.derived.node_pools.profiles_of_root(name)
        if not profiles:
            message = f"{quota.key} stays while quotas or pods use it: {self._users(quota)}"
            self._warn(QUOTA_OBJECT, quota.key, "ProfileGone", message)
            return
        manifest = root_manifest(self.derived, state, quota)
        if self.changed("root", name, manifest):
            self.roots[name] = quota.key
            self.write(QUOTA_OBJECT, quota.key, "object", manifest)
        if ignores_default_tree(profiles):
            message = "ignore-default-tree is ignored: a node belongs to one tree"
            self._warn(QUOTA_OBJECT, quota.key, "Ignored", message)

    def _users(self, quota: PoolQuotaBody) -> str:
        branch = self.derived.forest.branch(quota.tree, quota.name)
        names = [f"quota {child.name}" for child in branch.child_quotas()]
        pods = {claim.key for claims in (branch.askers, branch.members.claims) for claim in claims.values()}
        return listing(names + [f"pod {key}" for key in sorted(pods)])

    def _profile(self, key: str) -> None:
        profile = self.derived.node_pools.profiles.get(key)
        if profile is None:
            self.changed(TREE, key, None)
            self.changed(_OVERLAP, key, None)
            return
        if not profile.pinned and self.changed(TREE, key, profile.tree):
            self.write(PROFILE_OBJECT, key, "labels", {TREE: profile.tree})
        status: dict[str, object] = {
            "nodes": self.derived.node_pools.sums[key].count,
            "total": shown(self.derived.node_pools.total(profile)),
            "treeId": profile.tree,
        }
        self.write(PROFILE_OBJECT, key, "status", status)
        lost = [f"{name} (to {owner})" for name, owner in sorted(self.derived.node_pools.lost.get(key, {}).items())]
        message = f"these nodes belong to another profile that selects them too: {listing(lost)}" if lost else ""
        self._warn(PROFILE_OBJECT, key, _OVERLAP, message)

    def _warn(self, kind: str, key: str, reason: str, message: str) -> None:
        """Writes a warning when its text changes; an empty one clears it."""
        if self.changed(reason, key, message) and message:
            self.write_event(kind, key, reason, message)

    # Quotas

    def _lost_nodes(self) -> None:
        """Warns quotas whose pods run on nodes that left their tree just now."""
        moved = self.derived.moved
        for key in sorted(self.derived.forest.branches):
            branch = self.derived.forest.branches[key]
            if branch.quota is None or branch.built_in:
                continue
            lost = {
                claim.place
                for claim in branch.members.claims.values()
                if branch.tree_id in moved.get(claim.place, {})
                and not self.derived.node_pools.is_in(claim.place, branch.tree_id)
            }
            if lost:
                nodes = listing(sorted(lost))
                message = f"its pods run on nodes that left its tree: {nodes}. They count until they end"
                self.write_event(QUOTA_OBJECT, branch.quota.key, "NodesLost", message)

    def _statuses(self, nodes: NodeIndex) -> None:
        forest = self.derived.forest
        for tree in sorted(forest.trees):
            forest.refresh_all(tree)
        forest.note_loose()
        changed = sorted({*forest.changed, *self._of_other_owners()})
        forest.changed.clear()
        for key in changed:
            branch = forest.branches.get(key)
            if branch is None or branch.quota is None:
                name = key.rpartition("/")[2]
                if self.derived.resolver.quota(name) is None:
                    self.changed("labels", name, None)
                self.changed("annotations", key, None)
                self.changed("status", key, None)
                self.changed("resources", key, None)
            else:
                self._status(branch, branch.quota, nodes)

    def _of_other_owners(self) -> list[str]:
        """The branches of quotas whose owners may have changed."""
        found: list[str] = []
        for source in self.touched:
            kind, _, key = source.partition("/")
            quota = self.derived.resolver.quota(key.rpartition("/")[2]) if kind == QUOTA_OBJECT else None
            if quota is not None:
                found.append(account_key(quota.tree, quota.name))
        self.touched.clear()
        return found

    def _status(self, branch: Branch, quota: PoolQuotaBody, nodes: NodeIndex) -> None:
        tied = branch.built_in or self.derived.forest.is_connected(branch)
        amounts: dict[str, object] = {
            REQUEST: self._json(branch, branch.request),
            CHILD_REQUEST: self._json(branch, branch.child_request),
            GUARANTEED: self._json(branch, _listed(branch.guaranteed)),
            ALLOCATED: self._json(branch, branch.allocated),
            NON_PREEMPTIBLE_REQUEST: self._json(branch, branch.non_preemptible_request),
            NON_PREEMPTIBLE_USED: self._json(branch, branch.non_preemptible_used),
            RUNTIME: self._json(branch, self._runtime(branch, tied)) if self.derived.options.runtime else None,
        }
        used = {} if branch.account is None else branch.account.used.vector().show()
        names = sorted({*quota.maximum, *quota.minimum})
        unknown = self.unknown_resources(QUOTA_OBJECT, quota.key, branch.key, nodes.misspelt(names))
        unowned = self.owned(self.owner_rules.unowned(f"{QUOTA_OBJECT}/{quota.key}"))
        status: dict[str, object] = {"used": used, "conditions": [self._condition(branch, tied), *unknown, *unowned]}
        self._label(quota)
        moved = self.changed("annotations", branch.key, amounts)
        if moved:
            self.write(QUOTA_OBJECT, quota.key, "annotations", amounts)
        if self.changed("status", branch.key, status) or moved:
            self.write(QUOTA_OBJECT, quota.key, "status", status)

    def _label(self, quota: PoolQuotaBody) -> None:
        """Corrects the label of a quota that moved with its parent, until its user names the tree."""
        relabelled = quota.name in self.derived.relabelled
        if self.changed("labels", quota.name, (quota.tree,) if relabelled else None):
            self.write(QUOTA_OBJECT, quota.key, "labels", {TREE: quota.tree if relabelled else quota.tree or None})

    def _runtime(self, branch: Branch, tied: bool) -> list[int]:
        if branch.built_in:
            return _listed(branch.maxima)
        return _listed(branch.runtime) if tied else [0] * len(branch.runtime)

    def _condition(self, branch: Branch, tied: bool) -> dict[str, object]:
        if not tied:
            return condition("Ready", False, "Loose", self.derived.why_loose(branch))
        if not self.derived.is_tied(branch):
            return condition("Ready", False, "NoProfile", self.derived.why_loose(branch))
        over = self._over(branch)
        if over:
            limit = "runtime" if self.derived.options.runtime else "max"
            return condition("Ready", True, "Exceeded", f"uses more than its {limit} of {over}")
        return condition("Ready", True, "WithinRuntime")

    def _over(self, branch: Branch) -> str:
        limits = self._runtime(branch, True) if self.derived.options.runtime else _listed(branch.maxima)
        names: list[str] = []
        for slot in range(len(limits)):
            dim = self.derived.forest.dims[slot]
            used = 0 if branch.account is None else branch.account.used.get(dim)
            if branch.maxima[slot] != NO_MAX and used > limits[slot]:
                names.append(dimension_at(dim).name)
        return ", ".join(sorted(names))

    def _json(self, branch: Branch, amounts: list[int]) -> str:
        """The amounts of what the quota manages."""
        named: dict[str, int] = {}
        for slot in range(len(amounts)):
            if branch.maxima[slot] != NO_MAX:
                named[dimension_at(self.derived.forest.dims[slot]).name] = amounts[slot]
        return as_json(shown(named))


def _listed(amounts: vec[i64]) -> list[int]:
    return [int(amount) for amount in amounts]
