"""Confines the processes of a cgroup to their GPUs, by a BPF program that the kernel asks at every open of a device.

The program allows everything except the guarded devices (the GPUs of the machine, and the capabilities of MIG), of
which it allows those that the job was given. GPUs that appear later are guarded too, because ranges are. It is attached
beside programs that are there already; a device must pass all of them. It stays until the cgroup is removed, whatever
becomes of this process.

Where the kernel refuses (no cgroup v2, no root, no BPF) the job runs all the same, and its note says that access to
GPUs is advisory.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from bursar.local.devices.api import DeviceGuard, DeviceNumbers

_SYSCALL: Final = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_PROG_LOAD: Final = 5
_PROG_ATTACH: Final = 8
_CGROUP_DEVICE_PROGRAM: Final = 15
_CGROUP_DEVICE: Final = 6
_ALLOW_MULTI: Final = 2
_CHARACTER_DEVICE: Final = 2

# Operation codes: the upper half of the byte is the operation, the lower one its class and operand.
_LOAD_WORD: Final = 0x61  # dst = *(u32 *)(src + offset)
_AND: Final = 0x57  # dst &= constant
_SET: Final = 0xB7  # dst = constant
_IF_EQUAL: Final = 0x15
_IF_NOT_EQUAL: Final = 0x55
_IF_GREATER: Final = 0x25
_IF_LESS: Final = 0xA5
_EXIT: Final = 0x95

_RESULT, _CONTEXT, _KIND, _MAJOR, _MINOR = range(5)  # registers
_ALLOW, _REFUSE = 1, 0


class ConfinementError(Exception):
    """The kernel refuses: one line that says why."""


def _instruction(code: int, target: int = 0, source: int = 0, offset: int = 0, constant: int = 0) -> bytes:
    return struct.pack("<BBhi", code, target | source << 4, offset, constant)


def program(guards: Iterable[DeviceGuard], given: Iterable[DeviceNumbers]) -> bytes:
    """The instructions. The context has three words: access and kind of the device, major, minor."""
    allowed = set(given)
    code = [
        _instruction(_LOAD_WORD, _KIND, _CONTEXT, 0),
        _instruction(_AND, _KIND, constant=0xFFFF),
        _instruction(_LOAD_WORD, _MAJOR, _CONTEXT, 4),
        _instruction(_LOAD_WORD, _MINOR, _CONTEXT, 8),
        _instruction(_IF_EQUAL, _KIND, offset=2, constant=_CHARACTER_DEVICE),
        *_end(_ALLOW),
    ]
    for guard in guards:
        code += _guarded(guard, sorted(one.minor for one in allowed if one.major == guard.major))
    return b"".join([*code, *_end(_ALLOW)])


def _end(verdict: int) -> list[bytes]:
    return [_instruction(_SET, _RESULT, constant=verdict), _instruction(_EXIT)]


def _guarded(guard: DeviceGuard, minors: Sequence[int]) -> list[bytes]:
    """Of the guarded range these minors are allowed; what is outside of it goes on behind this part."""
    inner: list[bytes] = []
    for minor in minors:
        inner += [_instruction(_IF_NOT_EQUAL, _MINOR, offset=2, constant=minor), *_end(_ALLOW)]
    inner += _end(_REFUSE)
    return [
        _instruction(_IF_NOT_EQUAL, _MAJOR, offset=len(inner) + 2, constant=guard.major),
        _instruction(_IF_LESS, _MINOR, offset=len(inner) + 1, constant=guard.first),
        _instruction(_IF_GREATER, _MINOR, offset=len(inner), constant=guard.last),
        *inner,
    ]


def confine(cgroup: str, guards: Sequence[DeviceGuard], given: Iterable[DeviceNumbers]) -> None:
    """Attach the program to the cgroup; ``ConfinementError`` if the kernel does not take it."""
    if not cgroup:
        raise ConfinementError("there is no cgroup v2 for jobs")
    loaded = _load(program(guards, given))
    try:
        folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        os.close(loaded)
        raise ConfinementError(f"{cgroup}: {error.strerror}") from error
    try:
        _bpf(_PROG_ATTACH, struct.pack("<5I", folder, loaded, _CGROUP_DEVICE, _ALLOW_MULTI, 0), "attached")
    finally:
        os.close(folder)
        os.close(loaded)


def _load(code: bytes) -> int:
    """A file descriptor of the program."""
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack(
        "<IIQQIIQII16sII",
        _CGROUP_DEVICE_PROGRAM, len(code) // 8, ctypes.addressof(instructions), ctypes.addressof(licence),
        0, 0, 0, 0, 0, b"bursar_gpus", 0, _CGROUP_DEVICE,
    )  # fmt: skip
    return _bpf(_PROG_LOAD, attributes, "loaded")


def _bpf(command: int, attributes: bytes, done: str) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise ConfinementError(f"not known on {platform.machine()}")
    library = ctypes.CDLL(None, use_errno=True)
    given = ctypes.create_string_buffer(attributes, len(attributes))
    result = int(library.syscall(ctypes.c_long(number), ctypes.c_int(command), given, ctypes.c_uint(len(attributes))))
    if result < 0:
        why = os.strerror(ctypes.get_errno())
        raise ConfinementError(f"the kernel's BPF program for devices cannot be {done}: {why}")
    return result
