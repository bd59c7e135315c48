"""The status of QuotaTree objects: what each node uses, its first borrowers, and the conditions.

Neither the cost nor the length of a status grows with the number of borrowers, of which there may be tens of thousands.
"""

from __future__ import annotations

from typing import Final, final

from bursar.policies.ownership import OwnerRules
from bursar.policies.placement_kit import NodeIndex
from bursar.policies.results import Output
from bursar.policies.status import StatusWriter, condition
from bursar.policies.trees.model import AT, SPEC, QuotaTreeModel, Trees
from bursar.policies.trees.refresh import over_quota
from bursar.policies.trees.tree_nodes import TreeNode, in_order
from bursar.resources import dimension

OBJECT: Final = "QuotaTree.bursar.dev"
_SOURCE: Final = f"{OBJECT}/"
MOST_NAMED: Final = 20  # borrowers of a node


@final
class TreeStatusWriter(StatusWriter):
    """Writes the status of each tree whose manifest or usage changed."""

    def __init__(self) -> None:
        super().__init__()
        self.dirty: Final[set[str]] = set()
        self.touched: dict[str, None] = {}  # objects whose owners may have changed

    def touch(self, table: str, key: str) -> None:
        if table == SPEC:
            self.dirty.add(key)
        elif table.startswith(AT):
            self.dirty.add(table[len(AT) :])

    def outputs(self, trees: Trees, nodes: NodeIndex, owners: OwnerRules) -> list[Output]:
        self.dirty.update([source[len(_SOURCE) :] for source in self.touched if source.startswith(_SOURCE)])
        self.touched.clear()
        for name in sorted(self.dirty):
            tree = trees.by_name.get(name)
            if tree is None:
                self.write_status(OBJECT, name, None)
                self.changed("resources", name, None)
            else:
                unknown = nodes.misspelt(list(tree.body.resources))
                conditions = self.unknown_resources(OBJECT, name, name, unknown)
                conditions += self.owned(owners.unowned(f"{OBJECT}/{name}"))
                self.write_status(OBJECT, name, status_of(tree, conditions))
        self.dirty.clear()
        return self.take()


def status_of(tree: QuotaTreeModel, more: list[object]) -> dict[str, object]:
    """``more`` are conditions beside those that follow from the tree."""
    nodes: dict[str, object] = {}
    for name, node in sorted(tree.nodes.items()):
        status: dict[str, object] = {"used": node.account.used.vector().show(), "claims": node.count}
        borrowing = _borrowing(tree, node)
        if borrowing:
            status["borrowing"] = borrowing
        nodes[name] = status
    over = [
        f"{node}: {dimension(resource).show(used)} of {dimension(resource).show(quota)} {resource} in use"
        for node, resource, used, quota in over_quota(tree)
    ]
    conditions: list[object] = [
        condition("Ready", True, "InForce"),
        condition("Exceeded", bool(over), "OverQuota" if over else "WithinQuota", "; ".join(over)),
        *more,
    ]
    return {"nodes": nodes, "conditions": conditions, "warnings": list(tree.warnings())}


def _borrowing(tree: QuotaTreeModel, node: TreeNode) -> list[str]:
    """The claims on a node that belong to a group below it, by name; of many, the first that would have to move."""
    found: list[str] = []
    if not node.down:
        return found
    for uid in in_order(list(node.classes.values())):
        allocation = tree.allocations[uid]
        if allocation.group is not node:
            found.append(allocation.claim.key)
            if len(found) == MOST_NAMED:
                break
    found.sort()
    return found
