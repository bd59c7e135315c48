"""The journals of a controller: a store file for each term, which `bursar audit` proves and `bursar history` reads."""

from datetime import UTC, datetime
from pathlib import Path

from bursar.store.batches import Batch
from bursar.store.committer import GroupCommitter
from bursar.store.store import Store


class TermJournal:
    """Takes the lines of one term, and writes them in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self._committer = GroupCommitter(Store.create(path))

    def keep(self, lines: list[bytes], now: int) -> None:
        self._committer.submit(Batch(lines, (), now))

    def close(self) -> None:
        self._committer.close()


def journals_in(folder: Path, number: int) -> TermJournal:
    """A journal for a term that begins now. One leader may build its ledger anew within a term, so the time counts."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    return TermJournal(folder / f"term-{number}-{begun}.db")
