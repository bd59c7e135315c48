"""The tables of rows in the READMEs name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("policy", sorted(path.parent.name for path in HERE.glob("*/README.md")))
def test_every_named_test_exists(policy: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (HERE / policy / "README.md").read_text()))
    there = {
        name for path in (HERE / policy).glob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert named
    assert named - there == set()
