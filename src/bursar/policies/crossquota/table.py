"""What the crossquota policy derives from the ledger: node facts, quotas over node slots, and counted claims.

Where a slot has no node, or a node without a GPU, quotas are ``UNLIMITED``. For each resource that idle GPUs reserve
there is a column of what is allocatable, less what all claims use.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64, u8

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account, State
from bursar.policies.crossquota.arguments import GPUS, NO_ARGUMENTS, NODES, PREFIX, RESERVE, Arguments, arguments_of
from bursar.policies.crossquota.cost import LARGEST_CAP, UNKNOWN, CostCache, ScoreSum, Weighing
from bursar.policies.crossquota.gpu_patterns import Patterns
from bursar.policies.crossquota.node_quota import GpuNodeFacts, Scope, facts_of
from bursar.policies.placement_kit import NOTHING_USED, REMOVED, LimitColumn, NodeIndex, Residents, SlotMask
from bursar.resources import UNLIMITED, Tally, Vector, dimension

_UNLIMITED: Final[i64] = UNLIMITED
_GPUS: Final = dimension(GPUS).index


@final
class QuotaColumns:
    """The columns of all resources that some arguments name, and the bulk work over them."""

    def __init__(self, arguments: Arguments, size: int) -> None:
        self.size: int = 0
        self.quotas: Final = [LimitColumn(dimension(name).index, 0, UNLIMITED) for name in arguments.resources]
        reserved = sorted(arguments.reserves)
        self.reserves: Final = [LimitColumn(dimension(name).index, 0, UNLIMITED) for name in reserved]
        self.each: Final = [arguments.reserves[name] for name in reserved]  # what every idle GPU reserves
        self.gpus: Final = LimitColumn(_GPUS, 0)
        self.columns: Final = [*self.quotas, *self.reserves, self.gpus]
        self.gpu_nodes: vec[u8] = vec[u8]()
        self.mask: Final = SlotMask()
        self.reach(size)

    def reach(self, size: int) -> None:
        """Makes room for slots below ``size``."""
        if size > self.size:
            self.size = size
            self.mask.reach(size)
            while len(self.gpu_nodes) < size:
                self.gpu_nodes = append(self.gpu_nodes, u8(0))
            for column in self.columns:
                column.reach(size)

    def set_slot(self, slot: int, facts: GpuNodeFacts | None, used: Tally, used_by_all: Tally) -> None:
        """A node was added, changed or removed: its quotas now, and what is used of them."""
        limited = facts is not None and facts.is_gpu_node()
        self.gpu_nodes[slot] = u8(1) if limited else u8(0)
        for column in self.quotas:
            cap = facts.limits.get(column.dim) if facts is not None and limited else UNLIMITED
            column.set_slot(slot, cap, used.get(column.dim))
        for column in self.reserves:
            cap = facts.allocatable.get(column.dim) if facts is not None and limited else UNLIMITED
            column.set_slot(slot, cap, used_by_all.get(column.dim))
        self.gpus.set_slot(slot, 0 if facts is None else facts.gpus, used_by_all.get(_GPUS))

    def shift(self, slot: int, cost: Vector, sign: int) -> None:
        """A CPU pod starts (+1) or stops (-1) to count on a node."""
        for column in self.quotas:
            column.shift(slot, sign * cost.get(column.dim))

    def shift_all(self, slot: int, cost: Vector, sign: int) -> None:
        """Any claim starts or stops to count on a node."""
        for column in self.reserves:
            column.shift(slot, sign * cost.get(column.dim))
        self.gpus.shift(slot, sign * cost.get(_GPUS))

    def narrow(self, mask: bytearray, cost: Vector, empty: bool) -> None:
        """Clears the slots whose quota or reserve the cost does not fit: now, or even if the node were ``empty``."""
        slots = self.mask
        slots.load(mask)
        for column in self.quotas:
            wanted = cost.get(column.dim)
            if wanted > 0:
                slots.require(column.caps if empty else column.free, wanted)
        if not empty:
            for at in range(len(self.reserves)):
                wanted = cost.get(self.reserves[at].dim)
                if wanted > 0:
                    self._narrow_reserve(at, wanted)
        slots.store(mask)

    def _narrow_reserve(self, at: int, wanted: int) -> None:
        slots = self.mask.open
        for i in range(self.mask.count):
            if slots[i] != 0 and self._breaks_reserve(at, i, wanted):
                slots[i] = 0

    def _breaks_reserve(self, at: int, slot: i64, wanted: int) -> bool:
        """Whether so much more would leave less than the idle GPUs of a node reserve."""
        free = self.reserves[at].free
        if self.gpu_nodes[slot] == 0 or free[slot] == _UNLIMITED:
            return False
        return int(free[slot]) < wanted + self.each[at] * max(int(self.gpus.free[slot]), 0)

    def commonest_short(self, mask: bytearray, wanted: Vector, names: list[str]) -> int:
        """The slot, first by name, of those that are first short of what most slots are first short of; or -1."""
        counts = [0] * (len(self.quotas) + len(self.reserves))
        slots = [-1] * len(counts)
        for slot in range(min(self.size, len(mask))):
            short = self._first_short(slot, wanted) if mask[slot] else -1
            if short >= 0:
                counts[short] += 1
                if slots[short] < 0 or names[slot] < names[slots[short]]:
                    slots[short] = slot
        most = max(counts, default=0)
        return slots[counts.index(most)] if most > 0 else -1

    def _first_short(self, slot: int, wanted: Vector) -> int:
        """Position of the first quota, or then reserve, that refuses the claim on a node; -1 if none does."""
        for at in range(len(self.quotas)):
            amount = wanted.get(self.quotas[at].dim)
            if amount > 0 and int(self.quotas[at].free[slot]) < amount:
                return at
        for at in range(len(self.reserves)):
            amount = wanted.get(self.reserves[at].dim)
            if amount > 0 and self._breaks_reserve(at, slot, amount):
                return len(self.quotas) + at
        return -1

    def rank(self, mask: bytearray, ranks: list[int]) -> bool:
        """Ranks nodes without a GPU first; returns whether there are others."""
        seen = bytes(mask)
        gpu_nodes = self.gpu_nodes
        found = False
        for slot in range(min(self.size, len(seen))):
            if seen[slot] != 0 and gpu_nodes[slot] != 0:
                ranks[slot] += 1
                found = True
        return found

    def score(self, mask: bytearray, cost: Vector, arguments: Arguments, least: bool, scores: list[int]) -> None:
        """Adds the score to the GPU nodes of the mask; nothing where the cost exceeds the quota."""
        columns = [column for column in self.quotas if cost.get(column.dim) > 0]
        wanted = [cost.get(column.dim) for column in columns]
        weights = [arguments.weight_of(r) for r in arguments.resources if cost.amount(r) > 0]
        weighing = Weighing(arguments.weight, weights, least)
        if weighing.scores_nothing():
            return
        seen = bytes(mask)
        gpu_nodes = self.gpu_nodes
        total = ScoreSum()
        for slot in range(min(self.size, len(seen))):
            if seen[slot] == 0 or gpu_nodes[slot] == 0:
                continue
            found = fast_score(columns, wanted, weighing, slot, total) if weighing.fast else UNKNOWN
            scores[slot] += exact_score(columns, wanted, weighing, slot) if found == UNKNOWN else found


def fast_score(columns: list[LimitColumn], wanted: list[int], weighing: Weighing, slot: i64, total: ScoreSum) -> int:
    """The score of one node in 64-bit arithmetic, or ``UNKNOWN``."""
    total.start()
    least = weighing.least
    factors = weighing.factors
    for at in range(len(columns)):
        column = columns[at]
        cap = column.caps[slot]
        if cap >= LARGEST_CAP:
            return UNKNOWN
        left = column.free[slot] - i64(wanted[at])
        if left >= 0:
            total.add(left if least else cap - left, cap, factors[at])
        elif cap != 0:
            return 0
    return total.floor_by(weighing.total)


def exact_score(columns: list[LimitColumn], wanted: list[int], weighing: Weighing, slot: int) -> int:
    """The score of one node in integers of any size."""
    parts: list[tuple[int, int]] = []
    for at in range(len(columns)):
        cap = int(columns[at].caps[slot])
        left = int(columns[at].free[slot]) - wanted[at]
        if cap != 0 and left < 0:
            return 0
        parts.append((0, 0) if cap == 0 else weighing.part(left, cap))
    return weighing.exact(parts)


@final
class QuotaNodeIndex:
    """Everything about nodes that follows from accounts and cells."""

    def __init__(self, state: State, nodes: NodeIndex) -> None:
        self.state: Final = state
        self.nodes: Final = nodes
        self.arguments: Arguments = NO_ARGUMENTS
        self.patterns: Patterns = Patterns(())
        self.scope: Scope = Scope(NO_ARGUMENTS, self.patterns)
        self.cache: CostCache = CostCache(NO_ARGUMENTS, self.scope)
        self.columns: QuotaColumns = QuotaColumns(NO_ARGUMENTS, 0)
        self.facts: Final[list[GpuNodeFacts | None]] = []  # by slot
        self.residents: Final[dict[str, Residents]] = {}  # by account name
        self.slots: Final[dict[str, int]] = {}  # by name of either account of a node
        self.removed: Final[set[str]] = set()  # deleted nodes that still have an account
        self.changed: Final[dict[str, None]] = {}  # nodes whose status may have changed

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        name = account.name
        slot = self.slots[name]
        if name.endswith(RESERVE):
            self.columns.shift_all(slot, cost, sign)
        else:
            self.columns.shift(slot, cost, sign)
            self.changed[self.nodes.names[slot]] = None
        residents = self.residents.get(name)
        if residents is None:
            residents = Residents()
            self.residents[name] = residents
        if sign > 0:
            residents.add(claim)
        else:
            residents.remove(claim)
            if not residents.claims:
                del self.residents[name]

    def node_changed(self, name: str, cell: object) -> None:
        slot = self.nodes.slot(name)
        while len(self.facts) <= slot:
            self.facts.append(None)
        self.columns.reach(len(self.facts))
        self.slots[PREFIX + name] = slot
        self.slots[PREFIX + name + RESERVE] = slot
        if cell == REMOVED:
            self.removed.add(name)
        else:
            self.removed.discard(name)
        self._set_slot(name, slot, cell)

    def _set_slot(self, name: str, slot: int, cell: object) -> None:
        facts = facts_of(name, cell, self.arguments, self.patterns)
        self.facts[slot] = facts
        used = self._used(PREFIX + name)
        self.columns.set_slot(slot, facts, used, self._used(PREFIX + name + RESERVE))
        self.changed[name] = None

    def _used(self, account: str) -> Tally:
        found = self.state.accounts.get(account)
        return NOTHING_USED if found is None else found.used

    def arguments_changed(self, cell: object) -> None:
        """Computes again everything that depends on the arguments."""
        self.arguments = arguments_of(cell)
        self.patterns = Patterns(self.arguments.gpu_names)
        self.scope = Scope(self.arguments, self.patterns)
        self.cache = CostCache(self.arguments, self.scope)
        self.columns = QuotaColumns(self.arguments, len(self.facts))
        for name, known in self.state.cells(NODES).items():
            self._set_slot(name, self.nodes.slots[name], known)

    def node(self, name: str) -> GpuNodeFacts | None:
        """The facts of a node; None if it is unknown or deleted."""
        slot = self.nodes.slots.get(name)
        return None if slot is None or slot >= len(self.facts) else self.facts[slot]

    def residents_of(self, account: str) -> list[Claim]:
        """The claims that count there, the least important first."""
        found = self.residents.get(account)
        return [] if found is None else found.least_important_first()
