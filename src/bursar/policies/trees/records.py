"""What claims request of quota trees, and the trees themselves, as typed values and as the ledger writes them.

A claim without a pod lists its requests in ``spec.details["trees"]``. A pod names its group in tree T by the label
``quota.bursar.dev/T`` and requests there what its containers request.

A binding of the trees policy names no accounts, because the node on which a claim counts changes. Its data has one
entry for each tree that governs the claim.

A ``TreeBody`` may hold anything that a document can say, also unknown parents, cycles and several roots. ``layout``
takes the first parentless node by name as the root and calls every node that does not hang from it dangling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast, final

from bursar.ledger.claims import Binding, Claim, ClaimSpec
from bursar.policies.results import Body
from bursar.resources import Vector, from_amounts

NAME: Final = "trees"
LABEL: Final = "quota.bursar.dev/"
DETAILS: Final = "trees"
DEFAULT_RESOURCES: Final = ("cpu", "memory", "nvidia.com/gpu")
Entry = tuple[object, ...]
"""A request in the data of a binding: (tree, group, priority, kind, pinned, cost, forest)."""


@final
class TreeRequest:
    """What a claim requests of one tree, for the group that it names there."""

    __slots__ = ("_alike", "cost", "forest", "group", "kind", "pinned", "priority", "tree")

    def __init__(
        self, tree: str, group: str, cost: Vector, priority: int, kind: int, pinned: bool, forest: str = ""
    ) -> None:
        self.tree: Final = tree
        self.group: Final = group
        self.cost: Final = cost  # in a binding only the resources that the tree counts
        self.priority: Final = priority
        self.kind: Final = kind  # only claims of the same kind displace each other
        self.pinned: Final = pinned  # never a victim
        self.forest: Final = forest  # the library's forest through which the claim is allocated, "" for none
        self._alike: tuple[object, ...] = ()

    def __repr__(self) -> str:
        return f"TreeRequest({self.group} of {self.tree}: {self.cost.show()}, priority {self.priority})"

    def alike(self) -> tuple[object, ...]:
        """Claims that have this in common are of the same use to those that look for room."""
        if not self._alike:
            self._alike = (self.priority, self.kind, self.pinned, *self.cost.indices())
        return self._alike

    def detail(self) -> list[object]:
        """The request as it stands in ``spec.details``."""
        return [self.tree, self.group, dict(self.cost.pairs()), self.priority, self.kind, self.pinned]

    def entry(self) -> Entry:
        """The request as it stands in a binding."""
        return (self.tree, self.group, self.priority, self.kind, self.pinned, self.cost, self.forest)

    def changed(self, group: str, cost: Vector, forest: str) -> TreeRequest:
        """The same request with another group, cost or forest."""
        return TreeRequest(self.tree, group, cost, self.priority, self.kind, self.pinned, forest)


def names_trees(claim: Claim) -> bool:
    """Whether the claim names a tree. The engine asks this for every claim, so it allocates nothing."""
    spec = claim.spec
    if DETAILS in spec.details:
        return True
    for key in spec.labels:
        if key.startswith(LABEL):
            return True
    return False


def spec_requests(claim: Claim) -> list[TreeRequest]:
    """What the claim's spec requests, in the order of the trees' names."""
    spec = claim.spec
    listed = spec.details.get(DETAILS)
    if listed is not None:
        found = [_from_detail(detail) for detail in cast("list[object]", listed)]
    else:
        found = [
            TreeRequest(key[len(LABEL) :], group, spec.quota_requests, spec.priority, 0, not spec.preemptible)
            for key, group in spec.labels.items()
            if key.startswith(LABEL)
        ]
    found.sort(key=tree_name)
    return found


def tree_name(request: TreeRequest) -> str:
    return request.tree


def _from_detail(detail: object) -> TreeRequest:
    tree, group, amounts, priority, kind, pinned = cast("list[object]", detail)
    cost = from_amounts(cast("dict[str, int]", amounts))
    return TreeRequest(str(tree), str(group), cost, cast("int", priority), cast("int", kind), bool(pinned))


def _from_entry(entry: Entry) -> TreeRequest:
    return TreeRequest(
        cast("str", entry[0]),
        cast("str", entry[1]),
        cast("Vector", entry[5]),
        cast("int", entry[2]),
        cast("int", entry[3]),
        cast("bool", entry[4]),
        cast("str", entry[6]),
    )


def bound_requests(binding: Binding | None) -> tuple[TreeRequest, ...]:
    """What a binding requests of each of its trees. It is parsed once."""
    if binding is None:
        return ()
    if binding.parsed is None:
        binding.parsed = tuple([_from_entry(entry) for entry in cast("tuple[Entry, ...]", binding.data)])
    return cast("tuple[TreeRequest, ...]", binding.parsed)


def held_requests(claim: Claim) -> tuple[TreeRequest, ...]:
    """What the claim is bound to request, by tree."""
    return bound_requests(claim.binding_of(NAME))


def is_pinned(claim: Claim) -> bool:
    """Whether the claim is never a victim, because one of its requests says so."""
    for request in held_requests(claim):
        if request.pinned:
            return True
    return False


def spec_of(requests: list[TreeRequest]) -> ClaimSpec:
    """A spec without a pod. Its priority for other policies is the highest that it has in any tree."""
    return ClaimSpec(
        priority=max([request.priority for request in requests], default=0),
        preemptible=not [request for request in requests if request.pinned],
        details={DETAILS: [request.detail() for request in requests]},
        placeable=False,
    )


def renamed_spec(claim: Claim, tree: str, renames: dict[str, str]) -> ClaimSpec | None:
    """The claim's spec after groups of a tree were renamed, or None if it names none of them."""
    requests = spec_requests(claim)
    changed = False
    for i in range(len(requests)):
        one = requests[i]
        new = renames.get(one.group) if one.tree == tree else None
        if new is not None:
            requests[i] = one.changed(new, one.cost, one.forest)
            changed = True
    return spec_of(requests) if changed else None


@final
@dataclass(frozen=True)
class ConsumerInfo:
    """The specification of a consumer: its id and what it requests of each tree that it names.

    ``read_consumer`` and ``consumer_from_plain`` make one from a ``Consumer`` document.
    """

    id: str
    rows: tuple[TreeRequest, ...]
    warnings: tuple[str, ...] = ()

    def claim(self, created: int = 0) -> Claim:
        """The consumer as a claim without a pod."""
        return Claim(self.id, spec_of(list(self.rows)), created)


@final
@dataclass(frozen=True)
class TreeNodeBody:
    """One node of a document; the ``parent`` of a root is "". A resource that ``quota`` leaves out has no limit."""

    name: str
    parent: str
    hard: bool
    quota: dict[str, int]

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
@dataclass(frozen=True)
class Layout:
    """The part of a document that is a tree, and the names of the nodes that dangle."""

    root: str  # "" for an empty tree
    order: list[TreeNodeBody]  # parents before their children, siblings by name
    dangling: tuple[str, ...]


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
