"""What the nodes policy derives from the ledger: free capacity, node facts and counted claims, by node slot.

A dimension that no node lists and no claim was charged in has no column: no node has any of it. The score for free
capacity is cached for the latest requests. ``changes`` lists the slots whose scores are out of date.
"""

from __future__ import annotations

from typing import Final, cast, final

from librt.vecs import append, vec
from mypy_extensions import i64

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account
from bursar.policies.nodes.exclusions import Exclusions
from bursar.policies.nodes.masks import NodeMasks
from bursar.policies.nodes.rules import NodeFacts, Port, clash, facts_of
from bursar.policies.placement_kit import NOTHING, REMOVED, LimitColumn, Residents, SlotMask, remember
from bursar.resources import UNLIMITED, Limits, Tally, Vector, dimension

FULL_SCORE: Final = 100_000_000  # 100 points, in millionths
# Spreading only breaks ties between nodes that the dialects score alike.
SPREAD_DIVISOR: Final = 1_000
_UNLIMITED: Final[i64] = UNLIMITED
_HALF: Final[i64] = 10_000  # two steps of this make FULL_SCORE
_SMALL: Final[i64] = UNLIMITED // 10_000  # below it, a step stays inside 64 bits
_SHARES: Final = 64  # requests whose scores are cached
_LOG: Final = 65_536  # changes that are logged; after that, all scores are computed again


@final
class Shares:
    """The scores of all slots for one request of cpu and memory, as of the first ``cursor`` changes."""

    __slots__ = ("cursor", "points")

    def __init__(self) -> None:
        self.points: vec[i64] = vec[i64]()
        self.cursor: int = 0


@final
class NodeColumns:
    """The columns of all dimensions, and the bulk work over them."""

    def __init__(self) -> None:
        self.by_dimension: Final[list[LimitColumn | None]] = []
        self.changes: Final[list[int]] = []  # slots whose room changed, in order
        self.shares: Final[dict[tuple[int, int], Shares]] = {}  # by requested cpu and memory
        self.size: int = 0  # number of slots
        self.mask: Final = SlotMask()

    def reach(self, size: int) -> None:
        """Makes room for slots below ``size``."""
        if size > self.size:
            self.size = size
            self.mask.reach(size)
            for column in self.by_dimension:
                if column is not None:
                    column.reach(size)

    def column(self, dim: int) -> LimitColumn:
        while len(self.by_dimension) <= dim:
            self.by_dimension.append(None)
        found = self.by_dimension[dim]
        if found is None:
            found = LimitColumn(dim, self.size)
            self.by_dimension[dim] = found
        return found

    def set_slot(self, slot: int, limits: Limits, used: Tally) -> None:
        """A node was added, changed or removed: its capacity now, and what is used of it."""
        for name in limits.listed:
            self.column(dimension(name).index)
        for column in self.by_dimension:
            if column is not None:
                column.set_slot(slot, limits.get(column.dim), used.get(column.dim))
        self._changed(slot)

    def _changed(self, slot: int) -> None:
        if len(self.changes) >= _LOG:
            self.changes.clear()
            self.shares.clear()
        self.changes.append(slot)

    def shift(self, slot: i64, cost: Vector, sign: i64) -> None:
        """A claim with this cost starts (+1) or stops (-1) to count on a node."""
        dims = cost.dims
        amounts = cost.amounts
        for i in range(len(dims)):
            self.column(dims[i]).shift(slot, sign * amounts[i])
        self._changed(slot)

    def narrow(self, mask: bytearray, allowed: list[bytes], cost: Vector, empty: bool) -> None:
        """Clears the slots that an ``allowed`` mask clears or that lack room: now, or even if ``empty``."""
        slots = self.mask
        slots.load(mask)
        for one in allowed:
            slots.keep(one)
        for d in range(len(cost.dims)):
            wanted = cost.amounts[d]
            if wanted > 0:
                dim = cost.dims[d]
                column = self.by_dimension[dim] if dim < len(self.by_dimension) else None
                if column is None:
                    mask[:] = bytes(len(mask))
                    return
                slots.require(column.caps if empty else column.free, wanted)
        slots.store(mask)
        if len(mask) > self.size:
            mask[self.size :] = bytes(len(mask) - self.size)

    def least_allocated(self, cost: Vector) -> vec[i64]:
        """Up to a tenth of a point for each slot: the share of cpu and memory that would be left.

        It is the mean over those of the two that the node has in a limited amount. Callers must not change it.
        """
        cpu, memory = cost.amount("cpu"), cost.amount("memory")
        found = self.shares.get((cpu, memory))
        if found is None:
            found = remember(self.shares, (cpu, memory), Shares(), _SHARES)
        points = found.points
        if len(self.changes) - found.cursor > len(points):  # more changes than slots: compute all of them
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
    """floor(FULL_SCORE * (free - wanted) / cap), at least 0; -1 where the node has no limited amount."""
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


