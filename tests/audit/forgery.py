"""A clever forger: alters journals and makes everything that can be made to fit again fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from bursar.audit.auditor import AuditError, Auditor
from bursar.ledger.journal import GENESIS, chain

Record = list[Any]
Path = tuple[int | str, ...]


def resealed(lines: list[bytes], at: int, forged: Record) -> list[bytes]:
    """The journal with another record at a position, and the chain made right from there on."""
    head = GENESIS if at == 0 else msgspec.json.decode(lines[at - 1])[8]
    records = [forged, *[msgspec.json.decode(line) for line in lines[at + 1 :]]]
    sealed = lines[:at]
    for record in records:
        body = msgspec.json.encode(record[:8])
        head = chain(head, body)
        sealed.append(body[:-1] + b',"' + head.encode() + b'"]')
    return sealed


def redigested(lines: list[bytes], change: Callable[[list[Record]], None]) -> list[bytes]:
    """The journal with changed records, and all digests and the chain made right."""
    records = [msgspec.json.decode(line) for line in lines]
    change(records)
    books, head, sealed = Auditor(), GENESIS, []
    for record in records:
        books.apply(record[6])
        body = msgspec.json.encode([*record[:7], books.digest])
        head = chain(head, body)
        sealed.append(body[:-1] + b',"' + head.encode() + b'"]')
    return sealed


def first_lie(lines: list[bytes]) -> AuditError | None:
    auditor = Auditor()
    try:
        for line in lines:
            auditor.feed(line)
    except AuditError as error:
        return error
    return None


def numbers(value: object, path: Path = ()) -> Iterator[Path]:
    """Where the whole numbers of a record are."""
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield path
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from numbers(item, (*path, place))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, (*path, key))


def altered(record: Record, path: Path, step: int) -> Record:
    copy = msgspec.json.decode(msgspec.json.encode(record))
    inner: Any = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] += step
    return list(copy)
