"""The fleet: all GPUs, read from the cells that the gpus policy writes, and how they are scored.

There is a cell for each GPU and each pool, one with the options, and one with a version that changes with any of them.
A ``Fleet`` is a view of these cells. It is rebuilt when the version is another object than the one it was built from;
after an undo that is the old object again.

What is used of a GPU is in its account ``gpus/<name>``, whose limits are the GPU's capacity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast, final

from librt.vecs import vec
from mypy_extensions import i64

from bursar.ledger.state import Account, State
from bursar.policies.gpus.worker import Worker
from bursar.policies.placement_kit import REMOVED
from bursar.resources import dimension

COMPACT: Final = "CompactFirst"
LOW_LOAD: Final = "LowLoadFirst"
NODE_COMPACT: Final = "NodeCompactGPULowLoad"


@final
@dataclass
class ScoringOptions:
    """How GPUs are chosen: the placement mode, and the weight of vram in a score, in percent. Tflops weigh the rest."""

    mode: str = NODE_COMPACT
    vram_weight: int = 70

    def cell(self) -> tuple[object, ...]:
        return (self.mode, self.vram_weight)


def points(options: ScoringOptions, tflops: int, tflops_cap: int, vram: int, vram_cap: int) -> int:
    """The weighted share of a GPU, from 0 to 100, rounded half up. A dimension without capacity counts as the other.

    The products do not fit into 64 bits, so these are Python integers.
    """
    if tflops_cap <= 0 and vram_cap <= 0:
        return 0
    if tflops_cap <= 0:
        tflops, tflops_cap = vram, vram_cap
    elif vram_cap <= 0:
        vram, vram_cap = tflops, tflops_cap
    share = options.vram_weight * vram * tflops_cap + (100 - options.vram_weight) * tflops * vram_cap
    whole = tflops_cap * vram_cap
    return min(max((2 * share + whole) // (2 * whole), 0), 100)


TFLOPS: Final = dimension("tflops").index
VRAM: Final = dimension("vram").index
PREFIX: Final = "gpus/"
GPUS: Final = "gpus"  # table: GPU name -> facts
POOLS: Final = "gpus.pools"  # table: pool name -> facts
OPTIONS: Final = "gpus.options"  # table with one key
VERSION: Final = "gpus.version"  # table with one key
ONLY: Final = "all"

FRACTION_SET: Final = "tensor-fusion"


PoolCell = tuple[str, bool, str, tuple[int, int, int] | None]
"""Placement mode, whether it is the default pool, template, and oversell."""


@final
@dataclass(eq=False)
class Gpu:
    """One GPU, apart from what is used of it."""

    name: str
    node: str
    tflops: int  # milli
    vram: int  # bytes
    pool: str = ""
    model: str = ""
    vendor: str = "NVIDIA"
    index: int = -1  # -1: not known
    usable: bool = True  # it runs, and its isolation mode is fixed
    plugin: bool = False  # handed out whole by the device plugin, which chooses by itself
    isolation: str = ""  # the mode its node runs it in; "": any
    supports: tuple[str, ...] | None = None  # isolation modes; None: not given

    def cell(self) -> tuple[object, ...]:
        """Its fields after the name."""
        what = (self.node, self.tflops, self.vram, self.pool, self.model, self.vendor, self.index)
        return (*what, self.usable, self.plugin, self.isolation, self.supports)

    def suits(self, worker: Worker, default_pool: str) -> bool:
        """Whether the worker could run on it if it were empty."""
        return self.knows(worker) and self.meets(worker, default_pool)

    def meets(self, worker: Worker, default_pool: str) -> bool:
        """Whether it is what the worker wants, whatever its capacity is."""
        if not self.usable or self.plugin:
            return False
        if (worker.pool or default_pool) not in ("", self.pool):
            return False
        if worker.model not in ("", self.model) or worker.vendor not in ("", self.vendor):
            return False
        if worker.indices and self.index not in worker.indices:
            return False
        return self._isolates(worker.isolation)

    def knows(self, worker: Worker) -> bool:
        """Whether its capacity is known as far as the worker asks for it."""
        if self.tflops <= 0 and self.vram <= 0:
            return False
        return (self.tflops > 0 or not worker.needs_compute) and (self.vram > 0 or not worker.needs_memory)

    def _isolates(self, isolation: str) -> bool:
        if isolation == "shared":
            return True
        if self.supports is not None and isolation not in self.supports:
            return False
        return self.isolation in ("", isolation)


GpuCell = tuple[str, int, int, str, str, str, int, bool, bool, str, tuple[str, ...] | None]


def gpu_of(name: str, cell: object) -> Gpu | None:
    """The GPU in a cell; None for no cell or a removed GPU."""
    if cell is None or cell == REMOVED:
        return None
    node, tflops, vram, pool, model, vendor, index, usable, plugin, isolation, supports = cast("GpuCell", cell)
    return Gpu(name, node, tflops, vram, pool, model, vendor, index, usable, plugin, isolation, supports)


@final
class Fleet:
    """All GPUs at one version of the cells."""

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self.version: object = None
        self.gpus: list[Gpu] = []  # by node, index, name
        self.accounts: list[Account] = []  # of the GPU at the same position
        self.spans: dict[str, tuple[int, int]] = {}  # by node: its positions, from and to
        self.modes: dict[str, str] = {}  # by pool: its own placement mode
        self.default_pool: str = ""
        self.options: ScoringOptions = ScoringOptions()
        self.masks: Final[dict[tuple[object, ...], bytes]] = {}  # by needs of workers: the GPUs that suit
        self.bounds: Final[dict[Worker, tuple[int, int, int, int] | None]] = {}  # by worker: the largest footprint
        # The points of each GPU, and the usage that they were computed for.
        self.seen_tflops: vec[i64] = vec[i64]()
        self.seen_vram: vec[i64] = vec[i64]()
        self.used_memo: vec[i64] = vec[i64]()
        self.free_memo: vec[i64] = vec[i64]()

    def sync(self) -> bool:
        """Rebuilds the view if the version changed; returns whether it did."""
        version = self.state.cell(VERSION, ONLY)
        if version is self.version:
            return False
        self.version = version
        self.masks.clear()
        self.bounds.clear()
        self._read_gpus()
        self._read_settings()
        return True

    def used_points(self, at: int) -> int:
        """How full a GPU is, in points."""
        self._score(at)
        return self.used_memo[at]

    def free_points(self, at: int) -> int:
        """How empty a GPU is, in points."""
        self._score(at)
        return self.free_memo[at]

    def _score(self, at: int) -> None:
        used = self.accounts[at].used
        tflops: i64 = used.get(TFLOPS)
        vram: i64 = used.get(VRAM)
        if self.seen_tflops[at] == tflops and self.seen_vram[at] == vram:
            return
        gpu = self.gpus[at]
        left = max(gpu.tflops - int(tflops), 0)
        empty = max(gpu.vram - int(vram), 0)
        self.used_memo[at] = points(self.options, int(tflops), gpu.tflops, int(vram), gpu.vram)
        self.free_memo[at] = points(self.options, left, gpu.tflops, empty, gpu.vram)
        self.seen_tflops[at] = tflops
        self.seen_vram[at] = vram

    def _read_gpus(self) -> None:
        cells = self.state.cells(GPUS)
        found = [gpu for gpu in [gpu_of(name, cell) for name, cell in cells.items()] if gpu is not None]
        found.sort(key=lambda gpu: (gpu.node, gpu.index, gpu.name))
        self.gpus = found
        self.accounts = [self.state.accounts[PREFIX + gpu.name] for gpu in found]
        self.seen_tflops = vec[i64]([-1] * len(found))
        self.seen_vram = vec[i64]([-1] * len(found))
        self.used_memo = vec[i64]([0] * len(found))
        self.free_memo = vec[i64]([0] * len(found))
        self.spans = {}
        for at in range(len(found)):
            node = found[at].node
            start = self.spans.get(node, (at, at))[0]
            self.spans[node] = (start, at + 1)

    def _read_settings(self) -> None:
        self.modes = {}
        self.default_pool = ""
        for name in sorted(self.state.cells(POOLS)):
            mode, default, _, _ = cast("PoolCell", self.state.cell(POOLS, name))
            self.modes[name] = mode
            if default and not self.default_pool:
                self.default_pool = name
        options = self.state.cell(OPTIONS, ONLY)
        self.options = ScoringOptions() if options is None else ScoringOptions(*cast("tuple[str, int]", options))

    def suitable(self, worker: Worker) -> bytes:
        """One byte a GPU: 1 where it suits the worker."""
        found = self.masks.get(worker.needs)
        if found is None:
            found = bytes([1 if gpu.suits(worker, self.default_pool) else 0 for gpu in self.gpus])
            self.masks[worker.needs] = found
        return found

    def unknown_models(self, worker: Worker) -> list[str]:
        """Up to three models that could take the worker if their capacity were known."""
        models: dict[str, None] = {}
        for gpu in self.gpus:
            if not gpu.knows(worker) and gpu.meets(worker, self.default_pool):
                models[gpu.model or "(no product label)"] = None
        return sorted(models)[:3]

    def mode(self, worker: Worker) -> str:
        """The placement mode of the worker's pool."""
        return self.modes.get(worker.pool or self.default_pool, "") or self.options.mode

    def largest(self, worker: Worker) -> tuple[int, int, int, int] | None:
        """The largest footprint on any GPU that suits, per dimension; None when no GPU's capacity is known."""
        if worker not in self.bounds:
            suits = self.suitable(worker)
            self.bounds[worker] = peak(worker, [gpu for at, gpu in enumerate(self.gpus) if suits[at]])
        return self.bounds[worker]


def peak(worker: Worker, gpus: list[Gpu]) -> tuple[int, int, int, int] | None:
    """Per dimension the most that the worker takes of any of these GPUs; None if there are none."""
    most = [0, 0, 0, 0]
    for gpu in gpus:
        footprint = worker.footprint(gpu.tflops, gpu.vram)
        for i in range(4):
            most[i] = max(most[i], footprint[i])
    return (most[0], most[1], most[2], most[3]) if gpus else None
