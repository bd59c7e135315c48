"""Blocking work beside the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from anyio import to_thread

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


async def in_thread(work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """Run it in a worker thread. A request that ran out of time does not wait for it any more."""
    return await to_thread.run_sync(work, *arguments, abandon_on_cancel=True)
