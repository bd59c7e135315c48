"""What the library answers: allocations, tokens, and the state of nodes."""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.changes import Change
from bursar.policies.results import Check, Refusal
from bursar.policies.trees.model import QuotaTreeModel


class QuotaError(ValueError):
    """A call that makes no sense: an unknown name, something that exists already, the wrong mode, still in use."""


class StaleTokenError(QuotaError):
    """The trees changed since the try, or the token was used: there is nothing that could be undone exactly."""


@final
class Move:
    """A consumer that changed its node."""

    __slots__ = ("consumer_id", "source", "target", "tree")

    def __init__(self, consumer_id: str, tree: str, source: str, target: str) -> None:
        self.consumer_id: Final = consumer_id
        self.tree: Final = tree
        self.source: Final = source
        self.target: Final = target

    def __repr__(self) -> str:
        return f"{self.consumer_id}: {self.source} -> {self.target} in {self.tree}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Move) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


@final
class Token:
    """What it takes to undo one try. Good for one use, while the trees are as the try left them."""

    __slots__ = ("after", "before", "changes", "consumer_id", "used")

    def __init__(
        self, consumer_id: str, changes: tuple[Change, ...], before: dict[str, int], after: dict[str, int]
    ) -> None:
        self.consumer_id: Final = consumer_id
        self.changes: Final = changes
        self.before: Final = before  # versions of the trees before the try
        self.after: Final = after
        self.used: bool = False


@final
class AllocationResponse:
    """The answer to an allocation. Refusal by quota is an answer, never an exception."""

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
        self.places: Final = places  # (tree, node) where it sits now
        self.preempted: Final = preempted  # ids of consumers that had to leave all their trees
        self.moves: Final = moves  # other consumers that were pushed up or slid down
        self.refusals: Final = refusals  # one for each tree that said no, the first one decisive
        self.checks: Final = checks
        self.skipped: Final = skipped  # trees that the consumer names and the forest does not have
        self.token: Final = token  # of a try
        self.warnings: Final = warnings  # requested resources that a tree does not count

    def __repr__(self) -> str:
        outcome = "allocated" if self.allocated else f"refused: {self.message}"
        return f"AllocationResponse({self.consumer_id}, {outcome}, preempted {list(self.preempted)})"

    @property
    def message(self) -> str:
        """Why not, in one sentence; empty when it was allocated."""
        return self.refusals[0].sentence() if self.refusals else ""

    def explain(self) -> Check:
        """The tree of checks: what was found on each node of the way, when it was asked."""
        if not self.allocated:
            return Check(f"{self.consumer_id} is not allocated", False, self.message, self.checks)
        children = [Check(tree, True, f"sits on {node}") for tree, node in self.places]
        children.extend([Check(move.tree, True, repr(move)) for move in self.moves])
        children.extend([Check("preempted", True, uid) for uid in self.preempted])
        return Check(f"{self.consumer_id} is allocated", True, "", tuple(children))


@final
class NodeState:
    """One node, as it is now. Amounts are canonical quantities: 4, 500m, 2Gi."""

    __slots__ = ("consumers", "hard", "name", "parent", "quota", "used")

    def __init__(
        self,
        name: str,
        parent: str,
        hard: bool,
        quota: dict[str, str],
        used: dict[str, str],
        consumers: tuple[str, ...],
    ) -> None:
        self.name: Final = name
        self.parent: Final = parent
        self.hard: Final = hard
        self.quota: Final = quota
        self.used: Final = used  # of the node and all below it
        self.consumers: Final = consumers  # on exactly this node, longest there first

    def __repr__(self) -> str:
        return f"{self.name} {self.used} of {self.quota} {{{' '.join(self.consumers)}}}"


def states_of(tree: QuotaTreeModel) -> dict[str, NodeState]:
    """Every node by name, parents before their children, as it is now."""
    found: dict[str, NodeState] = {}
    for name, node in tree.nodes.items():
        sitting = sorted([(seat.stamp, seat.claim.uid) for seat in tree.seated(node)])
        account = node.account
        parent = "" if node.parent is None else node.parent.name
        ids = tuple([uid for _, uid in sitting])
        found[name] = NodeState(name, parent, node.hard, account.limits.show(), account.used.vector().show(), ids)
    return found
