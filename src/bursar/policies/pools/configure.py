"""Applies settings of the policy: quotas, profiles, nodes and options.

It writes cells and accounts through the transaction and returns the claims that must be bound again. The first quota or
profile puts the policy in force: from then on every claim belongs to some quota, at least to the default one.

Objects may come in any order, so a quota with an unknown parent or in a cycle is accepted; it stays loose, and its
claims wait. Only what would make two quotas one is refused. A quota belongs to the tree of its parent, whatever its
label says: a parent that changes its tree takes all below it along, and the status writer corrects their labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.ledger.state import State
from bursar.ledger.transaction import Transaction
from bursar.objects.decode import ManifestError
from bursar.policies.pools.affinity import check_terms
from bursar.policies.pools.derived_state import (
    CLOSING,
    DEMAND,
    MARKS,
    NODES,
    NON_PREEMPTIBLE_DEMAND,
    OPTIONS,
    PROFILES,
    QUOTAS,
    RELABELLED,
    STRAY_DEMAND,
    SUFFIXES,
    DerivedState,
    topic_of,
)
from bursar.policies.pools.node_pools import PoolNode, Profile, in_order
from bursar.policies.pools.propagation import account_key
from bursar.policies.pools.quota_node import Branch
from bursar.policies.pools.root_quotas import marks_of, root_quota
from bursar.policies.pools.settings import (
    BUILT_IN_NAMESPACE,
    DEFAULT,
    DEFAULT_TREE,
    NAME,
    PREFIX,
    ROOT,
    SYSTEM,
    PoolOptions,
    PoolQuotaBody,
    QuotaObject,
)
from bursar.policies.results import Setting, SettingError
from bursar.resources import Limits

QUOTA: Final = "pools.Quota"
PROFILE: Final = "pools.Profile"
NODE: Final = "pools.Node"
OPTION: Final = "pools.Options"
KINDS: Final = (QUOTA, PROFILE, NODE, OPTION)

_OBJECTS: Final = {QUOTA: "ElasticQuota", PROFILE: "ElasticQuotaProfile"}  # for errors
_DEMANDS: Final = (DEMAND, NON_PREEMPTIBLE_DEMAND, STRAY_DEMAND)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


_BUILT_IN: Final = {name: PoolQuotaBody(name, BUILT_IN_NAMESPACE, ROOT, DEFAULT_TREE) for name in (SYSTEM, DEFAULT)}


@final
class Changer:
    """Applies one setting inside a transaction."""

    def __init__(self, derived: DerivedState, state: State, tx: Transaction) -> None:
        self.derived: Final = derived
        self.state: Final = state
        self.tx: Final = tx
        self.concerned: Final[dict[str, Claim]] = {}  # claims whose binding may change

    def apply(self, setting: Setting) -> list[Claim]:
        """Returns the claims that this may concern; the caller finds out which it does."""
        try:
            self._apply(setting)
        except ManifestError as error:
            subject = f"{_OBJECTS.get(setting.kind, setting.kind)} {setting.key}"
            raise SettingError(subject, error.path, error.problem) from None
        return [self.concerned[uid] for uid in sorted(self.concerned)]

    def _apply(self, setting: Setting) -> None:
        body = setting.body
        if setting.kind == QUOTA:
            self._quota(setting.key, body if isinstance(body, QuotaObject) else None)
        elif setting.kind == PROFILE:
            self._profile(setting.key, body if isinstance(body, Profile) else None)
        elif setting.kind == NODE:
            self._node(setting.key, body if isinstance(body, PoolNode) else None)
        else:
            self.tx.put(NAME, OPTIONS, "", body.cell() if isinstance(body, PoolOptions) else None)

    # Quotas

    def _quota(self, key: str, body: QuotaObject | None) -> None:
        namespace, _, name = key.partition("/")
        if name == ROOT:
            return  # the root of every tree, which has no settings
        known = self.derived.resolver.quotas.get(name)
        if body is None:
            if known is not None and known.namespace == namespace:
                self._quota_gone(name, known)
            return
        self._enforce()
        if self.derived.node_pools.profiles_of_root(name):
            self._keep_marks(name, body)
            self._sync_root(name)
            return
        self.derived.resolver.check_name(name, namespace, "metadata.name")
        self._put(body.quota)

    def _quota_gone(self, name: str, known: PoolQuotaBody) -> None:
        if name in (SYSTEM, DEFAULT):
            self._put(_BUILT_IN[name])
        elif self.derived.node_pools.profiles_of_root(name):
            self.derived.roots_changed.add(name)  # it is written again
        else:
            self._drop(known)
        self._relax()

    def _keep_marks(self, name: str, body: QuotaObject) -> None:
        quota = body.quota
        weight = tuple(sorted(quota.weight.items()))
        cell = (_foreign(body.labels), _foreign(body.annotations), weight, quota.namespaces)
        self.tx.put(NAME, MARKS, name, cell if any(cell) else None)

    def _enforce(self) -> None:
        """From now on every claim belongs to a quota."""
        if self.derived.resolver.quotas:
            return
        for built_in in _BUILT_IN.values():
            self._put(built_in)
        self.concerned.update(self.state.claims)

    def _relax(self) -> None:
        """After the last quota and profile claims belong to no quota again."""
        quotas = self.derived.resolver.quotas
        if self.derived.node_pools.profiles or len(quotas) != len(_BUILT_IN):
            return
        for known in quotas.values():
            if known.name not in _BUILT_IN or known.cell() != _BUILT_IN[known.name].cell():
                return
        for built_in in _BUILT_IN.values():
            self._drop(built_in)
        self.concerned.update(self.state.claims)

    def _put(self, given: PoolQuotaBody) -> None:
        """Puts a quota in force, in the tree of its parent, and takes those below it along."""
        quota = self.derived.resolver.in_its_tree(given)
        self._put_in_tree(quota)
        self.tx.put(NAME, RELABELLED, quota.name, None if quota is given else True)
        for name in list(self.derived.resolver.below.get(quota.name, [])):
            child = self.derived.resolver.quotas[name]
            if child.tree != quota.tree and self.derived.resolver.in_its_tree(child) is not child:
                self._put(child)

    def _put_in_tree(self, quota: PoolQuotaBody) -> None:
        known = self.derived.resolver.quotas.get(quota.name)
        if known is not None and known.cell() == quota.cell():
            return
        rebinds = known is None or not known.binds_like(quota)
        if known is not None and rebinds:
            self._note_subtree(known)
        if known is not None and known.tree != quota.tree:
            self._drop(known)
        self._open(quota)
        self.tx.put(NAME, QUOTAS, quota.name, quota.cell())
        if rebinds:
            self._note_newcomers(quota)

    def _open(self, quota: PoolQuotaBody) -> None:
        key = account_key(quota.tree, quota.name)
        self.tx.put(NAME, CLOSING, key, None)
        suffixes = (*SUFFIXES, STRAY_DEMAND) if quota.name == DEFAULT else SUFFIXES
        for suffix in suffixes:
            if key + suffix not in self.state.accounts:
                topic = topic_of(quota.tree) if suffix in _DEMANDS else ""
                self.tx.open_account(NAME, key + suffix, topic)
        self.tx.set_limits(self.state.accounts[key], Limits(quota.maximum))

    def _drop(self, known: PoolQuotaBody) -> None:
        self._note_subtree(known)
        self.tx.put(NAME, QUOTAS, known.name, None)
        self.tx.put(NAME, MARKS, known.name, None)
        self.tx.put(NAME, RELABELLED, known.name, None)
        self.tx.put(NAME, CLOSING, account_key(known.tree, known.name), True)

    def _note_subtree(self, quota: PoolQuotaBody) -> None:
        branch = self.derived.forest.find(quota.tree, quota.name)
        if branch is not None:
            self._note_askers(branch)

    def _note_askers(self, branch: Branch) -> None:
        self.concerned.update(branch.askers)
        for child in branch.child_quotas():
            self._note_askers(child)

    def _note_newcomers(self, quota: PoolQuotaBody) -> None:
        """Notes claims of other quotas that may belong here now, and its own."""
        for claim in self.derived.resolver.maybe_concerned(quota):
            self.concerned[claim.uid] = claim
        for namespace in (*quota.namespaces, quota.name):
            for name in self.derived.resolver.lists.get(namespace, []):
                self._note_subtree(self.derived.resolver.quotas[name])
        self._note_subtree(quota)

    # Profiles and nodes

    def _profile(self, key: str, profile: Profile | None) -> None:
        before = self.derived.node_pools.profiles.get(key)
        if profile is not None:
            self.derived.node_pools.check_root(profile)
            others = [other for other in self.derived.node_pools.order if other.key != key]
            check_terms(in_order([*others, profile]))
            self.derived.resolver.check_name(profile.quota_name, profile.namespace, "spec.quotaName")
            self._enforce()
        self.tx.put(NAME, PROFILES, key, None if profile is None else profile.cell())
        names = {other.quota_name for other in self.derived.node_pools.order}  # any node may have changed its profile
        if before is not None:
            names.add(before.quota_name)
        for name in sorted(names):
            self._sync_root(name)
        self._relax()

    def _sync_root(self, name: str) -> None:
        wanted = root_quota(self.derived.node_pools, name, marks_of(self.state, name))
        if wanted is not None:
            self._put(wanted)
            return
        known = self.derived.resolver.quotas.get(name)
        if known is not None and known.is_root:
            self._retire(known)

    def _retire(self, root: PoolQuotaBody) -> None:
        """Drops a root quota without profiles, or keeps it without min while it is in use."""
        branch = self.derived.forest.find(root.tree, root.name)
        if branch is None or not in_use(branch):
            self._drop(root)
            return
        kept = replace(root, parent=ROOT, minimum={}, weight={}, namespaces=())
        self.tx.put(NAME, QUOTAS, root.name, kept.cell())

    def _node(self, name: str, node: PoolNode | None) -> None:
        node_pools = self.derived.node_pools
        before = node_pools.owners.get(name, "")
        self.tx.put(NAME, NODES, name, None if node is None else node.cell())
        for owner in sorted({before, node_pools.owners.get(name, "")}):
            if owner:
                self._sync_root(node_pools.profiles[owner].quota_name)

    # Before each commit

    def tidy(self) -> None:
        """Removes root quotas and accounts that are no longer in use."""
        for name in sorted(self.derived.orphans):
            self._retire(self.derived.roots[name])
        if not self.state.claims:  # bindings stay until the settings change again
            self._relax()
        for key in sorted(self.derived.closing):
            self._close(key)

    def _close(self, key: str) -> None:
        accounts = [self.state.accounts[key + suffix] for suffix in SUFFIXES]
        if key + STRAY_DEMAND in self.state.accounts:
            accounts.append(self.state.accounts[key + STRAY_DEMAND])
        branch = self.derived.forest.branches[key]
        if branch.askers or branch.members.claims or any(account.used.vector() for account in accounts):
            return
        self.tx.put(NAME, CLOSING, key, None)
        for account in accounts:
            self.tx.close_account(account)


def in_use(branch: Branch) -> bool:
    """Whether the branch has claims or children."""
    return bool(branch.askers or branch.members.claims or branch.child_quotas())


def _foreign(marks: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Labels or annotations that are not of this dialect."""
    return tuple([(k, marks[k]) for k in sorted(marks) if not k.startswith(PREFIX) and k != _LAST_APPLIED])
