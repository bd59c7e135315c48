"""What a client asks for, as the pods that stand for it.

A job is a pod of its team's namespace, bound to this machine. One with GPUs is a worker of the gpus policy, so that the
engine chooses its GPUs in the transaction that admits it. For quotas by count or bytes it also requests
``bursar.dev/gpu`` (whole GPUs) and ``bursar.dev/vram`` (bytes of GPU memory), which the Node of the machine offers.

Pods of equal jobs have equal annotations, so that the queue can tell that they are alike.
"""

from __future__ import annotations

import re
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from bursar.local.devices.api import HOSTNAME, GpuDevice, short_model
from bursar.objects.decode import ManifestError
from bursar.objects.local_options import MACHINE
from bursar.objects.validation import duration_ms
from bursar.quantity import MILLI, UNIT, QuantityError, parse

OPTIONS = "local.bursar.dev/options"
RANK = "local.bursar.dev/rank"
USER = "local.bursar.dev/user"
GPU = "bursar.dev/gpu"
VRAM = "bursar.dev/vram"
_WORKER = "tensor-fusion.ai/"
_GROUP, _GROUP_SIZE = "bursar.dev/group", "bursar.dev/group-size"
_NAME = re.compile(r"[^a-z0-9]+")
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_COMMAND_MOST = 4096
MOST_MEMBERS = 256


class JobRefusedError(Exception):
    """What a client asked for cannot be: one line, and the exit code that it means."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class SubmitRequest(msgspec.Struct, frozen=True):
    """The message ``submit``."""

    command: list[str]
    kind: str = ""
    team: str = ""
    name: str = ""
    gpus: int = 0
    vram: str = ""
    tflops: str = ""
    gpu_percent: int = 0
    gpu_model: str = ""
    cpu: str = ""
    memory: str = ""
    priority: str = ""
    time: str = ""
    grace: str = ""
    checkpoint: str = ""
    members: int = 0
    requeue: bool = False
    private: bool = False
    labels: dict[str, str] = {}

    @property
    def divides(self) -> bool:
        return bool(self.vram or self.tflops or self.gpu_percent)


class JobOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agent must know of a job, as its pod's annotation has it."""

    user: int
    name: str  # of the user
    members: int = 1
    time_ms: int = 0
    grace_ms: int = 0
    checkpoint: int = 0  # a signal before SIGTERM
    requeue: bool = False
    vram: int = 0  # bytes of each GPU, of a fraction
    percent: int = 0  # of the compute of each GPU, of a fraction
    cpu_milli: int = 0
    memory: int = 0
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to be had here."""

    name: str
    cpus: int
    memory: int
    devices: Sequence[GpuDevice] = ()


@dataclass(frozen=True, slots=True)
class _JobAmounts:
    cpu_milli: int
    memory: int
    gpus: int
    vram: int  # of each GPU; 0: whole, or only compute is asked for
    percent: int


def read_request(message: Mapping[str, Any]) -> SubmitRequest:
    try:
        return msgspec.convert(message, SubmitRequest)
    except msgspec.ValidationError as error:
        raise JobRefusedError(f"the request is not understood: {error}", 2) from None


def pods_of(request: SubmitRequest, team: str, user: tuple[int, str], machine: Machine) -> list[dict[str, Any]]:
    """The manifests to queue; ``JobRefusedError`` for what this machine can never give."""
    if not request.command:
        raise JobRefusedError("no command is given", 2)
    if not 0 <= request.members <= MOST_MEMBERS:
        raise JobRefusedError(f"a gang has 1 to {MOST_MEMBERS} members", 2)
    members = max(request.members, 1)
    amounts = _amounts(request, machine)
    _check_fits(amounts, request, members, machine)
    options = JobOptions(
        *user, members,
        _duration("time", request.time), _duration("grace", request.grace), signal_number(request.checkpoint),
        request.requeue, amounts.vram, amounts.percent, amounts.cpu_milli, amounts.memory, amounts.gpus,
    )  # fmt: skip
    name = request.name or _made_up(request.command[0])
    pods = [_pod(request, team, name, options, amounts, machine) for _ in range(members)]
    if request.members:
        for rank, pod in enumerate(pods):
            pod["metadata"]["name"] = f"{name}-{rank}"
            pod["metadata"]["labels"] |= {_GROUP: name, _GROUP_SIZE: str(members)}
            pod["metadata"]["annotations"][RANK] = str(rank)
    return pods


def options_in(annotations: Mapping[str, str]) -> tuple[JobOptions, int]:
    """(options, rank) as the annotations of a job's pod have them."""
    return msgspec.json.decode(annotations[OPTIONS], type=JobOptions), int(annotations.get(RANK, "0"))


def signal_number(name: str) -> int:
    """Of USR1, SIGUSR1 or 10; 0 for none."""
    if not name:
        return 0
    try:
        return int(
            signal.Signals(int(name)) if name.isdigit() else signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"]
        )
    except (KeyError, ValueError):
        raise JobRefusedError(f"{name!r:.40} is not the name of a signal", 2) from None


def _made_up(command: str) -> str:
    """A name as Kubernetes generates them, from the program."""
    base = _NAME.sub("-", command.rpartition("/")[2].lower()).strip("-")[:40] or "job"
    return f"{base}-{''.join(secrets.choice(_LETTERS) for _ in range(5))}"


def _duration(option: str, text: str) -> int:
    try:
        return duration_ms(text) if text else 0
    except ManifestError as error:
        raise JobRefusedError(f"--{option}: {error}", 2) from None


