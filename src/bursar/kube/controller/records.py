"""What the controller writes down on pods so that another one can take over: admissions and holds, as JSON.

A record that cannot be read is none: it was forged (the guards refuse that) or written by a version that is not known.
The pod then counts by what is seen of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from bursar.kube.controller.names import ADMISSION, HOLD
from bursar.kube.controller.placement import Orders
from bursar.ledger.claims import Claim

T = TypeVar("T")


class AdmissionRecord(Struct, frozen=True, omit_defaults=True):
    """Why a pod may run: the decision, what it is charged for, and whose place it took ((uid, owner) of each)."""

    seq: int
    term: int
    place: str = ""
    pinned: bool = False
    fenced: bool = False  # kept off the GPU nodes
    bindings: tuple[object, ...] = ()
    displaced: tuple[tuple[str, str], ...] = ()


class HoldRecord(Struct, frozen=True, omit_defaults=True):
    """A place promised to a pod that still waits, and who must leave for it ((uid, owner) of each)."""

    place: str
    victims: tuple[tuple[str, str], ...] = ()


_admission = msgspec.json.Decoder(AdmissionRecord)
_hold = msgspec.json.Decoder(HoldRecord)


def admission_of(annotations: Mapping[str, str]) -> AdmissionRecord | None:
    return _read(_admission, annotations.get(ADMISSION))


def hold_of(annotations: Mapping[str, str]) -> HoldRecord | None:
    return _read(_hold, annotations.get(HOLD))


def admission_record(
    claim: Claim, seq: int, term: int, orders: Orders, displaced: tuple[tuple[str, str], ...]
) -> AdmissionRecord:
    bindings = tuple(binding.record() for binding in claim.bindings if binding is not None)
    return AdmissionRecord(seq, term, claim.place, orders.pin, orders.keep_off, bindings, displaced)


def written(record: Struct) -> str:
    return msgspec.json.encode(record).decode()


def _read(decoder: msgspec.json.Decoder[T], text: str | None) -> T | None:
    if text is None:
        return None
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
