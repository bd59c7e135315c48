"""The auditor's child process: reads record numbers from stdin, and answers how far the journal is right.

It ends when its pipes are closed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from bursar.audit.auditor import AuditError, Auditor
from bursar.store.snapshots import unpacked
from bursar.store.store import Store
from bursar.store.verify import run_child

_AT_ONCE = 5_000  # records between two answers
_UIDS_KEPT = 1_000_000
_NICER = 5  # deciding goes before checking


class AuditVerdict(msgspec.Struct, frozen=True):
    """How far the auditor came, and what is wrong with the record after that, if something is."""

    audited: int
    problem: str = ""


def begun(store: Store) -> Auditor:
    """An auditor at the first record of the store; pruned records are replaced by the snapshot after them."""
    auditor = Auditor(_UIDS_KEPT)
    if store.pruned_to:
        query = "SELECT state FROM snapshots WHERE seq >= ? ORDER BY seq LIMIT 1"
        auditor.begin(unpacked(store.rows(query, store.pruned_to)[0][0]))
    return auditor


def audit(store: Store, auditor: Auditor, upto: int) -> AuditVerdict:
    last = min(upto, auditor.seq + _AT_ONCE)
    try:
        if last > auditor.seq:
            for line in store.load_journal(auditor.seq + 1, last):
                auditor.feed(line)
    except AuditError as error:
        return AuditVerdict(auditor.seq, str(error))
    return AuditVerdict(auditor.seq)


def main(path: Path) -> None:
    os.nice(_NICER)
    with Store.open(path, read_only=True) as store:
        auditor = begun(store)
        for asked in sys.stdin.buffer:
            sys.stdout.buffer.write(msgspec.json.encode(audit(store, auditor, int(asked))) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    run_child(lambda: main(Path(sys.argv[1])))
