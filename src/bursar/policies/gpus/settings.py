"""Settings of the gpus policy: GPUs, the nodes they are in, pools, templates and options.

The GPUs of a node without GPU objects are derived from the node itself. They are named ``<node>:<index>``, which no
object can be called, and are removed as soon as the node has a GPU object.

What a model of GPU has comes from the Configuration, or else from the usual figures that the node's setting carries.

ResourceSlices of a DRA driver describe the GPUs of a node before its labels do.

A device plugin may divide a GPU: into replicas, which share it in time, or into MIG slices. An ``Offer`` says what part
of a GPU a unit of a resource is, so that the units together never have more than the GPUs do. On a node of HAMi, pods
say how large their slices are, and an offer has the largest GPU of the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast, final

from bursar.objects.gpu_models import model_capacity
from bursar.objects.hami_register import SlicedGpus
from bursar.policies.gpus.fleet import Gpu, ScoringOptions
from bursar.policies.gpus.hami import SliceDefaults
from bursar.policies.gpus.published import SLICE, GpuRow, PublishedGpu
from bursar.policies.results import Body

GPU: Final = "gpus.GPU"
HOST: Final = "gpus.Host"
POOL: Final = "gpus.Pool"
TEMPLATE: Final = "gpus.Template"
OPTIONS: Final = "gpus.Options"
KINDS: Final = (GPU, HOST, SLICE, POOL, TEMPLATE, OPTIONS)


FRACTIONS_LABEL: Final = "bursar.dev/gpu-fractions"
PLUGIN_RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/gpu.shared")  # units are GPUs, or equal parts of them


def is_derived(name: str) -> bool:
    return ":" in name


@final
@dataclass
class GpuBody(Body):
    gpu: Gpu


@final
@dataclass(frozen=True)
class Offer:
    """One resource by which a node hands out GPUs, or parts of them, through its device plugin."""

    resource: str
    count: int  # healthy units
    served: int  # units, failed ones included
    model: str = ""
    vram: int = 0  # of a GPU or MIG slice, as the node has it; 0: it does not say
    usual: tuple[int, int] = (0, 0)  # (milli-tflops, vram) of GPUs of that model; 0: not known
    part: tuple[int, int] = (1, 1)  # of the compute of a GPU: a MIG slice 3g has 3 of 7
    replicas: int = 1  # units into which a GPU or MIG slice is divided

    def cell(self) -> tuple[object, ...]:
        what = (self.resource, self.count, self.served, self.model, self.vram, self.usual)
        return (*what, self.part, self.replicas)

    def gpu(self, models: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """(milli-tflops, bytes) of one GPU or MIG slice; 0 where it is not known."""
        tflops, vram = models.get(self.model, self.usual)
        taken, parts = self.part
        return tflops * taken // parts, self.vram or (vram if parts == 1 else 0)

    def unit(self, models: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """(milli-tflops, bytes) of what one unit of the resource stands for."""
        tflops, vram = self.gpu(models)
        return tflops // self.replicas, vram // self.replicas


NO_OFFER: Final = Offer("", 0, 0)
NO_DEFAULTS: Final = SliceDefaults()
EVERY: Final = 1 << 30  # GPUs for fractions: as many as there are


@final
@dataclass
class HostBody(Body):
    """What a node offers of GPUs, and the memory and disk to which pools may extend vram."""

    offers: tuple[Offer, ...] = ()
    fractions: int = -1  # how many GPUs are for fractions; -1: as configured
    physical: int = 0  # GPUs that the node says it has, those included that no device plugin serves; 0: unsaid
    memory: int = 0
    disk: int = 0
    problem: str = ""  # with what the node says of its GPUs
    slicing: SlicedGpus | None = None  # HAMi hands out its GPUs
    published: tuple[PublishedGpu, ...] = ()  # by a DRA driver

    def cell(self) -> tuple[object, ...]:
        offers = tuple([offer.cell() for offer in self.offers])
        cell = (offers, self.fractions, self.physical, self.memory, self.disk, self.problem)
        if self.slicing is None and not self.published:
            return cell
        slicing = None if self.slicing is None else self.slicing.cell()
        return (*cell, slicing, tuple([gpu.cell() for gpu in self.published]))

    def offer(self) -> Offer:
        """That of the whole GPUs, which can be divided into fractions instead; HAMi's are divided already."""
        if self.slicing is not None:
            return NO_OFFER
        return next((offer for offer in self.described() if offer.resource in PLUGIN_RESOURCES), NO_OFFER)

    def described(self) -> tuple[Offer, ...]:
        """The offers, those of whole GPUs as a DRA driver describes the largest of them."""
        largest = max([(gpu.vram, gpu.model) for gpu in self.published if not gpu.parent], default=(0, ""))
        if self.slicing is not None or not largest[0]:
            return self.offers
        known = model_capacity(largest[1])
        found: list[Offer] = []
        for one in self.offers:
            whole = one.resource in PLUGIN_RESOURCES and one.part == (1, 1)
            what = (largest[1], largest[0], (known.tflops, known.vram)) if whole else (one.model, one.vram, one.usual)
            found.append(Offer(one.resource, one.count, one.served, *what, one.part, one.replicas))
        return tuple(found)

    def complaint(self) -> str:
        """What is wrong with its labels; also with one that promises more GPUs for fractions than there are."""
        most, _, _ = self.split(every=False)
        if self.problem or self.fractions in {-1, EVERY} or self.fractions <= most:
            return self.problem
        asks = f"label {FRACTIONS_LABEL} asks for {self.fractions} GPUs for fractions"
        return f"{asks}, the node has {most} now: it counts as {most}"

    def split(self, every: bool) -> tuple[int, int, bool]:
        """(GPUs for fractions, GPUs of the device plugin, whether the plugin may hand out one of the former).

        A GPU that the plugin does not serve can only be for fractions. A node never has more GPUs than its labels
        promise, nor more healthy ones than the plugin says.
        """
        offer = self.offer()
        served = offer.served // offer.replicas
        healthy = min(offer.count, offer.served) // offer.replicas
        physical = 0 if self.slicing is not None else max(self.physical, len(self.published))
        outside = max(physical - served, 0)
        wanted = self.fractions if self.fractions >= 0 else EVERY if every else 0
        fractions = min(wanted, outside + healthy)
        whole = min(healthy, outside + healthy - fractions)
        return fractions, whole, fractions > outside and whole > 0


