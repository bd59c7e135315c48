"""The journal: one record per committed transaction, chained so that no alteration goes unnoticed.

A record is ``[format, seq, at, engine version, cause, decision, effects, digest]``. ``effects`` are the changes of
the transaction in plain form, so a replay repeats them without asking any policy; an empty uid stands for the claim of
the effect before (decisions are mostly about one claim). ``digest`` is that of the state after them. A caller with
objects beside the ledger may have the last record of a batch vouch for them, by an effect that changes nothing; such a
record has format 2. Records are kept as the objects of the transaction and are encoded and hashed (``sealed``) only
when they are taken: that costs more than the decision itself.

The chain: each sealed line carries a hash over the line before it and its own content. ``journal_lines.py`` reads
the lines back.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, cast, final

import msgspec
from mypy_extensions import mypyc_attr

from bursar.ledger.changes import Change
from bursar.ledger.claim_changes import DropClaim
from bursar.ledger.state import Account

FORMAT: Final = 1
VOUCHING: Final = 2  # the format of a record that vouches for objects
GENESIS: Final = "0" * 32


@final
@mypyc_attr(acyclic=True)
class Record:
    """One committed transaction."""

    __slots__ = ("at", "cause", "changes", "decision", "digest", "engine", "seq")

    def __init__(
        self,
        seq: int,
        at: int,
        engine: str,
        cause: tuple[object, ...],
        decision: object,
        changes: tuple[Change, ...],
        digest: int,
    ) -> None:
        self.seq: Final = seq
        self.at: Final = at
        self.engine: Final = engine
        self.cause: Final = cause
        self.decision: Final = decision  # None or an object with record()
        self.changes: Final = changes
        self.digest: Final = digest

    def touched(self) -> list[Account]:
        """Accounts whose headroom may have changed, each once, in order of first touch."""
        seen: dict[str, Account] = {}
        for change in self.changes:
            for account in change.touches():
                seen.setdefault(account.name, account)
        return list(seen.values())

    def plain(self) -> list[object]:
        decision = None if self.decision is None else cast("Recordable", self.decision).record()
        return [
            FORMAT,
            self.seq,
            self.at,
            self.engine,
            list(self.cause),
            decision,
            self._effects(),
            f"{self.digest:016x}",
        ]

    def _effects(self) -> list[object]:
        """The changes in plain form; a claim is named where the change before is not about it."""
        effects: list[object] = []
        last = ""
        for change in self.changes:
            effect = change.record()
            subject = change.subject()
            if subject and subject == last:
                effect[1] = ""
            last = "" if isinstance(change, DropClaim) else subject  # the next claim under its uid is another one
            effects.append(effect)
        return effects


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Recordable:
    """Has a plain form for a journal record."""

    def record(self) -> list[object]:
        raise RuntimeError("a recordable must have a plain form")


@final
class Journal:
    """The records of a ledger, in order; sealed on demand."""

    __slots__ = ("head", "records", "sealed_to")

    def __init__(self, head: str = GENESIS, sealed_to: int = 0) -> None:
        self.records: list[Record] = []  # committed, not yet taken
        self.head: str = head  # hash of the last sealed line
        self.sealed_to: int = sealed_to  # its sequence number

    def append(self, record: Record) -> None:
        self.records.append(record)

    def take(self, voucher: list[object] | None = None) -> list[bytes]:
        """The records since the last call as sealed lines; the journal forgets them.

        ``voucher``: what the last of them says of objects: their sum, the number of a change, and its hash.
        """
        lines: list[bytes] = []
        head = self.head
        sealed_to = self.sealed_to
        if voucher is not None and not self.records:
            raise ValueError("there is no record that could vouch for objects")
        for record in self.records:
            plain = record.plain()
            if voucher is not None and record is self.records[-1]:
                plain[0] = VOUCHING
                cast("list[object]", plain[6]).append(["objects", *voucher])
            body = msgspec.json.encode(plain)
            head = chain(head, body)
            sealed_to = record.seq
            lines.append(body[:-1] + b',"' + head.encode() + b'"]')
        # Only now: a record that cannot be written must not cost the ones before it.
        self.head = head
        self.sealed_to = sealed_to
        self.records = []
        return lines

    def drop(self) -> None:
        """Forget the records since the last call, unsealed: for users without a journal."""
        self.records = []


def chain(head: str, body: bytes) -> str:
    """The hash that ties a record to all before it."""
    return blake2b(head.encode() + body, digest_size=16).hexdigest()
