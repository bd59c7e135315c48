"""The machine as the cluster sees it: a Node with cpu, memory and GPUs, and an object for each GPU.

The Node has all GPUs that work, as numbers that quotas can count: ``bursar.dev/gpu`` and ``bursar.dev/vram``. A GPU
that fails, is gone, or has a process without a job stays as an object that takes no jobs. One that is gone when the
agent starts is removed; jobs that have it keep it in the books until they end.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bursar.local.devices.api import HOSTNAME, GpuDevice, gpu_manifest, node_labels, object_name
from bursar.local.submission import GPU, VRAM, Machine
from bursar.objects.local_options import MACHINE

_MEMORY = "MemTotal:"


def this_machine(name: str = "") -> Machine:
    """Without its GPUs."""
    return Machine(name or socket.gethostname().lower(), len(os.sched_getaffinity(0)), _memory())


def _memory() -> int:
    """Bytes of the machine.

    The kernel keeps some of it, and so do programs that are no jobs: quotas of memory should leave room for these.
    """
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith(_MEMORY):
            return int(line.split()[1]) * 1024
    return 0


def node_manifest(machine: Machine) -> dict[str, Any]:
    """The Node; what it has is what jobs can have."""
    working = [device for device in machine.devices if not device.problem]
    has = {"cpu": str(machine.cpus), "memory": str(machine.memory)}
    if machine.devices:
        has[GPU] = str(len(working))
        has[VRAM] = str(sum(device.memory for device in working))
    labels = {HOSTNAME: machine.name, **node_labels(machine.devices)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.name, "labels": labels, "annotations": {MACHINE: machine.name}},
        "status": {"capacity": has, "allocatable": has},
    }


class Registration:
    """What the cluster was told of this machine; only differences are told again."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._told: dict[str, dict[str, Any]] = {}

    def changes(self, devices: Sequence[GpuDevice], held: Mapping[str, str]) -> tuple[Machine, list[dict[str, Any]]]:
        """The machine with these devices, and the manifests that differ. GPUs come after their node."""
        machine = Machine(self.machine.name, self.machine.cpus, self.machine.memory, tuple(devices))
        wanted = [node_manifest(machine)]
        wanted += [gpu_manifest(device, machine.name, held.get(device.uuid, "")) for device in devices]
        keyed = {f"{one['kind']}/{one['metadata']['name']}": one for one in wanted}
        return machine, [one for key, one in keyed.items() if self._told.get(key) != one]

    def forget(self) -> None:
        """The cluster may have lost it."""
        self._told = {}

    def told(self, manifests: Sequence[dict[str, Any]]) -> None:
        """These are durable in the cluster."""
        self._told |= {f"{one['kind']}/{one['metadata']['name']}": one for one in manifests}

    def uuids(self) -> dict[str, str]:
        """By the names of GPU objects."""
        return {object_name(device.uuid): device.uuid for device in self.machine.devices}

    def unknown(self, names: Sequence[str]) -> list[str]:
        """Objects of GPUs that the machine does not have any more."""
        there = {object_name(device.uuid) for device in self.machine.devices}
        return sorted(set(names) - there)
