"""The auditor's child process: reads record numbers from stdin, and answers how far the journal is right.

It ends when its pipes are closed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from bursar.audit.auditor import AuditError, Auditor
from bursar.server.object_audit import ObjectAudit
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


def begun(store: Store, auditor: Auditor) -> ObjectAudit:
    """Brings the auditor to the first record of the store; pruned records are replaced by the snapshot after them."""
    objects = ObjectAudit(store)
    if store.pruned_to:
        query = "SELECT state FROM snapshots WHERE seq >= ? ORDER BY seq LIMIT 1"
        auditor.begin(unpacked(store.rows(query, store.pruned_to)[0][0]))
        objects.extend(auditor.seq)
        objects.after(auditor.seq, auditor.objects)
    return objects


def audit(store: Store, auditor: Auditor, objects: ObjectAudit, upto: int) -> AuditVerdict:
    last = min(upto, auditor.seq + _AT_ONCE)
    try:
        if last > auditor.seq:
            objects.extend(last)
            for line in store.load_journal(auditor.seq + 1, last):
                auditor.feed(line)
                objects.after(auditor.seq, auditor.objects)
    except AuditError as error:
        return AuditVerdict(error.seq - 1, str(error))
    return AuditVerdict(auditor.seq)


def main(path: Path) -> None:
    os.nice(_NICER)
    with Store.open(path, read_only=True) as store:
        auditor = Auditor(_UIDS_KEPT)
        objects = begun(store, auditor)
        for asked in sys.stdin.buffer:
            sys.stdout.buffer.write(msgspec.json.encode(audit(store, auditor, objects, int(asked))) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    run_child(lambda: main(Path(sys.argv[1])))
