"""The pools policy: quota trees over node pools, each quota held to its runtime.

A claim belongs to one quota and is charged there and in every quota above it (``bindings``), if all of them have room
(``judging``). Its demand counts from the moment it is submitted, so it raises the runtime that it is then held to.

State: accounts (see ``books``) and the cells of the tables ``pools.*``. Everything else is derived.

What binds a claim: the quota that it belongs to, those above it, and what it costs in each.

A quota counts the resources of its max. Bindings are shared by claims that cost the same in the same quota; the cache
is bounded, and starts anew when quotas change in what bindings depend on.

Whether the quotas of a claim have room for it.

A claim is admitted if, in each resource that it asks for, what is used and what it asks for together stay within the
runtime of its quota and of each one above; one that may not be preempted must also stay within the min of its quota.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast, final

from librt.vecs import vec
from mypy_extensions import i64

from bursar.ledger.claims import PENDING, Binding, Claim
from bursar.ledger.state import Account, State
from bursar.ledger.transaction import Transaction
from bursar.policies.policy import QuotaPolicy
from bursar.policies.pools.configure import KINDS, Changer
from bursar.policies.pools.derived_state import DEMAND, FIRM, FIRM_DEMAND, OWN, STRAY_DEMAND, Books, topic_of
from bursar.policies.pools.quota_node import NO_MAX, Branch
from bursar.policies.pools.revocation import Revoker
from bursar.policies.pools.settings import DEFAULT, DEFAULT_TREE, NAME, SYSTEM, PoolQuotaBody
from bursar.policies.pools.status import Writer, explain_branch
from bursar.policies.results import Check, Output, Refusal, Revocation, Setting
from bursar.resources import EMPTY, Vector, dimension_at
from bursar.selectors import NodeNeeds

_CACHED: Final = 65_536

# Positions in a binding's data, which begins with the name of the quota
TREE_AT: Final = 1
COUNTED_AT: Final = 2  # whether its demand counts
STRAY_AT: Final = 3  # its label names no quota
FIRM_AT: Final = 4  # it may not be preempted


@final
class PoolBindings:
    """The bindings of all claims."""

    __slots__ = ("books", "cache", "cached_version")

    def __init__(self, books: Books) -> None:
        self.books: Final = books
        self.cache: Final[dict[tuple[str, Vector, int], Binding]] = {}
        self.cached_version: int = 0

    def of(self, state: State, claim: Claim) -> Binding | None:
        """The binding of a claim as it is now; None: it belongs to no quota."""
        quota = self.books.resolver.resolve(claim)
        if quota is None:
            return None
        branch = self.books.forest.branch(quota.tree, quota.name)
        firm = not claim.spec.preemptible
        stray = self.books.resolver.is_stray(claim, quota)
        counted = claim.state != PENDING or self._countable(branch, claim)
        if self.cached_version != self.books.version or len(self.cache) >= _CACHED:
            self.cache.clear()
            self.cached_version = self.books.version
        key = (branch.key, claim.spec.requests, int(firm) + 2 * int(stray) + 4 * int(counted))
        found = self.cache.get(key)
        if found is None:
            found = self._new(state, branch, quota, claim.spec.requests, (counted, stray, firm))
            self.cache[key] = found
        return found

    def _new(
        self, state: State, branch: Branch, quota: PoolQuotaBody, requests: Vector, flags: tuple[bool, bool, bool]
    ) -> Binding:
        accounts = [state.accounts[branch.key + OWN]]
        own = _managed(quota, requests)
        costs = [own]
        for at in self.books.forest.path(branch):
            accounts.append(state.accounts[at.key])
            cost = requests if at.quota is None else _managed(at.quota, requests)
            costs.append(own if cost == own else cost)  # one vector where it is the same: journals are shorter
        if flags[2]:
            accounts.append(state.accounts[branch.key + FIRM])
            costs.append(own)
        data = (quota.name, quota.tree, *flags)
        return Binding(NAME, tuple(accounts), tuple(costs), data)

    def _countable(self, branch: Branch, claim: Claim) -> bool:
        """Demand that could never be granted is none: above a max, or more than any node of the tree has."""
        requests = claim.spec.requests
        for at in self.books.forest.path(branch):
            for i in range(len(requests.dims)):
                slot = self.books.forest.slot_of(int(requests.dims[i]))
                if slot >= 0 and at.maxima[slot] != NO_MAX and requests.amounts[i] > at.maxima[slot]:
                    return False
        if branch.aside or not claim.spec.placeable:
            return True
        return self.books.grounds.could_take(branch.tree_id, requests)


def binding_of(claim: Claim) -> Binding | None:
    """What the claim is bound to here."""
    for binding in claim.bindings:
        if binding is not None and binding.policy == NAME:
            return binding
    return None


def _managed(quota: PoolQuotaBody, requests: Vector) -> Vector:
    """What counts there: the resources of its max; all of them in the quotas outside of the distribution."""
    return requests if quota.name in (SYSTEM, DEFAULT) else requests.only(quota.keys())


MAX_RULE: Final = "max"
RUNTIME_RULE: Final = "runtime"
MIN_RULE: Final = "min"
LOOSE: Final = "pools.loose"
UNPLACEABLE: Final = "pools.unplaceable"


def check(books: Books, binding: Binding, old: Binding | None) -> Refusal | None:
    """The first quota of the path, from the claim's own up, that has no room; ``old``: only what grew counts."""
    forest = books.forest
    branch = forest.branches[binding.accounts[1].name]
    if not branch.aside and not forest.refresh(branch if branch.inner is None else branch.inner):
        return _loose(books, branch)
    refusal = _hopeless(books, branch, binding) if old is None and not binding.data[COUNTED_AT] else None
    if refusal is None:
        refusal = _check_own(books, branch, binding, old)
    at: Branch | None = branch
    i = 1
    while refusal is None and at is not None and at.quota is not None:
        refusal = _check_at(books, at, binding.accounts[i], binding.costs[i], at.runtime, old)
        if refusal is None and i == 1 and binding.data[FIRM_AT]:
            refusal = _check_firm(books, branch, binding, old)
        at = at.parent
        i += 1
    return refusal


