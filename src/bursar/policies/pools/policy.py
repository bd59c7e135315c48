"""The pools policy: quota trees over node pools, each quota limited by its runtime.

A claim belongs to one quota and is charged there and in every ancestor. It is admitted if, in each resource that it
requests, its usage stays within the runtime of its quota and of each ancestor; a non-preemptible claim must also stay
within the min of its quota. Its request counts from the moment it is submitted, so it raises that runtime.

The state is in accounts (see ``derived_state``) and in the cells of the tables ``pools.*``. All else is derived.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from bursar.ledger.claims import PENDING, Binding, Claim
from bursar.ledger.state import Account, State
from bursar.ledger.transaction import Transaction
from bursar.policies.placement_kit import NodeIndex
from bursar.policies.policy import DemandRules, NeedsSource, QuotaPolicy
from bursar.policies.pools.affinity import needs_of, open_terms
from bursar.policies.pools.configure import KINDS, Changer
from bursar.policies.pools.derived_state import (
    COUNTED_AT,
    DEMAND,
    NON_PREEMPTIBLE,
    NON_PREEMPTIBLE_AT,
    NON_PREEMPTIBLE_DEMAND,
    OWN,
    QUOTAS,
    STRAY_AT,
    STRAY_DEMAND,
    DerivedState,
    topic_of,
)
from bursar.policies.pools.explanation import explain_branch, subject_of, where_of
from bursar.policies.pools.propagation import account_key
from bursar.policies.pools.quota_node import NO_MAX, Branch
from bursar.policies.pools.revocation import Revoker
from bursar.policies.pools.settings import DEFAULT, DEFAULT_TREE, NAME, ROOT, SYSTEM, PoolQuotaBody
from bursar.policies.pools.status import PoolStatusWriter
from bursar.policies.results import Check, Output, Refusal, Revocation, Setting
from bursar.resources import EMPTY, Vector, dimension_at
from bursar.selectors import NodeNeeds

_CACHED: Final = 65_536
_DAEMON_SET: Final = "DaemonSet/"  # begins the owner of its pods


@final
class PoolBindings:
    """Bindings, shared by claims that cost the same in the same quota; the cache is bounded."""

    def __init__(self, derived: DerivedState) -> None:
        self.derived: Final = derived
        self.rules: DemandRules = DemandRules()
        self.cache: Final[dict[tuple[str, Vector, int], Binding]] = {}
        self.cached_version: int = 0

    def of(self, state: State, claim: Claim) -> Binding | None:
        """The current binding of a claim; None if it belongs to no quota."""
        quota = self.derived.resolver.resolve(claim)
        if quota is None:
            return None
        branch = self.derived.forest.branch(quota.tree, quota.name)
        non_preemptible = not claim.spec.preemptible
        stray = self.derived.resolver.is_stray(claim, quota)
        counted = claim.state != PENDING or self._countable(branch, claim)
        if self.cached_version != self.derived.version or len(self.cache) >= _CACHED:
            self.cache.clear()
            self.cached_version = self.derived.version
        key = (branch.key, claim.spec.quota_requests, int(non_preemptible) + 2 * int(stray) + 4 * int(counted))
        found = self.cache.get(key)
        if found is None:
            found = self._new(state, branch, quota, claim.spec.quota_requests, (counted, stray, non_preemptible))
            self.cache[key] = found
        return found

    def _new(
        self, state: State, branch: Branch, quota: PoolQuotaBody, requests: Vector, flags: tuple[bool, bool, bool]
    ) -> Binding:
        accounts = [state.accounts[branch.key + OWN]]
        own = _managed(quota, requests)
        costs = [own]
        for at in self.derived.forest.path(branch):
            accounts.append(state.accounts[at.key])
            cost = requests if at.quota is None else _managed(at.quota, requests)
            costs.append(own if cost == own else cost)  # one vector where it is the same: journals are shorter
        if flags[2]:
            accounts.append(state.accounts[branch.key + NON_PREEMPTIBLE])
            costs.append(own)
        data = (quota.name, quota.tree, *flags)
        return Binding(NAME, tuple(accounts), tuple(costs), data)

    def _countable(self, branch: Branch, claim: Claim) -> bool:
        """A request counts unless it exceeds a max or what its tree has, or the claim could never run."""
        if above_max(self.derived, branch, claim.spec.quota_requests):
            return False
        if branch.built_in or not self.derived.options.runtime:
            return True
        return not exceeds_nodes(self.derived, branch, claim) and self.rules.counts(claim)


def _managed(quota: PoolQuotaBody, requests: Vector) -> Vector:
    """What counts in a quota: the resources of its max, or all in a built-in quota."""
    return requests if quota.name in (SYSTEM, DEFAULT) else requests.only(list(quota.maximum))


MAX_RULE: Final = "max"
RUNTIME_RULE: Final = "runtime"
MIN_RULE: Final = "min"
LOOSE: Final = "pools.loose"
UNPLACEABLE: Final = "pools.unplaceable"


def check(derived: DerivedState, binding: Binding, old: Binding | None) -> Refusal | None:
    """The refusal of the first quota, from the claim's own up, without room; only what grew from ``old`` counts."""
    forest = derived.forest
    branch = forest.branches[binding.accounts[1].name]
    if not derived.is_tied(branch):
        return _loose(derived, branch)
    unlimited = branch.built_in or not derived.options.runtime or forest.fits_needs(branch, binding)
    if not unlimited:
        forest.refresh(branch.own())
    refusal: Refusal | None = None
    if branch.inner is not None and not unlimited:
        refusal = _check_at(derived, branch, binding.accounts[0], binding.costs[0], branch.inner.runtime, old)
    at: Branch | None = branch
    i = 1
    while refusal is None and at is not None and at.quota is not None:
        limits = at.maxima if unlimited else at.runtime
        refusal = _check_at(derived, at, binding.accounts[i], binding.costs[i], limits, old)
        if refusal is None and i == 1 and binding.data[NON_PREEMPTIBLE_AT]:
            refusal = _check_non_preemptible(derived, branch, binding, old)
        at = at.parent
        i += 1
    return refusal


