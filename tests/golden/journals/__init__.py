"""Sealed journals and a store file that an earlier Bursar wrote. They must replay and audit; they are never rewritten.

``scenarios.jsonl.gz`` has a line for each scenario: its name, the digest of the last state, the lines of its journal.
``demo.db.gz`` is the store of the demo organisation, with a snapshot near its end.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent


class OldJournal(NamedTuple):
    scenario: str
    digest: str
    lines: list[bytes]


def read_journals() -> Iterator[OldJournal]:
    with gzip.open(FOLDER / "scenarios.jsonl.gz", "rt") as stream:
        for text in stream:
            found = json.loads(text)
            lines = [line.encode() for line in found["lines"]]
            yield OldJournal(f"{found['file']}: {found['scenario']}", found["digest"], lines)


def store_file(folder: Path) -> Path:
    """A copy of the store that can be opened and written to."""
    path = folder / "demo.db"
    path.write_bytes(gzip.decompress((FOLDER / "demo.db.gz").read_bytes()))
    return path
