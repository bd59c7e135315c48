"""Why a tree refuses a claim: the refusal of the node that binds, and a check of each node on the claim's way.

The node that binds is the one that would still be short after all have left who may. Where claims sit there that may
not be displaced, the sentence names one of them and what protects it.
"""

from __future__ import annotations

from typing import cast

from bursar.ledger.claims import Claim
from bursar.objects.decode import nearest
from bursar.objects.validation import few
from bursar.policies.results import Check, Refusal, refusal_for
from bursar.policies.trees.allocation import Allocator
from bursar.policies.trees.climb import Climb
from bursar.policies.trees.model import QuotaTreeModel, account_name
from bursar.policies.trees.records import NAME, TreeRequest
from bursar.policies.trees.tree_nodes import AllocationClass, TreeNode, in_order
from bursar.resources import Vector


def group_refusal(tree: QuotaTreeModel, group: str) -> Refusal | None:
    """The refusal of a group that is not a leaf of the tree; None if it is one."""
    node = tree.nodes.get(group)
    if node is not None and node.leaf:
        return None
    leaves = sorted([one.name for one in tree.nodes.values() if one.leaf])
    if node is None:
        close = nearest(group, leaves)
        hint = f"did you mean {close}?" if close else f"it has {few(leaves)}"
        reason, note = "trees.unknown-group", f"the quota tree {tree.name} has no group {group}; {hint}"
    else:
        below = [leaf for leaf in leaves if node in tree.nodes[leaf].above]
        reason = "trees.inner-group"
        note = f"{group} is not a leaf of the quota tree {tree.name}: a group is one, such as {few(below)}"
    return Refusal(NAME, reason, note, account_name(tree.name, group), permanent=True)


def quota_refusal(attempt: Allocator, request: TreeRequest) -> Refusal:
    """The refusal of a claim that found no place. If a victim was not to be had, it says who."""
    tree = attempt.trees.by_name[request.tree]
    wrong = group_refusal(tree, request.group)
    if wrong is not None:
        return wrong
    climb = cast("Climb", attempt.climb)
    account = climb.nodes[climb.last].account
    refusal = refusal_for(
        NAME, "quota", account, climb.dims[climb.short_of()], request.cost, topics=topics(tree, request)
    )
    said = _protected(climb)
    return refusal.remarked(said) if said else refusal


def _would_leave(claim: Claim, obstacle: str) -> str:
    return f"{claim.key} would have to leave, but {obstacle}"


def _protected(climb: Climb) -> str:
    """Which claim holds what the binding node lacks, and may not be displaced only because something protects it."""
    dim = climb.dims[climb.short_of()]
    for allocation, obstacle in climb.permission.refused:
        on_way = allocation.node in climb.nodes and climb.position(allocation.node) <= climb.last
        if on_way and allocation.request.cost.get(dim) > 0:
            return _would_leave(allocation.claim, obstacle)
    for node in climb.nodes[: climb.last + 1]:
        for one in node.classes.values():
            obstacle = _obstacle(climb, node, one)
            if obstacle and one.holds([dim]):
                return _would_leave(climb.tree.allocations[next(in_order([one]))].claim, obstacle)
    return ""


def _obstacle(climb: Climb, node: TreeNode, one: AllocationClass) -> str:
    """What alone protects claims that are alike; "" if they may leave, or their priority protects them."""
    if one.priority >= climb.request.priority and node.parent is not None:
        return ""
    if one.kind != climb.request.kind:
        return f"is of another type ({one.kind})"
    return "is not preemptible" if one.pinned else ""


def topics(tree: QuotaTreeModel, request: TreeRequest) -> tuple[str, ...]:
    """The topics of all nodes on the claim's way: a change of any of them may help it."""
    group = tree.nodes.get(request.group)
    return () if group is None else tuple([account.topic for account in group.accounts])


def tree_check(tree: QuotaTreeModel, request: TreeRequest, passed: bool, refusal: Refusal | None = None) -> Check:
    """The check of one tree, with a check of each node on the claim's way; the refusal's node is marked."""
    group = tree.nodes.get(request.group)
    nodes = () if group is None else (group, *group.above)
    children = tuple([_node_check(node, request.cost, refusal) for node in nodes])
    return Check(f"tree {tree.name}", passed, f"group {request.group}", children)


def _node_check(node: TreeNode, cost: Vector, refusal: Refusal | None) -> Check:
    """Each resource that is short is a failed check; if there are several, of its own."""
    account = node.account
    short = [refusal_for(NAME, "quota", account, dim, cost) for dim in account.missing(cost).indices()]
    found = Check.of_account(account, cost, short[0] if short else None, tuple(short) if len(short) > 1 else ())
    kind = "hard" if node.hard else "soft"
    check = Check(
        node.name, found.passed, f"{kind}; {found.note}" if found.note else kind, found.children, found.reason
    )
    if refusal is not None and refusal.account == account.name:
        for one in check.children or (check,):
            one.binding = one.reason == refusal.reason
    return check