def above_max(derived: DerivedState, branch: Branch, requests: Vector) -> bool:
    """Whether the requests exceed the max of the quota or of one above it."""
    for at in derived.forest.path(branch):
        for i in range(len(requests.dims)):
            most = _max_of(derived, at, int(requests.dims[i]))
            if most != NO_MAX and requests.amounts[i] > most:
                return True
    return False


def _max_of(derived: DerivedState, branch: Branch, dim: int) -> int:
    slot = derived.forest.slot_of(dim)
    return int(branch.maxima[slot]) if slot >= 0 else NO_MAX


def exceeds_nodes(derived: DerivedState, branch: Branch, claim: Claim) -> bool:
    """Whether the claim requests more than the tree shares out, or than any node of the tree has."""
    if not claim.spec.placeable:
        return False
    requests = claim.spec.quota_requests
    total = derived.forest.total(branch.tree_id)
    for i in range(len(requests.dims)):
        dim = int(requests.dims[i])
        if _max_of(derived, branch, dim) != NO_MAX and requests.amounts[i] > total.get(dim, 0):
            return True
    return not derived.node_pools.could_take(branch.tree_id, claim.spec.requests)


def too_large(derived: DerivedState, branch: Branch, claim: Claim, binding: Binding) -> Refusal | None:
    """Why a request does not count, if it exceeds a max, or what its tree or any node of it has."""
    at: Branch | None = branch
    i = 1
    while at is not None and at.quota is not None:
        cost = binding.costs[i]
        for dim in cost.indices():
            most = _max_of(derived, at, dim)
            if most != NO_MAX and cost.get(dim) > most:
                return _refusal(derived, at, binding.accounts[i], dim, cost.get(dim), most, MAX_RULE)
        at = at.parent
        i += 1
    if branch.built_in or not derived.options.runtime or not exceeds_nodes(derived, branch, claim):
        return None
    where = "of its tree" if branch.quota is None else f"for {subject_of(derived, branch.quota)}"
    note = f"no node {where} could ever take it"
    return Refusal(NAME, UNPLACEABLE, note, branch.key, topics=(topic_of(branch.tree_id),))


