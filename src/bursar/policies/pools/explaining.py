"""Why a quota has the runtime that it has, step by step: what it asked for, its base, the rounds, what was scaled."""

from __future__ import annotations

from bursar.dimensions import dimension_at
from bursar.ledger.claims import Binding
from bursar.policies.checks import Check, Refusal
from bursar.policies.pools.books import Books
from bursar.policies.pools.branch import NO_MAX, Branch
from bursar.policies.pools.names import NAME
from bursar.policies.pools.sharing import Trace, distribute


def explain_branch(books: Books, branch: Branch, binding: Binding, refusal: Refusal | None) -> Check:
    """The claim's quota and those above it, each with its numbers in what the claim asks for."""
    dims = binding.costs[1].indices()
    children: list[Check] = []
    if refusal is not None:
        children.append(Check.of_refusal(refusal))
    at: Branch | None = branch
    while at is not None and at.quota is not None:
        children.append(Check(at.key, True, "", tuple([runtime_check(books, at, dim) for dim in dims])))
        at = at.parent
    return Check(NAME, refusal is None, f"belongs to quota {branch.name}", tuple(children))


def runtime_check(books: Books, branch: Branch, dim: int) -> Check:
    """One resource of one quota."""
    resource = dimension_at(dim)
    slot = books.forest.slot_of(dim)
    if slot < 0 or branch.maxima[slot] == NO_MAX:
        return Check(resource.name, True, "is not managed by this quota")
    steps = runtime_steps(books, branch, dim)
    used = 0 if branch.account is None else branch.account.used.get(dim)
    note = f"runtime {resource.show(int(branch.runtime[slot]))}, in use {resource.show(used)}"
    return Check(resource.name, True, note, tuple([Check("step", True, step) for step in steps]))


def runtime_steps(books: Books, branch: Branch, dim: int) -> list[str]:
    """The way to the runtime, a sentence a step; empty for quotas outside of the distribution."""
    slot = books.forest.slot_of(dim)
    parent = branch.parent
    if slot < 0 or parent is None or not books.forest.refresh(branch):
        return []
    show = dimension_at(dim).show
    steps = [_asked(branch, slot, dim)]
    trace = Trace()
    siblings = parent.children
    found = distribute(
        int(parent.runtime[slot]),
        [int(child.lim[slot]) for child in siblings],
        [child.base(slot) for child in siblings],
        [int(child.weights[slot]) for child in siblings],
        [child.lends for child in siblings],
        trace,
    )
    at = siblings.index(branch)
    base = show(branch.base(slot))
    kind = "needs" if branch.lends else "keeps, because it does not lend,"
    steps.append(f"base {base}: it {kind} {show(trace.needs[at])} before anything is shared")
    whole = show(int(parent.runtime[slot]))
    needed = show(sum(trace.needs))
    if trace.scaled:
        steps.append(f"{parent.name} has {whole} for needs of {needed}: scaled to {show(found[at])}")
        return steps
    steps.append(f"{parent.name} has {whole}, the needs are {needed}: granted")
    for number, turn in enumerate(trace.rounds):
        if at in turn.handed:
            weight = f"weight {branch.weights[slot]} of {_weights(siblings, turn.handed, slot)}"
            steps.append(f"round {number + 1}: {show(turn.handed[at])} of {show(turn.pool)} by {weight}")
    steps.append(f"runtime {show(found[at])}")
    return steps


def _weights(siblings: list[Branch], handed: dict[int, int], slot: int) -> int:
    return sum([int(siblings[i].weights[slot]) for i in handed])


def _asked(branch: Branch, slot: int, dim: int) -> str:
    show = dimension_at(dim).show
    text = f"asks for {show(branch.request[slot])}"
    if int(branch.lim[slot]) < branch.request[slot]:
        text += f", capped to {show(int(branch.lim[slot]))} by its max"
    return text
