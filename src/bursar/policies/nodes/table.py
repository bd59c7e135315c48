"""Room on all nodes at once: for each dimension an array over node slots of what is free and what there is.

Invariants: ``free`` is ``caps`` minus what counts on the node, negative when more was forced onto it; where a node
has a dimension without limit, both are ``UNLIMITED`` and stay so. A slot without a node has caps of zero. A
dimension that no node lists and nobody was charged in has no column: nobody has any of it.

How much of a node would be left (``Shares``) is kept for the requests that were last asked about: most claims are
alike, and between two of them a node or two change. ``changes`` lists these; it is the only way in which a share
becomes out of date.

Which nodes a claim may use at all, by rules that only the node and the claim decide: one byte a slot.

A mask is computed once for each set of needs (claims of one job share theirs) and kept until any node changes.

What the nodes policy derives from the ledger: arrays, masks and lists over node slots.

It is changed only by ``charged``, ``node_changed`` and ``leaving_changed``, which the ledger calls whenever a change
is done, undone or replayed; so after an undo it says what it said before.
"""

from __future__ import annotations

from typing import Final, cast, final

from librt.vecs import append, vec
from mypy_extensions import i64, u8

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account
from bursar.policies.nodes.rules import NOTHING, REMOVED, NodeFacts, Port, Residents, facts_of, failed_rule
from bursar.resources import UNLIMITED, Limits, Tally, Vector, dimension
from bursar.selectors import NodeNeeds

FULL_SCORE: Final = 100_000_000  # 100 points, in millionths
# Spreading is nobody's quota rule: it breaks ties between nodes that the dialects' scores hold to be alike.
SPREAD_DIVISOR: Final = 1_000
_UNLIMITED: Final[i64] = UNLIMITED
_HALF: Final[i64] = 10_000  # two steps of this make FULL_SCORE
_SMALL: Final[i64] = UNLIMITED // 10_000  # below it, a step stays inside 64 bits
_KEPT: Final = 64  # requests whose shares are kept
_LOG: Final = 65_536  # changes that are remembered; after that, everything is worked out anew


@final
class NodeColumn:
    """One dimension over all slots."""

    __slots__ = ("caps", "free")

    def __init__(self, size: int) -> None:
        self.free: vec[i64] = vec[i64]()
        self.caps: vec[i64] = vec[i64]()
        self.reach(size)

    def reach(self, size: int) -> None:
        while len(self.free) < size:
            self.free = append(self.free, i64(0))
            self.caps = append(self.caps, i64(0))


@final
class Shares:
    """For one request of cpu and memory: the points of each slot for what would be left, as of some change."""

    __slots__ = ("cursor", "points")

    def __init__(self) -> None:
        self.points: vec[i64] = vec[i64]()
        self.cursor: int = 0  # changes that are worked in


