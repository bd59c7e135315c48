"""The answers of the library: allocations, tokens, reports of updates, and the state of nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from bursar.ledger.changes import Change
from bursar.policies.results import Check, Refusal
from bursar.policies.trees.model import QuotaTreeModel


class QuotaError(ValueError):
    """A call that makes no sense: an unknown name, an object that exists already or is in use, the wrong mode."""


class StaleTokenError(QuotaError):
    """A token that cannot be undone exactly: the trees changed since the try, or the token was used."""


@final
@dataclass(frozen=True, repr=False)
class Move:
    """A consumer that an operation moved from one node of a tree to another."""

    consumer_id: str
    tree: str
    source: str
    target: str

    def __repr__(self) -> str:
        return f"{self.consumer_id}: {self.source} -> {self.target} in {self.tree}"


@final
class Token:
    """Undoes one try, by ``QuotaManager.undo_allocate``. Good for one use, while the trees are as the try left them."""

    __slots__ = ("after", "before", "changes", "consumer_id", "used")

    def __init__(self, consumer_id: str) -> None:
        self.consumer_id: Final = consumer_id
        self.changes: tuple[Change, ...] = ()
        self.before: dict[str, int] = {}  # the versions of the trees that the try concerns
        self.after: dict[str, int] = {}
        self.used: bool = False

    def __repr__(self) -> str:
        return f"Token({self.consumer_id}, {'used' if self.used else 'not used'})"

    def complete(
        self, changes: tuple[Change, ...], trees: set[str], before: dict[str, int], after: dict[str, int]
    ) -> None:
        """Note what the try changed."""
        self.changes = changes
        self.before = {name: before.get(name, 0) for name in trees}
        self.after = {name: after.get(name, 0) for name in trees}


@final
class AllocationResponse:
    """The answer to an allocation. A refusal by quota is an answer, never an exception."""

    __slots__ = (
        "allocated",
        "checks",
        "consumer_id",
        "moves",
        "places",
        "preempted",
        "refusals",
        "skipped",
        "token",
        "warnings",
    )

    # Not a dataclass: one is made in every allocation.
    def __init__(
        self,
        consumer_id: str,
        allocated: bool,
        places: tuple[tuple[str, str], ...] = (),
        preempted: tuple[str, ...] = (),
        moves: tuple[Move, ...] = (),
        refusals: tuple[Refusal, ...] = (),
        checks: tuple[Check, ...] = (),
        skipped: tuple[str, ...] = (),
        token: Token | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.consumer_id: Final = consumer_id
        self.allocated: Final = allocated
        self.places: Final = places  # (tree, node) where the consumer counts now
        self.preempted: Final = preempted  # ids of consumers that had to leave all their trees
        self.moves: Final = moves  # other consumers that were pushed up or slid down
        self.refusals: Final = refusals  # of each tree that refused, the decisive one first
        self.checks: Final = checks
        self.skipped: Final = skipped  # trees that the consumer names and the forest does not have
        self.token: Final = token  # undoes a try
        self.warnings: Final = warnings  # requested resources that a tree does not count

    def __repr__(self) -> str:
        outcome = "allocated" if self.allocated else f"refused: {self.message}"
        return f"AllocationResponse({self.consumer_id}, {outcome}, preempted {list(self.preempted)})"

    @property
    def message(self) -> str:
        """Why the consumer was refused, in one sentence; empty if it was allocated."""
        return self.refusals[0].sentence() if self.refusals else ""

    def explain(self) -> Check:
        """The tree of checks: what each node on the way had at the time of the call."""
        if not self.allocated:
            return Check(f"{self.consumer_id} is not allocated", False, self.message, self.checks)
        children = [Check(tree, True, f"counts on {node}") for tree, node in self.places]
        children.extend([Check(move.tree, True, repr(move)) for move in self.moves])
        children.extend([Check("preempted", True, uid) for uid in self.preempted])
        return Check(f"{self.consumer_id} is allocated", True, "", tuple(children))


@final
@dataclass(frozen=True)
class Report:
    """What an update did to one tree."""

    tree: str
    root: str  # "" when nothing is left of the tree
    dangling: tuple[str, ...]
    moved: tuple[tuple[str, str, str], ...]  # (id, from, to)
    unallocated: tuple[str, ...]
    over: tuple[tuple[str, str, int, int], ...]  # (node, resource, used, quota)
    warnings: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether the document is one tree: it has a root, and no node dangles."""
        return bool(self.root) and not self.dangling

    def plain(self) -> dict[str, object]:
        """The report as plain data, for JSON."""
        return {
            "tree": self.tree,
            "root": self.root,
            "dangling": list(self.dangling),
            "moved": [list(move) for move in self.moved],
            "unallocated": list(self.unallocated),
            "over": [list(row) for row in self.over],
            "warnings": list(self.warnings),
        }


@final
@dataclass(frozen=True, repr=False)
class NodeState:
    """The state of one node. Amounts are canonical quantities: 4, 500m, 2Gi."""

    name: str
    parent: str
    hard: bool
    quota: dict[str, str]
    used: dict[str, str]  # by the node and all below it
    consumers: tuple[str, ...]  # on exactly this node, longest there first

    def __repr__(self) -> str:
        return f"{self.name} {self.used} of {self.quota} {{{' '.join(self.consumers)}}}"


def states_of(tree: QuotaTreeModel) -> dict[str, NodeState]:
    """Every node by name, parents before their children, as it is now."""
    found: dict[str, NodeState] = {}
    for name, node in tree.nodes.items():
        sitting = sorted([(allocation.stamp, allocation.claim.uid) for allocation in tree.allocated_on(node)])
        account = node.account
        parent = "" if node.parent is None else node.parent.name
        ids = tuple([uid for _, uid in sitting])
        found[name] = NodeState(name, parent, node.hard, account.limits.show(), account.used.vector().show(), ids)
    return found