def _hopeless(books: Books, branch: Branch, binding: Binding) -> Refusal | None:
    """Why the demand does not count: it is above a max, or no node of the tree could ever take it."""
    at: Branch | None = branch
    i = 1
    while at is not None and at.quota is not None:
        cost = binding.costs[i]
        for dim in cost.indices():
            most = int(at.maxima[books.forest.slot_of(dim)])
            if most != NO_MAX and cost.get(dim) > most:
                return _refusal(at, binding.accounts[i], dim, cost.get(dim), most, MAX_RULE)
        at = at.parent
        i += 1
    if not books.options.runtime:
        return None
    note = f"no node of the tree of quota {branch.name} could ever take it"
    return Refusal(NAME, UNPLACEABLE, note, branch.key, topics=(topic_of(branch.tree_id),))


def _check_own(books: Books, branch: Branch, binding: Binding, old: Binding | None) -> Refusal | None:
    """Own pods of a parent share with its children."""
    inner = branch.inner
    if inner is None or not books.options.runtime:
        return None
    return _check_at(books, branch, binding.accounts[0], binding.costs[0], inner.runtime, old)


def _check_at(
    books: Books, branch: Branch, account: Account, cost: Vector, runtime: vec[i64], old: Binding | None
) -> Refusal | None:
    held = books.options.runtime and not branch.aside
    for i in range(len(cost.dims)):
        dim = int(cost.dims[i])
        slot = books.forest.slot_of(dim)
        amount = int(cost.amounts[i])
        most = int(branch.maxima[slot]) if slot >= 0 else NO_MAX
        if most == NO_MAX:
            continue
        wanted = account.used.get(dim) + amount
        limit = int(runtime[slot]) if held and wanted <= most else most
        if wanted > limit and _grew(old, account, dim, amount):
            rule = MAX_RULE if wanted > most else RUNTIME_RULE
            return _refusal(branch, account, dim, amount, limit, rule)
    return None


def _check_firm(books: Books, branch: Branch, binding: Binding, old: Binding | None) -> Refusal | None:
    """Who may not be preempted must not borrow."""
    account = binding.accounts[-1]
    cost = binding.costs[-1]
    if branch.aside:
        return None
    for i in range(len(cost.dims)):
        dim = int(cost.dims[i])
        least = int(branch.minima[books.forest.slot_of(dim)])
        amount = int(cost.amounts[i])
        if account.used.get(dim) + amount > least and _grew(old, account, dim, amount):
            return _refusal(branch, account, dim, amount, least, MIN_RULE)
    return None


