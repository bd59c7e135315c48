"""What a claim asks of a tree, in its three forms: the ask, the entry in a binding, and the row in a claim's spec.

A binding of the trees policy names no accounts (where a claim counts is its seat, which moves); its data has one entry
for each tree that governs the claim. A claim without a pod brings its rows in ``spec.details["trees"]``; a pod
names its group in tree T by the label ``quota.bursar.dev/T`` and asks for what it requests.

A quota tree as a document, in its two forms: the typed body, and the cell in the ledger.

A body may be anything that a document can say: nodes whose parent is unknown, cycles, several roots. ``layout`` works
out what of it is a tree: the first parentless node by name is the root, and whatever does not hang from it dangles.

A consumer of the library: its id and what it asks of each tree that it names.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.claims import Binding, Claim, ClaimSpec
from bursar.policies.results import Body
from bursar.resources import Vector, from_amounts

NAME: Final = "trees"
LABEL: Final = "quota.bursar.dev/"
DETAILS: Final = "trees"
Entry = tuple[object, ...]


@final
class Ask:
    """One claim's wish in one tree."""

    __slots__ = ("cost", "group", "kind", "pinned", "priority", "tree")

    def __init__(self, tree: str, group: str, cost: Vector, priority: int, kind: int, pinned: bool) -> None:
        self.tree: Final = tree
        self.group: Final = group
        self.cost: Final = cost  # only resources that the tree counts
        self.priority: Final = priority
        self.kind: Final = kind  # only claims of the same kind displace each other
        self.pinned: Final = pinned  # never a victim


@final
class Counted:
    """What a request counts in a tree, and what the tree does not count."""

    __slots__ = ("cost", "ignored")

    def __init__(self, request: Vector, resources: tuple[str, ...]) -> None:
        self.cost: Final = request.only(resources)
        self.ignored: Final = tuple([name for name in request.names() if name not in resources])


@final
class Row:
    """What a claim names for one tree, before the tree has a say: all requests, counted there or not."""

    __slots__ = ("group", "kind", "pinned", "priority", "request", "tree")

    def __init__(self, tree: str, group: str, request: Vector, priority: int, kind: int, pinned: bool) -> None:
        self.tree: Final = tree
        self.group: Final = group
        self.request: Final = request
        self.priority: Final = priority
        self.kind: Final = kind
        self.pinned: Final = pinned

    def plain(self) -> list[object]:
        """The form in ``spec.details``."""
        return [self.tree, self.group, dict(self.request.pairs()), self.priority, self.kind, self.pinned]

    def in_group(self, group: str) -> Row:
        return Row(self.tree, group, self.request, self.priority, self.kind, self.pinned)


def rows_of(claim: Claim) -> list[Row]:
    """The trees that a claim names, in the order of their names."""
    spec = claim.spec
    listed = spec.details.get(DETAILS)
    if listed is not None:
        found = [_row(plain) for plain in cast("list[object]", listed)]
    else:
        found = [
            Row(key[len(LABEL) :], group, spec.requests, spec.priority, 0, not spec.preemptible)
            for key, group in spec.labels.items()
            if key.startswith(LABEL)
        ]
    found.sort(key=_tree_name)
    return found


def names_trees(claim: Claim) -> bool:
    """Whether the claim names any tree at all: asked for every claim, so it makes nothing."""
    spec = claim.spec
    if DETAILS in spec.details:
        return True
    for key in spec.labels:
        if key.startswith(LABEL):
            return True
    return False


def _tree_name(row: Row) -> str:
    return row.tree


def _row(plain: object) -> Row:
    tree, group, request, priority, kind, pinned = cast("list[object]", plain)
    amounts = from_amounts(cast("dict[str, int]", request))
    return Row(str(tree), str(group), amounts, cast("int", priority), cast("int", kind), bool(pinned))


def entry_of(row: Row, counted: Counted, via: str) -> Entry:
    """The entry in a binding; ``via`` names the forest through which it is held, if it is one of the library's."""
    return (row.tree, row.group, row.priority, row.kind, row.pinned, counted.cost, via)


def ask_of(entry: Entry) -> Ask:
    return Ask(
        cast("str", entry[0]),
        cast("str", entry[1]),
        cast("Vector", entry[5]),
        cast("int", entry[2]),
        cast("int", entry[3]),
        cast("bool", entry[4]),
    )


