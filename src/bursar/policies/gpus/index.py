"""Room on all GPUs at once: plain arrays in the order of the fleet, for filtering and scoring all nodes in one pass.

Derived from cells and accounts only: a new fleet version makes the arrays anew, a charge moves one GPU's numbers. The
invariant: ``free`` is capacity minus what counts, negative where more was forced onto a GPU, and the points are those
that ``choice`` computes for the same GPU.
"""

from __future__ import annotations

from typing import Final, final

from librt.vecs import append, vec
from mypy_extensions import i64

from bursar.ledger.accounts import Account
from bursar.ledger.claims import Claim
from bursar.ledger.state import State
from bursar.policies.base import NodeIndex
from bursar.policies.tensorfusion.choice import TFLOPS, VRAM, free_points, packs_nodes, used_points
from bursar.policies.tensorfusion.fleet import PREFIX, Fleet
from bursar.policies.tensorfusion.worker import NOT_GIVEN, Worker

WEIGHT: Final = 100  # one point of a GPU score outweighs all that a node's cpu and memory may say
_MILLION: Final[i64] = 1_000_000
_FULL: Final[i64] = 100_000  # percent in thousandths


@final
class Index:
    """The arrays, and who counts on which GPU."""

    __slots__ = (
        "fleet",
        "free_points",
        "free_tflops",
        "free_vram",
        "nodes",
        "positions",
        "residents",
        "spans",
        "tflops",
        "used_points",
        "vram",
    )

    def __init__(self, state: State, nodes: NodeIndex) -> None:
        self.fleet: Final = Fleet(state)
        self.nodes: Final = nodes
        self.positions: dict[str, int] = {}  # by account name
        self.residents: Final[dict[str, dict[str, Claim]]] = {}  # by account name
        self.spans: vec[i64] = vec[i64]()  # for each node with GPUs: slot, first position, end
        self.tflops: vec[i64] = vec[i64]()
        self.vram: vec[i64] = vec[i64]()
        self.free_tflops: vec[i64] = vec[i64]()
        self.free_vram: vec[i64] = vec[i64]()
        self.used_points: vec[i64] = vec[i64]()
        self.free_points: vec[i64] = vec[i64]()

    def sync(self) -> Fleet:
        fleet = self.fleet
        if fleet.sync():
            self._rebuild()
        return fleet

    def _rebuild(self) -> None:
        fleet = self.fleet
        self.positions = {PREFIX + gpu.name: at for at, gpu in enumerate(fleet.gpus)}
        self.tflops = _filled([gpu.tflops for gpu in fleet.gpus])
        self.vram = _filled([gpu.vram for gpu in fleet.gpus])
        empty = [0] * len(fleet.gpus)
        self.free_tflops = _filled(empty)
        self.free_vram = _filled(empty)
        self.used_points = _filled(empty)
        self.free_points = _filled(empty)
        for at in range(len(fleet.gpus)):
            self._set(at)
        spans: list[int] = []
        for node, (start, end) in fleet.spans.items():
            spans.extend([self.nodes.slot(node), start, end])
        self.spans = _filled(spans)

    def _set(self, at: int) -> None:
        gpu = self.fleet.gpus[at]
        account = self.fleet.accounts[at]
        self.free_tflops[at] = gpu.tflops - account.used.get(TFLOPS)
        self.free_vram[at] = gpu.vram - account.used.get(VRAM)
        self.used_points[at] = used_points(self.fleet.options, gpu, account)
        self.free_points[at] = free_points(self.fleet.options, gpu, account)

    def charged(self, claim: Claim, account: Account, sign: int) -> None:
        residents = self.residents.get(account.name)
        if residents is None:
            residents = {}
            self.residents[account.name] = residents
        if sign > 0:
            residents[claim.uid] = claim
        else:
            residents.pop(claim.uid, None)
        at = self.positions.get(account.name)
        # Before the next sync, positions may be those of an older fleet: it makes everything anew.
        if at is not None and at < len(self.fleet.accounts) and self.fleet.accounts[at] is account:
            self._set(at)

    # All nodes at once

    def narrow(self, worker: Worker, mask: bytearray, empty: bool) -> None:
        """Clear the nodes on which too few GPUs have room for the worker: now, or even if ``empty``."""
        fleet = self.sync()
        suits = fleet.suitable(worker)
        kept = bytearray(len(mask))
        spans = self.spans
        count: i64 = worker.count
        slots: i64 = len(mask)
        for i in range(0, len(spans), 3):
            slot = spans[i]
            if slot < slots and mask[slot] != 0:
                start = spans[i + 1]
                end = spans[i + 2]
                if end - start >= count and self._room(worker, suits, start, end, empty) >= count:
                    kept[slot] = 1
        mask[:] = kept

    def _room(self, worker: Worker, suits: bytes, start: i64, end: i64, empty: bool) -> i64:
        """How many of the GPUs of a span take the worker."""
        whole = worker.whole
        percent: i64 = worker.request.percent
        asked: i64 = worker.request.tflops
        vram: i64 = worker.request.vram
        room_tflops = self.tflops if empty else self.free_tflops
        room_vram = self.vram if empty else self.free_vram
        found: i64 = 0
        for at in range(start, end):
            if suits[at] == 0:
                continue
            if whole:
                if room_tflops[at] >= self.tflops[at] and room_vram[at] >= self.vram[at]:
                    found += 1
                continue
            tflops = asked
            if percent != NOT_GIVEN:
                tflops = self.tflops[at] // _FULL * percent + self.tflops[at] % _FULL * percent // _FULL
            if (tflops <= 0 or room_tflops[at] >= tflops) and (vram <= 0 or room_vram[at] >= vram):
                found += 1
        return found

    def score(self, worker: Worker, mask: bytearray, scores: list[int]) -> None:
        """Add the mean of the points of all GPUs that suit, in millionths, weighted."""
        fleet = self.sync()
        suits = fleet.suitable(worker)
        points = self.used_points if packs_nodes(fleet.mode(worker)) else self.free_points
        spans = self.spans
        slots: i64 = len(mask)
        for i in range(0, len(spans), 3):
            slot = spans[i]
            if slot >= slots or mask[slot] == 0:
                continue
            total: i64 = 0
            count: i64 = 0
            for at in range(spans[i + 1], spans[i + 2]):
                if suits[at] != 0:
                    total += points[at]
                    count += 1
            if count > 0:
                scores[slot] += int(total * _MILLION // count) * WEIGHT


def _filled(amounts: list[int]) -> vec[i64]:
    found = vec[i64]()
    for amount in amounts:
        found = append(found, i64(amount))
    return found
