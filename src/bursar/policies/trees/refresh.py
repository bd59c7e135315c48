"""Refresh: a new document replaces a tree's present one, and the claims in the tree are carried over.

A claim keeps its node if that is still its group or above it; otherwise it moves to its group, or to the root when the
group is gone. It is unallocated when nothing is left of the tree. No quota is checked here: nodes over their quota are
reported. A claim that stays keeps its stamp; those that move get new ones, in the old order. If the tree counts other
resources now, costs are computed again from the claims' specs. As always, the operation ends with a slide-down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from bursar.ledger.claims import Binding, Claim
from bursar.ledger.transaction import Transaction
from bursar.policies.trees.model import SPEC, QuotaTreeModel, Trees, account_name
from bursar.policies.trees.records import (
    NAME,
    Layout,
    TreeBody,
    TreeRequest,
    held_requests,
    layout,
    spec_requests,
)
from bursar.policies.trees.tree_nodes import TreeAllocation
from bursar.resources import UNLIMITED, Limits, dimension


@final
@dataclass
class _CarriedAllocation:
    """One allocation on its way into the new tree."""

    allocation: TreeAllocation
    request: TreeRequest  # in the claim's new binding
    place: str  # "" for none
    stays: bool  # on the same node, by its old or its new name
    changed: bool  # the allocation or the request


def refresh(trees: Trees, tx: Transaction, name: str, body: TreeBody, renames: dict[str, str]) -> tuple[str, ...]:
    """Put a document in force; returns the uids of claims that lost their node. ``renames``: old name -> new name."""
    old = trees.by_name.get(name)
    found = layout(body)
    carried = [] if old is None else _carry(trees, old, body, found, renames)
    same_paths = old is not None and _paths(layout(old.body)) == _paths(found)
    for one in carried:
        _take_out(trees, tx, name, one, same_paths)
    _open(trees, tx, name, body, found)
    tx.put(NAME, SPEC, name, body.cell())
    tree = trees.by_name[name]
    for one in carried:
        _bring_in(trees, tx, tree, one, same_paths)
    _close(tx, trees, name, old, tree)
    tree.freed.update(tree.nodes)
    trees.touch(tree)
    return tuple([one.allocation.claim.uid for one in carried if not one.place])


def remove(trees: Trees, tx: Transaction, name: str) -> None:
    """Remove a tree, with all its allocations."""
    tree = trees.by_name[name]
    for uid in sorted(tree.allocations):
        trees.leave(tx, tree, tree.allocations[uid])
    tx.put(NAME, SPEC, name, None)
    for node in tree.nodes.values():
        tx.close_account(node.account)


def over_quota(tree: QuotaTreeModel) -> tuple[tuple[str, str, int, int], ...]:
    """(node, resource, used, quota) of each quota that is exceeded."""
    found: list[tuple[str, str, int, int]] = []
    for name in sorted(tree.nodes):
        account = tree.nodes[name].account
        for resource, quota in account.limits.listed.items():
            used = account.used.get(dimension(resource).index)
            if quota != UNLIMITED and used > quota:
                found.append((name, resource, used, quota))
    return tuple(found)


def _carry(
    trees: Trees, old: QuotaTreeModel, body: TreeBody, found: Layout, renames: dict[str, str]
) -> list[_CarriedAllocation]:
    paths = _paths(found)
    parents = {node.parent for node in found.order}
    recount = body.resources != old.body.resources
    carried: list[_CarriedAllocation] = []
    for allocation in sorted(old.allocations.values(), key=_stamp):
        before = allocation.request
        group = renames.get(before.group, before.group)
        node = renames.get(allocation.node.name, allocation.node.name)
        place = _place(group, node, found, paths, parents)
        trees.origins.setdefault((old.name, allocation.claim.uid), node if node in paths else allocation.node.name)
        request = before if group == before.group and not recount else _counted_again(allocation, group, body)
        changed = place != node or place != allocation.node.name  # another node may have its node's old name now
        if request is not before and not changed:
            changed = group != before.group or request.cost != before.cost
        carried.append(_CarriedAllocation(allocation, request, place, place == node, changed))
    return carried


def _stamp(allocation: TreeAllocation) -> int:
    return allocation.stamp


def _place(group: str, node: str, found: Layout, paths: dict[str, tuple[str, ...]], parents: set[str]) -> str:
    if group not in paths:
        return found.root
    if group not in parents and node in paths[group]:
        return node
    return group


def _counted_again(allocation: TreeAllocation, group: str, body: TreeBody) -> TreeRequest:
    """The allocation's request with its group's new name, and its cost computed again from the claim's spec."""
    cost = allocation.request.cost
    for named in spec_requests(allocation.claim):
        if named.tree == allocation.request.tree:
            cost = named.cost.only(body.resources)
    return allocation.request.changed(group, cost, allocation.request.forest)


