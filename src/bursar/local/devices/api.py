"""What the agent and the GPU drivers exchange: devices, processes, samples, and the manifests that follow from them.

A device is known by its uuid, as the vendor's runtime takes it (``CUDA_VISIBLE_DEVICES``). A MIG device is a device of
its own; the card it is cut from is then none. Amounts are bytes and percent; times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from bursar.objects.gpu_models import model_capacity
from bursar.resources import dimension

GPU_API: Final = "tensor-fusion.ai/v1"
HOSTNAME: Final = "kubernetes.io/hostname"
UUID: Final = "local.bursar.dev/uuid"
DRIVER: Final = "local.bursar.dev/driver"
PARENT: Final = "local.bursar.dev/mig-parent"
LINKS: Final = "local.bursar.dev/links"
OUT_OF_SERVICE: Final = "local.bursar.dev/out-of-service"

JobOfPid = Callable[[int], str]
"""The uid of the job that a process belongs to; "" if it belongs to none."""


class DriverError(Exception):
    """The GPU driver of this machine does not answer: one line that says why."""


class DeviceError(Exception):
    """A job cannot be given its GPUs: one line that says why."""


class DeviceBusyError(DeviceError):
    """The GPU of a job cannot be shared with those who use it now; it will be possible when they are gone."""


@dataclass(frozen=True, slots=True)
class DeviceNumbers:
    """A character device by its numbers."""

    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class DeviceGuard:
    """Character devices that a confined job may open only if it was given them: minors ``first`` to ``last``."""

    major: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One GPU, or one MIG device."""

    uuid: str
    index: int
    model: str
    memory: int  # bytes that jobs can have
    tflops: str
    vendor: str = "NVIDIA"
    parent: str = ""  # the uuid of the card of a MIG device
    driver: str = ""
    nodes: tuple[DeviceNumbers, ...] = ()  # what a job with this GPU may open of the guarded devices
    problem: str = ""  # why it is out of service
    links: Mapping[str, str] = field(default_factory=dict)  # uuid of another card -> NV18, PIX, SYS
    total_memory: int = 0  # bytes, with what the driver keeps
    bus: str = ""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A compute process on a GPU, as the driver lists it."""

    uuid: str
    pid: int
    memory: int


@dataclass(frozen=True, slots=True)
class GpuSample:
    """What a GPU did since the last sample. None: the driver does not say."""

    uuid: str
    percent: int | None
    processes: Mapping[int, int] = field(default_factory=dict)  # pid -> percent, of those that the driver measured
    measured: bool = False  # whether the driver measures processes: then one that is not listed did nothing


@dataclass(frozen=True, slots=True)
class GpuFault:
    """An error that the driver reported of a GPU: an XID."""

    uuid: str
    code: int


class GpuDriver(Protocol):
    """The GPUs of one vendor. Every method may block for some milliseconds and may raise ``DriverError``."""

    name: str

    def inventory(self) -> list[GpuDevice]: ...
    def processes(self) -> list[GpuProcess]: ...
    def sample(self) -> list[GpuSample]: ...
    def faults(self) -> list[GpuFault]: ...
    def guards(self) -> list[DeviceGuard]: ...
    def close(self) -> None: ...


class NoDriver:
    """A machine without GPUs: cpu and memory only."""

    name = "none"

    def __init__(self, why: str = "") -> None:
        """``why``: GPUs that the machine seems to have cannot be used."""
        self.why = why

    def inventory(self) -> list[GpuDevice]:
        return []

    def processes(self) -> list[GpuProcess]:
        return []

    def sample(self) -> list[GpuSample]:
        return []

    def faults(self) -> list[GpuFault]:
        return []

    def guards(self) -> list[DeviceGuard]:
        return []

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class JobDevices:
    """A job, as far as its GPUs are concerned."""

    uid: str
    key: str  # team/name
    user: int
    gpus: tuple[str, ...]
    whole: bool
    vram: int = 0  # bytes of each GPU; 0 if it has them whole
    percent: int = 0  # of the compute of each GPU; 0 if it has them whole
    cgroup: str = ""  # path of its cgroup; "" without
    over_quota: bool = False


@dataclass(slots=True)
class Prepared:
    """What a job that may start is given."""

    environment: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class JobUsage:
    """What a job really uses of one of its GPUs, beside what it is charged."""

    uid: str
    key: str
    gpu: str
    booked_memory: int
    booked_percent: int
    used_memory: int
    used_percent: int | None  # None: not measured
    idle_seconds: int | None  # since when it did nothing; None: it works, or it is not known

    def is_idle(self, seconds: float) -> bool:
        return self.idle_seconds is not None and self.idle_seconds >= seconds


@dataclass(frozen=True, slots=True)
class Stray:
    """A compute process that belongs to no job."""

    gpu: str
    pid: int
    user: str
    command: str
    memory: int
    container: str = ""  # the id of the container that it runs in

    def sentence(self) -> str:
        where = f" in container {self.container}" if self.container else ""
        return f"process {self.pid} ({self.command}) of user {self.user}{where} belongs to no job"


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """An event about a GPU, or (without a uuid) about the machine."""

    gpu: str
    type: str  # Normal or Warning
    reason: str
    message: str


@dataclass(slots=True)
class DeviceReport:
    """What one look at the devices brought."""

    devices: list[GpuDevice] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)  # uuid -> why it is not handed out
    events: list[DeviceEvent] = field(default_factory=list)
    usage: list[JobUsage] = field(default_factory=list)
    strays: list[Stray] = field(default_factory=list)
    busy: dict[str, int] = field(default_factory=dict)  # uuid -> percent, of the GPUs that are measured
    warn: list[tuple[str, str]] = field(default_factory=list)  # (uid of the job, line for its terminal)
    evict: list[tuple[str, str]] = field(default_factory=list)  # (uid of the job, why)


class DeviceOptions(Protocol):
    """What the section ``local`` of the Configuration says about devices."""

    @property
    def mps(self) -> bool: ...
    @property
    def strays(self) -> str:
        """Hold or ignore a GPU on which a process without a job runs."""

    @property
    def evict_idle_after_ms(self) -> int:
        """After how long idle jobs over their quota are evicted; 0: never."""


def object_name(uuid: str) -> str:
    """The name of the GPU object: uuids of MIG devices may have capitals and slashes."""
    return uuid.lower().replace("_", "-").replace("/", "-")


def known_tflops(model: str) -> str:
    """Of the table of models; "" for a model that it does not have."""
    known = model_capacity(model)
    return dimension("tflops").show(known.tflops) if known.tflops else ""


def short_model(device: GpuDevice) -> str:
    """The model as jobs ask for it: H200, or H200 MIG 1g.18gb."""
    card, slice_, profile = device.model.partition(" MIG ")
    return (model_capacity(card).name or card) + slice_ + profile


def gpu_manifest(device: GpuDevice, node: str, held: str = "") -> dict[str, Any]:
    """The GPU object. It takes workers only while it has no problem and is not held."""
    why = device.problem or held
    marks = {
        UUID: device.uuid, DRIVER: device.driver, PARENT: device.parent, OUT_OF_SERVICE: why,
        LINKS: " ".join(f"{peer}={kind}" for peer, kind in sorted(device.links.items())),
    }  # fmt: skip
    phase = "Failed" if device.problem else "Held" if held else "Running"
    return {
        "apiVersion": GPU_API,
        "kind": "GPU",
        "metadata": {
            "name": object_name(device.uuid),
            "annotations": {name: text for name, text in marks.items() if text},
        },
        "status": {
            "phase": phase,
            "vendor": device.vendor,
            "gpuModel": short_model(device),
            "index": device.index,
            "capacity": {"tflops": device.tflops, "vram": device.memory},
            "nodeSelector": {HOSTNAME: node},
        },
    }


def node_labels(devices: Sequence[GpuDevice]) -> dict[str, str]:
    """The labels by which GPU nodes are known; of several models those of the first GPU."""
    if not devices:
        return {}
    first = min(devices, key=lambda device: device.index)
    model = "-".join(first.model.partition(" MIG ")[0].split())
    memory = first.total_memory >> 20
    if first.vendor == "AMD":
        found = {"amd.com/gpu.product-name": model, "amd.com/gpu.vram": f"{memory}M"}
        version = "amd.com/gpu.driver-version"
    else:
        cards = {device.parent or device.uuid for device in devices}
        found = {"nvidia.com/gpu.product": model, "nvidia.com/gpu.memory": str(memory)}
        found["nvidia.com/gpu.count"] = str(len(cards))
        version = "nvidia.com/cuda.driver-version.full"
    return found | ({version: first.driver} if first.driver else {})
