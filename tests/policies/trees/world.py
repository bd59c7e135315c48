"""Short ways to write trees, consumers and states, as the conformance tables have them.

``tree("T", "R10(A3!,B5(C2,D[1,2]))")``: node, quota, ``!`` for hard, children. ``consumer("x", "A", 2, priority=1)``.
``state(manager, "T")``: ``"A3{a b} B1 R4"``, nodes that hold something, by name; consumers longest there first.
"""

from __future__ import annotations

import re
from typing import Any

from bursar.policies.trees import NORMAL, AllocationResponse, ConsumerInfo, QuotaManager, consumer_from_plain

Plain = dict[str, Any]
Amount = int | list[int]
S_EX = "A10(B2(E1,F1),C6(G3(K1,L2),H3(M1,N2)),D2(I1,J1))"
_TOKEN = re.compile(r"\s*([\w.-]+?)(\d+|\[[\d,]+\])(!?)(?=[(),\s]|$)|\s*([(),])")


def tree(name: str, shape: str, resources: tuple[str, ...] = ("count",)) -> Plain:
    nodes: Plain = {}
    parents = ["nil"]
    last = "nil"
    for match in _TOKEN.finditer(shape):
        node, quota, hard, mark = match.groups()
        if mark == "(":
            parents.append(last)
        elif mark == ")":
            parents.pop()
        elif node:
            nodes[node] = {
                "parent": parents[-1],
                "hard": "true" if hard else "false",
                "quota": {n: str(a) for n, a in zip(resources, amounts(quota), strict=True)},
            }
            last = node
    return {
        "kind": "QuotaTree",
        "metadata": {"name": name},
        "spec": {"resourceNames": list(resources), "nodes": nodes},
    }


def amounts(text: str) -> list[int]:
    return [int(part) for part in text.strip("[]").split(",")]


def wish(
    tree_name: str,
    group: str,
    request: Amount | Plain,
    priority: int = 0,
    kind: int = 0,
    *,
    unp: bool = False,
    resources: tuple[str, ...] = ("count",),
) -> Plain:
    listed = [request] if isinstance(request, int) else request
    asked = dict(zip(resources, listed, strict=True)) if isinstance(listed, list) else listed
    return {
        "treeName": tree_name,
        "groupID": group,
        "request": asked,
        "priority": priority,
        "type": kind,
        "unPreemptable": unp,
    }


def forest_consumer(consumer_id: str, *wishes: Plain) -> ConsumerInfo:
    return consumer_from_plain(
        {"kind": "Consumer", "metadata": {"name": "c"}, "spec": {"id": consumer_id, "trees": list(wishes)}}
    )


class World:
    """A manager in normal mode with trees, and one call for adding and allocating a consumer."""

    def __init__(self, **shapes: str) -> None:
        self.resources: dict[str, tuple[str, ...]] = {}
        self.manager = QuotaManager(journaled=True)
        for name, shape in shapes.items():
            self.add(name, shape)
        self.manager.set_mode(NORMAL)

    def add(self, name: str, shape: str, resources: tuple[str, ...] = ("count",)) -> None:
        self.resources[name] = resources
        self.manager.add_tree_from_struct(tree(name, shape, resources))

    def forest(self, name: str, *trees: str) -> None:
        self.manager.add_forest(name)
        for one in trees:
            self.manager.add_tree_to_forest(name, one)

    def know(
        self,
        consumer_id: str,
        group: str,
        request: Amount,
        priority: int = 0,
        kind: int = 0,
        *,
        unp: bool = False,
        tree_name: str = "T",
    ) -> None:
        row = wish(tree_name, group, request, priority, kind, unp=unp, resources=self.resources[tree_name])
        self.manager.add_consumer(forest_consumer(consumer_id, row))

    def allocate(
        self,
        consumer_id: str,
        group: str,
        request: Amount,
        priority: int = 0,
        kind: int = 0,
        *,
        unp: bool = False,
        tree_name: str = "T",
    ) -> AllocationResponse:
        self.know(consumer_id, group, request, priority, kind, unp=unp, tree_name=tree_name)
        return self.manager.allocate(tree_name, consumer_id)

    def state(self, name: str = "T") -> str:
        return state(self.manager, name)


def state(manager: QuotaManager, name: str = "T") -> str:
    found = []
    for node_name, node in sorted(manager.get_tree_state(name).items()):
        if node.used or node.consumers:
            used = list(node.used.values())
            listed = used[0] if len(node.quota) == 1 else f"[{','.join(node.used.get(r, '0') for r in node.quota)}]"
            sitting = f"{{{' '.join(node.consumers)}}}" if node.consumers else ""
            found.append(f"{node_name}{listed if used else 0}{sitting}")
    return " ".join(found)