def gang_too_large(derived: DerivedState, bindings: list[Binding]) -> Refusal | None:
    """Why the members of a gang could never count together: they exceed a max, or what a tree shares out."""
    in_quotas: dict[str, Vector] = {}
    in_trees: dict[str, Vector] = {}
    for binding in bindings:
        branch = derived.forest.branches[binding.accounts[1].name]
        if not branch.built_in:
            in_trees[branch.tree_id] = in_trees.get(branch.tree_id, EMPTY).plus(binding.costs[1])
        for i in range(1, len(binding.accounts)):
            name = binding.accounts[i].name
            if name in derived.forest.branches:
                in_quotas[name] = in_quotas.get(name, EMPTY).plus(binding.costs[i])
    for name in sorted(in_quotas):
        branch = derived.forest.branches[name]
        for dim in in_quotas[name].indices():
            most = _max_of(derived, branch, dim)
            if most != NO_MAX and in_quotas[name].get(dim) > most and branch.quota is not None:
                of = f"the max of {subject_of(derived, branch.quota)}"
                return _gang_refusal(f"{NAME}.{MAX_RULE}.", name, dim, in_quotas[name].get(dim), most, of)
    for tree in sorted(in_trees) if derived.options.runtime else []:
        total = derived.forest.total(tree)
        for dim in in_trees[tree].indices():
            if in_trees[tree].get(dim) > total.get(dim, 0):
                wanted = in_trees[tree].get(dim)
                return _gang_refusal(
                    UNPLACEABLE,
                    account_key(tree, ROOT),
                    dim,
                    wanted,
                    total.get(dim, 0),
                    f"the {where_of(derived, tree)}",
                )
    return None


def _gang_refusal(reason: str, account: str, dim: int, wanted: int, most: int, of: str) -> Refusal:
    resource = dimension_at(dim)
    asked, limit = resource.show(wanted), resource.show(most)
    note = f"its gang asks for {asked} {resource.name} in all, more than the {limit} of {of}"
    code = reason + resource.name if reason.endswith(".") else reason
    return Refusal(NAME, code, note, account, resource.name, asked, "", limit, topics=(account,))


def _check_at(
    derived: DerivedState, branch: Branch, account: Account, cost: Vector, limits: vec[i64], old: Binding | None
) -> Refusal | None:
    for i in range(len(cost.dims)):
        dim = int(cost.dims[i])
        slot = derived.forest.slot_of(dim)
        amount = int(cost.amounts[i])
        most = int(branch.maxima[slot]) if slot >= 0 else NO_MAX
        if most == NO_MAX:
            continue
        wanted = account.used.get(dim) + amount
        limit = int(limits[slot]) if wanted <= most else most
        if wanted > limit and _grew(old, account, dim, amount):
            rule = MAX_RULE if wanted > most else RUNTIME_RULE
            return _refusal(derived, branch, account, dim, amount, limit, rule)
    return None


def _check_non_preemptible(
    derived: DerivedState, branch: Branch, binding: Binding, old: Binding | None
) -> Refusal | None:
    """Non-preemptible claims may use only the min of their quota."""
    account = binding.accounts[-1]
    cost = binding.costs[-1]
    if branch.built_in:
        return None
    for i in range(len(cost.dims)):
        dim = int(cost.dims[i])
        least = int(branch.minima[derived.forest.slot_of(dim)])
        amount = int(cost.amounts[i])
        if account.used.get(dim) + amount > least and _grew(old, account, dim, amount):
            return _refusal(derived, branch, account, dim, amount, least, MIN_RULE)
    return None


