"""Every account of a ledger, summed up again from claims, their bindings and the cells of trees.

Shares no code with the policies. An account that nothing explains must be empty.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, cast

from bursar.ledger.claims import PENDING, RUNNING, TERMINATING, Binding, Claim
from bursar.ledger.state import State
from tests.all_policies.violation import BrokenRuleError, require

Sums = dict[str, Counter[str]]
"""By account: amounts by resource."""


def check_sums(state: State) -> None:
    """Used and busy of every account are what its claims add up to; nothing is negative."""
    used, busy = _summed(state)
    for name, account in state.accounts.items():
        for word, tally, wanted in (("used", account.used, used), ("busy", account.busy, busy)):
            if word == "busy" and not account.physical:
                continue
            found = dict(tally.vector().pairs())
            require(all(amount >= 0 for amount in found.values()), "negative", f"{word} of {name}: {found}")
            right = {key: amount for key, amount in wanted.pop(name, {}).items() if amount}
            require(found == right, "sums", f"{word} of {name} is {found}, its claims add up to {right}")
    for word, left in (("used", used), ("busy", busy)):
        strays = {name: dict(+amounts) for name, amounts in left.items() if any(amounts.values())}
        require(not strays, "lost accounts", f"{word} of accounts that are not there: {strays}")


def _summed(state: State) -> tuple[Sums, Sums]:
    used: Sums = defaultdict(Counter)
    busy: Sums = defaultdict(Counter)
    for claim in state.claims.values():
        for binding in claim.bindings:
            if binding is not None and binding.policy != "trees":
                _add_binding(claim, binding, used, busy)
        _add_budgets(state, claim, used)
    _add_trees(state, used)
    return used, busy


def _add_binding(claim: Claim, binding: Binding, used: Sums, busy: Sums) -> None:
    costs = [dict(cost.pairs()) for cost in binding.costs]
    if claim.state != PENDING:
        for account, cost in zip(binding.accounts, costs, strict=True):
            if claim.counts():
                used[account.name].update(cost)
            if account.physical:
                busy[account.name].update(cost)
    if binding.policy == "elastic" and claim.state in (RUNNING, TERMINATING):
        used[f"{binding.accounts[0].name}#running"].update(costs[0])
    if binding.policy == "pools":
        _quota, _tree, counted, stray, non_preemptible = cast("tuple[str, str, bool, bool, bool]", binding.data)
        suffix = "stray-demand" if stray else "firm-demand" if non_preemptible else "demand"
        if counted:
            used[f"{binding.accounts[1].name}/{suffix}"].update(costs[1])


def _add_trees(state: State, used: Sums) -> None:
    """A claim counts on the node where it sits, and in every node above."""
    for name in state.tables:
        tree = name.removeprefix("trees.at/")
        if tree != name:
            parents = parents_of(state, tree)
            for uid, cell in state.cells(name).items():
                cost = _tree_cost(state.claims[uid], tree)
                for node in path(cast("tuple[str, int]", cell)[0], parents):
                    used[f"trees/{tree}/{node}"].update(cost)


def _tree_cost(claim: Claim, tree: str) -> dict[str, int]:
    binding = claim.binding_of("trees")
    for entry in () if binding is None else cast("tuple[tuple[Any, ...], ...]", binding.data):
        if entry[0] == tree:
            return dict(entry[5].pairs())
    raise BrokenRuleError("seats", f"{claim.key} has a place in tree {tree} and is not bound to it")


def parents_of(state: State, tree: str) -> dict[str, str]:
    """The parent of each node of a quota tree; "" for its root."""
    cell = cast("tuple[Any, ...] | None", state.cell("trees.spec", tree))
    return {} if cell is None else {name: parent for name, parent, _hard, _quota in cell[1]}


def path(node: str, parents: dict[str, str]) -> list[str]:
    """The node and all above it."""
    found: list[str] = []
    while node:
        found.append(node)
        node = parents.get(node, "")
    return found


def _add_budgets(state: State, claim: Claim, used: Sums) -> None:
    for key, cell in state.cells("budgets").items():
        if key.partition("/")[0] == claim.namespace and _selects(cell, claim.spec.labels):
            used[f"budgets/{key}"]["expected"] += 1
            if claim.state == RUNNING and not claim.leaving and state.cell("revoked", claim.uid) is None:
                used[f"budgets/{key}"]["healthy"] += 1


def _selects(cell: object, labels: dict[str, str]) -> bool:
    """The worlds' budgets select by equality of one label."""
    rows = cast("tuple[Any, ...]", cell)[0]
    return all(labels.get(key) in values for key, _operator, values in rows)
