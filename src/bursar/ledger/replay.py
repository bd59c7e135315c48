"""Replay: from sealed journal lines to the state that wrote them, proven line by line.

Each line's hash must continue the chain and the digest after its effects must be the recorded one; the first line
that does not fit stops the replay with its number. No policy takes part: effects are repeated as they stand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast, final

import msgspec

from bursar.ledger.accounts import Account
from bursar.ledger.changes import (
    CHARGE,
    CLEAR,
    RELEASE,
    RETURN,
    SPEC,
    VACATE,
    WAITS_FOR,
    AddClaim,
    Change,
    Charge,
    CloseAccount,
    DropClaim,
    OpenAccount,
    PutCell,
    SetBindings,
    SetField,
    SetLimits,
    SetState,
)
from bursar.ledger.claims import Binding, claim_from_record, spec_from_record
from bursar.ledger.journal import FORMAT, GENESIS, chain
from bursar.ledger.state import State
from bursar.vectors import Limits, Vector, from_amounts


class ReplayError(ValueError):
    """A journal that is damaged, was altered, or is newer than this version."""


@final
class Line:
    """One decoded journal line."""

    __slots__ = ("at", "cause", "decision", "digest", "effects", "engine", "hash", "seq")

    def __init__(self, fields: list[object]) -> None:
        self.seq: Final = _number(fields[1])
        self.at: Final = _number(fields[2])
        self.engine: Final = _text(fields[3])
        self.cause: Final = _list(fields[4])
        self.decision: Final = None if fields[5] is None else _list(fields[5])
        self.effects: Final = [_list(effect) for effect in _list(fields[6])]
        self.digest: Final = int(_text(fields[7]), 16)
        self.hash: Final = _text(fields[8])


def _number(value: object) -> int:
    if isinstance(value, int):
        return value
    raise TypeError(f"{value!r} is not a number")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"{value!r} is not text")


def _list(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    raise TypeError(f"{value!r} is not a list")


def read_line(text: bytes, number: int) -> Line:
    """Decode one line; refuse what is no record or of a newer format."""
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReplayError(f"journal line {number}: not a record: {error}") from error
    if not isinstance(fields, list) or not fields:
        raise ReplayError(f"journal line {number}: not a record")
    if fields[0] != FORMAT:
        raise ReplayError(f"journal line {number}: format {fields[0]} is not known here (this is format {FORMAT})")
    if len(fields) != 9:
        raise ReplayError(f"journal line {number}: {len(fields)} fields instead of 9")
    try:
        return Line(fields)
    except (TypeError, ValueError) as error:
        raise ReplayError(f"journal line {number}: not a record: {error}") from error


def read_chain(lines: Iterable[bytes], head: str = GENESIS, seq: int = 0) -> Iterable[Line]:
    """Decode lines and check that each continues the chain."""
    number = seq
    for text in lines:
        number += 1
        line = read_line(text, number)
        body = text[: text.rfind(b',"')] + b"]"
        head = chain(head, body)
        if line.hash != head or line.seq != number:
            raise ReplayError(f"journal line {number}: does not continue the chain; it or one before it was altered")
        yield line


def apply_line(state: State, line: Line) -> None:
    """Repeat the effects of a line and prove the digest, or change nothing."""
    lane_a = state.lane_a
    lane_b = state.lane_b
    done: list[Change] = []
    try:
        for effect in line.effects:
            change = change_from_record(state, effect)
            change.apply(state)
            done.append(change)
            change.digest(state)
        if state.digest != line.digest:
            raise ValueError("the state after it is not the recorded one")
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        while done:
            done.pop().revert(state)
        state.lane_a = lane_a
        state.lane_b = lane_b
        raise ReplayError(f"journal line {line.seq}: {error}") from error


def change_from_record(state: State, effect: list[object]) -> Change:
    kind = effect[0]
    if kind == "charge":
        return _charge(state, effect)
    if kind == "claim":
        return AddClaim(claim_from_record(effect[1:]))
    if kind == "drop":
        return DropClaim(state.claims[_text(effect[1])])
    if kind == "state":
        return SetState(state.claims[_text(effect[1])], cast("int", effect[2]))
    if kind == "bind":
        bindings = tuple(_binding(state, b) for b in cast("list[object]", effect[2]))
        return SetBindings(state.claims[_text(effect[1])], bindings)
    if kind == "field":
        return _field(state, effect)
    if kind == "cell":
        return PutCell(state, _text(effect[1]), _text(effect[2]), _text(effect[3]), frozen(effect[4]))
    return _account_change(state, effect)


def _account_change(state: State, effect: list[object]) -> Change:
    kind = effect[0]
    if kind == "open":
        return OpenAccount(Account(_text(effect[1]), _text(effect[2]), _text(effect[3]), bool(effect[4])))
    if kind == "close":
        return CloseAccount(state.accounts[_text(effect[1])])
    if kind == "limits":
        limits = Limits(cast("dict[str, int]", effect[2]), bool(effect[3]))
        return SetLimits(state.accounts[_text(effect[1])], limits)
    raise ValueError(f"effect {kind!r} is not known here")


def _charge(state: State, effect: list[object]) -> Charge:
    mode = _number(effect[1])
    if mode not in (CHARGE, RELEASE, VACATE, RETURN, CLEAR):
        raise ValueError(f"a charge of mode {mode} is not known here")
    accounts = tuple(state.accounts[_text(name)] for name in _list(effect[3]))
    return Charge(state.claims[_text(effect[2])], accounts, _costs(effect[4]), mode)


def _costs(record: object) -> tuple[Vector, ...]:
    return tuple(from_amounts(cost) for cost in cast("list[dict[str, int]]", record))


def _binding(state: State, record: object) -> Binding | None:
    if record is None:
        return None
    policy, names, costs, data = cast("list[object]", record)
    accounts = tuple(state.accounts[_text(name)] for name in cast("list[object]", names))
    return Binding(_text(policy), accounts, _costs(costs), cast("tuple[object, ...]", frozen(data)))


def _field(state: State, effect: list[object]) -> SetField:
    claim = state.claims[_text(effect[1])]
    field = cast("int", effect[2])
    value = effect[3]
    if field == SPEC:
        value = spec_from_record(cast("dict[str, object]", value))
    elif field == WAITS_FOR:
        value = frozen(value)
    return SetField(claim, field, value)


def frozen(value: object) -> object:
    """Lists back to tuples, all the way down: JSON knows no tuples, cells hold nothing else."""
    if isinstance(value, list):
        return tuple([frozen(item) for item in value])
    return value
