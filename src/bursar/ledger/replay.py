"""Replay: from sealed journal lines to the state that wrote them, proven line by line.

Each line's hash must continue the chain and the digest after its effects must be the recorded one; the first line
that does not fit stops the replay with its number. No policy takes part: effects are repeated as they stand.

Specs, bindings and costs that stand in the journal with the same text become one shared object again, as they were.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast, final

import msgspec

from bursar.ledger.accounts import Account
from bursar.ledger.changes import (
    CHARGE,
    CLEAR,
    PLACE,
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
from bursar.ledger.claims import Binding, Claim, ClaimSpec, spec_from_record
from bursar.ledger.journal import FORMAT, GENESIS, chain
from bursar.ledger.kinds import (
    AMOUNTS,
    EFFECTS,
    LINES,
    Bindings,
    Bound,
    Cell,
    Charged,
    Closed,
    Dropped,
    Entered,
    Field,
    Limited,
    Opened,
    Stated,
    Wire,
)
from bursar.ledger.state import State
from bursar.vectors import Limits, Vector, from_amounts

_KEPT: Final = 65536
_SEAL: Final = len(GENESIS) + 4  # what follows the body of a line: ,"hash"]


class ReplayError(ValueError):
    """A journal that is damaged, was altered, or is newer than this version."""


@final
class Line:
    """One line of a journal. Effects and decision are decoded in full only for who asks."""

    __slots__ = ("at", "cause", "digest", "engine", "hash", "seq", "wire")

    def __init__(self, wire: Wire) -> None:
        self.wire: Final = wire
        self.seq: Final = wire.seq
        self.at: Final = wire.at
        self.engine: Final = wire.engine
        self.cause: Final[list[object]] = wire.cause
        self.digest: Final = int(wire.digest, 16)
        self.hash: Final = wire.hash

    @property
    def decision(self) -> list[object] | None:
        return cast("list[object] | None", msgspec.json.decode(self.wire.decision))

    @property
    def effects(self) -> list[list[object]]:
        return cast("list[list[object]]", msgspec.json.decode(msgspec.json.encode(self.wire.effects)))


def read_line(text: bytes, number: int) -> Line:
    """Decode one line; refuse what is no record or of a newer format."""
    try:
        wire = LINES.decode(text)
        if wire.format == FORMAT:
            return Line(wire)
        problem = _unknown_format(wire.format)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        problem = _wording(text, error)
    raise ReplayError(f"journal line {number}: {problem}")


def _unknown_format(found: object) -> str:
    return f"format {found} is not known here (this is format {FORMAT})"


def _wording(text: bytes, error: Exception) -> str:
    """What to tell about a line that could not be decoded: that it is newer, if it is."""
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return f"not a record: {error}"
    if isinstance(fields, list) and fields and fields[0] != FORMAT:
        return _unknown_format(fields[0])
    effects = fields[6] if isinstance(fields, list) and len(fields) == 9 else []
    for effect in effects if isinstance(effects, list) else []:
        if isinstance(effect, list) and effect and effect[0] not in EFFECTS:
            return f"effect {effect[0]!r} is not known here"
    return f"not a record: {error}"


def read_chain(lines: Iterable[bytes], head: str = GENESIS, seq: int = 0) -> Iterable[Line]:
    """Decode lines and check that each continues the chain."""
    number = seq
    for text in lines:
        number += 1
        line = read_line(text, number)
        head = chain(head, text[:-_SEAL] + b"]")
        if line.hash != head or line.seq != number:
            raise ReplayError(f"journal line {number}: does not continue the chain; it or one before it was altered")
        yield line


@final
class Replay:
    """Repeats lines on a state, and remembers what came before to share it."""

    __slots__ = ("bindings", "costs", "names", "specs", "state")

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self.specs: Final[dict[bytes, ClaimSpec]] = {}
        self.bindings: Final[dict[bytes, Binding]] = {}
        self.costs: Final[dict[bytes, Vector]] = {}
        self.names: Final[dict[str, str]] = {}

    def apply(self, line: Line) -> None:
        """Repeat the effects of a line and prove the digest, or change nothing."""
        state = self.state
        lane_a = state.lane_a
        lane_b = state.lane_b
        done: list[Change] = []
        try:
            for effect in line.wire.effects:
                change = self._change(effect)
                change.apply(state)
                done.append(change)
                change.digest(state)
            if state.digest != line.digest:
                raise ValueError("the state after it is not the recorded one")
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            while done:
                done.pop().revert(state)
            state.lane_a = lane_a
            state.lane_b = lane_b
            raise ReplayError(f"journal line {line.seq}: {error}") from error

    def _change(self, effect: object) -> Change:
        state = self.state
        if isinstance(effect, Bound):
            return self._bound(effect)
        if isinstance(effect, Stated):
            return SetState(state.claims[effect.uid], effect.state)
        if isinstance(effect, Bindings):
            bindings = tuple([self._binding(bytes(raw)) for raw in effect.bindings])
            return SetBindings(state.claims[effect.uid], bindings)
        if isinstance(effect, Entered):
            return AddClaim(self._claim(effect))
        if isinstance(effect, Dropped):
            return DropClaim(state.claims[effect.uid])
        if isinstance(effect, Charged):
            accounts = tuple([state.accounts[name] for name in effect.accounts])
            costs = self._costs([bytes(raw) for raw in effect.costs], len(accounts))
            return Charge(state.claims[effect.uid], accounts, costs, _known_mode(effect.mode))
        return self._rarer_change(effect)

    def _rarer_change(self, effect: object) -> Change:
        state = self.state
        if isinstance(effect, Cell):
            return PutCell(state, effect.policy, effect.table, effect.key, _plain(bytes(effect.value)))
        if isinstance(effect, Field):
            return self._field(effect)
        if isinstance(effect, Opened):
            return OpenAccount(Account(effect.policy, effect.name, effect.topic, effect.physical))
        if isinstance(effect, Closed):
            self.bindings.clear()  # an account that is opened again under its name is another one
            return CloseAccount(state.accounts[effect.name])
        if isinstance(effect, Limited):
            return SetLimits(state.accounts[effect.name], Limits(effect.listed, effect.stock))
        raise ValueError(f"effect {effect!r} is not known here")

    def _bound(self, effect: Bound) -> Charge:
        claim = self.state.claims[effect.uid]
        slot = effect.slot
        binding = claim.bindings[slot] if 0 <= slot < len(claim.bindings) else None
        if binding is None:
            raise ValueError(f"claim {claim.uid} has no binding {slot}")
        return Charge(claim, binding.accounts, binding.costs, _known_mode(effect.mode))

    def _claim(self, effect: Entered) -> Claim:
        return Claim(
            effect.uid, self._spec(bytes(effect.spec)), effect.created, self._name(effect.namespace), effect.name
        )

    def _field(self, effect: Field) -> SetField:
        claim = self.state.claims[effect.uid]
        text = bytes(effect.value)
        if effect.field == SPEC:
            return SetField(claim, SPEC, self._spec(text))
        value = msgspec.json.decode(text)
        if effect.field == PLACE and isinstance(value, str):
            value = self._name(value)
        elif effect.field == WAITS_FOR:
            value = frozen(value)
        return SetField(claim, effect.field, value)

    # Shared by their text

    def _name(self, name: str) -> str:
        if len(self.names) >= _KEPT:
            self.names.clear()
        return self.names.setdefault(name, name)

    def _spec(self, text: bytes) -> ClaimSpec:
        found = self.specs.get(text)
        if found is None:
            if len(self.specs) >= _KEPT:
                self.specs.clear()
            found = spec_from_record(cast("dict[str, object]", msgspec.json.decode(text)))
            self.specs[text] = found
        return found

    def _binding(self, text: bytes) -> Binding | None:
        found = self.bindings.get(text)
        if found is None and text != b"null":
            if len(self.bindings) >= _KEPT:
                self.bindings.clear()
            found = self._new_binding(cast("list[object]", msgspec.json.decode(text)))
            self.bindings[text] = found
        return found

    def _new_binding(self, record: list[object]) -> Binding:
        policy, names, costs, data = record
        accounts = tuple([self.state.accounts[str(name)] for name in cast("list[object]", names)])
        texts = [msgspec.json.encode(cost) for cost in cast("list[object]", costs)]
        return Binding(
            cast("str", policy), accounts, self._costs(texts, len(accounts)), cast("tuple[object, ...]", frozen(data))
        )

    def _costs(self, texts: list[bytes], count: int) -> tuple[Vector, ...]:
        """One cost for each account; a single one stands for all."""
        found = [self._cost(text) for text in texts]
        return tuple(found * count if len(found) == 1 else found)

    def _cost(self, text: bytes) -> Vector:
        found = self.costs.get(text)
        if found is None:
            if len(self.costs) >= _KEPT:
                self.costs.clear()
            found = from_amounts(AMOUNTS.decode(text))
            self.costs[text] = found
        return found


def _known_mode(mode: int) -> int:
    if mode not in (CHARGE, RELEASE, VACATE, RETURN, CLEAR):
        raise ValueError(f"a charge of mode {mode} is not known here")
    return mode


def _plain(text: bytes) -> object:
    return frozen(msgspec.json.decode(text))


def frozen(value: object) -> object:
    """Lists back to tuples, all the way down: JSON knows no tuples, cells hold nothing else."""
    if isinstance(value, list):
        return tuple([frozen(item) for item in value])
    return value
