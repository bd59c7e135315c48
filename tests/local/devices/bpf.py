"""An interpreter for the BPF instructions of device programs, so that each verdict can be read without a kernel."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_COMPARE = {
    0x10: lambda left, right: left == right,
    0x20: lambda left, right: left > right,
    0x30: lambda left, right: left >= right,
    0x50: lambda left, right: left != right,
    0xA0: lambda left, right: left < right,
    0xB0: lambda left, right: left <= right,
}


def verdict(program: bytes, kind: int, major: int, minor: int, access: int = 6) -> int:
    """What the program returns for one open; an error if it does anything that a verifier would refuse."""
    context = struct.pack("<III", access << 16 | kind, major, minor)
    registers: dict[int, int] = {1: 0}
    at = 0
    for _ in range(len(program) // 8):  # jumps go forward only, so that is the longest run
        code, sides, offset, constant = struct.unpack_from("<BBhi", program, at * 8)
        target, source = sides & 15, sides >> 4
        at += 1
        if code == 0x95:
            return registers[0]
        if code == 0x61:
            registers[target] = int(struct.unpack_from("<I", context, registers[source] + offset)[0])
        elif code == 0x57:
            registers[target] &= constant
        elif code == 0xB7:
            registers[target] = constant
        elif code & 0x0F == 0x05 and code & 0xF0 in _COMPARE:
            assert offset >= 0, "a jump back"
            at += offset if _COMPARE[code & 0xF0](registers[target], constant) else 0
        else:
            raise AssertionError(f"unknown instruction {code:#x} at {at - 1}")
    raise AssertionError("the program does not end")


def kernel_allows(cgroup: str) -> bool:
    """Whether the shortest program of this kind, which allows everything, can be attached to the cgroup here."""
    if not cgroup or platform.machine() != "x86_64":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(struct.pack("<BBhiBBhi", 0xB7, 0, 0, 1, 0x95, 0, 0, 0), 16)
    licence = ctypes.create_string_buffer(b"GPL")
    asked = struct.pack("<IIQQ", 15, 2, ctypes.addressof(code), ctypes.addressof(licence)).ljust(72, b"\0")
    loading = ctypes.create_string_buffer(asked, len(asked))
    program = library.syscall(321, 5, loading, len(asked))
    if program < 0:
        return False
    folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    attaching = ctypes.create_string_buffer(struct.pack("<5I", folder, program, 6, 2, 0), 20)
    attached = library.syscall(321, 8, attaching, 20)
    os.close(folder)
    os.close(program)
    return bool(attached == 0)
