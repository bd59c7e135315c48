"""The fleet: all GPUs, read from the cells that the gpus policy writes, and how they are scored.

There is a cell for each GPU and each pool, and one with the options. The ``Fleet`` is a view of these cells that the
limits and gpus policies share. It follows each change of a cell, also on undo and replay, and brings only the nodes
that changed up to date. Positions of GPUs are in blocks, one for each node; a node that outgrows its block gets another
one, and what is left of the old one are holes, which suit no worker.

What is used of a GPU is in its account ``gpus/<name>``, whose limits are the GPU's capacity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast, final

from librt.vecs import append, vec
from mypy_extensions import i64

from bursar.ledger.state import Account, State
from bursar.policies.gpus.worker import Worker
from bursar.policies.placement_kit import REMOVED, NodeIndex, remember
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
LENT: Final = "gpus.lent"  # table: GPU name -> its node
GONE: Final = "gpus.gone"  # table: removed GPU on which claims count -> facts
ONLY: Final = "all"

FRACTION_SET: Final = "tensor-fusion"
_KEPT: Final = 2_048  # needs of workers whose GPUs are cached


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
    uuid: str = ""  # as a DRA driver publishes it
    lent: bool = False  # for fractions, but the device plugin uses one more than it may; not in the cell

    def cell(self) -> tuple[object, ...]:
        """Its fields after the name."""
        what = (self.node, self.tflops, self.vram, self.pool, self.model, self.vendor, self.index)
        cell = (*what, self.usable, self.plugin, self.isolation, self.supports)
        return (*cell, self.uuid) if self.uuid else cell

    def suits(self, worker: Worker, default_pool: str) -> bool:
        """Whether the worker could run on it if it were empty."""
        return self.knows(worker) and self.meets(worker, default_pool)

    def meets(self, worker: Worker, default_pool: str) -> bool:
        """Whether it is what the worker wants, whatever its capacity is."""
        if not self.usable or self.plugin or self.lent:
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
    whole = cast("tuple[object, ...]", cell)
    node, tflops, vram, pool, model, vendor, index, usable, plugin, isolation, supports = cast("GpuCell", whole[:11])
    uuid = str(whole[11]) if len(whole) > 11 else ""
    return Gpu(name, node, tflops, vram, pool, model, vendor, index, usable, plugin, isolation, supports, uuid)


HOLE: Final = Gpu("", "", 0, 0, usable=False)
_NO_ACCOUNT: Final = Account("", "", "", False)
_LOG: Final = 65_536  # changed nodes that are logged; after that, readers look at all of them again
_HOLES: Final = 64  # that are always allowed; beyond them, and as many as there are GPUs, all get new positions
Kind = tuple[int, int]
"""The capacity of a GPU: (milli-tflops, bytes)."""


@final
class SuitingGpus:
    """The GPUs that suit workers with the same needs: one byte a position, and how many there are of each capacity."""

    def __init__(self, worker: Worker) -> None:
        self.worker: Final = worker
        self.mask: Final = bytearray()
        self.packed: bytes | None = None  # the mask, until it changes
        self.kinds: Final[dict[Kind, int]] = {}

    def set_position(self, at: int, old: Gpu, new: Gpu, default_pool: str) -> None:
        self.packed = None
        while len(self.mask) <= at:
            self.mask.append(0)
        if self.mask[at]:
            kind = (old.tflops, old.vram)
            self.kinds[kind] -= 1
            if not self.kinds[kind]:
                del self.kinds[kind]
        suits = new.suits(self.worker, default_pool)
        self.mask[at] = 1 if suits else 0
        if suits:
            kind = (new.tflops, new.vram)
            self.kinds[kind] = self.kinds.get(kind, 0) + 1


@final
class Fleet:
    """All GPUs as the cells have them."""

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self.by_node: Final[dict[str, dict[str, Gpu]]] = {}  # by node, by name
        self.lent: Final[dict[str, None]] = {}  # names of GPUs for fractions that the device plugin uses for now
        self.size: int = 0  # how many GPUs there are
        self.stale: Final[dict[str, None]] = {}  # nodes whose positions are out of date
        self.settings_stale: bool = True
        self.epoch: int = 0  # changes when readers must look at everything again
        self.log: Final[list[str]] = []  # nodes that were brought up to date in this epoch
        self.gpus: Final[list[Gpu]] = []  # by position; in a block by index and name
        self.accounts: Final[list[Account]] = []  # of the GPU at the same position
        self.blocks: Final[dict[str, tuple[int, int]]] = {}  # by node: its positions, holes included
        self.spans: Final[dict[str, tuple[int, int]]] = {}  # by node with GPUs: positions, from and to
        self.modes: dict[str, str] = {}  # by pool: its own placement mode
        self.default_pool: str = ""
        self.options: ScoringOptions = ScoringOptions()
        self.suiting: Final[dict[tuple[object, ...], SuitingGpus]] = {}  # by needs of workers
        # The points of each GPU, and the usage that they were computed for.
        self.seen_tflops: vec[i64] = vec[i64]()
        self.seen_vram: vec[i64] = vec[i64]()
        self.used_memo: vec[i64] = vec[i64]()
        self.free_memo: vec[i64] = vec[i64]()

    # Following the cells

    def gpu_changed(self, name: str, old: object, new: object) -> None:
        before = gpu_of(name, old)
        after = gpu_of(name, new)
        if before is not None:
            there = self.by_node[before.node]
            del there[name]
            self.size -= 1
            if not there:
                del self.by_node[before.node]
            self.stale[before.node] = None
        if after is not None:
            self.size += 1
            after.lent = name in self.lent
            self.by_node.setdefault(after.node, {})[name] = after
            self.stale[after.node] = None

    def lent_changed(self, name: str, node: str, lent: bool) -> None:
        if lent:
            self.lent[name] = None
        else:
            self.lent.pop(name, None)
        gpu = self.by_node.get(node, {}).get(name)
        if gpu is not None:
            gpu.lent = lent
            self.stale[gpu.node] = None

    def host_changed(self, node: str) -> None:
        """Memory and disk of a node changed, to which its pool may extend vram."""
        self.stale[node] = None

    def settings_changed(self) -> None:
        """A pool or the options changed."""
        self.settings_stale = True

    def sync(self) -> None:
        """Brings positions, masks and settings up to date."""
        if self.settings_stale:
            self.settings_stale = False
            self._read_settings()
            self.suiting.clear()
            self._lay_out()
        if self.stale:
            if len(self.log) + len(self.stale) > _LOG or len(self.gpus) > _HOLES + 2 * self.size or not self.by_node:
                self._lay_out()
            for node in sorted(self.stale):
                self._update(node)
            self.stale.clear()

    def _lay_out(self) -> None:
        """Forgets all positions: every node gets a new block."""
        self.epoch += 1
        self.log.clear()
        self.gpus.clear()
        self.accounts.clear()
        self.blocks.clear()
        self.spans.clear()
        self.suiting.clear()
        self.stale.update(dict.fromkeys(self.by_node))
        self.seen_tflops = vec[i64]()
        self.seen_vram = vec[i64]()
        self.used_memo = vec[i64]()
        self.free_memo = vec[i64]()

    def _update(self, node: str) -> None:
        self.log.append(node)
        found = sorted(self.by_node.get(node, {}).values(), key=lambda gpu: (gpu.index, gpu.name))
        start, end = self.blocks.get(node, (0, 0))
        if len(found) > end - start:
            self._fill(start, end, [])
            start, end = len(self.gpus), len(self.gpus) + len(found)
            self.blocks[node] = (start, end)
        self._fill(start, end, found)
        if found:
            self.spans[node] = (start, start + len(found))
        else:
            self.spans.pop(node, None)
            self.blocks.pop(node, None)

    def _fill(self, start: int, end: int, found: list[Gpu]) -> None:
        """Puts these GPUs, and holes after them, at the positions of a block."""
        for at in range(start, end):
            hole = at - start >= len(found)
            gpu = HOLE if hole else found[at - start]
            account = _NO_ACCOUNT if hole else self.state.accounts[PREFIX + gpu.name]
            old = HOLE
            if at < len(self.gpus):
                old = self.gpus[at]
                self.gpus[at] = gpu
                self.accounts[at] = account
                self.seen_tflops[at] = -1
            else:
                self.gpus.append(gpu)
                self.accounts.append(account)
                self.seen_tflops = append(self.seen_tflops, i64(-1))
                self.seen_vram = append(self.seen_vram, i64(-1))
                self.used_memo = append(self.used_memo, i64(0))
                self.free_memo = append(self.free_memo, i64(0))
            for suiting in self.suiting.values():
                suiting.set_position(at, old, gpu, self.default_pool)

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

    # Scores

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

    # Workers

    def _suiting(self, worker: Worker) -> SuitingGpus:
        found = self.suiting.get(worker.needs)
        if found is None:
            found = remember(self.suiting, worker.needs, SuitingGpus(worker), _KEPT)
            for at in range(len(self.gpus)):
                found.set_position(at, HOLE, self.gpus[at], self.default_pool)
        return found

    def suitable(self, worker: Worker) -> bytes:
        """One byte a position: 1 where the GPU suits the worker."""
        suiting = self._suiting(worker)
        if suiting.packed is None:
            suiting.packed = bytes(suiting.mask)
        return suiting.packed

    def unknown_models(self, worker: Worker) -> list[str]:
        """Up to three models that could take the worker if their capacity were known."""
        models: dict[str, None] = {}
        for gpu in self.gpus:
            if not gpu.knows(worker) and gpu.meets(worker, self.default_pool):
                models[gpu.model or "(no product label)"] = None
        return sorted(models)[:3]

    def out_of_service(self) -> int:
        """How many GPUs are not handed out now."""
        return len([gpu for gpu in self.gpus if not gpu.usable])

    def mode(self, worker: Worker) -> str:
        """The placement mode of the worker's pool."""
        return self.modes.get(worker.pool or self.default_pool, "") or self.options.mode

    def largest(self, worker: Worker) -> tuple[int, int, int, int] | None:
        """The largest footprint on any GPU that suits, per dimension; None when no GPU's capacity is known."""
        return peak(worker, list(self._suiting(worker).kinds))


def peak(worker: Worker, kinds: list[Kind]) -> tuple[int, int, int, int] | None:
    """Per dimension the most that the worker takes of GPUs of any of these capacities; None if there are none."""
    most = [0, 0, 0, 0]
    for tflops, vram in kinds:
        footprint = worker.footprint(tflops, vram)
        for i in range(4):
            most[i] = max(most[i], footprint[i])
    return (most[0], most[1], most[2], most[3]) if kinds else None


def fleet_of(state: State, nodes: NodeIndex) -> Fleet:
    """The fleet that the policies of one engine share."""
    found = nodes.shared.get(GPUS)
    if not isinstance(found, Fleet):
        found = Fleet(state)
        nodes.shared[GPUS] = found
    return found
