"""Why a quota has the runtime that it has, and why a claim waits for it, in the words of the dialect.

Quotas are named by their object and the profiles of their tree. The steps are computed again from the same numbers as
the runtime itself (``runtime``), so they end with it.
"""

from __future__ import annotations

from typing import Final

from bursar.ledger.claims import Binding, Claim
from bursar.policies.pools.derived_state import DerivedState
from bursar.policies.pools.quota_node import NO_MAX, Branch
from bursar.policies.pools.runtime import Trace, distribute_children
from bursar.policies.pools.settings import DEFAULT, DEFAULT_TREE, NAME, SYSTEM, PoolQuotaBody
from bursar.policies.results import Check, Refusal
from bursar.resources import EMPTY, Tally, Vector, dimension_at, from_indices

_NAMED: Final = 10  # siblings and pods that are named


def subject_of(derived: DerivedState, quota: PoolQuotaBody) -> str:
    """The quota as people know it, with the profiles whose nodes it shares out."""
    if quota.name in (SYSTEM, DEFAULT):
        return f"ElasticQuota {quota.name}"
    profiles = profiles_of(derived, quota.tree)
    return f"ElasticQuota {quota.key} of {profiles}" if profiles else f"ElasticQuota {quota.key}"


def profiles_of(derived: DerivedState, tree: str) -> str:
    """Names the profiles of a tree; empty if there are none."""
    keys = [profile.key for profile in derived.node_pools.profiles_of(tree)]
    return f"{'profile' if len(keys) == 1 else 'profiles'} {', '.join(keys)}" if keys else ""


# Claims


def explain_branch(derived: DerivedState, branch: Branch, binding: Binding, refusal: Refusal | None) -> Check:
    """The claim's quota and those above it, each with its numbers in what the claim asks for."""
    dims = binding.costs[1].indices()
    children: list[Check] = []
    refused = ""
    own = branch.name if branch.quota is None else subject_of(derived, branch.quota)
    at: Branch | None = branch
    while at is not None and at.quota is not None:
        subject = subject_of(derived, at.quota)
        if refusal is not None and refusal.sentence().startswith(f"{subject}: "):
            refused = subject
        inner = tuple([runtime_check(derived, at, dim) for dim in dims])
        note = ", ".join([f"{check.title} {check.note}" for check in inner if check.children])
        children.append(Check(subject, True, note, inner))
        at = at.parent
    if refusal is not None:
        note = refusal.sentence().removeprefix(f"{refused}: ")
        children.insert(0, Check(refused or own, False, note, (), refusal.reason))
    return Check(NAME, refusal is None, f"belongs to {own}", tuple(children))


def runtime_check(derived: DerivedState, branch: Branch, dim: int) -> Check:
    """What the quota uses of a resource and may use now, with the steps to that."""
    resource = dimension_at(dim)
    slot = derived.forest.slot_of(dim)
    if slot < 0 or branch.maxima[slot] == NO_MAX:
        return Check(resource.name, True, "is not managed by this quota")
    steps = tuple([Check(title, True, text) for title, text in runtime_steps(derived, branch, dim)])
    used = 0 if branch.account is None else branch.account.used.get(dim)
    note = f"runtime {resource.show(int(branch.runtime[slot]))}, in use {resource.show(used)}"
    return Check(resource.name, True, note, steps)


def runtime_steps(derived: DerivedState, branch: Branch, dim: int) -> list[tuple[str, str]]:
    """The steps to the runtime, each with its title; empty for quotas outside of the distribution."""
    slot = derived.forest.slot_of(dim)
    parent = branch.parent
    if slot < 0 or parent is None or not derived.forest.refresh(branch):
        return []
    show = dimension_at(dim).show
    trace = Trace()
    siblings = parent.children
    found = distribute_children(parent, slot, trace)
    at = siblings.index(branch)
    steps = [("request", _asked(branch, slot, dim)), ("need", _needed(branch, slot, dim, trace.needs[at]))]
    has = f"{_source(derived, parent)} {show(int(parent.runtime[slot]))}{_outside(derived, parent, dim)}"
    wanted = sum(trace.needs)
    if trace.scaled:
        steps.append(("parent", f"{has} for needs of {show(wanted)}: each need is scaled down in proportion"))
    else:
        rest = show(int(parent.runtime[slot]) - wanted)
        steps.append(("parent", f"{has}, the needs are {show(wanted)}: each is met, and {rest} is left"))
    held = trace.needs[at]
    for number, turn in enumerate(trace.rounds):
        if at in turn.handed:
            weights = sum([int(siblings[i].weights[slot]) for i in turn.handed])
            share = turn.handed[at]
            text = f"{show(share)} of {show(turn.pool)} by weight {show(int(branch.weights[slot]))} of {show(weights)}"
            lacks = int(branch.lim[slot]) - held
            if lacks < share:
                text += f", of which it needs {show(lacks)}; the rest goes to the next round"
            steps.append((f"round {number + 1}", text))
            held += share
    steps.append(("runtime", show(found[at])))
    return steps