_OfferCell = tuple[str, int, int, str, int, tuple[int, int], tuple[int, int], int]
_HostCell = tuple[tuple[_OfferCell, ...], int, int, int, int, str]


def host_of(cell: object) -> HostBody:
    """The node in a cell; without one it has nothing."""
    if cell is None:
        return HostBody()
    if isinstance(cast("tuple[object, ...]", cell)[0], int):  # as older journals have it
        parts = cast("tuple[object, ...]", cell)  # of six or seven parts
        count, vram, fractions = cast("int", parts[0]), cast("int", parts[2]), cast("int", parts[3])
        memory, disk = cast("int", parts[4]), cast("int", parts[5])
        model = str(parts[1])
        known = model_capacity(model)
        usual = (known.tflops, known.vram)
        offers = (Offer(PLUGIN_RESOURCES[0], count, count, model, vram, usual),) if count > 0 else ()
        return HostBody(offers, fractions, 0, memory, disk)
    whole = cast("tuple[object, ...]", cell)
    rows, fractions, physical, memory, disk, problem = cast("_HostCell", whole[:6])
    found = tuple([Offer(*row) for row in rows])
    slicing: SlicedGpus | None = None
    published: tuple[PublishedGpu, ...] = ()
    if len(whole) > 6:
        slicing = None if whole[6] is None else SlicedGpus(*cast("tuple[int, int, int, int]", whole[6]))
        published = tuple(
            [PublishedGpu(*row) for row in cast("tuple[GpuRow, ...]", whole[7] if len(whole) > 7 else ())]
        )
    return HostBody(found, fractions, physical, memory, disk, problem, slicing, published)


@final
@dataclass
class PoolBody(Body):
    template: str = ""  # with its placement mode
    default: bool = False  # for workers that name no pool
    oversell: tuple[int, int, int] | None = None  # percent of host memory, of host disk, of tflops


@final
@dataclass
class TemplateBody(Body):
    """A scheduling template: the placement mode of the pools that name it."""

    mode: str


@final
@dataclass
class GpuOptionsBody(Body):
    """The section ``gpus`` of the Configuration."""

    options: ScoringOptions
    all_fractions: bool = False
    models: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    slices: SliceDefaults = NO_DEFAULTS

    def cell(self) -> tuple[object, ...]:
        """How GPUs are derived from nodes; the scoring options have a cell of their own."""
        cell = (self.all_fractions, tuple(sorted(self.models.items())))
        return cell if self.slices == NO_DEFAULTS else (*cell, (self.slices.memory, self.slices.cores))


@final
@dataclass
class Derivation:
    """How GPUs are read from nodes, as the section ``gpus`` of the Configuration has it."""

    every: bool = False
    models: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    slices: SliceDefaults = NO_DEFAULTS


def derivation_of(cell: object) -> Derivation:
    """The options in a cell."""
    if cell is None:
        return Derivation()
    whole = cast("tuple[object, ...]", cell)
    every, models = cast("tuple[bool, tuple[tuple[str, tuple[int, int]], ...]]", whole[:2])
    slices = SliceDefaults(*cast("tuple[int, int]", whole[2])) if len(whole) > 2 else NO_DEFAULTS
    return Derivation(every, dict(models), slices)
