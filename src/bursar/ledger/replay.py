"""Replay: from sealed journal lines to the state that wrote them, verified line by line.

Each line's hash must continue the chain, and the digest after its effects must be the recorded one; the first line
that fails stops the replay with its number. No policy takes part: effects are repeated as recorded.

Specs, bindings and costs with equal text in the journal become one shared object again, and so do names of namespaces,
places and policies.

``Provenance`` gathers what a state does not have: who is charged in an account, and which policy has a table. Watchers
build their indexes from both, so snapshots must contain it.
"""

from __future__ import annotations

from sys import intern
from typing import Final, cast, final

import msgspec

from bursar.ledger.changes import (
    CHARGE,
    CLEAR,
    RELEASE,
    RETURN,
    VACATE,
    Change,
    Charge,
    CloseAccount,
    OpenAccount,
    PutCell,
    SetLimits,
)
from bursar.ledger.claim_changes import PLACE, SPEC, WAITS_FOR, AddClaim, DropClaim, SetBindings, SetField, SetState
from bursar.ledger.claims import Binding, Claim, ClaimSpec, costs_record, spec_from_record
from bursar.ledger.journal import FORMAT, GENESIS, VOUCHING, chain
from bursar.ledger.journal_lines import (
    AMOUNTS,
    EFFECT_LISTS,
    EFFECTS,
    LINES,
    BindingsEffect,
    Bound,
    Cell,
    Charged,
    Closed,
    Dropped,
    Effect,
    Entered,
    FieldEffect,
    JournalLine,
    Limited,
    ObjectVoucher,
    Opened,
    Stated,
)
from bursar.ledger.state import Account, State
from bursar.resources import Limits, Vector, from_amounts


@final
class Provenance:
    """Who is charged where, and which policy has each table."""

    __slots__ = ("charges", "tables")

    def __init__(self) -> None:
        self.charges: Final[dict[str, dict[tuple[str, Vector], tuple[int, int]]]] = {}  # uid: net (used, busy)
        self.tables: Final[dict[str, str]] = {}  # table: policy

    def note(self, change: Change) -> None:
        """A change was made."""
        if isinstance(change, Charge):
            self._charged(change)
        elif isinstance(change, PutCell):
            self.tables.setdefault(change.table, change.policy)

    def _charged(self, change: Charge) -> None:
        uid = change.claim.uid
        owed = self.charges.setdefault(uid, {})
        for account, cost in zip(change.accounts, change.costs, strict=True):
            key = (account.name, cost)
            used, busy = owed.pop(key, (0, 0))
            used += int(change.used)
            busy += int(change.busy) if account.physical else int(change.used)
            if used or busy:
                owed[key] = (used, busy)
        if not owed:
            del self.charges[uid]

    def charge_effects(self, uid: str) -> list[list[object]]:
        """The charges of a claim, as effects."""
        by_mode: dict[int, tuple[list[object], list[Vector]]] = {}
        for (account, cost), (used, busy) in self.charges.get(uid, {}).items():
            for mode in _modes(used, busy):
                names, costs = by_mode.setdefault(mode, ([], []))
                names.append(account)
                costs.append(cost)
        return [["charge", uid, mode, names, costs_record(tuple(costs))] for mode, (names, costs) in by_mode.items()]


def _modes(used: int, busy: int) -> list[int]:
    """The charges that bring the two sums of an account there from nothing."""
    both = [CHARGE] * busy if busy > 0 else [RELEASE] * -busy
    return both + ([RETURN] * (used - busy) if used > busy else [VACATE] * (busy - used))


_KEPT: Final = 65536  # texts remembered of each sort
_BOUND: Final = 0
_STATED: Final = 1
_BINDINGS: Final = 2
_ENTERED: Final = 3
_DROPPED: Final = 4
_RARER: Final = 5
_SEAL: Final = len(GENESIS) + 4  # what follows the body of a line: ,"hash"]


class ReplayError(ValueError):
    """A journal that is damaged, was altered, or is newer than this version."""


