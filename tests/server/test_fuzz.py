"""The API fuzzed from its own document: no 5xx, answers as the document says, and a refusal changes nothing.

A short run with a fixed seed. The long one: ``python -m tests.server.fuzz --examples 500``.
"""

from __future__ import annotations

from pathlib import Path

from tests.server.fuzz import fuzz


def test_the_api_from_its_document(tmp_path: Path) -> None:
    found = fuzz(tmp_path / "bursar.db", examples=12, seed=5)
    assert found.problems == []
    assert found.requests > 100
