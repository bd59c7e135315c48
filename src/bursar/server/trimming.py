"""Giving memory back to the system that only a start or a snapshot needed.

The C library keeps what was freed for itself, and a server that was just started has freed as much as it holds.
"""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Where the C library can be told to; elsewhere it decides by itself."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
