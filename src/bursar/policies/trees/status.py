"""The status of QuotaTree objects: what each node uses, some of those who sit there as borrowers, and the conditions.

Written when something changed since the last time: a tree's document or the seats in it. What it costs, and how long it
is, does not grow with those who borrow: there may be tens of thousands, and it changes with each of them.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.policies.results import Output
from bursar.policies.trees.model import AT, SPEC, QuotaTreeModel, TreeNode, Trees
from bursar.policies.trees.refresh import over_quota
from bursar.resources import dimension

OBJECT: Final = "QuotaTree.bursar.dev"
MOST_NAMED: Final = 20  # borrowers of a node


@final
class Statuses:
    """Which trees are to be written."""

    __slots__ = ("dirty", "written")

    def __init__(self) -> None:
        self.dirty: Final[set[str]] = set()
        self.written: Final[dict[str, dict[str, object]]] = {}

    def touch(self, table: str, key: str) -> None:
        if table == SPEC:
            self.dirty.add(key)
        elif table.startswith(AT):
            self.dirty.add(table[len(AT) :])

    def take(self, trees: Trees) -> list[Output]:
        """The statuses that differ from what was last written."""
        found: list[Output] = []
        for name in sorted(self.dirty):
            tree = trees.by_name.get(name)
            if tree is None:
                self.written.pop(name, None)
                continue
            status = status_of(tree)
            if self.written.get(name) != status:
                self.written[name] = status
                found.append(Output(OBJECT, name, "status", status))
        self.dirty.clear()
        return found


def status_of(tree: QuotaTreeModel) -> dict[str, object]:
    nodes: dict[str, object] = {}
    for name, node in sorted(tree.nodes.items()):
        status: dict[str, object] = {"used": node.account.used.vector().show(), "claims": node.order.size}
        borrowing = _borrowing(tree, node)
        if borrowing:
            status["borrowing"] = borrowing
        nodes[name] = status
    over = [
        f"{node}: {dimension(resource).show(used)} of {dimension(resource).show(quota)} {resource} in use"
        for node, resource, used, quota in over_quota(tree)
    ]
    conditions: list[object] = [
        {"type": "Ready", "status": "True", "reason": "InForce", "message": ""},
        {
            "type": "Exceeded",
            "status": "True" if over else "False",
            "reason": "OverQuota" if over else "WithinQuota",
            "message": "; ".join(over),
        },
    ]
    return {"nodes": nodes, "conditions": conditions, "warnings": list(tree.warnings())}


def _borrowing(tree: QuotaTreeModel, node: TreeNode) -> list[str]:
    """Those who sit on a node and belong below it, by name: the first that would have to move, if there are many."""
    found: list[str] = []
    if not node.down:
        return found
    for key in node.order:
        seat = tree.seats[cast("str", key[2])]
        if seat.group is not node:
            found.append(seat.claim.key)
            if len(found) == MOST_NAMED:
                break
    found.sort()
    return found
