"""The journals of a controller: one store file per leader term, for `bursar audit` and `bursar history`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from bursar.store.store import Batch, GroupCommitter, Store


class TermJournal:
    """Takes the lines of one term, and writes them in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self._committer = GroupCommitter(Store.create(path))

    def keep(self, lines: list[bytes], now: int) -> None:
        self._committer.submit(Batch(lines, (), now))

    def close(self) -> None:
        self._committer.close()


def journals_in(folder: Path, number: int) -> TermJournal:
    """Open a journal for a term that begins now. The name holds the time: a leader may rebuild its ledger in a term."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    return TermJournal(folder / f"term-{number}-{begun}.db")