def _asked(branch: Branch, slot: int, dim: int) -> str:
    show = dimension_at(dim).show
    text = f"{show(branch.request[slot])} is what its pods ask for"
    if branch.inner is not None:
        text = f"{show(branch.request[slot])} is what its children and its own pods ask for"
    if int(branch.lim[slot]) < branch.request[slot]:
        text += f", capped to {show(int(branch.lim[slot]))} by its max"
    return text


def _needed(branch: Branch, slot: int, dim: int, need: int) -> str:
    show = dimension_at(dim).show
    least = "min" if branch.base(slot) == int(branch.minima[slot]) else "guaranteed amount"
    base = show(branch.base(slot))
    if branch.lends:
        return f"{show(need)} is its request, up to its {least} of {base}"
    return f"{show(need)} is its whole {least}, because it does not lend"


def _source(derived: DerivedState, parent: Branch) -> str:
    """Says whose amount is shared out: the parent's, or that of the nodes."""
    if parent.quota is not None:
        return f"{parent.quota.key} has"
    if parent.tree_id == DEFAULT_TREE and not profiles_of(derived, parent.tree_id):
        return "the nodes of the default tree have"
    return f"the nodes of {profiles_of(derived, parent.tree_id)} have"


def _outside(derived: DerivedState, parent: Branch, dim: int) -> str:
    """What pods outside of quotas take from what the nodes have."""
    used = 0 if parent.quota is not None else derived.forest.outside.of(parent.tree_id).get(dim, 0)
    if not used:
        return ""
    show = dimension_at(dim).show
    total = derived.forest.total(parent.tree_id).get(dim, 0)
    return f" ({show(total)} less {show(used)} in use outside of quotas)"


# Quotas


def explain_quota(derived: DerivedState, branch: Branch) -> Check | None:
    """How the quota's runtime comes about in each resource that it manages; None if there is no such quota."""
    quota = branch.quota
    if quota is None:
        return None
    subject = subject_of(derived, quota)
    if branch.built_in:
        return _explain_built_in(derived, branch, subject)
    if not derived.forest.refresh(branch):
        return Check(subject, False, f"hangs on no tree: {derived.why_loose(branch)}", (), f"{NAME}.loose")
    dims = sorted([derived.forest.dims[slot] for slot in range(len(derived.forest.dims))
                   if int(branch.maxima[slot]) != NO_MAX], key=lambda dim: dimension_at(dim).name)  # fmt: skip
    children = [_resource_check(derived, branch, dim) for dim in dims]
    failed = [child for child in children if not child.passed]
    return Check(subject, not failed, _kind_of(branch), tuple(children))


def _kind_of(branch: Branch) -> str:
    parts: list[str] = []
    if branch.inner is not None:
        count = len(branch.child_quotas())
        parts.append(f"parent of {count} {'quota' if count == 1 else 'quotas'}")
    if not branch.lends:
        parts.append("does not lend what it leaves idle")
    return "; ".join(parts)


def _resource_check(derived: DerivedState, branch: Branch, dim: int) -> Check:
    resource = dimension_at(dim)
    show = resource.show
    slot = derived.forest.slot_of(dim)
    used = 0 if branch.account is None else branch.account.used.get(dim)
    least, runtime = int(branch.minima[slot]), int(branch.runtime[slot])
    if derived.options.runtime:
        note = f"{show(used)} of its runtime of {show(runtime)} in use; min {show(least)}, {_most(branch, slot, dim)}"
    else:
        note = f"{show(used)} in use; {_most(branch, slot, dim)}; only max limits it (runtimeQuota: false)"
    children = [Check(title, True, text) for title, text in runtime_steps(derived, branch, dim)]
    if used > least:
        children.append(Check("borrows", True, f"{show(used - least)} above its min of {show(least)}"))
    children.extend(_sibling_checks(branch, slot, dim))
    return Check(resource.name, used <= runtime or not derived.options.runtime, note, tuple(children))