def _refusal(
    derived: DerivedState, branch: Branch, account: Account, dim: int, amount: int, limit: int, rule: str
) -> Refusal:
    resource = dimension_at(dim)
    never = amount > limit and rule in (MAX_RULE, MIN_RULE)
    topics = (account.topic, *_topics_of_runtime(derived, branch)) if rule == RUNTIME_RULE else (account.topic,)
    found = Refusal(
        NAME,
        f"{NAME}.{rule}.{resource.name}",
        "",
        account.name,
        resource.name,
        resource.show(amount),
        resource.show(account.used.get(dim)),
        resource.show(limit),
        never,
        topics,
    )
    if branch.quota is None:
        return found
    by = " by pods that may not be preempted" if rule == MIN_RULE else ""
    return found.worded(subject_of(derived, branch.quota), f"{found.used} of its {rule} of {found.limit} in use{by}")


def _topics_of_runtime(derived: DerivedState, branch: Branch) -> tuple[str, ...]:
    """What may raise the runtime of a quota: less demand in its tree, or less use outside of all quotas there."""
    if not derived.outside.of(branch.tree_id):
        return (topic_of(branch.tree_id),)
    outside = [account_key(DEFAULT_TREE, name) + OWN for name in (SYSTEM, DEFAULT)]
    return (topic_of(branch.tree_id), *outside)


def _loose(derived: DerivedState, branch: Branch) -> Refusal:
    named = branch.name if branch.quota is None else branch.quota.key
    note = f"ElasticQuota {named} hangs on no tree: {derived.why_loose(branch)}"
    return Refusal(NAME, LOOSE, note, branch.key, topics=(topic_of(branch.tree_id),))


def _grew(old: Binding | None, account: Account, dim: int, amount: int) -> bool:
    """Whether the claim requests more of it in that account than before."""
    if old is None:
        return True
    for i in range(len(old.accounts)):
        if old.accounts[i].name == account.name:
            return amount > old.costs[i].get(dim)
    return True


