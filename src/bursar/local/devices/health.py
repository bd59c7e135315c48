"""Which errors take a GPU out of service.

NVIDIA's driver reports errors as XIDs. Most come from the program that runs, and end only that. Those that ``FATAL``
lists mean that the GPU itself, its memory or its link fails; what the driver says of recovery, of remapped rows and of
lost cards counts too. An XID that neither table lists takes the GPU out as well: a job that waits is better than one
that computes nonsense.

A GPU that was taken out for an XID comes back when the server is started again and the driver has no complaint, which
is when an administrator has looked at it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bursar.local.devices.api import DeviceEvent, GpuFault

FATAL: Final = {
    46: "the GPU stopped processing",
    48: "double-bit error of its memory",
    54: "auxiliary power is not connected",
    61: "internal microcontroller breakpoint",
    62: "internal microcontroller halt",
    64: "a memory page or row could not be retired",
    74: "NVLink error",
    78: "virtual GPU start failed",
    79: "the GPU has fallen off the bus",
    92: "high rate of single-bit errors",
    95: "uncontained memory error",
    110: "security fault",
    119: "the GPU system processor does not answer",
    120: "error of the GPU system processor",
    136: "link training failed",
    140: "unrecovered memory error",
    143: "GPU initialisation failed",
    155: "NVLink software error",
    156: "resource retirement",
    158: "GPU fatal timeout",
}

OF_PROGRAMS: Final = {
    8: "a program was stopped",
    13: "exception of a program on the GPU",
    31: "a program accessed memory that it does not have",
    32: "invalid commands of a program",
    43: "a program stopped on the GPU",
    44: "a program was preempted for an error",
    45: "a program's work was removed",
    63: "a memory page or row was retired",
    65: "video processor exception",
    66: "illegal access by a program",
    67: "illegal access by a program",
    68: "video decoder exception",
    69: "graphics engine exception",
    94: "contained memory error: the program that used it was stopped",
    109: "context switch timeout of a program",
    137: "NVLink memory access of a program",
    154: "recovery action of the GPU changed",
}

_RECOVERY: Final = {
    1: "it needs a reset",
    2: "the machine needs a reboot",
    3: "its peer traffic must be drained",
    4: "it must be drained and reset",
    5: "its NVLink domain must be recovered",
    6: "it needs a reset of its bus",
    7: "the machine needs a reboot",
}


def card_problem(action: int, remap_failed: bool) -> str:
    """Why the card may not be used, by what the driver says of it now; "" if it may."""
    if action:
        return f"the driver says that {_RECOVERY.get(action, f'it needs recovery action {action}')}"
    if remap_failed:
        return "a row of its memory could not be remapped"
    return ""


def fault_problem(fault: GpuFault) -> str:
    """Why the XID takes its GPU out of service; "" if it does not."""
    if fault.code in OF_PROGRAMS:
        return ""
    return f"XID {fault.code}: {FATAL.get(fault.code, 'unknown error')}"


def fault_events(faults: Iterable[GpuFault]) -> list[DeviceEvent]:
    """One event for each XID that leaves its GPU in service."""
    return [
        DeviceEvent(fault.uuid, "Normal", "gpu.program-error", f"XID {fault.code}: {OF_PROGRAMS[fault.code]}")
        for fault in dict.fromkeys(faults)
        if not fault_problem(fault)
    ]