def _take_out(trees: Trees, tx: Transaction, tree: str, one: _CarriedAllocation, same_paths: bool) -> None:
    allocation = one.allocation
    if one.changed or not same_paths:
        tx.release(allocation.claim, allocation.node.accounts, allocation.node.costs(allocation.request.cost))
    if one.changed:
        tx.put(NAME, trees.by_name[tree].table, allocation.claim.uid, None)
        if one.place:
            _set_request(trees, tx, allocation.claim, one.request)


def _bring_in(trees: Trees, tx: Transaction, tree: QuotaTreeModel, one: _CarriedAllocation, same_paths: bool) -> None:
    if not one.place:
        return
    claim = one.allocation.claim
    node = tree.nodes[one.place]
    if one.changed:
        trees.arrive(tx, tree, claim.uid, node, one.allocation.stamp if one.stays else 0)
    if one.changed or not same_paths:
        tx.charge(claim, node.accounts, node.costs(tree.allocations[claim.uid].request.cost))


def _set_request(trees: Trees, tx: Transaction, claim: Claim, new: TreeRequest) -> None:
    """Replace the claim's request of one tree in its binding."""
    requests = [new if request.tree == new.tree else request for request in held_requests(claim)]
    replace_binding(tx, claim, trees.binding(requests))


def replace_binding(tx: Transaction, claim: Claim, new: Binding) -> None:
    """Make sure that the claim has this binding of the policy: allocations are read from it.

    The engine writes the new bindings of a claim after the last policy has charged it. A claim that had no binding
    of this policy keeps the new one in a free slot until then.
    """
    bindings = list(claim.bindings)
    slot = -1
    for i in range(len(bindings)):
        binding = bindings[i]
        if binding is not None and binding.policy == NAME:
            slot = i
            break
        if binding is None and slot < 0:
            slot = i
    if slot < 0:
        bindings.append(new)
    elif bindings[slot] is new:
        return
    else:
        bindings[slot] = new
    tx.set_bindings(claim, tuple(bindings))


def _paths(found: Layout) -> dict[str, tuple[str, ...]]:
    """The names from each node up to the root."""
    paths: dict[str, tuple[str, ...]] = {}
    for node in found.order:
        paths[node.name] = (node.name, *paths[node.parent]) if node.parent else (node.name,)
    return paths


def _open(trees: Trees, tx: Transaction, tree: str, body: TreeBody, found: Layout) -> None:
    for node in found.order:
        name = account_name(tree, node.name)
        account = trees.state.accounts.get(name)
        if account is None:
            account = tx.open_account(NAME, name)
        tx.set_limits(account, Limits(body.limits(node)))


def _close(tx: Transaction, trees: Trees, name: str, old: QuotaTreeModel | None, new: QuotaTreeModel) -> None:
    for node in () if old is None else old.nodes.values():
        if node.name not in new.nodes:
            tx.close_account(trees.state.accounts[account_name(name, node.name)])
