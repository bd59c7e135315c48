"""The crossquota policy: on GPU nodes, claims that ask for no GPU stay within a quota, resource by resource.

In the ledger: an account ``crossquota/<node>`` for each node that is, or once was, a GPU node, with the quota as its
limits and charged by the claims that it limits. A node that lost its GPUs keeps the account without limits. Where idle
GPUs keep a reserve, ``crossquota/<node>/reserve`` counts all claims of the node. Cells hold the arguments and what
quotas follow from on each node. A deleted node keeps its accounts until the last claim that counts there is gone.

A claim exceeds a quota if it wants any of the resource, and used + wanted is more than the quota. It breaks a reserve
if what all claims use, what it wants, and the reserve of each idle GPU together are more than the node has. Quotas are
checked first, in the order in which they are configured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from bursar.ledger.claims import PENDING, Binding, Claim
from bursar.ledger.state import Account, State
from bursar.ledger.transaction import Transaction
from bursar.policies.crossquota.arguments import (
    ARGUMENTS,
    ARGUMENTS_KIND,
    CURRENT,
    GPUS,
    LEAST_ALLOCATED,
    NAME,
    NO_ARGUMENTS,
    NODE_KIND,
    NODES,
    PREFIX,
    QUOTA_REASON,
    RESERVE,
    RESERVE_REASON,
    STRATEGY,
    TOPIC,
    Arguments,
)
from bursar.policies.crossquota.cost import FREE
from bursar.policies.crossquota.node_quota import CrossQuotaNodeBody, GpuNodeFacts, NodeQuota
from bursar.policies.crossquota.status import NodeStatusWriter
from bursar.policies.crossquota.table import QuotaNodeIndex
from bursar.policies.placement_kit import REMOVED, NodeIndex, close_if_empty
from bursar.policies.policy import NeedsSource, PlacementPolicy
from bursar.policies.results import Check, Output, Refusal, Setting, SettingError
from bursar.resources import EMPTY, NO_LIMITS, UNLIMITED, Dimension, Vector, dimension


def judge(index: QuotaNodeIndex, facts: GpuNodeFacts, wanted: Vector, had: Vector) -> list[Refusal]:
    """Everything that refuses the claim on this node, if it starts there, or grows from ``had``."""
    if not facts.is_gpu_node():
        return []
    found: list[Refusal | None] = []
    for quota in facts.quotas:
        resource = dimension(quota.resource)
        if wanted.get(resource.index) > had.get(resource.index):
            found.append(_quota_refusal(index, facts, quota, wanted.get(resource.index)))
    for name in sorted(index.arguments.reserves):
        resource = dimension(name)
        if wanted.get(resource.index) > had.get(resource.index):
            found.append(_reserve_refusal(index, facts, resource, wanted.get(resource.index)))
    return [refusal for refusal in found if refusal is not None]


def first(index: QuotaNodeIndex, facts: GpuNodeFacts | None, wanted: Vector, had: Vector) -> Refusal | None:
    found = [] if facts is None else judge(index, facts, wanted, had)
    return found[0] if found else None


def _used(index: QuotaNodeIndex, account: str, resource: Dimension) -> int:
    found = index.state.accounts.get(account)
    return 0 if found is None else found.used.get(resource.index)


def _quota_refusal(index: QuotaNodeIndex, facts: GpuNodeFacts, quota: NodeQuota, amount: int) -> Refusal | None:
    account = PREFIX + facts.name
    resource = dimension(quota.resource)
    used = _used(index, account, resource)
    if used + amount <= quota.cap:
        return None
    wanted, now, cap = resource.show(amount), resource.show(used), resource.show(quota.cap)
    note = (
        f"{resource.name} quota exceeded on GPU node {facts.name}: pods without a GPU use {now} of {cap}, "
        f"{wanted} more are wanted ({quota.source})"
    )
    reason = QUOTA_REASON + resource.name
    return Refusal(NAME, reason, note, account, resource.name, wanted, now, cap, False, (TOPIC,), facts.name)


def _reserve_refusal(index: QuotaNodeIndex, facts: GpuNodeFacts, resource: Dimension, amount: int) -> Refusal | None:
    account = PREFIX + facts.name + RESERVE
    limit = facts.allocatable.get(resource.index)
    used = _used(index, account, resource)
    idle = max(facts.gpus - _used(index, account, dimension(GPUS)), 0)
    kept = idle * index.arguments.reserves[resource.name]
    if limit == UNLIMITED or used + amount + kept <= limit:
        return None
    wanted, now, cap = resource.show(amount), resource.show(used), resource.show(limit)
    note = (
        f"{idle} idle GPUs of node {facts.name} keep {resource.show(kept)} {resource.name}: of {cap} there are "
        f"{now} in use, {wanted} more are wanted"
    )
    reason = RESERVE_REASON + resource.name
    return Refusal(NAME, reason, note, account, resource.name, wanted, now, cap, False, (TOPIC,), facts.name)


def node_check(index: QuotaNodeIndex, facts: GpuNodeFacts, wanted: Vector, counted: bool) -> Check:
    """The check of one node: for each resource its quota, what is used of it, and where the quota comes from."""
    parts: list[str] = []
    for quota in facts.quotas:
        resource = dimension(quota.resource)
        cap = "unlimited" if quota.cap == UNLIMITED else resource.show(quota.cap)
        asked = "" if counted else f"{resource.show(wanted.get(resource.index))} wanted, "
        used = resource.show(_used(index, PREFIX + facts.name, resource))
        parts.append(f"{resource.name} {asked}{used} of {cap} in use ({quota.source})")
    refusals = [] if counted else judge(index, facts, wanted, EMPTY)
    children = tuple([Check.of_refusal(refusal) for refusal in refusals])
    reason = refusals[0].reason if refusals else ""
    return Check(PREFIX + facts.name, not refusals, "; ".join([*parts, *facts.problems]), children, reason)


def check_nodes(index: QuotaNodeIndex, wanted: Vector, shown: int) -> Check:
    """Where a claim without a node may run: all GPU nodes counted, and the first ``shown`` of them by name in full."""
    known = [facts for facts in index.facts if facts is not None]
    nodes = sorted([facts for facts in known if facts.is_gpu_node()], key=lambda facts: facts.name)
    others = len(known) - len(nodes)
    refusals = [refusal for refusal in [first(index, facts, wanted, EMPTY) for facts in nodes] if refusal is not None]
    children = [node_check(index, facts, wanted, False) for facts in nodes[:shown]]
    open_now = len(nodes) - len(refusals)
    note = f"{open_now} of {len(nodes)} GPU nodes have quota for it, {others} nodes have no GPU and no quota"
    passed = open_now + others > 0
    return Check(NAME, passed, note, tuple(children), "" if passed or not refusals else refusals[0].reason)


SHOWN: Final = 20  # nodes that an explanation lists
_NODES_POLICY: Final = "nodes/"


@final
class CrossQuotaPolicy(PlacementPolicy):
    """Quota of CPU pods on GPU nodes."""

    def __init__(self) -> None:
        super().__init__(NAME, (ARGUMENTS_KIND, NODE_KIND))
        self.index: QuotaNodeIndex = QuotaNodeIndex(self.state, self.nodes)
        self.status: Final = NodeStatusWriter()

    def attach(self, state: State, nodes: NodeIndex, needs_of: NeedsSource | None = None) -> None:
        super().attach(state, nodes, needs_of)
        self.index = QuotaNodeIndex(state, nodes)

    # Settings

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        body = setting.body
        if setting.kind == ARGUMENTS_KIND:
            if body is not None and not isinstance(body, Arguments):
                raise SettingError(f"{ARGUMENTS_KIND} {setting.key}", "", "are no arguments")
            return self._set_arguments(tx, body)
        if body is None:
            self._remove(tx, setting.key)
            return []
        if not isinstance(body, CrossQuotaNodeBody):
            raise SettingError(f"Node {setting.key}", "", "is no node")
        tx.put(NAME, NODES, setting.key, body.cell())
        return self._claims_at(setting.key) if self._fit(tx, setting.key) else []

    def _set_arguments(self, tx: Transaction, arguments: Arguments | None) -> list[str]:
        before = self.index.arguments.binding_part()
        tx.put(NAME, ARGUMENTS, CURRENT, None if arguments is None else arguments.cell())
        changed: set[str] = set()
        for name in sorted(self.state.cells(NODES)):
            if self._fit(tx, name):
                changed.add(name)
        if before != (arguments or NO_ARGUMENTS).binding_part():
            changed = {name for name in self.state.cells(NODES) if PREFIX + name in self.state.accounts}
        return sorted([claim.uid for claim in self.state.claims.values() if claim.place in changed]) if changed else []

    def _fit(self, tx: Transaction, name: str) -> bool:
        """Gives the accounts of a node its quota; returns whether one was opened, for which claims are bound again."""
        facts = self.index.node(name)
        wanted = facts is not None and facts.is_gpu_node()
        account = self.state.accounts.get(PREFIX + name)
        opened = False
        if wanted and account is None:
            account = tx.open_account(NAME, PREFIX + name, TOPIC, True)
            opened = True
        if account is not None:
            tx.set_limits(account, facts.limits if facts is not None else NO_LIMITS)
        if wanted and self.index.arguments.reserves and PREFIX + name + RESERVE not in self.state.accounts:
            # Not physical: a claim that takes an idle GPU makes room here.
            tx.open_account(NAME, PREFIX + name + RESERVE, TOPIC)
            opened = True
        return opened

    def _claims_at(self, name: str) -> list[str]:
        """The claims on a node that becomes a GPU node. Slow: for changes of nodes, not for decisions."""
        account = self.state.accounts.get(_NODES_POLICY + name)
        if account is not None and not account.busy.vector():
            return []  # the nodes policy counts nothing there
        return sorted([c.uid for c in self.state.claims.values() if c.place == name and c.state != PENDING])

    def _remove(self, tx: Transaction, name: str) -> None:
        if self.state.cell(NODES, name) is not None:
            tx.put(NAME, NODES, name, REMOVED)
            self._fit(tx, name)
            self._close_if_empty(tx, name)

    def _close_if_empty(self, tx: Transaction, name: str) -> None:
        known = self.state.accounts
        accounts = [known[key] for key in (PREFIX + name, PREFIX + name + RESERVE) if key in known]
        if accounts and self.state.cell("leaving", name) is not None:
            return  # a claim that is being evicted still has its binding
        close_if_empty(tx, NAME, NODES, name, accounts)

    def settle(self, tx: Transaction) -> None:
        """Closes the accounts of deleted nodes on which no claim is left."""
        if self.index.removed:
            for name in sorted(self.index.removed):
                self._close_if_empty(tx, name)

    # What follows from the ledger

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        self.index.charged(claim, account, cost, sign)

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        if table == ARGUMENTS:
            self.index.arguments_changed(new)
            self.nodes.any_node_changed()
        else:
            self.index.node_changed(key, new)
            self.nodes.node_changed(self.nodes.slot(key))

    # One claim

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        account = self.state.accounts.get(PREFIX + place) if place else None
        if account is None:
            return None
        index = self.index
        reserve = self.state.accounts.get(PREFIX + place + RESERVE) if index.arguments.reserves else None
        return index.cache.binding(account if index.scope.limited(claim) else None, reserve, claim.spec.requests)

    def check(self, claim: Claim, binding: Binding) -> Refusal | None:
        return self._refusal(claim, binding, EMPTY)

    def _growth_refusal(self, claim: Claim, old: Binding, new: Binding) -> Refusal | None:
        return self._refusal(claim, new, EMPTY if old.data == FREE or _node(old) != _node(new) else _costs(old))

    def _refusal(self, claim: Claim, binding: Binding, had: Vector) -> Refusal | None:
        return None if binding.data == FREE else first(self.index, self._facts(binding), self.wanted(claim), had)

    def _facts(self, binding: Binding) -> GpuNodeFacts | None:
        return self.index.node(_node(binding))

    def wanted(self, claim: Claim) -> Vector:
        """What the claim wants of anything that has a quota or a reserve."""
        return self.index.cache.costs(claim.spec.requests).wanted

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        wanted = self.wanted(claim)
        facts = self._facts(binding)
        if facts is None or not _could_fit(facts, wanted):
            return
        for candidate in self.index.residents_of(refusal.account):
            if candidate.spec.priority >= claim.spec.priority:
                return
            found = first(self.index, facts, wanted, EMPTY)
            if found is None:
                return
            if candidate.counts() and self._relieves(candidate, found):
                yield candidate

    def victims_on_node(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> list[Claim] | None:
        return [one for one in self.index.residents_of(refusal.account) if self._relieves(one, refusal)]

    def _relieves(self, candidate: Claim, refusal: Refusal) -> bool:
        """Whether evicting it makes room. Evicting a claim with a GPU would leave one more GPU idle."""
        requests = candidate.spec.requests
        return self.wanted(candidate).amount(refusal.resource) > 0 and self.index.scope.gpus(requests) == 0

    # Answers

    def explain(self, claim: Claim, binding: Binding) -> Check:
        facts = self._facts(binding)
        if binding.data == FREE:
            return Check(NAME, True, f"not limited: {self.index.scope.why_not(claim)}")
        if facts is None or not facts.is_gpu_node():
            return Check(NAME, True, f"not limited: node {_node(binding)} has no GPU now")
        check = node_check(self.index, facts, self.wanted(claim), claim.counts())
        return Check(NAME, check.passed, "", (check,))

    def explain_nodes(self, claim: Claim) -> Check | None:
        if not self.index.patterns:
            return None
        why_not = self.index.scope.why_not(claim)
        if why_not:
            return Check(NAME, True, f"not limited: {why_not}")
        return check_nodes(self.index, self.wanted(claim), SHOWN)

    def outputs(self, now: int) -> list[Output]:
        return self.status.outputs(self.index)

    def counters(self) -> dict[str, int]:
        return {"bad_annotations": self.status.bad_annotations}

    # All nodes at once

    def feasible(self, claim: Claim, mask: bytearray) -> None:
        if self.index.scope.limited(claim):
            self.index.columns.narrow(mask, self.wanted(claim), True)

    def filter(self, claim: Claim, mask: bytearray) -> None:
        if self.index.scope.limited(claim):
            self.index.columns.narrow(mask, self.wanted(claim), False)

    def score(self, claim: Claim, mask: bytearray) -> vec[i64] | None:
        index = self.index
        if not index.scope.limited(claim):
            return None
        found = [0] * len(mask)
        least = claim.spec.annotations.get(STRATEGY) == LEAST_ALLOCATED
        index.columns.score(mask, index.cache.costs(claim.spec.requests).limited, index.arguments, least, found)
        return vec[i64](found)

    def rank(self, claim: Claim, mask: bytearray, ranks: list[int]) -> bool:
        if not self.index.arguments.prefer_others or not self.index.scope.limited(claim):
            return False
        return self.index.columns.rank(mask, ranks)

    def why_no_node(self, claim: Claim, mask: bytearray) -> Refusal | None:
        slot = self.index.columns.commonest_short(mask, self.wanted(claim), self.nodes.names)
        return None if slot < 0 else first(self.index, self.index.facts[slot], self.wanted(claim), EMPTY)


def _node(binding: Binding) -> str:
    return binding.accounts[0].name[len(PREFIX) :].removesuffix(RESERVE)


def _costs(binding: Binding) -> Vector:
    total = binding.costs[0]
    for cost in binding.costs[1:]:
        total = total.peak(cost)
    return total


def _could_fit(facts: GpuNodeFacts, wanted: Vector) -> bool:
    return all(wanted.amount(quota.resource) <= quota.cap for quota in facts.quotas)
