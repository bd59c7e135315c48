"""Why a tree said no: the refusal with its numbers, and the checks of every node on the way."""

from __future__ import annotations

from bursar.dimensions import dimension_at
from bursar.limits import UNLIMITED
from bursar.policies.checks import Check, Refusal
from bursar.policies.trees.asks import NAME, Ask
from bursar.policies.trees.index import Trees
from bursar.policies.trees.tree import Node, Tree, account_name


def unknown_tree(tree: str) -> Refusal:
    return Refusal(NAME, "trees.unknown-tree", f"there is no quota tree {tree}", f"{NAME}/{tree}", permanent=True)


def unknown_group(tree: str, group: str) -> Refusal:
    note = f"the quota tree {tree} has no group {group}"
    return Refusal(NAME, "trees.unknown-group", note, account_name(tree, group), permanent=True)


def inner_group(tree: str, group: str) -> Refusal:
    note = f"{group} is not a leaf of the quota tree {tree}: a group is one"
    return Refusal(NAME, "trees.inner-group", note, account_name(tree, group), permanent=True)


def misplaced(tree: Tree, group: str) -> Refusal | None:
    """What is wrong with a group, if anything is."""
    node = tree.nodes.get(group)
    if node is None:
        return unknown_group(tree.name, group)
    return None if node.leaf else inner_group(tree.name, group)


def quota_refusal(tree: Tree, ask: Ask, last: Node | None) -> Refusal:
    """The refusal of a claim that found no place: the first node on its way that is short."""
    group = tree.nodes[ask.group]
    if not group.leaf:
        return inner_group(tree.name, ask.group)
    node = _first_short(group, ask, last)
    dim = node.account.short_dimension(ask.cost)
    if dim < 0:
        note = f"node {node.name} of tree {tree.name} could not be cleared for {ask.group}"
        return Refusal(NAME, "trees.quota", note, node.account.name, topics=topics(tree, ask))
    resource = dimension_at(dim)
    limit = node.account.limits.get(dim)
    return Refusal(
        NAME,
        f"trees.quota.{resource.name}",
        "",
        node.account.name,
        resource.name,
        resource.show(ask.cost.get(dim)),
        resource.show(node.account.used.get(dim)),
        "unlimited" if limit == UNLIMITED else resource.show(limit),
        False,
        topics(tree, ask),
    )


def _first_short(group: Node, ask: Ask, last: Node | None) -> Node:
    """The node where the climb ended, unless it has room: then the first below it that has none."""
    if last is not None and not last.fits(ask.cost):
        return last
    node: Node | None = group
    while node is not None:
        if not node.fits(ask.cost):
            return node
        node = node.parent
    return group if last is None else last


def topics(tree: Tree, ask: Ask) -> tuple[str, ...]:
    """A change of any node on the claim's way may help it."""
    group = tree.nodes.get(ask.group)
    return () if group is None else tuple([account.topic for account in group.accounts])


def checks_of(trees: Trees, asks: list[Ask], failed: str) -> tuple[Check, ...]:
    """A check for each tree, with one for each node on the way; ``failed`` is the tree that refused."""
    return tuple([tree_check(trees.by_name[ask.tree], ask, ask.tree != failed) for ask in asks])


def tree_check(tree: Tree, ask: Ask, passed: bool) -> Check:
    children: list[Check] = []
    node = tree.nodes.get(ask.group)
    while node is not None:
        short = node.account.short_dimension(ask.cost)
        refusal = None if short < 0 else Refusal(NAME, f"trees.quota.{dimension_at(short).name}")
        check = Check.of_account(node.account, ask.cost, refusal)
        kind = "hard" if node.hard else "soft"
        note = f"{kind}; {check.note}" if check.note else kind
        children.append(Check(node.name, check.passed, note, (), check.reason))
        node = node.parent
    return Check(f"tree {tree.name}", passed, f"group {ask.group}", tuple(children))