def read_line(text: bytes, number: int) -> JournalLine:
    """Decode one line; refuses text that is no record or of a newer format."""
    try:
        line = LINES.decode(text)
        if line.format in {FORMAT, VOUCHING}:
            return line
        problem = _unknown_format(line.format)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        problem = _wording(text, error)
    raise ReplayError(f"journal line {number}: {problem}")


def _unknown_format(found: object) -> str:
    return f"format {found} is not known here (this is format {VOUCHING})"


def _wording(text: bytes, error: Exception) -> str:
    """The message for a line that could not be decoded: that it is newer, if it is."""
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return f"not a record: {error}"
    if isinstance(fields, list) and fields and fields[0] not in {FORMAT, VOUCHING}:
        return _unknown_format(fields[0])
    effects = fields[6] if isinstance(fields, list) and len(fields) == 9 else []
    for effect in effects if isinstance(effects, list) else []:
        if isinstance(effect, list) and effect and effect[0] not in EFFECTS:
            return f"effect {effect[0]!r} is not known here"
    return f"not a record: {error}"


def read_numbered(text: bytes, number: int) -> JournalLine:
    """Decode the line with that number; its chain hash is verified elsewhere."""
    line = read_line(text, number)
    if line.seq != number:
        raise ReplayError(f"journal line {number}: says that it is line {line.seq}")
    return line


def read_next(text: bytes, head: str, number: int) -> JournalLine:
    """Decode the line with that number, and check that it continues the chain from the hash before it."""
    line = read_line(text, number)
    if line.hash != chain(head, text[:-_SEAL] + b"]") or line.seq != number:
        raise ReplayError(f"journal line {number}: does not continue the chain; it or one before it was altered")
    return line


