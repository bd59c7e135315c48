"""Waiting for things that come about on their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def eventually(condition: Callable[[], object], within: float = 60.0) -> None:
    """Return as soon as the condition holds; fail when it does not in time."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 what is waited for sets no event
            await asyncio.sleep(0.005)
