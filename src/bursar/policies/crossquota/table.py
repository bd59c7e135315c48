"""All nodes at once: for each resource with a quota, arrays over node slots of the quota and of what CPU pods use.

Where a node has no GPU, or there is none in a slot, quotas are ``UNLIMITED`` and nothing is cleared or scored. For
each resource of which idle GPUs keep a reserve there are arrays of what is allocatable and of what all claims use.
Slots beyond the arrays are no business of this policy and stay as they are.

What the policy derives from the ledger: facts of nodes, arrays over node slots, and who counts where.

It is changed only by ``charged``, ``node_changed`` and ``arguments_changed``, which the ledger calls whenever a
change is done, undone or replayed; so after an undo it says what it said before.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64, u8

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account, State
from bursar.policies.crossquota.arguments import GPUS, NO_ARGUMENTS, NODES, PREFIX, RESERVE, Arguments, arguments_of
from bursar.policies.crossquota.cost import UNKNOWN, CostCache, ScoreSum, Weighing, fits_fast
from bursar.policies.crossquota.gpu_patterns import Patterns
from bursar.policies.crossquota.node_quota import REMOVED, GpuNodeFacts, Scope, facts_of
from bursar.policies.node_slots import NodeIndex
from bursar.policies.nodes.rules import Residents
from bursar.resources import UNLIMITED, Tally, Vector, dimension

_UNLIMITED: Final[i64] = UNLIMITED
_GPUS: Final = dimension(GPUS).index


@final
class QuotaColumn:
    """One resource over all slots; ``each``: what every idle GPU keeps of it."""

    __slots__ = ("caps", "each", "index", "used")

    def __init__(self, index: int, size: int, each: int = 0) -> None:
        self.index: Final = index
        self.each: Final = each
        self.caps: vec[i64] = vec[i64]()
        self.used: vec[i64] = vec[i64]()
        self.reach(size)

    def reach(self, size: int) -> None:
        while len(self.caps) < size:
            self.caps = append(self.caps, _UNLIMITED)
            self.used = append(self.used, i64(0))

    def set_slot(self, slot: int, cap: int, used: int) -> None:
        self.caps[slot] = cap
        self.used[slot] = used

    def shift(self, slot: i64, cost: Vector, sign: i64) -> None:
        amount: i64 = cost.get(self.index)
        if amount != 0:
            self.used[slot] = self.used[slot] + sign * amount


@final
class QuotaColumns:
    """The columns of all resources that some arguments name, and the bulk work over them."""

    __slots__ = ("gpu_nodes", "gpus", "quotas", "reserves", "scratch", "size")

    def __init__(self, arguments: Arguments, size: int) -> None:
        self.size: int = 0
        self.quotas: Final = [QuotaColumn(dimension(name).index, 0) for name in arguments.resources]
        self.reserves: Final = [
            QuotaColumn(dimension(name).index, 0, each) for name, each in sorted(arguments.reserves.items())
        ]
        self.gpus: Final = QuotaColumn(_GPUS, 0)
        self.gpu_nodes: vec[u8] = vec[u8]()
        self.scratch: vec[u8] = vec[u8]()
        self.reach(size)

    def reach(self, size: int) -> None:
        """Make room for slots below ``size``."""
        if size <= self.size:
            return
        self.size = size
        while len(self.scratch) < size:
            self.scratch = append(self.scratch, u8(0))
            self.gpu_nodes = append(self.gpu_nodes, u8(0))
        for column in [*self.quotas, *self.reserves, self.gpus]:
            column.reach(size)

    def set_slot(self, slot: int, facts: GpuNodeFacts | None, used: Tally, used_by_all: Tally) -> None:
        """A node came, changed or went: its quotas now, and what counts on it."""
        limited = facts is not None and facts.is_gpu_node()
        self.gpu_nodes[slot] = u8(1) if limited else u8(0)
        for column in self.quotas:
            cap = facts.limits.get(column.index) if facts is not None and limited else UNLIMITED
            column.set_slot(slot, cap, used.get(column.index))
        for column in self.reserves:
            cap = facts.allocatable.get(column.index) if facts is not None and limited else UNLIMITED
            column.set_slot(slot, cap, used_by_all.get(column.index))
        self.gpus.set_slot(slot, 0 if facts is None else facts.gpus, used_by_all.get(_GPUS))

    def shift(self, slot: int, cost: Vector, sign: int) -> None:
        """A CPU pod starts (+1) or stops (-1) to count on a node."""
        for column in self.quotas:
            column.shift(slot, cost, sign)

    def shift_all(self, slot: int, cost: Vector, sign: int) -> None:
        """Any claim starts or stops to count on a node."""
        for column in self.reserves:
            column.shift(slot, cost, sign)
        self.gpus.shift(slot, cost, sign)

    def narrow(self, mask: bytearray, cost: Vector, empty: bool) -> None:
        """Clear the slots whose quota or reserve the cost does not fit: now, or even if the node were ``empty``."""
        seen = bytes(mask)
        scratch = self.scratch
        count: i64 = min(self.size, len(seen))
        for i in range(count):
            scratch[i] = 1 if seen[i] != 0 else 0
        for column in self.quotas:
            if cost.get(column.index) > 0:
                self._narrow_quota(column, cost.get(column.index), count, empty)
        if not empty:
            for column in self.reserves:
                if cost.get(column.index) > 0:
                    self._narrow_reserve(column, cost.get(column.index), count)
        mask[:count] = scratch if count == len(scratch) else scratch[:count]

    def _narrow_quota(self, column: QuotaColumn, wanted: i64, count: i64, empty: bool) -> None:
        scratch = self.scratch
        caps = column.caps
        used = column.used
        if empty:
            for i in range(count):
                if wanted > caps[i]:
                    scratch[i] = 0
        else:
            for i in range(count):
                if used[i] + wanted > caps[i]:
                    scratch[i] = 0

    def _narrow_reserve(self, column: QuotaColumn, wanted: i64, count: i64) -> None:
        scratch = self.scratch
        for i in range(count):
            if scratch[i] != 0 and self.gpu_nodes[i] != 0:
                kept = self.kept(column, i)
                if kept >= 0 and int(column.used[i]) + int(wanted) + kept > int(column.caps[i]):
                    scratch[i] = 0

    def kept(self, column: QuotaColumn, slot: i64) -> int:
        """What the idle GPUs of a node keep of a resource; -1 where it has no limit."""
        if column.caps[slot] == _UNLIMITED:
            return -1
        idle = max(int(self.gpus.caps[slot]) - int(self.gpus.used[slot]), 0)
        return column.each * idle

    def commonest_short(self, mask: bytearray, wanted: Vector, names: list[str]) -> int:
        """Of the slots of the mask: what most of them are short of first, and the first of those by name; or -1."""
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
        """Position of the first quota, or then reserve, that refuses the claim on a node; -1: none does."""
        for at in range(len(self.quotas)):
            column = self.quotas[at]
            amount = wanted.get(column.index)
            if amount > 0 and int(column.used[slot]) + amount > int(column.caps[slot]):
                return at
        for at in range(len(self.reserves)):
            column = self.reserves[at]
            amount = wanted.get(column.index)
            kept = self.kept(column, slot) if amount > 0 and self.gpu_nodes[slot] != 0 else -1
            if kept >= 0 and int(column.used[slot]) + amount + kept > int(column.caps[slot]):
                return len(self.quotas) + at
        return -1

    def rank(self, mask: bytearray, ranks: list[int]) -> bool:
        """Nodes without a GPU first; whether there are others."""
        seen = bytes(mask)
        gpu_nodes = self.gpu_nodes
        found = False
        for slot in range(min(self.size, len(seen))):
            if seen[slot] != 0 and gpu_nodes[slot] != 0:
                ranks[slot] += 1
                found = True
        return found

    def score(self, mask: bytearray, cost: Vector, arguments: Arguments, least: bool, scores: list[int]) -> None:
        """Add the score to the GPU nodes of the mask; nothing where the cost exceeds the quota."""
        columns = [column for column in self.quotas if cost.get(column.index) > 0]
        wanted = [cost.get(column.index) for column in columns]
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


def fast_score(columns: list[QuotaColumn], wanted: list[int], weighing: Weighing, slot: i64, total: ScoreSum) -> int:
    """The score of one node in 64-bit arithmetic, or ``UNKNOWN``."""
    total.start()
    least = weighing.least
    factors = weighing.factors
    for at in range(len(columns)):
        column = columns[at]
        cap = column.caps[slot]
        if not fits_fast(cap):
            return UNKNOWN
        share = column.used[slot] + i64(wanted[at])
        if share <= cap:
            total.add(cap - share if least else share, cap, factors[at])
        elif cap != 0:
            return 0
    return total.floor_by(weighing.total)


def exact_score(columns: list[QuotaColumn], wanted: list[int], weighing: Weighing, slot: int) -> int:
    """The score of one node, whatever the numbers."""
    parts: list[tuple[int, int]] = []
    for at in range(len(columns)):
        cap = int(columns[at].caps[slot])
        used = int(columns[at].used[slot])
        if cap != 0 and used + wanted[at] > cap:
            return 0
        parts.append((0, 0) if cap == 0 else weighing.part(used, wanted[at], cap))
    return weighing.exact(parts)


NOTHING_USED: Final = Tally()


@final
class QuotaNodeIndex:
    """Everything that can be computed from accounts and cells."""

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
        self.removed: Final[set[str]] = set()  # deleted nodes that claims still hold
        self.changed: Final[dict[str, None]] = {}  # nodes to look at before the next outputs

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
        """Everything that depends on the arguments is worked out anew."""
        self.arguments = arguments_of(cell)
        self.patterns = Patterns(self.arguments.gpu_names)
        self.scope = Scope(self.arguments, self.patterns)
        self.cache = CostCache(self.arguments, self.scope)
        self.columns = QuotaColumns(self.arguments, len(self.facts))
        for name, known in self.state.cells(NODES).items():
            self._set_slot(name, self.nodes.slots[name], known)

    def node(self, name: str) -> GpuNodeFacts | None:
        """What is known of a node; None when it is unknown or deleted."""
        slot = self.nodes.slots.get(name)
        return None if slot is None or slot >= len(self.facts) else self.facts[slot]

    def residents_of(self, account: str) -> list[Claim]:
        """The claims that count there, the least important first."""
        found = self.residents.get(account)
        return [] if found is None else found.least_important_first()
