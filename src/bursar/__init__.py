"""Bursar: who may use which GPUs now, why, and the proof.

``from bursar import Engine`` is the library's front door. It is opened on first use: importing the package alone loads
nothing of the core, so that the command line starts at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bursar._version import __version__

if TYPE_CHECKING:
    from bursar.engine.engine import Engine

__all__ = ["Engine", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Engine":
        from bursar.engine.engine import Engine  # noqa: PLC0415 loaded on first use

        return Engine
    raise AttributeError(f"module 'bursar' has no attribute {name!r}")