@final
class NodeColumns:
    """The columns of all dimensions, and the bulk work over them."""

    __slots__ = ("by_dimension", "changes", "scratch", "shares", "size")

    def __init__(self) -> None:
        self.by_dimension: Final[list[NodeColumn | None]] = []
        self.changes: Final[list[int]] = []  # slots whose room changed, in order
        self.shares: Final[dict[tuple[int, int], Shares]] = {}  # by cpu and memory asked for
        self.size: int = 0  # slots that were reached
        self.scratch: vec[u8] = vec[u8]()  # as long as that: the mask being worked on

    def reach(self, size: int) -> None:
        """Make room for slots below ``size``."""
        if size <= self.size:
            return
        self.size = size
        while len(self.scratch) < size:
            self.scratch = append(self.scratch, u8(0))
        for column in self.by_dimension:
            if column is not None:
                column.reach(size)

    def column(self, dim: int) -> NodeColumn:
        while len(self.by_dimension) <= dim:
            self.by_dimension.append(None)
        found = self.by_dimension[dim]
        if found is None:
            found = NodeColumn(self.size)
            self.by_dimension[dim] = found
        return found

    def find(self, dim: int) -> NodeColumn | None:
        return self.by_dimension[dim] if dim < len(self.by_dimension) else None

    def set_slot(self, slot: int, limits: Limits, used: Tally) -> None:
        """A node came, changed or went: what it has now, and what counts on it."""
        for name in limits.listed:
            self.column(dimension(name).index)
        for dim in range(len(self.by_dimension)):
            column = self.by_dimension[dim]
            if column is not None:
                cap = limits.get(dim)
                column.caps[slot] = cap
                column.free[slot] = cap if cap == UNLIMITED else cap - used.get(dim)
        self._changed(slot)

    def _changed(self, slot: int) -> None:
        if len(self.changes) >= _LOG:
            self.changes.clear()
            self.shares.clear()
        self.changes.append(slot)

    def shift(self, slot: i64, cost: Vector, sign: i64) -> None:
        """A claim that costs this starts (+1) or stops (-1) to count on a node."""
        dims = cost.dims
        amounts = cost.amounts
        for i in range(len(dims)):
            free = self.column(dims[i]).free
            if free[slot] != _UNLIMITED:
                free[slot] = free[slot] - sign * amounts[i]
        self._changed(slot)

    def narrow(self, mask: bytearray, allowed: list[bytes], cost: Vector, empty: bool) -> None:
        """Clear the slots that one of the ``allowed`` masks clears or that lack room: now, or even if ``empty``."""
        seen = bytes(mask)
        scratch = self.scratch
        count: i64 = min(self.size, len(seen))
        for i in range(count):
            scratch[i] = 1 if seen[i] != 0 else 0
        for may in allowed:
            for i in range(count):
                if may[i] == 0:
                    scratch[i] = 0
        for d in range(len(cost.dims)):
            if cost.amounts[d] > 0:
                self._narrow_one(self.find(cost.dims[d]), cost.amounts[d], count, empty)
        mask[:count] = scratch if count == len(scratch) else scratch[:count]
        if len(mask) > count:
            mask[count:] = bytes(len(mask) - count)

    def _narrow_one(self, column: NodeColumn | None, wanted: i64, count: i64, empty: bool) -> None:
        scratch = self.scratch
        if column is None:
            for i in range(count):
                scratch[i] = 0
            return
        room = column.caps if empty else column.free
        for i in range(count):
            if room[i] < wanted:
                scratch[i] = 0

    def least_allocated(self, cost: Vector) -> vec[i64]:
        """Up to a tenth of a point for each slot: the share of cpu and memory that would be left, on average over those
        of the two that the node has in a limited amount. Kept here, and only to be read.
        """
        cpu, memory = cost.amount("cpu"), cost.amount("memory")
        found = self.shares.get((cpu, memory))
        if found is None:
            if len(self.shares) >= _KEPT:
                self.shares.clear()
            found = Shares()
            self.shares[cpu, memory] = found
        points = found.points
        if len(self.changes) - found.cursor > len(points):  # more than there are slots: all of them anew
            points = vec[i64]()
            found.cursor = len(self.changes)
        for at in range(found.cursor, len(self.changes)):
            slot = self.changes[at]
            if slot < len(points):
                points[slot] = self._points_of(slot, cpu, memory)
        found.cursor = len(self.changes)
        while len(points) < self.size:
            points = append(points, self._points_of(len(points), cpu, memory))
        found.points = points
        return points

    def _points_of(self, slot: i64, cpu: i64, memory: i64) -> i64:
        of_cpu = self.column(dimension("cpu").index)
        of_memory = self.column(dimension("memory").index)
        first = share_left(of_cpu.free[slot], cpu, of_cpu.caps[slot])
        second = share_left(of_memory.free[slot], memory, of_memory.caps[slot])
        if first < 0 or second < 0:
            return max(first, second, i64(0)) // i64(SPREAD_DIVISOR)
        return (first + second) // i64(2 * SPREAD_DIVISOR)


def share_left(free: i64, wanted: i64, cap: i64) -> i64:
    """floor(FULL_SCORE * (free - wanted) / cap), at least 0; -1 when the dimension says nothing about the node."""
    if cap == _UNLIMITED or cap <= 0:
        return -1
    left = free - wanted
    if left <= 0:
        return 0
    if cap >= _SMALL:
        whole: int = left
        return whole * FULL_SCORE // int(cap)
    # In two steps, because the product may leave 64 bits; a remainder is below the cap, so nothing is lost.
    scaled = left * _HALF
    return scaled // cap * _HALF + scaled % cap * _HALF // cap


_BOUND: Final = 256