def _refusal(branch: Branch, account: Account, dim: int, amount: int, limit: int, rule: str) -> Refusal:
    resource = dimension_at(dim)
    never = amount > limit and rule in (MAX_RULE, MIN_RULE)
    topics = (account.topic,) if rule != RUNTIME_RULE else (account.topic, topic_of(branch.tree_id))
    return Refusal(
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


def _loose(books: Books, branch: Branch) -> Refusal:
    note = f"quota {branch.name} hangs on no tree: {books.why_loose(branch)}"
    return Refusal(NAME, LOOSE, note, branch.key, topics=(topic_of(branch.tree_id),))


def _grew(old: Binding | None, account: Account, dim: int, amount: int) -> bool:
    """Whether the claim asks for more of it there than before."""
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
        self.books: Final = Books()
        self.revoker: Final = Revoker(self.books)
        self.writer: Final = Writer(self.books)
        self.bindings: Final = PoolBindings(self.books)

    # Settings

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        found: list[str] = []
        for claim in Changer(self.books, self.state, tx).apply(setting):
            old = binding_of(claim)
            new = self.bindings.of(self.state, claim)
            if old is None or new is None or old.mark != new.mark:
                found.append(claim.uid)
        return found

    def settle(self, tx: Transaction) -> None:
        if self.books.closing or self.books.orphans:
            Changer(self.books, self.state, tx).tidy()

    # What follows from the ledger

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        self.books.charged(claim, account, cost, sign)

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        self.books.cell_changed(self.state, table, key, old, new)

    # One claim

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        return self.bindings.of(self.state, claim)

    def demand(self, tx: Transaction, claim: Claim, binding: Binding, wanted: bool) -> None:
        suffix = DEMAND
        if binding.data[STRAY_AT]:
            suffix = STRAY_DEMAND
        elif binding.data[FIRM_AT]:
            suffix = FIRM_DEMAND
        account = self.state.accounts[binding.accounts[1].name + suffix]
        cost = binding.costs[1] if binding.data[COUNTED_AT] else EMPTY
        if wanted:
            tx.charge(claim, (account,), (cost,))
        else:
            tx.release(claim, (account,), (cost,))

    def charge(self, tx: Transaction, claim: Claim, binding: Binding, forced: bool) -> Refusal | None:
        if not forced:
            refusal = check(self.books, binding, None)
            if refusal is not None:
                return refusal
        tx.charge(claim, binding.accounts, binding.costs)
        return None

    def recharge(self, tx: Transaction, claim: Claim, old: Binding, new: Binding, forced: bool) -> Refusal | None:
        mark = tx.savepoint()
        self.release(tx, claim, old)
        refusal = None if forced else check(self.books, new, old)
        if refusal is None:
            tx.charge(claim, new.accounts, new.costs)
        else:
            tx.rollback_to(mark)
        return refusal

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        """Only of the same quota, only of lower priority, and only who uses what is short."""
        branch = self.books.forest.branches[binding.accounts[1].name]
        if refusal.reason.startswith((f"{NAME}.{RUNTIME_RULE}.", f"{NAME}.{MAX_RULE}.")) and (
            branch.name != DEFAULT or self.books.options.default_preemption
        ):
            return self._victims(claim, branch, refusal.resource)
        return iter(())

    def _victims(self, claim: Claim, branch: Branch, resource: str) -> Iterator[Claim]:
        for candidate in branch.least_important_first():
            if candidate.spec.priority >= claim.spec.priority:
                return
            if candidate.uid in branch.members and candidate.spec.requests.amount(resource) > 0:
                yield candidate

    # Answers

    def explain(self, claim: Claim, binding: Binding) -> Check:
        branch = self.books.forest.branches[binding.accounts[1].name]
        refusal = None if claim.counts() else check(self.books, binding, None)
        return explain_branch(self.books, branch, binding, refusal)

    def revocations(self, now: int) -> list[Revocation]:
        return self.revoker.due(self.state, now)

    def next_due(self, now: int) -> int | None:
        return self.revoker.next_due(now)

    def outputs(self, now: int) -> list[Output]:
        return self.writer.outputs(self.state)

    def node_needs(self, claim: Claim, binding: Binding) -> NodeNeeds | None:
        """A claim of a tree runs on the nodes of the tree."""
        tree = cast("str", binding.data[TREE_AT])
        if tree not in self.books.needs:
            self.books.needs[tree] = self._tree_needs(tree)
        return self.books.needs[tree]

    def _tree_needs(self, tree: str) -> NodeNeeds | None:
        profiles = self.books.grounds.profiles_of(tree)
        if tree == DEFAULT_TREE or not profiles:
            return None
        terms = []
        for profile in profiles:
            if profile.requirements is None:
                continue
            term = profile.term()
            if term is None:
                return None  # it selects every node
            terms.append(term)
        return NodeNeeds({}, tuple(terms))
