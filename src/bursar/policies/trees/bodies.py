"""A quota tree as a document, in its two forms: the typed body, and the cell in the ledger.

A body may be anything that a document can say: nodes whose parent is unknown, cycles, several roots. ``layout`` works
out what of it is a tree: the first parentless node by name is the root, and whatever does not hang from it dangles.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.policies.settings import Body

DEFAULT_RESOURCES: Final = ("cpu", "memory", "nvidia.com/gpu")


@final
class NodeBody:
    """One node of a document; ``parent`` "" for a root."""

    __slots__ = ("hard", "name", "parent", "quota")

    def __init__(self, name: str, parent: str, hard: bool, quota: dict[str, int]) -> None:
        self.name: Final = name
        self.parent: Final = parent
        self.hard: Final = hard
        self.quota: Final = quota  # a resource of the tree that is missing here has no limit here

    def cell(self) -> tuple[object, ...]:
        return (self.name, self.parent, self.hard, tuple(sorted(self.quota.items())))


@final
class TreeBody(Body):
    """A whole tree: the resources it counts, and its nodes by name."""

    __slots__ = ("nodes", "resources")

    def __init__(self, resources: tuple[str, ...], nodes: dict[str, NodeBody]) -> None:
        self.resources: Final = tuple(sorted(set(resources) or set(DEFAULT_RESOURCES)))
        self.nodes: Final = {name: nodes[name] for name in sorted(nodes)}

    def cell(self) -> tuple[object, ...]:
        return (self.resources, tuple([node.cell() for node in self.nodes.values()]))

    def limits(self, node: NodeBody) -> dict[str, int]:
        """The quota of a node in the resources that the tree counts."""
        return {name: amount for name, amount in node.quota.items() if name in self.resources}


def body_of(cell: object) -> TreeBody:
    """The inverse of ``TreeBody.cell``."""
    resources, rows = cast("tuple[object, ...]", cell)
    nodes: dict[str, NodeBody] = {}
    for row in cast("tuple[object, ...]", rows):
        name, parent, hard, quota = cast("tuple[object, ...]", row)
        listed = dict(cast("tuple[tuple[str, int], ...]", quota))
        nodes[cast("str", name)] = NodeBody(cast("str", name), cast("str", parent), bool(hard), listed)
    return TreeBody(cast("tuple[str, ...]", resources), nodes)


@final
class Layout:
    """What of a document is a tree: its nodes from the root down, and the names of those that dangle."""

    __slots__ = ("dangling", "order", "root")

    def __init__(self, root: str, order: list[NodeBody], dangling: tuple[str, ...]) -> None:
        self.root: Final = root  # "" for an empty tree
        self.order: Final = order  # parents before their children, siblings by name
        self.dangling: Final = dangling


def layout(body: TreeBody) -> Layout:
    root = ""
    children: dict[str, list[NodeBody]] = {}
    for node in body.nodes.values():
        if node.parent:
            children.setdefault(node.parent, []).append(node)
        elif not root:
            root = node.name
    order: list[NodeBody] = [body.nodes[root]] if root else []
    at = 0
    while at < len(order):
        order.extend(children.get(order[at].name, []))
        at += 1
    reached = {node.name for node in order}
    return Layout(root, order, tuple([name for name in body.nodes if name not in reached]))


def problem(body: TreeBody) -> tuple[str, str]:
    """(node, what is wrong) of the first node that keeps a document from being one tree; ("", "") if it is one."""
    found = layout(body)
    if body.nodes and not found.root:
        return next(iter(body.nodes)), "no node is a root: every one of them has a parent"
    for name in found.dangling:
        parent = body.nodes[name].parent
        if not parent:
            return name, f"is a second root beside {found.root}"
        if parent not in body.nodes:
            return name, f"its parent {parent} is not a node of the tree"
    if found.dangling:
        return found.dangling[0], "is its own ancestor, or hangs from a node that is"
    return "", ""