def _most(branch: Branch, slot: int, dim: int) -> str:
    most = int(branch.maxima[slot])
    if branch.quota is not None and branch.quota.is_root:
        return "no max"
    return f"max {dimension_at(dim).show(most)}"


def _sibling_checks(branch: Branch, slot: int, dim: int) -> list[Check]:
    """The siblings that take part in the distribution, those that borrow first."""
    parent = branch.parent
    if parent is None:
        return []
    order: list[tuple[int, int, str, Branch]] = []
    for other in parent.children:
        used = _used(other, slot, dim)
        if other is not branch and (int(other.runtime[slot]) or int(other.lim[slot]) or used):
            over = max(0, used - int(other.minima[slot]))
            order.append((-over, -int(other.runtime[slot]), _sibling_name(other), other))
    order.sort(key=lambda one: one[:3])
    found = [_sibling_check(one[3], one[2], slot, dim, -one[0]) for one in order[:_NAMED]]
    if len(order) > _NAMED:
        found.append(Check("siblings", True, f"{len(order) - _NAMED} more take part"))
    return found


def _sibling_check(other: Branch, name: str, slot: int, dim: int, over: int) -> Check:
    show = dimension_at(dim).show
    parts = [
        f"request {show(int(other.lim[slot]))}",
        f"min {show(int(other.minima[slot]))}",
        f"weight {show(int(other.weights[slot]))}",
        f"runtime {show(int(other.runtime[slot]))}",
        f"in use {show(_used(other, slot, dim))}",
    ]
    if over:
        parts.append(f"borrows {show(over)}")
    return Check(f"sibling {name}", True, ", ".join(parts))


def _used(branch: Branch, slot: int, dim: int) -> int:
    """The implicit child of a parent has no account of its own."""
    return branch.own_used[slot] if branch.account is None else branch.account.used.get(dim)


def _sibling_name(branch: Branch) -> str:
    return f"(own pods of {branch.name})" if branch.quota is None else branch.quota.key


# What runs outside of quotas


def outside_by_tree(derived: DerivedState, branch: Branch) -> dict[str, list[Claim]]:
    """The claims that count in a built-in quota, by the tree of the node where they run; sorted by name."""
    found: dict[str, list[Claim]] = {}
    for claim in branch.members.claims.values():
        owner = derived.node_pools.owners.get(claim.place, "")
        tree = derived.node_pools.tree_of(owner) if owner else DEFAULT_TREE
        found.setdefault(tree, []).append(claim)
    for claims in found.values():
        claims.sort(key=lambda claim: claim.key)
    return found


def outside_amounts(derived: DerivedState, name: str) -> dict[str, Vector]:
    """What counts in a built-in quota, by tree; the many claims of the default quota are summed up already."""
    system = derived.forest.find(DEFAULT_TREE, SYSTEM)
    own = {} if system is None else outside_by_tree(derived, system)
    found = {tree: _total_of(claims) for tree, claims in own.items()}
    if name == SYSTEM:
        return found
    sums = derived.forest.outside.by_tree
    return {tree: from_indices(sorted(sums[tree].items())).minus(found.get(tree, EMPTY)) for tree in sums}


def _total_of(claims: list[Claim]) -> Vector:
    found = Tally()
    for claim in claims:
        found.add(claim.spec.quota_requests)
    return found.vector()


def _explain_built_in(derived: DerivedState, branch: Branch, subject: str) -> Check:
    what = "pods of the system" if branch.name == SYSTEM else "pods that belong to no other quota"
    children: list[Check] = []
    for tree, claims in sorted(outside_by_tree(derived, branch).items()):
        names = ", ".join([claim.key for claim in claims[:_NAMED]])
        if len(claims) > _NAMED:
            names += f" and {len(claims) - _NAMED} more"
        amounts = ", ".join([f"{name} {amount}" for name, amount in _total_of(claims).show().items()])
        children.append(Check(where_of(derived, tree), True, f"{amounts} in use by {names}"))
    note = f"{what}; what they use is taken off what the quotas of a tree share"
    return Check(subject, True, note, tuple(children))


def where_of(derived: DerivedState, tree: str) -> str:
    """Names the nodes of a tree."""
    profiles = profiles_of(derived, tree)
    return f"nodes of {profiles}" if profiles else "nodes of the default tree"