def _quantity(option: str, text: str, unit: int) -> int:
    try:
        found = parse(text, unit) if text else 0
    except QuantityError as error:
        raise JobRefusedError(f"--{option}: {error}", 2) from None
    if found < 0 or (text and not found):
        raise JobRefusedError(f"--{option}: must be more than zero", 2)
    return found


def _amounts(request: SubmitRequest, machine: Machine) -> _JobAmounts:
    cpu, memory = _quantity("cpu", request.cpu, MILLI), _quantity("memory", request.memory, UNIT)
    if request.gpus < 0 or not 0 <= request.gpu_percent <= 100:
        raise JobRefusedError("--gpus is at least 0, --gpu-percent 1 to 100", 2)
    if request.tflops and request.gpu_percent:
        raise JobRefusedError("--tflops and --gpu-percent say the same: give one of them", 2)
    if not request.divides:
        return _JobAmounts(cpu, memory, request.gpus, 0, 0)
    largest = max(_suiting(request, machine), key=lambda one: (one.memory, one.uuid), default=None)
    vram, tflops = _quantity("vram", request.vram, UNIT), _quantity("tflops", request.tflops, MILLI)
    percent = request.gpu_percent
    if largest is not None:
        if tflops:
            percent = -(-tflops * 100 // parse(largest.tflops, MILLI))
        if percent and not vram:
            vram = largest.memory * percent // 100
    return _JobAmounts(cpu, memory, request.gpus or 1, vram, percent)


def _suiting(request: SubmitRequest, machine: Machine) -> list[GpuDevice]:
    """The GPUs of the model that is asked for, which may be shortened."""
    wanted = request.gpu_model.lower()
    exact = [device for device in machine.devices if wanted == short_model(device).lower()]
    return exact or [device for device in machine.devices if wanted in device.model.lower()]


def _model(request: SubmitRequest, machine: Machine) -> str:
    """The model as the GPU objects have it; empty for any."""
    models = sorted({short_model(device) for device in _suiting(request, machine)}) if request.gpu_model else []
    if len(models) > 1:
        raise JobRefusedError(f"--gpu-model {request.gpu_model} could be {', '.join(models)}", 2)
    return models[0] if models else ""


def _check_fits(amounts: _JobAmounts, request: SubmitRequest, members: int, machine: Machine) -> None:
    """A job that no empty machine could take is refused now, instead of waiting for ever."""
    suiting = _suiting(request, machine)
    most = max((device.memory for device in suiting), default=0)
    whole = amounts.gpus and not request.divides
    wanted = amounts.gpus * members if whole else amounts.gpus
    model = f" of model {request.gpu_model}" if request.gpu_model else ""
    if wanted > len(suiting):
        raise JobRefusedError(f"{wanted} GPUs{model} are asked for, and {machine.name} has {len(suiting)}")
    if amounts.vram > most or amounts.percent > 100:
        raise JobRefusedError(f"no GPU{model} of {machine.name} is that large: the largest has {most} bytes of memory")
    if amounts.cpu_milli * members > machine.cpus * 1000:
        raise JobRefusedError(f"{request.cpu} cpus for {members} are asked for, and {machine.name} has {machine.cpus}")
    if amounts.memory * members > machine.memory:
        given = f"{request.memory} of memory for {members} are asked for"
        raise JobRefusedError(f"{given}, and {machine.name} has {machine.memory >> 30}Gi")


def _pod(
    request: SubmitRequest, team: str, name: str, options: JobOptions, amounts: _JobAmounts, machine: Machine
) -> dict[str, Any]:
    annotations = {
        MACHINE: machine.name, USER: options.name, OPTIONS: msgspec.json.encode(options).decode(),
        **_worker(request, amounts, _model(request, machine)),
    }  # fmt: skip
    command = ["(private)"] if request.private else _shortened(request.command)
    container = {"name": "main", "command": command, "resources": {"limits": _limits(request, amounts, machine)}}
    spec: dict[str, Any] = {"nodeSelector": {HOSTNAME: machine.name}, "containers": [container]}
    if request.priority:
        spec["priorityClassName"] = request.priority
    if _is_number(request.priority):
        spec.pop("priorityClassName")
        spec["priority"] = int(request.priority)
    metadata = {"namespace": team, "name": name, "labels": dict(request.labels), "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"-?[0-9]{1,10}", text))


def _shortened(command: list[str]) -> list[str]:
    """It is stored for people to read, and not run from there."""
    found: list[str] = []
    size = 0
    for word in command:
        size += len(word)
        if size > _COMMAND_MOST:
            return [*found, "..."]
        found.append(word.encode("utf-8", "replace").decode())
    return found


def _worker(request: SubmitRequest, amounts: _JobAmounts, model: str) -> dict[str, str]:
    """The annotations by which the gpus policy knows a worker."""
    if not amounts.gpus:
        return {}
    found = {"gpu-count": str(amounts.gpus)}
    if not request.divides:
        found["isolation"] = "shared"
    if model:
        found["gpu-model"] = model
    if amounts.vram:
        found["vram-request"] = str(amounts.vram)
    if request.tflops:
        found["tflops-request"] = request.tflops
    elif amounts.percent:
        found["compute-percent-request"] = str(amounts.percent)
    return {f"{_WORKER}{key}": value for key, value in found.items()}


def _limits(request: SubmitRequest, amounts: _JobAmounts, machine: Machine) -> dict[str, str]:
    found: dict[str, str] = {}
    if request.cpu:
        found["cpu"] = request.cpu
    if request.memory:
        found["memory"] = request.memory
    if amounts.gpus:
        each = amounts.vram if request.divides else max((one.memory for one in _suiting(request, machine)), default=0)
        found[VRAM] = str(each * amounts.gpus)
        if not request.divides:
            found[GPU] = str(amounts.gpus)
    return found
