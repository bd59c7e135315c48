"""Changes of claims: they enter and leave the ledger, and their status fields get other values."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from bursar.ledger.changes import Change
from bursar.ledger.claims import PENDING, Binding, Claim, ClaimSpec
from bursar.ledger.state import State
from bursar.resources import fingerprint, name_mark

# Fields of a claim that ``SetField`` writes; the numbers stand in journals.
STATE: Final = 0
PLACE: Final = 1
LEAVING: Final = 2
WAITS_FOR: Final = 3
BINDINGS: Final = 4
SPEC: Final = 5

# What else the digest tells apart; the bindings of a claim are numbered from the last one on.
_SPEC_KIND: Final = 16
_BINDING_KIND: Final = 32


@final
@mypyc_attr(acyclic=True)
class AddClaim(Change):
    """A claim enters the ledger, pending."""

    __slots__ = ("claim", "mark", "spec")

    def __init__(self, claim: Claim) -> None:
        self.claim: Final = claim
        self.spec: Final = claim.spec
        self.mark: Final = claim.spec.mark

    def apply(self, state: State) -> None:
        claim = self.claim
        if claim.uid in state.claims:
            raise ValueError(f"claim {claim.uid} exists already")
        if claim.state != PENDING or claim.place or claim.leaving or claim.waits_for or claim.bindings:
            raise ValueError(f"claim {claim.uid} must enter pending, without place and bindings")
        state.put_claim(claim)

    def revert(self, state: State) -> None:
        state.take_claim(self.claim)

    def digest(self, state: State) -> None:
        state.digest_pair(self.claim.mark, _SPEC_KIND, self.mark, 1)

    def subject(self) -> str:
        return self.claim.uid

    def record(self) -> list[object]:
        claim = self.claim
        return ["claim", claim.uid, claim.namespace, claim.name, claim.created, self.spec.record()]


@final
@mypyc_attr(acyclic=True)
class DropClaim(Change):
    """A claim leaves the ledger, with all of its status. It must have given back all that it was charged."""

    __slots__ = ("bindings", "claim", "leaving", "mark", "place", "state", "waits_for")

    def __init__(self, claim: Claim) -> None:
        self.claim: Final = claim
        self.mark: Final = claim.spec.mark
        self.state: Final = claim.state
        self.place: Final = claim.place
        self.leaving: Final = claim.leaving
        self.waits_for: Final = claim.waits_for
        self.bindings: Final = claim.bindings

    def apply(self, state: State) -> None:
        claim = self.claim
        if state.claims.get(claim.uid) is not claim:
            raise ValueError(f"claim {claim.uid} is not in the ledger")
        state.take_claim(claim)
        claim.state = PENDING
        claim.place = ""
        claim.leaving = False
        claim.waits_for = ()
        claim.bindings = ()

    def revert(self, state: State) -> None:
        claim = self.claim
        claim.state = self.state
        claim.place = self.place
        claim.leaving = self.leaving
        claim.waits_for = self.waits_for
        claim.bindings = self.bindings
        state.put_claim(claim)

    def digest(self, state: State) -> None:
        mark = self.claim.mark
        state.digest_pair(mark, _SPEC_KIND, self.mark, -1)
        if self.state:
            state.digest_pair(mark, STATE, self.state, -1)
        if self.place:
            state.digest_pair(mark, PLACE, name_mark(self.place), -1)
        if self.leaving:
            state.digest_pair(mark, LEAVING, _field_mark(True), -1)
        if self.waits_for:
            state.digest_pair(mark, WAITS_FOR, _field_mark(self.waits_for), -1)
        _digest_bindings(state, self.claim, self.bindings, -1)

    def subject(self) -> str:
        return self.claim.uid

    def record(self) -> list[object]:
        return ["drop", self.claim.uid]


@final
@mypyc_attr(acyclic=True)
class SetState(Change):
    """A claim moves on in its life (kept apart from SetField: it is in every decision)."""

    __slots__ = ("claim", "new", "old")

    def __init__(self, claim: Claim, new: int) -> None:
        self.claim: Final = claim
        self.old: Final = claim.state
        self.new: Final = new

    def apply(self, state: State) -> None:
        state.set_state(self.claim, self.new)

    def revert(self, state: State) -> None:
        state.set_state(self.claim, self.old)

    def inverse(self, state: State) -> Change:
        return SetState(self.claim, self.old)

    def digest(self, state: State) -> None:
        if self.old:
            state.digest_pair(self.claim.mark, STATE, self.old, -1)
        if self.new:
            state.digest_pair(self.claim.mark, STATE, self.new, 1)

    def subject(self) -> str:
        return self.claim.uid

    def record(self) -> list[object]:
        return ["state", self.claim.uid, self.new]


@final
@mypyc_attr(acyclic=True)
class SetBindings(Change):
    """The bindings of a claim, one a policy."""

    __slots__ = ("claim", "new", "old")

    def __init__(self, claim: Claim, new: tuple[Binding | None, ...]) -> None:
        self.claim: Final = claim
        self.old: Final = claim.bindings
        self.new: Final = new

    def apply(self, state: State) -> None:
        self.claim.bindings = self.new

    def revert(self, state: State) -> None:
        self.claim.bindings = self.old

    def inverse(self, state: State) -> Change:
        return SetBindings(self.claim, self.old)

    def digest(self, state: State) -> None:
        _digest_bindings(state, self.claim, self.old, -1)
        _digest_bindings(state, self.claim, self.new, 1)

    def subject(self) -> str:
        return self.claim.uid

    def record(self) -> list[object]:
        return ["bind", self.claim.uid, [None if b is None else b.record() for b in self.new]]


def _digest_bindings(state: State, claim: Claim, bindings: tuple[Binding | None, ...], sign: int) -> None:
    kind = _BINDING_KIND
    for binding in bindings:
        if binding is not None:
            state.digest_pair(claim.mark, kind, binding.mark, sign)
        kind += 1


@final
@mypyc_attr(acyclic=True)
class SetField(Change):
    """Another status field of a claim: place, leaving, whom it waits for, or (resize) its spec."""

    __slots__ = ("claim", "field", "mark", "new", "old")

    def __init__(self, claim: Claim, field: int, new: object) -> None:
        self.claim: Final = claim
        self.field: Final = field
        self.old: Final = read_field(claim, field)
        self.new: Final = new
        self.mark: Final = _field_mark(new)

    def apply(self, state: State) -> None:
        self._write(state, self.new)

    def revert(self, state: State) -> None:
        self._write(state, self.old)

    def _write(self, state: State, value: object) -> None:
        if self.field == SPEC and isinstance(value, ClaimSpec):
            state.set_spec(self.claim, value)
        elif self.field == PLACE and isinstance(value, str):
            state.set_place(self.claim, value)
        else:
            write_field(self.claim, self.field, value)

    def digest(self, state: State) -> None:
        kind = _SPEC_KIND if self.field == SPEC else self.field
        if self.old:
            state.digest_pair(self.claim.mark, kind, _field_mark(self.old), -1)
        if self.new:
            state.digest_pair(self.claim.mark, kind, self.mark, 1)

    def subject(self) -> str:
        return self.claim.uid

    def record(self) -> list[object]:
        new = self.new
        plain = new.record() if isinstance(new, ClaimSpec) else list(new) if isinstance(new, tuple) else new
        return ["field", self.claim.uid, self.field, plain]


def read_field(claim: Claim, field: int) -> object:
    if field == PLACE:
        return claim.place
    if field == LEAVING:
        return claim.leaving
    if field == WAITS_FOR:
        return claim.waits_for
    if field == SPEC:
        return claim.spec
    raise ValueError(f"claims have no field {field}")


def write_field(claim: Claim, field: int, value: object) -> None:
    if field == LEAVING and isinstance(value, bool):
        claim.leaving = value
    elif field == WAITS_FOR and isinstance(value, tuple):
        claim.waits_for = value
    else:
        raise ValueError(f"{value!r} does not go into field {field} of a claim")


def _field_mark(value: object) -> int:
    if isinstance(value, ClaimSpec):
        return value.mark
    return name_mark(value) if isinstance(value, str) else fingerprint(ascii(value))
