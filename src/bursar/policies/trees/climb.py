"""Phase 1 of an allocation in one tree: the climb from the claim's group to the root, worked out without a change.

The claim settles on the lowest node that serves it:

* where it wants to settle it pushes claims of lower priority one node up; above that it pushes any claim in the way
  (an owner takes back what others borrow); a claim that is pushed out of the root leaves the tree and is a victim;
* a hard node lets no claim out, and ends the climb.

Order: lower priority first, then longest on the node. Of the claims chosen on a node, those that are not needed are
dropped, from the last one back.

A ``Climb`` holds what each node on the way lacks for the request. ``take`` and ``give_back`` say which claims are
thought to have left; ``run`` works out the climb on that assumption. Nothing is charged or moved, so that the search
for victims can ask thousands of times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast, final

from bursar.ledger.claims import Claim
from bursar.policies.policy import EvictionRules
from bursar.policies.trees.model import QuotaTreeModel
from bursar.policies.trees.records import TreeRequest, is_pinned
from bursar.policies.trees.tree_nodes import AllocationClass, TreeAllocation, TreeNode, in_order


@final
class Permission:
    """Whether a claim may displace others. The engine or the library is asked once for each."""

    __slots__ = ("claim", "known", "protected", "refused", "rules")

    def __init__(self, claim: Claim, rules: EvictionRules, protected: frozenset[str] = frozenset()) -> None:
        self.claim: Final = claim
        self.rules: Final = rules
        self.protected: Final = protected  # uids that may not be victims
        self.known: Final[dict[str, str]] = {}
        self.refused: Final[list[tuple[TreeAllocation, str]]] = []  # who may not be displaced, and why

    def obstacle(self, allocation: TreeAllocation) -> str:
        """Why the claim of this allocation may not be displaced; "" if it may."""
        uid = allocation.claim.uid
        found = self.known.get(uid)
        if found is None:
            found = self._ask(allocation.claim)
            self.known[uid] = found
            if found:
                self.refused.append((allocation, found))
        return found

    def _ask(self, victim: Claim) -> str:
        if victim.uid in self.protected:
            return "stays"
        return "is not preemptible" if is_pinned(victim) else self.rules.obstacle(self.claim, victim)


@final
class Push:
    """One step of a climb: an allocation (None: the claim's own) moves to a node, or out of the tree (None)."""

    __slots__ = ("allocation", "node")

    def __init__(self, allocation: TreeAllocation | None, node: TreeNode | None) -> None:
        self.allocation: Final = allocation
        self.node: Final = node


@final
class _PushOrder:
    """The allocations on a node that may be pushed off it, in order; each is found when it is first needed."""

    __slots__ = ("found", "rest")

    def __init__(self, rest: Iterator[TreeAllocation]) -> None:
        self.found: Final[list[TreeAllocation]] = []
        self.rest: Final = rest

    def at(self, number: int) -> TreeAllocation | None:
        while number >= len(self.found):
            allocation = next(self.rest, None)
            if allocation is None:
                return None
            self.found.append(allocation)
        return self.found[number]


@final
class Climb:
    """The way of one request from its group to the root, and the last climb that was tried on it."""

    __slots__ = (
        "dims",
        "gone",
        "gone_in",
        "held",
        "held_all",
        "held_lower",
        "last",
        "missing",
        "nodes",
        "permission",
        "preempting",
        "push_orders",
        "pushes",
        "request",
        "rows",
        "tree",
    )

    def __init__(
        self, tree: QuotaTreeModel, group: TreeNode, request: TreeRequest, permission: Permission, preempting: bool
    ) -> None:
        self.tree: Final = tree
        self.request: Final = request
        self.permission: Final = permission
        self.preempting: Final = preempting  # False: no claim may leave
        self.nodes: Final[tuple[TreeNode, ...]] = (group, *group.above)
        self.dims: Final = request.cost.indices()
        # By node: how much of each resource is lacking, below 0 if there is room. None until it is asked for.
        self.rows: Final[list[list[int] | None]] = [None] * len(self.nodes)
        self.gone: Final[dict[str, TreeAllocation]] = {}
        self.gone_in: Final[dict[AllocationClass, list[int]]] = {}  # what they held, by class of allocations on the way
        # The claims on the root of which it is known that they may not be displaced, and what they hold: those of lower
        # priority, and all.
        self.held: Final[set[str]] = set()
        self.held_lower: list[int] = []
        self.held_all: list[int] = []
        self.push_orders: Final[dict[tuple[object, ...], _PushOrder]] = {}
        self.pushes: Final[list[Push]] = []  # of the last climb, if it worked
        # Where the last climb ended, as positions in ``nodes`` and ``dims``; -1 stands for the first that is short.
        self.last: int = 0
        self.missing: int = -1

    # Who has left

    def position(self, node: TreeNode) -> int:
        """Where claims on this node begin to count on the way: at the node itself, or the first above it."""
        while True:
            at = self.nodes[0].depth - node.depth
            if at >= 0 and self.nodes[at] is node:
                return at
            node = cast("TreeNode", node.parent)

    def take(self, allocation: TreeAllocation) -> None:
        """Assume that this claim has left."""
        if not self.gone:
            for at in range(len(self.nodes)):
                self.row(at)
        self.gone[allocation.claim.uid] = allocation
        self._shift(allocation, 1)

    def give_back(self, allocation: TreeAllocation) -> None:
        """Assume again that this claim is there."""
        del self.gone[allocation.claim.uid]
        self._shift(allocation, -1)

    def _shift(self, allocation: TreeAllocation, sign: int) -> None:
        position = self.position(allocation.node)
        here = [0] * len(self.dims)  # not on the way
        if self.nodes[position] is allocation.node:
            here = self.gone_in.setdefault(allocation.node.classes[allocation.request.alike()], here)
        for j in range(len(self.dims)):
            amount = sign * allocation.request.cost.get(self.dims[j])
            if amount:
                here[j] += amount
                for at in range(position, len(self.rows)):
                    self.row(at)[j] -= amount

    def row(self, at: int) -> list[int]:
        """How much of each resource a node lacks for the request."""
        found = self.rows[at]
        if found is None:
            account = self.nodes[at].account
            cost = self.request.cost
            found = [account.used.get(dim) + cost.get(dim) - account.limits.get(dim) for dim in self.dims]
            self.rows[at] = found
        return found

    def held_in(self, one: AllocationClass, j: int) -> int:
        """What the claims of a class hold that have not left."""
        gone = self.gone_in.get(one)
        return one.sums.get(self.dims[j]) - (0 if gone is None else gone[j])

    # The climb

    def run(self) -> bool:
        """Whether the climb works; its steps are in ``pushes`` then, and else ``last`` is where it ended."""
        self.pushes.clear()
        lifted: list[TreeAllocation] = []
        settled = False
        hard = False
        for at in range(len(self.nodes)):
            node = self.nodes[at]
            self.last = at
            hard = hard or node.hard
            fits = self.fits(at)
            chosen = [] if fits else self._clear(at, lifted, not settled)
            if fits or chosen:
                self._push(chosen, node.parent)
                if not settled:
                    settled = True
                    self.pushes.append(Push(None, node))
                lifted = chosen
            elif settled:
                self.pushes.clear()
                lifted = []
                settled = False
                if hard:
                    return False
            elif node.hard:
                return False
        return settled

    def fits(self, at: int) -> bool:
        row = self.rows[at]
        if row is None:
            return self.nodes[at].fits(self.request.cost)
        for lack in row:
            if lack > 0:
                return False
        return True

    def _push(self, chosen: list[TreeAllocation], target: TreeNode | None) -> None:
        for allocation in chosen:
            self.pushes.append(Push(allocation, target))

    def leavers(self) -> list[TreeAllocation]:
        """The allocations that the last climb pushed out of the root."""
        return [push.allocation for push in self.pushes if push.allocation is not None and push.node is None]

    def _clear(self, at: int, lifted: list[TreeAllocation], lower_only: bool) -> list[TreeAllocation]:
        """The allocations to push off a node so that the request fits; empty if that cannot be."""
        self.missing = -1
        node = self.nodes[at]
        if not self.preempting if node.parent is None else node.hard:
            return []
        if not lifted and not self._may_push(at, lower_only):
            return []
        short = self.short(at)
        need = Need(self, at, short)
        first = None if lifted else self._first(at, need, lower_only)
        if first is not None:
            return [first]
        row = self.row(at)
        for j in short:  # a look at sums instead of claims
            if row[j] > self._movable(at, j, lifted, lower_only):
                self.missing = j
                return []
        return self._choose(at, need, lifted, lower_only)

    def _may_push(self, at: int, lower_only: bool) -> bool:
        """Whether there is a claim on the node that may be pushed off it."""
        for one in self.nodes[at].classes.values():
            if self._is_pushable(one, at, lower_only):
                return True
        return False

    def _choose(self, at: int, need: Need, lifted: list[TreeAllocation], lower_only: bool) -> list[TreeAllocation]:
        """The allocations in order until the request fits, and of these the ones that are needed."""
        root = self.nodes[at].parent is None
        order = self._push_order(at, need.dims, lower_only)
        chosen: list[TreeAllocation] = []
        number = 0
        pushed = 0
        while True:
            allocation = order.at(number)
            if pushed < len(lifted) and (
                allocation is None or lifted[pushed].request.priority < allocation.request.priority
            ):
                allocation = lifted[pushed]
                pushed += 1
                if not need.helps(allocation) or (root and not self._may_leave(allocation)):
                    continue
            else:
                number += 1
            if allocation is None:
                return []
            if allocation.claim.uid in self.gone:
                continue
            chosen.append(allocation)
            if need.take(allocation):
                return need.needed(chosen)

    def short(self, at: int) -> list[int]:
        """The positions in ``dims`` of what a node lacks."""
        row = self.row(at)
        return [j for j in range(len(row)) if row[j] > 0]

    def short_of(self) -> int:
        """The resource that is missing where the last climb ended, as a position in ``dims``."""
        if self.missing < 0:
            self.missing = self.short(self.last)[0]
        return self.missing

    def _movable(self, at: int, j: int, lifted: list[TreeAllocation], lower_only: bool) -> int:
        """How much of a resource could be pushed off a node at most."""
        found = 0
        if self.nodes[at].parent is None:
            found = -self.held_on_root(j, lower_only)
        for one in self.nodes[at].classes.values():
            if self._is_pushable(one, at, lower_only):
                found += self.held_in(one, j)
        for allocation in lifted:
            found += allocation.request.cost.get(self.dims[j])
        return found

    def held_on_root(self, j: int, lower_only: bool) -> int:
        """What claims hold on the root that may not be displaced, as far as it is known."""
        if not self.held:
            return 0
        return self.held_lower[j] if lower_only else self.held_all[j]

    def _is_pushable(self, one: AllocationClass, at: int, lower_only: bool) -> bool:
        if lower_only and one.priority >= self.request.priority:
            return False
        return self.nodes[at].parent is not None or (not one.pinned and one.kind == self.request.kind)

    def _first(self, at: int, need: Need, lower_only: bool) -> TreeAllocation | None:
        """The allocation that is pushed first, if that is enough: nearly always it is."""
        node = self.nodes[at]
        best: AllocationClass | None = None
        for one in node.classes.values():
            if self._is_pushable(one, at, lower_only) and one.holds(need.dims) and (best is None or one.precedes(best)):
                best = one
        if best is None:
            return None
        allocation = self.tree.allocations[best.first()]
        if not need.is_met_by(allocation) or allocation.claim.uid in self.gone:
            return None
        return None if node.parent is None and self.permission.obstacle(allocation) else allocation

    def _may_leave(self, allocation: TreeAllocation) -> bool:
        if allocation.request.kind != self.request.kind or allocation.request.pinned:
            return False
        return not self.permission.obstacle(allocation)

    def _push_order(self, at: int, dims: list[int], lower_only: bool) -> _PushOrder:
        key = (at, lower_only, *dims)
        found = self.push_orders.get(key)
        if found is None:
            found = _PushOrder(self._pushable(at, dims, lower_only))
            self.push_orders[key] = found
        return found

    def _pushable(self, at: int, dims: list[int], lower_only: bool) -> Iterator[TreeAllocation]:
        """The allocations on a node that hold one of these resources and may be pushed off it, in order."""
        node = self.nodes[at]
        classes = [c for c in node.classes.values() if self._is_pushable(c, at, lower_only) and c.holds(dims)]
        for uid in in_order(classes):
            allocation = self.tree.allocations[uid]
            if node.parent is None and self._is_held(allocation):
                continue
            yield allocation

    def _is_held(self, allocation: TreeAllocation) -> bool:
        """Whether a claim on the root may not be displaced; it is noted, so that it is not counted on again."""
        if not self.permission.obstacle(allocation):
            return False
        if allocation.claim.uid not in self.held:
            if not self.held:
                self.held_lower = [0] * len(self.dims)
                self.held_all = [0] * len(self.dims)
            self.held.add(allocation.claim.uid)
            for j in range(len(self.dims)):
                amount = allocation.request.cost.get(self.dims[j])
                self.held_all[j] += amount
                if allocation.request.priority < self.request.priority:
                    self.held_lower[j] += amount
        return True


@final
class Need:
    """What a node lacks for a request, while other claims are taken off it."""

    __slots__ = ("dims", "lacking")

    def __init__(self, climb: Climb, at: int, short: list[int]) -> None:
        row = climb.row(at)
        self.dims: Final = [climb.dims[j] for j in short]
        self.lacking: Final = [row[j] for j in short]

    def helps(self, allocation: TreeAllocation) -> bool:
        """Whether taking the allocation away frees a resource that is lacking."""
        cost = allocation.request.cost
        for dim in self.dims:
            if cost.get(dim) > 0:
                return True
        return False

    def is_met_by(self, allocation: TreeAllocation) -> bool:
        """Whether nothing is lacking if this allocation alone is taken away."""
        cost = allocation.request.cost
        for i in range(len(self.dims)):
            if self.lacking[i] > cost.get(self.dims[i]):
                return False
        return True

    def take(self, allocation: TreeAllocation) -> bool:
        """Count the allocation as taken away; whether nothing is lacking then."""
        return self._shift(allocation, -1)

    def give_back(self, allocation: TreeAllocation) -> bool:
        """Count the allocation as there again; whether nothing is lacking even so."""
        return self._shift(allocation, 1)

    def _shift(self, allocation: TreeAllocation, sign: int) -> bool:
        cost = allocation.request.cost
        met = True
        for i in range(len(self.dims)):
            lacking = self.lacking[i] + sign * cost.get(self.dims[i])
            self.lacking[i] = lacking
            met = met and lacking <= 0
        return met

    def needed(self, chosen: list[TreeAllocation]) -> list[TreeAllocation]:
        """The chosen allocations without those that are not needed, dropped from the last one back."""
        if len(chosen) == 1:
            return chosen  # without it nothing was met
        kept: list[TreeAllocation] = []
        for allocation in reversed(chosen):
            if not self.give_back(allocation):
                self.take(allocation)
                kept.append(allocation)
        kept.reverse()
        return kept
