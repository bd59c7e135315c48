"""Faults to order: which requests fail, how, and how often."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from tests.kube.fakeapi.refusals import Refusal


@dataclass(slots=True)
class Fault:
    """What happens to requests whose ``METHOD path?query`` matches; the first ``times`` of them.

    ``code``: refused with it (``plain``: in plain text, as filters before the API do). ``cut``: the connection is
    closed without an answer. ``hang``: seconds before anything else. With ``carried_out`` the request takes effect
    first, and only its answer is lost or late.
    """

    pattern: str
    code: int = 0
    reason: str = ""
    message: str = "ordered by the test"
    retry_after: int = 0
    cut: bool = False
    hang: float = 0.0
    plain: bool = False
    carried_out: bool = False
    times: int = 1

    def matches(self, line: str) -> bool:
        if self.times <= 0 or not re.search(self.pattern, line):
            return False
        self.times -= 1
        return True

    async def strike(self) -> None:
        """Hang, then refuse. Cutting is the server's business."""
        if self.hang:
            await asyncio.sleep(self.hang)
        if self.code:
            raise Refusal(self.code, self.message, reason=self.reason, retry_after=self.retry_after)
