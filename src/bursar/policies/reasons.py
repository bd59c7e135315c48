"""Reasons: the short, stable codes that people meet, with what they mean and what helps.

Each policy declares its own in ``reasons.py`` of its folder; docs/reasons.md is made from them.
"""

from __future__ import annotations

from typing import Final, final

RESOURCE: Final = "<resource>"


@final
class Reason:
    """A code; ``<resource>`` at its end stands for the name of any resource."""

    def __init__(self, code: str, means: str, helps: str) -> None:
        self.code: Final = code
        self.means: Final = means
        self.helps: Final = helps

    def covers(self, code: str) -> bool:
        """Whether a code that somebody met is this one."""
        if not self.code.endswith(RESOURCE):
            return code == self.code
        start = self.code[: -len(RESOURCE)]
        return code.startswith(start) and len(code) > len(start)
