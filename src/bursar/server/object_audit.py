"""The audit of what stands beside the journal: objects, their history, their manifests and the log of changes.

A record of the journal vouches for them as they are after it, by the sum of a hash of each object's row. A row has the
hash of its manifest. So the history of the objects is summed up again, entry by entry, and compared wherever a record
vouches. Entries that an older version of Bursar wrote have no such record: they are counted, and named as not covered.

After pruning the sum begins with the snapshot's, which must be that of the objects which are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from bursar.audit.auditor import AuditError
from bursar.store.store import Store

_SUMS: Final = 1 << 128
_CHANGE: Final = "change/{:016}"
_ENTRIES: Final = (
    "SELECT id, seq, kind, key, version, body, manifest FROM object_history WHERE id > ? AND seq <= ? ORDER BY id"
)


class _MarkedRecord(msgspec.Struct, frozen=True):
    """What the audit reads of an object's record."""

    mark: bytes = b""


def row_number(kind: str, key: str, version: int, body: bytes) -> int:
    """What an object adds to the sum; as ``sim.persistence.object_number``, of which this is independent."""
    text = b"%d %d %s%s %d %s" % (len(kind), len(key), kind.encode(), key.encode(), version, body)
    return int.from_bytes(blake2b(text, digest_size=16).digest(), "little")


def change_hash(text: str) -> str:
    """The hash of a logged change."""
    return blake2b(text.encode(), digest_size=16).hexdigest()


class ObjectAudit:
    """Follows the history of the objects beside an auditor of the journal."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._numbers: dict[int, int] = {}  # by a hash of kind and key
        self._sum = 0
        self._entry = 0  # the last one that was read
        self._newest = 0  # version of an object, of the records before
        self._rows: Iterator[tuple[Any, ...]] = iter(())
        self._next: tuple[Any, ...] | None = None
        self.entries = 0
        self.uncovered: list[list[int]] = []  # from one record to another

    def extend(self, last: int) -> None:
        """Go on up to a record of the journal."""
        self._rows = self._store.stream(_ENTRIES, self._entry, last)
        self._next = next(self._rows, None)

    def after(self, seq: int, voucher: Sequence[Any]) -> None:
        """The auditor is behind a record, which vouches for this; ``AuditError`` if it is not true."""
        newest, count, bare = self._newest, 0, False
        while self._next is not None and self._next[1] <= seq:
            bare = not self._take(self._next, newest, seq) or bare
            count += 1
            self._next = next(self._rows, None)
        self.entries += count
        if not voucher:
            if count:
                self._note_uncovered(seq)
            return
        total, number, hashed = voucher
        found = f"{self._sum % _SUMS:032x}"
        if found != total:
            detail = f"vouches for objects with the sum {total}, but those in the file have {found}"
            raise AuditError(seq, f"{detail}: an object, or its history, was altered")
        if bare:
            self._note_uncovered(seq)
        if number:
            self._check_change(seq, number, hashed)

    def _take(self, row: tuple[Any, ...], newest: int, seq: int) -> bool:
        """Add an entry; whether its manifest is covered as well."""
        self._entry, _, kind, key, version, body, manifest = row
        self._newest = max(self._newest, version)
        place = hash((kind, key))
        self._sum -= self._numbers.pop(place, 0)
        if body is None:
            return True
        number = self._numbers[place] = row_number(kind, key, version, bytes(body))
        self._sum += number
        mark = msgspec.json.decode(body, type=_MarkedRecord).mark
        if mark and manifest > newest and mark != self._mark_of(manifest):
            raise AuditError(seq, f"the manifest of {kind} {key} in the file is not the one that was applied")
        return bool(mark)

    def _mark_of(self, manifest: int) -> bytes:
        found = self._store.rows("SELECT text FROM manifests WHERE number = ?", manifest)
        return blake2b(found[0][0], digest_size=16).digest() if found else b""

    def _check_change(self, seq: int, number: int, hashed: str) -> None:
        text = self._store.meta(_CHANGE.format(number))
        if text is None and seq <= self._store.pruned_to + 1:
            return  # pruned with the record before
        if text is None or change_hash(text) != hashed:
            state = "is missing" if text is None else "is not what it was"
            raise AuditError(seq, f"change {number} in the log of changes {state}")

    def _note_uncovered(self, seq: int) -> None:
        if self.uncovered and self.uncovered[-1][1] == seq - 1:
            self.uncovered[-1][1] = seq
        else:
            self.uncovered.append([seq, seq])

    def check_present(self, seq: int) -> None:
        """``AuditError`` unless each object is as its history has it last. Asks the file as it is now."""
        altered = self._store.rows(
            "SELECT kind, key FROM objects AS now WHERE NOT EXISTS (SELECT 1 FROM object_history AS past"
            " WHERE past.kind = now.kind AND past.key = now.key AND past.version = now.version"
            " AND past.body = now.body) LIMIT 1"
        )
        if altered:
            kind, key = altered[0]
            raise AuditError(seq, f"{kind} {key} in the file is not what its history has last")
        newest = self._store.rows("SELECT coalesce(max(id), 0), (SELECT count(*) FROM objects) FROM object_history")[0]
        if newest[0] == self._entry and newest[1] != len(self._numbers):
            raise AuditError(seq, f"the file has {newest[1]} objects, but their history has {len(self._numbers)}")
