"""The code blocks of the page "Write a policy"."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "development" / "write-a-policy.md"


def block(language: str) -> str:
    """The only block of the page in that language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(found)
