"""Where a worker has room, over all nodes at once, without looking at all GPUs again for every worker.

Two things are kept by node, for what was asked for lately: for each *shape* of worker, whether enough GPUs have room;
and for each kind of *needs*, which many shapes share, how good the node is. A charge only notes that its node changed;
whoever is asked for again looks at the nodes that changed since, and at no others. A shape that is new is looked up in
dense arrays of what is free, so that workers of which no two are alike cost little too.

All of it follows from cells and accounts, so it may be dropped at any time: that happens with every new version of the
fleet. The arrays hold capacity minus what counts, negative where more was forced onto a GPU.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account, State
from bursar.policies.gpus.fleet import PREFIX, TFLOPS, VRAM, Fleet
from bursar.policies.gpus.selection import fits, follow, packs_nodes
from bursar.policies.gpus.worker import NOT_GIVEN, Worker
from bursar.policies.node_slots import NodeIndex

MILLION: Final = 1_000_000
_KEPT: Final = 2_048  # shapes, and needs
_CHANGES: Final = 65_536
_FULL: Final[i64] = 100_000  # a whole GPU in thousandths of a percent


@final
class _WorkerShape:
    """Where one shape of worker has room, by node slot; true for the first ``cursor`` changes."""

    __slots__ = ("cursor", "open")

    def __init__(self, slots: int) -> None:
        self.cursor: int = 0
        self.open: Final = bytearray(slots)


@final
class _Ranks:
    """How good nodes are for workers with the same needs, by node slot: lower is better."""

    __slots__ = ("cursor", "ranks")

    def __init__(self, slots: int) -> None:
        self.cursor: int = 0
        self.ranks: Final = [0] * slots


@final
class GpuNodeIndex:
    """Rooms and ranks of nodes, and who counts on which GPU."""

    __slots__ = (
        "changes",
        "fleet",
        "free_tflops",
        "free_vram",
        "nodes",
        "positions",
        "rankings",
        "residents",
        "shapes",
        "span_at",
        "spans",
        "tflops",
        "vram",
    )

    def __init__(self, state: State, nodes: NodeIndex) -> None:
        self.fleet: Final = Fleet(state)
        self.nodes: Final = nodes
        self.residents: Final[dict[str, dict[str, Claim]]] = {}  # by account name
        self.spans: list[tuple[int, int, int]] = []  # for each node with GPUs: slot, first position, end
        self.positions: dict[str, int] = {}  # by account name
        self.span_at: list[int] = []  # by position: the number of its node's span
        self.tflops: vec[i64] = vec[i64]()
        self.vram: vec[i64] = vec[i64]()
        self.free_tflops: vec[i64] = vec[i64]()
        self.free_vram: vec[i64] = vec[i64]()
        self.changes: Final[list[int]] = []  # numbers of spans
        self.shapes: Final[dict[tuple[object, ...], _WorkerShape]] = {}
        self.rankings: Final[dict[tuple[object, ...], _Ranks]] = {}

    def sync(self) -> Fleet:
        fleet = self.fleet
        if fleet.sync():
            self._rebuild()
        return fleet

    def _rebuild(self) -> None:
        fleet = self.fleet
        self.spans = []
        self.span_at = []
        for node, (start, end) in fleet.spans.items():
            self.span_at.extend([len(self.spans)] * (end - start))
            self.spans.append((self.nodes.slot(node), start, end))
        self.positions = {PREFIX + gpu.name: at for at, gpu in enumerate(fleet.gpus)}
        self.tflops = _array([gpu.tflops for gpu in fleet.gpus])
        self.vram = _array([gpu.vram for gpu in fleet.gpus])
        self.free_tflops = _array([gpu.tflops for gpu in fleet.gpus])
        self.free_vram = _array([gpu.vram for gpu in fleet.gpus])
        for at in range(len(fleet.gpus)):
            self._set(at, fleet.accounts[at])
        self._forget()

    def _set(self, at: int, account: Account) -> None:
        self.free_tflops[at] = self.tflops[at] - i64(account.used.get(TFLOPS))
        self.free_vram[at] = self.vram[at] - i64(account.used.get(VRAM))

    def _forget(self) -> None:
        self.shapes.clear()
        self.rankings.clear()
        self.changes.clear()

    def charged(self, claim: Claim, account: Account, sign: int) -> None:
        follow(self.residents, claim, account, sign)
        at = self.positions.get(account.name)
        if at is None or self.fleet.accounts[at] is not account:
            return  # not of the fleet that was last looked at: the next look makes everything anew
        self._set(at, account)
        self.changes.append(self.span_at[at])
        if len(self.changes) > _CHANGES:
            self._forget()

    # One shape

    def _shape(self, worker: Worker) -> _WorkerShape:
        """Where the worker has room, up to date."""
        fleet = self.sync()
        found = self.shapes.get(worker.shape)
        behind = len(self.changes) if found is None else len(self.changes) - found.cursor
        if found is None or behind > len(self.spans):
            if len(self.shapes) >= _KEPT:
                self.shapes.clear()
            found = _WorkerShape(len(self.nodes))
            self._scan(worker, fleet.suitable(worker), found)
            self.shapes[worker.shape] = found
        elif behind:
            suits = fleet.suitable(worker)
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
        shape.open[slot] = 1 if room >= worker.count else 0

    def _scan(self, worker: Worker, suits: bytes, shape: _WorkerShape) -> None:
        """All nodes, for a shape that is new; ``fits`` over arrays."""
        percent: i64 = worker.request.percent
        asked: i64 = worker.request.tflops
        vram: i64 = worker.request.vram
        whole = worker.whole
        count: i64 = worker.count
        for slot, start, end in self.spans:
            first: i64 = start
            last: i64 = end
            room: i64 = 0
            for at in range(first, last):
                if suits[at] == 0:
                    continue
                cap = self.tflops[at]
                if whole:
                    if self.free_tflops[at] >= cap and self.free_vram[at] >= self.vram[at]:
                        room += 1
                    continue
                wanted = asked
                if percent != NOT_GIVEN:
                    wanted = cap // _FULL * percent + cap % _FULL * percent // _FULL
                if (wanted <= 0 or self.free_tflops[at] >= wanted) and (vram <= 0 or self.free_vram[at] >= vram):
                    room += 1
            if room >= count:
                shape.open[slot] = 1

    def _ranking(self, worker: Worker) -> list[int]:
        """How good nodes are for the worker, up to date."""
        fleet = self.sync()
        found = self.rankings.get(worker.needs)
        behind = len(self.changes) if found is None else len(self.changes) - found.cursor
        suits = fleet.suitable(worker)
        packs = packs_nodes(fleet.mode(worker))
        if found is None or behind > len(self.spans):
            if len(self.rankings) >= _KEPT:
                self.rankings.clear()
            found = _Ranks(len(self.nodes))
            for span in range(len(self.spans)):
                self._rate(fleet, suits, packs, found, span)
            self.rankings[worker.needs] = found
        elif behind:
            for span in set(self.changes[found.cursor :]):
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
        found.ranks[slot] = 0 if count == 0 else 100 * MILLION - points * MILLION // count

    # All nodes at once

    def filter(self, worker: Worker, mask: bytearray) -> None:
        """Clear the nodes on which too few GPUs have room for the worker now."""
        both = int.from_bytes(mask, "little") & int.from_bytes(self._shape(worker).open, "little")
        mask[:] = both.to_bytes(len(mask), "little")

    def rank(self, worker: Worker, mask: bytearray, ranks: list[int]) -> None:
        """Add how good the nodes are by the placement mode: the lowest is the best."""
        own = self._ranking(worker)
        seen = bytes(mask)
        for slot in range(min(len(seen), len(own))):
            if seen[slot] != 0:
                ranks[slot] += own[slot]

    def could(self, worker: Worker, mask: bytearray) -> None:
        """Clear the nodes that would have too few GPUs for the worker even if they were empty."""
        fleet = self.sync()
        suits = fleet.suitable(worker)
        kept = bytearray(len(mask))
        for slot, start, end in self.spans:
            room = 0
            for at in range(start, end):
                gpu = fleet.gpus[at]
                if suits[at] and (worker.whole or _holds(worker, gpu.tflops, gpu.vram)):
                    room += 1
            if slot < len(mask) and mask[slot] and room >= worker.count:
                kept[slot] = 1
        mask[:] = kept


def _holds(worker: Worker, tflops: int, vram: int) -> bool:
    return worker.request.tflops_of(tflops) <= tflops and worker.request.vram <= vram


def _array(amounts: list[int]) -> vec[i64]:
    found = vec[i64]()
    for amount in amounts:
        found = append(found, i64(amount))
    return found
