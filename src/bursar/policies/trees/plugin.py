"""How the trees policy joins: QuotaTrees as settings, rows, marks and reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account
from bursar.objects.decode import ManifestError, nearest
from bursar.policies.fix_fields import FixFields, LabelChoice, LimitField, limit_fields
from bursar.policies.plugin import ObjectView, Plugin, PodMarks, Reason
from bursar.policies.quota_table import QuotaFigures, QuotaRecord, QuotaTable
from bursar.policies.results import Check, Refusal, Setting
from bursar.policies.trees.api import QUOTA_TREE, QuotaTree, access_of, body_from
from bursar.policies.trees.model import QuotaTreeModel, account_name
from bursar.policies.trees.policy import KIND, TreesPolicy
from bursar.policies.trees.records import LABEL, NAME, held_requests
from bursar.resources import Vector, dimension


def tree_settings(key: str, tree: QuotaTree | None) -> list[Setting]:
    """A QuotaTree as a setting."""
    return [Setting(KIND, key, None if tree is None else body_from(tree))]


def check_removal(view: ObjectView, tree: Mapping[str, Any]) -> None:
    """A tree that pods name is in use."""
    name = str(tree["metadata"]["name"])
    for pod in view.list("Pod"):
        phase = (pod.get("status") or {}).get("phase")
        metadata = pod["metadata"]
        if f"{LABEL}{name}" in (metadata.get("labels") or {}) and phase not in {"Succeeded", "Failed"}:
            pod_name = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
            raise ManifestError(f"is in use: the pod {pod_name} names it", subject=f"QuotaTree {name}")


def quota_rows(policy: TreesPolicy) -> Iterator[QuotaRecord]:
    """One row for each node of each tree."""
    for tree in policy.trees.by_name.values():
        borrowed = borrowed_above(tree)
        for name, node in tree.nodes.items():
            parent = "" if node.parent is None else node.parent.name
            row = QuotaRecord(NAME, QUOTA_TREE.name, "", tree.name, name, parent, tree.name)
            row.account = account_name(tree.name, name)
            loans = borrowed.get(name)
            for resource, amount in node.account.limits.listed.items():
                own = node.account.used.amount(resource)
                borrowed_here = 0 if loans is None else loans.amount(resource)
                row.resources[resource] = QuotaFigures(
                    own + borrowed_here,
                    min=amount,
                    max=amount if node.hard or node.parent is None else None,
                    borrowed=borrowed_here,
                    idle=max(0, amount - own) if node.leaf else None,
                )
            yield row


def borrowed_above(tree: QuotaTreeModel) -> dict[str, Vector]:
    """By node: what the consumers of its groups use of nodes above it. The account of the node does not count that."""
    found: dict[str, Vector] = {}
    for node in tree.nodes.values():
        for allocation in [] if node.leaf else tree.allocated_on(node):
            below = allocation.group
            while below is not None and below is not node:
                known, cost = found.get(below.name), allocation.request.cost
                found[below.name] = cost if known is None else known.plus(cost)
                below = below.parent
    return found


def explain_row(policy: TreesPolicy, row: QuotaRecord) -> Check | None:
    """The node and those above it, and the consumers of its group that sit above it."""
    tree = policy.trees.by_name.get(row.tree)
    node = None if tree is None else tree.nodes.get(row.node)
    if tree is None or node is None:
        return None
    children: list[Check] = []
    for name, check in row.checks():
        show, figures = dimension(name).show, row.resources[name]
        own = figures.used - (figures.borrowed or 0)
        note = f"{show(own)} of its quota of {show(figures.min or 0)} in use"
        note += f", and {show(figures.borrowed)} borrowed from above" if figures.borrowed else ""
        children.append(Check(name, check.passed, note))
    at = node.parent
    while at is not None:
        used = at.account.used
        parts = [
            f"{dimension(name).show(used.amount(name))} of {dimension(name).show(most)} {name} in use"
            for name, most in at.account.limits.listed.items()
        ]
        children.append(Check(f"above {tree.name}:{at.name}", True, ", ".join(parts) or "no limit"))
        at = at.parent
    for other in tree.nodes.values():
        for allocation in [] if other.leaf else tree.allocated_on(other):
            if allocation.group is node and other is not node:
                amounts = ", ".join(f"{name} {amount}" for name, amount in allocation.request.cost.show().items())
                children.append(
                    Check("borrows", True, f"{allocation.claim.key} has {amounts} of {tree.name}:{other.name}")
                )
    soft = "hard: it borrows nothing" if node.hard else "soft: it may borrow from above"
    note = "the root" if node.parent is None else soft
    return Check(row.subject, not row.exceeded, note, tuple(children))


def borrowers(policy: TreesPolicy) -> set[str]:
    """The claims that are charged above their own group."""
    return {
        allocation.claim.uid
        for tree in policy.trees.by_name.values()
        for node in tree.nodes.values()
        for allocation in ([] if node.leaf else tree.allocated_on(node))
        if allocation.group is not node
    }


def accounts_of(policy: TreesPolicy, claim: Claim) -> Iterator[Account]:
    """Those of its group and of all above it, in each tree: bindings to trees name groups, not accounts."""
    for request in held_requests(claim):
        tree = policy.trees.by_name.get(request.tree)
        group = None if tree is None else tree.nodes.get(request.group)
        if group is not None:
            yield from group.accounts


def called(_policy: TreesPolicy, account: Account) -> str:
    """The group or node of an account, as rows are labelled."""
    tree, _, node = account.name.removeprefix(f"{NAME}/").partition("/")
    return f"{tree}:{node}"


def fields_of(view: ObjectView, _claim: Claim, refusal: Refusal) -> list[LimitField]:
    tree, _, node = refusal.account.removeprefix(f"{NAME}/").partition("/")
    path = ("spec", "nodes", node, "quota", refusal.resource)
    return limit_fields(QUOTA_TREE.name, view.get(QUOTA_TREE.name, tree), path, refusal.resource)


def labels_of(view: ObjectView, claim: Claim, refusal: Refusal) -> list[LabelChoice]:
    """Leaves of the tree that the pod may have meant, or trees that have its group."""
    tree, _, group = refusal.account.removeprefix(f"{NAME}/").partition("/")
    trees = {str(body["metadata"]["name"]): body["spec"]["nodes"] for body in view.list(QUOTA_TREE.name)}
    if refusal.reason == "trees.unknown-tree":
        group = claim.spec.labels.get(f"{LABEL}{tree}", "")
        likely = [name for name in _nearest_first(tree, list(trees)) if group in _leaves(trees[name])]
        return [LabelChoice(f"{LABEL}{tree}", f"{LABEL}{name}", group) for name in likely]
    if refusal.reason not in {"trees.unknown-group", "trees.inner-group"}:
        return []
    nodes = trees.get(tree, {})
    leaves = [name for name in _leaves(nodes) if group not in nodes or group in _above(nodes, name)]
    return [LabelChoice(f"{LABEL}{tree}", f"{LABEL}{tree}", name) for name in _nearest_first(group, leaves)]


def _nearest_first(text: str, names: list[str]) -> list[str]:
    return sorted(names, key=lambda name: (name != nearest(text, names), name))


def _leaves(nodes: Mapping[str, Any]) -> list[str]:
    parents = {node.get("parent") for node in nodes.values()}
    return sorted(name for name in nodes if name not in parents)


def _above(nodes: Mapping[str, Any], name: str) -> list[str]:
    """The node and those above it; a circle, which no tree that was accepted has, would end it as well."""
    found: list[str] = []
    while name and name not in found:
        found.append(name)
        name = str((nodes.get(name) or {}).get("parent") or "")
    return found


REASONS: Final = (
    Reason(
        "trees.quota.<resource>",
        "A node of the tree on the way from the pod's group upwards would have no room, even after all had left that "
        "the pod may displace. The note names a pod that only a budget, its type or the preemption history protects.",
        "Wait, ask for less, raise the quota of the node that is named, or make the node below it soft so that the "
        "group may borrow from above.",
    ),
    Reason(
        "trees.unknown-tree",
        "A label `quota.bursar.dev/<tree>` names a tree that does not exist.",
        "Apply the `QuotaTree`, or correct the label. The pod starts by itself when the tree comes.",
    ),
    Reason(
        "trees.unknown-group",
        "The tree has no node with the name that the label gives.",
        "Correct the label, or add the node to the tree.",
    ),
    Reason(
        "trees.inner-group",
        "The label names a node that has children; pods belong to leaves.",
        "Name a leaf, or add one below the node.",
    ),
    Reason(
        "trees.outside",
        "Library only: the consumer names no tree of the forest that it is allocated on.",
        "Give the consumer a request for one of the forest's trees.",
    ),
)


PLUGIN = Plugin(
    NAME,
    10,
    TreesPolicy,
    kinds=(QUOTA_TREE,),
    translate={QUOTA_TREE.name: tree_settings},
    check_removal={QUOTA_TREE.name: check_removal},
    access={QUOTA_TREE.name: lambda _, tree: access_of(tree)},
    reasons=REASONS,
    title="Quota trees ([guide](trees.md))",
    quotas=QuotaTable(rows=quota_rows, accounts=accounts_of, borrowers=borrowers, explain=explain_row, called=called),
    fixes=FixFields(limits=fields_of, labels=labels_of),
    pods=PodMarks(quota_prefixes=(LABEL,)),
)