def tree_binding(claim: Claim) -> Binding | None:
    """The claim's binding by this policy, wherever the policy stands in the engine's order."""
    for binding in claim.bindings:
        if binding is not None and binding.policy == NAME:
            return binding
    return None


def entries(binding: Binding | None) -> tuple[Entry, ...]:
    return () if binding is None else cast("tuple[Entry, ...]", binding.data)


def held_trees(claim: Claim) -> list[str]:
    """Names of the trees in the claim's binding, sorted."""
    return [cast("str", entry[0]) for entry in entries(tree_binding(claim))]


def is_pinned(claim: Claim) -> bool:
    """Never a victim: marked so in any tree that it holds."""
    for entry in entries(tree_binding(claim)):
        if entry[4]:
            return True
    return False


DEFAULT_RESOURCES: Final = ("cpu", "memory", "nvidia.com/gpu")


@final
class TreeNodeBody:
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

    def __init__(self, resources: tuple[str, ...], nodes: dict[str, TreeNodeBody]) -> None:
        self.resources: Final = tuple(sorted(set(resources) or set(DEFAULT_RESOURCES)))
        self.nodes: Final = {name: nodes[name] for name in sorted(nodes)}

    def cell(self) -> tuple[object, ...]:
        return (self.resources, tuple([node.cell() for node in self.nodes.values()]))

    def limits(self, node: TreeNodeBody) -> dict[str, int]:
        """The quota of a node in the resources that the tree counts."""
        return {name: amount for name, amount in node.quota.items() if name in self.resources}


def body_of(cell: object) -> TreeBody:
    """The inverse of ``TreeBody.cell``."""
    resources, rows = cast("tuple[object, ...]", cell)
    nodes: dict[str, TreeNodeBody] = {}
    for row in cast("tuple[object, ...]", rows):
        name, parent, hard, quota = cast("tuple[object, ...]", row)
        listed = dict(cast("tuple[tuple[str, int], ...]", quota))
        nodes[cast("str", name)] = TreeNodeBody(cast("str", name), cast("str", parent), bool(hard), listed)
    return TreeBody(cast("tuple[str, ...]", resources), nodes)


@final
class Layout:
    """What of a document is a tree: its nodes from the root down, and the names of those that dangle."""

    __slots__ = ("dangling", "order", "root")

    def __init__(self, root: str, order: list[TreeNodeBody], dangling: tuple[str, ...]) -> None:
        self.root: Final = root  # "" for an empty tree
        self.order: Final = order  # parents before their children, siblings by name
        self.dangling: Final = dangling


def layout(body: TreeBody) -> Layout:
    root = ""
    children: dict[str, list[TreeNodeBody]] = {}
    for node in body.nodes.values():
        if node.parent:
            children.setdefault(node.parent, []).append(node)
        elif not root:
            root = node.name
    order: list[TreeNodeBody] = [body.nodes[root]] if root else []
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


@final
class ConsumerInfo:
    """The specification of a consumer, as it is added to a manager."""

    __slots__ = ("id", "rows", "warnings")

    def __init__(self, consumer_id: str, rows: list[Row], warnings: tuple[str, ...] = ()) -> None:
        self.id: Final = consumer_id
        self.rows: Final = tuple(rows)
        self.warnings: Final = warnings

    def claim(self, created: int = 0) -> Claim:
        """The same as a claim without a pod."""
        return Claim(self.id, spec_of(list(self.rows)), created)


def spec_of(rows: list[Row]) -> ClaimSpec:
    """Its priority, where others ask for one, is the highest that it has in any tree."""
    pinned = [row.tree for row in rows if row.pinned]
    return ClaimSpec(
        priority=max([row.priority for row in rows], default=0),
        preemptible=not pinned,
        details={DETAILS: [row.plain() for row in rows]},
        placeable=False,
    )


def regrouped(claim: Claim, tree: str, renames: dict[str, str]) -> ClaimSpec | None:
    """The claim's spec after groups of a tree were renamed; None when that does not concern it."""
    rows = rows_of(claim)
    changed = False
    for i in range(len(rows)):
        new = renames.get(rows[i].group) if rows[i].tree == tree else None
        if new is not None:
            rows[i] = rows[i].in_group(new)
            changed = True
    return spec_of(rows) if changed else None