@final
class Masks:
    """The facts of all nodes by slot, and what follows from them for some needs."""

    __slots__ = ("allowed", "facts", "selected")

    def __init__(self) -> None:
        self.facts: Final[list[NodeFacts | None]] = []
        self.allowed: Final[dict[NodeNeeds, bytes]] = {}  # by identity: needs are compared by nothing else
        self.selected: Final[dict[NodeNeeds, bytes]] = {}

    def set_slot(self, slot: int, facts: NodeFacts | None) -> None:
        while len(self.facts) <= slot:
            self.facts.append(None)
        self.facts[slot] = facts
        self.allowed.clear()
        self.selected.clear()

    def allowing(self, needs: NodeNeeds) -> bytes:
        """Nodes that no rule keeps from a claim with these needs."""
        found = self.allowed.get(needs)
        if found is None:
            found = bytes([0 if f is None or failed_rule(needs, f) else 1 for f in self.facts])
            _keep(self.allowed, needs, found)
        return found

    def selecting(self, needs: NodeNeeds) -> bytes:
        """Nodes that these needs select; taints are not looked at."""
        found = self.selected.get(needs)
        if found is None:
            found = bytes([0 if f is None or not needs.selects(f.name, f.labels) else 1 for f in self.facts])
            _keep(self.selected, needs, found)
        return found


def _keep(cache: dict[NodeNeeds, bytes], needs: NodeNeeds, mask: bytes) -> None:
    if len(cache) >= _BOUND:
        cache.clear()
    cache[needs] = mask


NOTHING_USED: Final = Tally()


@final
class NodeResidentIndex:
    """Everything about nodes that can be computed from accounts and cells."""

    __slots__ = ("columns", "leaving_ports", "masks", "porters", "removed", "residents", "slots", "soft")

    def __init__(self) -> None:
        self.slots: Final[dict[str, int]] = {}  # by account name; a slot is never given to another node
        self.columns: Final = NodeColumns()
        self.masks: Final = Masks()
        self.residents: Final[list[Residents]] = []  # by slot
        self.removed: Final[set[str]] = set()  # names of deleted nodes that still have an account
        self.porters: Final[dict[int, Residents]] = {}  # by slot: nodes on which somebody holds a port
        self.soft: Final[dict[int, NodeFacts]] = {}  # by slot: nodes with PreferNoSchedule taints
        self.leaving_ports: Final[dict[str, dict[str, tuple[Port, ...]]]] = {}  # by account name, by uid

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        slot = self.slots[account.name]
        self.columns.shift(slot, cost, sign)
        residents = self.residents[slot]
        if sign > 0:
            residents.add(claim)
        else:
            residents.remove(claim)
        if residents.ports:
            self.porters[slot] = residents
        elif self.porters:
            self.porters.pop(slot, None)

    def node_changed(self, slot: int, name: str, account_name: str, used: Tally, cell: object) -> None:
        self._reach(slot)
        self.slots[account_name] = slot
        facts = facts_of(name, cell)
        self.columns.set_slot(slot, NOTHING if facts is None else facts.limits, used)
        self.masks.set_slot(slot, facts)
        if facts is not None and facts.soft:
            self.soft[slot] = facts
        else:
            self.soft.pop(slot, None)
        if cell == REMOVED:
            self.removed.add(name)
        else:
            self.removed.discard(name)

    def _reach(self, slot: int) -> None:
        while len(self.residents) <= slot:
            self.residents.append(Residents())
        self.columns.reach(len(self.residents))

    def leaving_changed(self, uid: str, old: object, new: object) -> None:
        """The cell (account name, ports) of a claim that was told to leave came or went."""
        if old is not None:
            account = _account_of(old)
            del self.leaving_ports[account][uid]
            if not self.leaving_ports[account]:
                del self.leaving_ports[account]
        if new is not None:
            self.leaving_ports.setdefault(_account_of(new), {})[uid] = _ports_of(new)

    def facts(self, account: Account) -> NodeFacts | None:
        """The facts of the node; None when it was deleted."""
        return self.masks.facts[self.slots[account.name]]

    def residents_of(self, account: Account) -> Residents:
        return self.residents[self.slots[account.name]]


def _account_of(cell: object) -> str:
    return cast("str", cast("tuple[object, ...]", cell)[0])


def _ports_of(cell: object) -> tuple[Port, ...]:
    return cast("tuple[Port, ...]", cast("tuple[object, ...]", cell)[1])
