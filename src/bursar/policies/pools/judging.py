"""Whether the quotas of a claim have room for it.

A claim is admitted if, in each resource that it asks for, what is used and what it asks for together stay within the
runtime of its quota and of each one above; one that may not be preempted must also stay within the min of its quota.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from bursar.dimensions import dimension_at
from bursar.ledger.accounts import Account
from bursar.ledger.claims import Binding
from bursar.policies.checks import Refusal
from bursar.policies.pools.bindings import COUNTED_AT, FIRM_AT
from bursar.policies.pools.books import Books, topic_of
from bursar.policies.pools.branch import NO_MAX, Branch
from bursar.policies.pools.names import NAME
from bursar.vectors import Vector

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
