"""Where a worker has room, over all nodes, without looking at every GPU for every worker.

Two results are cached by node: for each *shape* of worker, whether enough GPUs have room; and for each kind of
*needs*, which many shapes share, how good the node is. A charge logs that its node changed, and a cached result
catches up by looking at the changed nodes only. A new shape is looked up in dense arrays over all GPUs.

When the fleet changes, the nodes that changed are looked at again; new settings drop all of it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account, State
from bursar.policies.gpus.fleet import TFLOPS, VRAM, Fleet, fleet_of
from bursar.policies.gpus.selection import fits, follow, packs_nodes
from bursar.policies.gpus.worker import NOT_GIVEN, Worker
from bursar.policies.placement_kit import LimitColumn, NodeIndex, remember

MILLION: Final = 1_000_000
_KEPT: Final = 2_048  # shapes, and needs, whose results are cached
_LOG: Final = 65_536  # changes that are logged; after that, all results are computed again
_FULL: Final[i64] = 100_000  # a whole GPU in thousandths of a percent


@final
class _WorkerShape:
    """Where one shape of worker has room, by node slot, as of the first ``cursor`` changes."""

    def __init__(self) -> None:
        self.cursor: int = -1
        self.open: Final = bytearray()

    def set_open(self, slot: int, is_open: bool) -> None:
        while len(self.open) <= slot:
            self.open.append(0)
        self.open[slot] = 1 if is_open else 0


@final
class _Ranks:
    """How good nodes are for workers with the same needs, by node slot: lower is better. All are rated at first."""

    def __init__(self) -> None:
        self.cursor: int = -1
        self.ranks: Final[list[int]] = []

    def set_rank(self, slot: int, rank: int) -> None:
        while len(self.ranks) <= slot:
            self.ranks.append(0)
        self.ranks[slot] = rank


@final
class GpuNodeIndex:
    """Rooms and ranks of nodes, and which claims count on which GPU."""

    def __init__(self, state: State, nodes: NodeIndex) -> None:
        self.fleet: Final = fleet_of(state, nodes)
        self.nodes: Final = nodes
        self.residents: Final[dict[str, dict[str, Claim]]] = {}  # by account name
        self.epoch: int = -1  # of the fleet, and how much of its log is read
        self.cursor: int = 0
        self.spans: Final[list[tuple[int, int, int]]] = []  # for each node seen: slot, first position, end
        self.numbers: Final[dict[str, int]] = {}  # by node: the number of its span
        self.names: Final[dict[str, list[str]]] = {}  # by node: accounts of its GPUs
        self.positions: Final[dict[str, int]] = {}  # by account name
        self.span_at: Final[dict[str, int]] = {}  # by account name: the number of its node's span
        self.tflops: Final[LimitColumn] = LimitColumn(TFLOPS, 0)  # by position
        self.vram: Final[LimitColumn] = LimitColumn(VRAM, 0)
        self.changes: Final[list[int]] = []  # numbers of spans
        self.shapes: Final[dict[tuple[object, ...], _WorkerShape]] = {}
        self.rankings: Final[dict[tuple[object, ...], _Ranks]] = {}

    def sync(self) -> Fleet:
        fleet = self.fleet
        fleet.sync()
        if fleet.epoch != self.epoch:
            self.epoch = fleet.epoch
            self.cursor = 0
            self.spans.clear()
            self.numbers.clear()
            self.names.clear()
            self.positions.clear()
            self.span_at.clear()
            self._forget()
        while self.cursor < len(fleet.log):
            self._node_changed(fleet, fleet.log[self.cursor])
            self.cursor += 1
        return fleet

    def _node_changed(self, fleet: Fleet, node: str) -> None:
        start, end = fleet.spans.get(node, (0, 0))
        if start == end and node not in self.numbers:
            return
        number = self.numbers.setdefault(node, len(self.spans))
        for name in self.names.pop(node, []):
            if self.span_at.get(name) == number:  # else it moved to another node
                self.positions.pop(name, None)
                self.span_at.pop(name, None)
        span = (self.nodes.slot(node), start, end)
        if number == len(self.spans):
            self.spans.append(span)
        else:
            self.spans[number] = span
        self.tflops.reach(end)
        self.vram.reach(end)
        if start == end:
            del self.numbers[node]  # the span without positions stays, so that cached results close the node
            self._changed(number)
            return
        names: list[str] = []
        for at in range(start, end):
            name = fleet.accounts[at].name
            names.append(name)
            self.positions[name] = at
            self.span_at[name] = number
            self._set(at, fleet.accounts[at])
        self.names[node] = names
        self._changed(number)

    def _set(self, at: int, account: Account) -> None:
        gpu = self.fleet.gpus[at]
        self.tflops.set_slot(at, gpu.tflops, account.used.get(TFLOPS))
        self.vram.set_slot(at, gpu.vram, account.used.get(VRAM))

    def _changed(self, number: int) -> None:
        self.changes.append(number)
        if len(self.changes) > _LOG:
            self._forget()

    def _forget(self) -> None:
        self.shapes.clear()
        self.rankings.clear()
        self.changes.clear()

    def charged(self, claim: Claim, account: Account, sign: int) -> None:
        follow(self.residents, claim, account, sign)
        at = self.positions.get(account.name)
        if at is None or self.epoch != self.fleet.epoch or self.fleet.accounts[at] is not account:
            return  # its node has changed: the next sync looks at it
        self._set(at, account)
        self._changed(self.span_at[account.name])

    # One shape

    def _shape(self, worker: Worker) -> _WorkerShape:
        """Where the worker has room, up to date."""
        fleet = self.sync()
        found = self.shapes.get(worker.shape)
        suits = fleet.suitable(worker)
        if found is None:
            found = remember(self.shapes, worker.shape, _WorkerShape(), _KEPT)
        if found.cursor < 0 or len(self.changes) - found.cursor > len(self.spans):
            self._scan(worker, suits, found)
        else:
            for span in set(self.changes[found.cursor :]):
                self._look(fleet, worker, suits, found, span)
        found.cursor = len(self.changes)
        return found

    def _look(self, fleet: Fleet, worker: Worker, suits: bytes, shape: _WorkerShape, span: int) -> None:
        slot, start, end = self.spans[span]
        room = 0
        for at in range(start, end):
            if suits[at] and fits(worker, fleet.gpus[at], fleet.accounts[at]):
                room += 1
        shape.set_open(slot, room >= worker.count)

    def _scan(self, worker: Worker, suits: bytes, shape: _WorkerShape) -> None:
        """Looks at all nodes: ``fits`` over arrays."""
        percent: i64 = worker.request.percent
        asked: i64 = worker.request.tflops
        vram: i64 = worker.request.vram
        whole = worker.whole
        count: i64 = worker.count
        tflops = self.tflops.caps
        free_tflops = self.tflops.free
        free_vram = self.vram.free
        for slot, start, end in self.spans:
            first: i64 = start
            last: i64 = end
            room: i64 = 0
            for at in range(first, last):
                if suits[at] == 0:
                    continue
                cap = tflops[at]
                if whole:
                    if free_tflops[at] >= cap and free_vram[at] >= self.vram.caps[at]:
                        room += 1
                    continue
                wanted = asked
                if percent != NOT_GIVEN:
                    wanted = cap // _FULL * percent + cap % _FULL * percent // _FULL
                if (wanted <= 0 or free_tflops[at] >= wanted) and (vram <= 0 or free_vram[at] >= vram):
                    room += 1
            shape.set_open(slot, room >= count)

    def _ranking(self, worker: Worker) -> list[int]:
        """How good nodes are for the worker, up to date."""
        fleet = self.sync()
        found = self.rankings.get(worker.needs)
        if found is None:
            found = remember(self.rankings, worker.needs, _Ranks(), _KEPT)
        if found.cursor < len(self.changes):
            suits = fleet.suitable(worker)
            packs = packs_nodes(fleet.mode(worker))
            every = found.cursor < 0 or len(self.changes) - found.cursor > len(self.spans)
            for span in range(len(self.spans)) if every else set(self.changes[found.cursor :]):
                self._rate(fleet, suits, packs, found, span)
            found.cursor = len(self.changes)
        return found.ranks

    def _rate(self, fleet: Fleet, suits: bytes, packs: bool, found: _Ranks, span: int) -> None:
        """The mean over all GPUs that suit, in millionths of a point, counted down from the best."""
        slot, start, end = self.spans[span]
        points = 0
        count = 0
        for at in range(start, end):
            if suits[at]:
                count += 1
                points += fleet.used_points(at) if packs else fleet.free_points(at)
        found.set_rank(slot, 0 if count == 0 else 100 * MILLION - points * MILLION // count)

    # All nodes at once

    def filter(self, worker: Worker, mask: bytearray) -> None:
        """Clears the nodes on which too few GPUs have room for the worker now."""
        both = int.from_bytes(mask, "little") & int.from_bytes(self._shape(worker).open, "little")
        mask[:] = both.to_bytes(len(mask), "little")

    def rank(self, worker: Worker, mask: bytearray, ranks: list[int]) -> None:
        """Adds how good the nodes are by the placement mode: the lowest is the best."""
        own = self._ranking(worker)
        seen = bytes(mask)
        for slot in range(min(len(seen), len(own))):
            if seen[slot] != 0:
                ranks[slot] += own[slot]

    def could(self, worker: Worker, mask: bytearray) -> None:
        """Clears the nodes that would have too few GPUs for the worker even if they were empty."""
        fleet = self.sync()
        suits = fleet.suitable(worker)
        kept = bytearray(len(mask))
        for slot, start, end in self.spans:
            room = 0
            for at in range(start, end):
                gpu = fleet.gpus[at]
                request = worker.request
                fits_empty = request.tflops_of(gpu.tflops) <= gpu.tflops and request.vram <= gpu.vram
                if suits[at] and (worker.whole or fits_empty):
                    room += 1
            if slot < len(mask) and mask[slot] and room >= worker.count:
                kept[slot] = 1
        mask[:] = kept