@final
class PoolsPolicy(QuotaPolicy):
    """Elastic quotas in trees, one tree for each pool of nodes."""

    def __init__(self) -> None:
        super().__init__(NAME, KINDS)
        self.derived: Final = DerivedState()
        self.revoker: Final = Revoker(self.derived)
        self.status: Final = PoolStatusWriter(self.derived)
        self.bindings: Final = PoolBindings(self.derived)

    # Settings

    def attach(self, state: State, nodes: NodeIndex, needs_of: NeedsSource | None = None) -> None:
        super().attach(state, nodes, needs_of)
        self.bindings.rules, self.revoker.rules = self.demand_rules, self.eviction_rules
        self.status.follow(self.owner_rules)

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        found: list[str] = []
        for claim in Changer(self.derived, self.state, tx).apply(setting):
            old = claim.binding_of(NAME)
            new = self.bindings.of(self.state, claim)
            if old is None or new is None or old.mark != new.mark:
                found.append(claim.uid)
        return found

    def settle(self, tx: Transaction) -> None:
        if self.derived.closing or self.derived.orphans:
            Changer(self.derived, self.state, tx).tidy()

    # Changes of the ledger

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        self.derived.charged(claim, account, cost, sign)

    def placed(self, claim: Claim, old: str, new: str) -> None:
        self.derived.outside.placed(claim, old, new)

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        self.derived.cell_changed(self.state, table, key, old, new)
        if table == QUOTAS:
            self.concerns_changed()
        if table != QUOTAS or self.state.gangs:  # what changes for a single claim in a quota, ``configure`` returns
            self.demand_rules.changed()

    # One claim

    def concerns(self, claim: Claim) -> bool:
        return self.derived.resolver.resolve(claim) is not None

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        return self.bindings.of(self.state, claim)

    def demand(self, tx: Transaction, claim: Claim, binding: Binding, wanted: bool) -> None:
        suffix = DEMAND
        if binding.data[STRAY_AT]:
            suffix = STRAY_DEMAND
        elif binding.data[NON_PREEMPTIBLE_AT]:
            suffix = NON_PREEMPTIBLE_DEMAND
        account = self.state.accounts[binding.accounts[1].name + suffix]
        cost = binding.costs[1] if binding.data[COUNTED_AT] else EMPTY
        if wanted:
            tx.charge(claim, (account,), (cost,))
        else:
            tx.release(claim, (account,), (cost,))

    def check(self, claim: Claim, binding: Binding) -> Refusal | None:
        branch = self.derived.forest.branches[binding.accounts[1].name]
        uncounted = self.derived.is_tied(branch) and not binding.data[COUNTED_AT]
        refusal = too_large(self.derived, branch, claim, binding) if uncounted else None
        if refusal is not None:
            return refusal
        refusal = check(self.derived, binding, None)
        if refusal is not None and refusal.reason.startswith(f"{NAME}.{RUNTIME_RULE}."):
            return None if uncounted and not self.demand_rules.has_node(claim) else refusal  # then nodes say why
        if refusal is None or not claim.spec.preempts:
            return refusal
        if not self.derived.options.runtime or next(self._victims(claim, binding, refusal), None) is None:
            return refusal
        return refusal.listening(_topics_of_runtime(self.derived, branch))  # it may refuse when victims have left

    def gang_obstacle(self, claims: list[Claim]) -> Refusal | None:
        bindings = [binding for binding in [claim.binding_of(NAME) for claim in claims] if binding is not None]
        return gang_too_large(self.derived, bindings)

    def _growth_refusal(self, claim: Claim, old: Binding, new: Binding) -> Refusal | None:
        return check(self.derived, new, old)

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        return self._victims(claim, binding, refusal)

    def _victims(self, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        """Claims of the same quota with a lower priority that use the resource that is short."""
        branch = self.derived.forest.branches[binding.accounts[1].name]
        if not refusal.reason.startswith((f"{NAME}.{RUNTIME_RULE}.", f"{NAME}.{MAX_RULE}.")):
            return
        if branch.name == DEFAULT and not self.derived.options.default_preemption:
            return
        for candidate in branch.members.least_important_first():
            if candidate.spec.priority >= claim.spec.priority:
                return
            if candidate.uid in branch.members.claims and candidate.spec.quota_requests.amount(refusal.resource) > 0:
                yield candidate

    # Answers

    def explain(self, claim: Claim, binding: Binding) -> Check:
        branch = self.derived.forest.branches[binding.accounts[1].name]
        refusal = None if claim.counts() else self.check(claim, binding)
        return explain_branch(self.derived, branch, binding, refusal)

    def note_overuse(self, tx: Transaction, now: int) -> None:
        self.revoker.note(self.state, tx, now)

    def revocations(self, now: int) -> list[Revocation]:
        return self.revoker.due(self.state, now)

    def next_due(self, now: int) -> int | None:
        return self.revoker.next_due(self.state, now)

    def last_revocation(self) -> int | None:
        return self.revoker.last_due(self.state)

    def outputs(self, now: int) -> list[Output]:
        return self.status.outputs(self.state, self.nodes)

    def node_needs(self, claim: Claim) -> NodeNeeds | None:
        """A claim runs on the nodes that are open to its tree; a pod of a DaemonSet on its own node, whatever tree."""
        quota = self.derived.resolver.resolve(claim)
        if quota is None or claim.spec.owner.startswith(_DAEMON_SET):
            return None
        tree = quota.tree
        if tree not in self.derived.needs:
            self.derived.needs[tree] = needs_of(open_terms(self.derived.node_pools.order, tree))
        return self.derived.needs[tree]