@final
class NodeResidentIndex:
    """Everything about nodes that follows from accounts and cells."""

    def __init__(self, masks: NodeMasks) -> None:
        self.slots: Final[dict[str, int]] = {}  # by account name; a slot is never given to another node
        self.columns: Final = NodeColumns()
        self.masks: Final = masks
        self.residents: Final[list[Residents]] = []  # by slot
        self.removed: Final[set[str]] = set()  # names of deleted nodes that still have an account
        self.ports: Final[dict[int, dict[str, tuple[Port, ...]]]] = {}  # host ports in use, by slot and uid
        self.exclusions: Final = Exclusions()
        self.soft: Final[dict[int, NodeFacts]] = {}  # by slot: nodes with PreferNoSchedule taints
        self.leaving_ports: Final[dict[str, dict[str, tuple[Port, ...]]]] = {}  # by account name, by uid

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        slot = self.slots[account.name]
        self.columns.shift(slot, cost, sign)
        self.exclusions.charged(claim, slot, sign)
        ports = claim.spec.needs.host_ports
        if sign > 0:
            self.residents[slot].add(claim)
            if ports:
                self.ports.setdefault(slot, {})[claim.uid] = ports
        else:
            self.residents[slot].remove(claim)
            if ports and slot in self.ports:
                self.ports[slot].pop(claim.uid, None)
                if not self.ports[slot]:
                    del self.ports[slot]

    def node_changed(self, slot: int, name: str, account_name: str, used: Tally, cell: object) -> None:
        self._reach(slot)
        self.slots[account_name] = slot
        facts = facts_of(name, cell)
        self.columns.set_slot(slot, NOTHING if facts is None else facts.limits, used)
        self.masks.set_slot(slot, facts)
        self.exclusions.node_changed(slot, facts)
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
        """The cell (account name, ports) of a claim that is being evicted was added or removed."""
        if old is not None:
            account, _ = cast("tuple[str, tuple[Port, ...]]", old)
            del self.leaving_ports[account][uid]
            if not self.leaving_ports[account]:
                del self.leaving_ports[account]
        if new is not None:
            account, ports = cast("tuple[str, tuple[Port, ...]]", new)
            self.leaving_ports.setdefault(account, {})[uid] = ports

    def facts(self, account: Account) -> NodeFacts | None:
        """The facts of the node; None if it was deleted."""
        return self.masks.facts[self.slots[account.name]]

    def residents_of(self, account: Account) -> Residents:
        return self.residents[self.slots[account.name]]

    def taken_port(self, slot: int, wanted: tuple[Port, ...]) -> Port | None:
        """The first wanted host port that a claim on the node holds."""
        held = [port for ports in self.ports.get(slot, {}).values() for port in ports]
        return clash(wanted, tuple(held))

    def port_holders(self, account: Account, wanted: tuple[Port, ...]) -> list[Claim]:
        """The claims on the node that hold a wanted host port."""
        slot = self.slots[account.name]
        held = self.ports.get(slot, {})
        return [self.residents[slot].claims[uid] for uid in held if clash(wanted, held[uid]) is not None]
