"""What a claim asks of a tree, in its three forms: the ask, the entry in a binding, and the row in a claim's spec.

A binding of the trees policy names no accounts (where a claim counts is its seat, which moves); its data has one entry
for each tree that governs the claim. A claim without a pod brings its rows in ``spec.details["trees"]``; a pod
names its group in tree T by the label ``quota.bursar.dev/T`` and asks for what it requests.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.claims import Binding, Claim
from bursar.vectors import Vector, from_amounts

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