@final
class Replay:
    """Repeats lines on a state, and shares equal parts among them."""

    __slots__ = ("bindings", "costs", "kinds", "last", "objects", "provenance", "specs", "state")

    def __init__(self, state: State, provenance: Provenance | None = None) -> None:
        self.state: Final = state
        self.provenance: Final = provenance
        self.last: Claim | None = None  # whom the effect before was about
        self.objects: str = ""  # the sum of the objects, as the last record vouches for it that does
        self.specs: Final[dict[bytes, ClaimSpec]] = {}
        self.bindings: Final[dict[bytes, Binding]] = {}
        self.costs: Final[dict[bytes, Vector]] = {}
        self.kinds: Final[dict[type, int]] = {
            Bound: _BOUND,
            Stated: _STATED,
            BindingsEffect: _BINDINGS,
            Entered: _ENTERED,
            Dropped: _DROPPED,
            **dict.fromkeys((Charged, Cell, FieldEffect, Opened, Closed, Limited), _RARER),
        }

    def apply(self, line: JournalLine) -> list[Change]:
        """Repeat the effects of a line and verify the digest, or change nothing. Returns the changes."""
        return self._repeat(line.changes, line.digest, line.seq)

    def build(self, text: bytes, digest: str) -> None:
        """Repeat a line of a snapshot; an empty digest is not verified."""
        try:
            effects = EFFECT_LISTS.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ReplayError(f"snapshot: {error}") from error
        self._repeat(effects, digest, 0)

    def _repeat(self, effects: list[Effect], digest: str, seq: int) -> list[Change]:
        state = self.state
        lane_a = state.lane_a
        lane_b = state.lane_b
        done: list[Change] = []
        self.last = None
        try:
            for effect in effects:
                if isinstance(effect, ObjectVoucher):
                    self.objects = effect.sum  # if the line is refused, the ledger is discarded
                    continue
                change = self._change(effect)
                change.apply(state)
                done.append(change)
                change.digest(state)
            if digest and int(digest, 16) != state.digest:
                raise ValueError("the state after it is not the recorded one")
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            while done:
                done.pop().revert(state)
            state.lane_a = lane_a
            state.lane_b = lane_b
            raise ReplayError(f"{f'journal line {seq}' if seq else 'snapshot'}: {error}") from error
        if self.provenance is not None:
            for change in done:
                self.provenance.note(change)
        return done

    def _change(self, effect: object) -> Change:
        # By type, not by isinstance: a decision has a handful of effects, and this is asked for each of them.
        kind = self.kinds[type(effect)]
        if kind == _BOUND:
            return self._bound(cast("Bound", effect))
        if kind == _STATED:
            stated = cast("Stated", effect)
            return SetState(self._about(stated.uid), stated.state)
        if kind == _BINDINGS:
            bound = cast("BindingsEffect", effect)
            bindings = tuple([self._binding(bytes(raw)) for raw in bound.bindings])
            return SetBindings(self._about(bound.uid), bindings)
        if kind == _ENTERED:
            return self._enter(cast("Entered", effect))
        if kind == _DROPPED:
            return self._drop(cast("Dropped", effect))
        return self._rarer_change(effect)

    def _rarer_change(self, effect: object) -> Change:
        state = self.state
        if isinstance(effect, Charged):
            accounts = tuple([state.accounts[name] for name in effect.accounts])
            costs = self._costs([bytes(raw) for raw in effect.costs], len(accounts))
            return Charge(self._about(effect.uid), accounts, costs, _known_mode(effect.mode))
        if isinstance(effect, Cell):
            return PutCell(state, effect.policy, effect.table, effect.key, _plain(bytes(effect.value)))
        if isinstance(effect, FieldEffect):
            return self._field(effect)
        if isinstance(effect, Opened):
            topic = effect.name if effect.topic == effect.name else effect.topic
            return OpenAccount(Account(intern(effect.policy), effect.name, topic, effect.physical))
        if isinstance(effect, Closed):
            self.bindings.clear()  # an account that is opened again under its name is another one
            return CloseAccount(state.accounts[effect.name])
        limited = cast("Limited", effect)
        return SetLimits(state.accounts[limited.name], Limits(limited.listed, limited.stock))

    def _bound(self, effect: Bound) -> Charge:
        claim = self._about(effect.uid)
        slot = effect.slot
        binding = claim.bindings[slot] if 0 <= slot < len(claim.bindings) else None
        if binding is None:
            raise ValueError(f"claim {claim.uid} has no binding {slot}")
        return Charge(claim, binding.accounts, binding.costs, _known_mode(effect.mode))

    def _about(self, uid: str) -> Claim:
        """The claim with that uid; an empty uid stands for the claim of the effect before."""
        if uid:
            self.last = self.state.claims[uid]
        if self.last is None:
            raise ValueError("an effect names no claim")
        return self.last

    def _enter(self, effect: Entered) -> AddClaim:
        namespace = intern(effect.namespace)
        self.last = Claim(effect.uid, self._spec(bytes(effect.spec)), effect.created, namespace, effect.name)
        return AddClaim(self.last)

    def _drop(self, effect: Dropped) -> DropClaim:
        claim = self._about(effect.uid)
        self.last = None
        return DropClaim(claim)

    def _field(self, effect: FieldEffect) -> SetField:
        claim = self._about(effect.uid)
        text = bytes(effect.value)
        if effect.field == SPEC:
            return SetField(claim, SPEC, self._spec(text))
        value = msgspec.json.decode(text)
        if effect.field == PLACE and isinstance(value, str):
            value = intern(value)
        elif effect.field == WAITS_FOR:
            value = frozen(value)
        return SetField(claim, effect.field, value)

    # Shared by their text

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
        shared = self._costs(texts, len(accounts))
        return Binding(intern(cast("str", policy)), accounts, shared, cast("tuple[object, ...]", frozen(data)))

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
    """Lists back to tuples and amounts to vectors, at every depth: JSON has neither."""
    if isinstance(value, list):
        return tuple([frozen(item) for item in value])
    return from_amounts(cast("dict[str, int]", value)) if isinstance(value, dict) else value
