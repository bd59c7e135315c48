"""Where a worker has room, over all nodes at once, without looking at all GPUs again for every worker.

For each *shape* of worker that was asked for lately two things are kept by node: whether enough GPUs have room, and how
good the node is. A charge only notes that its node changed; a shape that is asked for again looks at the nodes that
changed since, and at no others. All of it follows from cells and accounts, so it may be dropped at any time: that
happens with every new version of the fleet.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.accounts import Account
from bursar.ledger.claims import Claim
from bursar.ledger.state import State
from bursar.policies.base import NodeIndex
from bursar.policies.tensorfusion.choice import fits, packs_nodes
from bursar.policies.tensorfusion.fleet import PREFIX, Fleet
from bursar.policies.tensorfusion.worker import Worker

MILLION: Final = 1_000_000
_SHAPES: Final = 256
_CHANGES: Final = 65_536


@final
class _Shape:
    """What is known of one shape of worker, by node slot; true for the first ``cursor`` changes."""

    __slots__ = ("cursor", "open", "ranks")

    def __init__(self, slots: int) -> None:
        self.cursor: int = 0
        self.open: Final = bytearray(slots)
        self.ranks: Final = [0] * slots  # lower is better


@final
class Index:
    """Rooms and ranks of nodes, and who counts on which GPU."""

    __slots__ = ("changes", "fleet", "nodes", "residents", "shapes", "span_of", "spans")

    def __init__(self, state: State, nodes: NodeIndex) -> None:
        self.fleet: Final = Fleet(state)
        self.nodes: Final = nodes
        self.residents: Final[dict[str, dict[str, Claim]]] = {}  # by account name
        self.spans: list[tuple[int, int, int]] = []  # for each node with GPUs: slot, first position, end
        self.span_of: dict[str, int] = {}  # by account name: the number of its node's span
        self.changes: Final[list[int]] = []  # numbers of spans
        self.shapes: Final[dict[tuple[object, ...], _Shape]] = {}

    def sync(self) -> Fleet:
        fleet = self.fleet
        if fleet.sync():
            self._rebuild()
        return fleet

    def _rebuild(self) -> None:
        fleet = self.fleet
        self.spans = []
        self.span_of = {}
        for node, (start, end) in fleet.spans.items():
            for at in range(start, end):
                self.span_of[PREFIX + fleet.gpus[at].name] = len(self.spans)
            self.spans.append((self.nodes.slot(node), start, end))
        self._forget()

    def _forget(self) -> None:
        self.shapes.clear()
        self.changes.clear()

    def charged(self, claim: Claim, account: Account, sign: int) -> None:
        residents = self.residents.get(account.name)
        if residents is None:
            residents = {}
            self.residents[account.name] = residents
        if sign > 0:
            residents[claim.uid] = claim
        else:
            residents.pop(claim.uid, None)
        span = self.span_of.get(account.name)
        if span is not None and self.shapes:
            self.changes.append(span)
            if len(self.changes) > _CHANGES:
                self._forget()

    # One shape

    def _shape(self, worker: Worker) -> _Shape:
        """The shape of the worker, up to date."""
        fleet = self.sync()
        found = self.shapes.get(worker.shape)
        behind = len(self.changes) if found is None else len(self.changes) - found.cursor
        if found is None or behind > len(self.spans):
            found = self._new_shape(worker)
        elif behind:
            for span in set(self.changes[found.cursor :]):
                self._look(fleet, worker, found, span)
        found.cursor = len(self.changes)
        return found

    def _new_shape(self, worker: Worker) -> _Shape:
        if len(self.shapes) >= _SHAPES:
            self._forget()
        found = _Shape(len(self.nodes))
        for span in range(len(self.spans)):
            self._look(self.fleet, worker, found, span)
        self.shapes[worker.shape] = found
        return found

    def _look(self, fleet: Fleet, worker: Worker, shape: _Shape, span: int) -> None:
        slot, start, end = self.spans[span]
        suits = fleet.suitable(worker)
        packs = packs_nodes(fleet.mode(worker))
        room = 0
        points = 0
        count = 0
        for at in range(start, end):
            if suits[at] == 0:
                continue
            count += 1
            points += fleet.used_points(at) if packs else fleet.free_points(at)
            if fits(worker, fleet.gpus[at], fleet.accounts[at]):
                room += 1
        shape.open[slot] = 1 if room >= worker.count else 0
        # The mean over all GPUs that suit, in millionths of a point; the best node has the lowest rank.
        shape.ranks[slot] = 0 if count == 0 else 100 * MILLION - points * MILLION // count

    # All nodes at once

    def filter(self, worker: Worker, mask: bytearray) -> None:
        """Clear the nodes on which too few GPUs have room for the worker now."""
        both = int.from_bytes(mask, "little") & int.from_bytes(self._shape(worker).open, "little")
        mask[:] = both.to_bytes(len(mask), "little")

    def rank(self, worker: Worker, mask: bytearray, ranks: list[int]) -> None:
        """Add how good the nodes are by the placement mode: the lowest is the best."""
        own = self._shape(worker).ranks
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
