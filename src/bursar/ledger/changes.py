"""The only writers of ledger state: small immutable changes that can be done, undone, recorded and replayed.

Each change knows how to ``apply`` itself, how to ``revert`` itself exactly, what it contributes to the digest
(``digest``: called once, when it is committed), and its plain form for the journal (``record``), from which
``ledger.replay`` builds it again. Reverting runs in reverse order of applying, so a change may rely on finding the
state just as it left it.

A change that cannot be applied raises before it has written anything, and once applied its ``digest`` and
``record`` cannot fail. Both are asked later, so a change keeps what it must tell, and never reads it from the claim.

Vectors, accounts, claims, bindings, changes, records and decisions are declared ``acyclic``: compiled, Python's cyclic
collector does not look at them. That is sound only while none of them refers to what holds it (a ledger, a policy).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from bursar.ledger.accounts import Account
from bursar.ledger.claims import PENDING, Binding, Claim, ClaimSpec, costs_record
from bursar.ledger.marks import cell_mark
from bursar.ledger.state import State
from bursar.vectors import NO_LIMITS, Limits, Vector, fingerprint, name_mark

# What a charge does to the two sums of an account: (used, busy).
CHARGE: Final = 0  # (+1, +1) the claim takes its place
RELEASE: Final = 1  # (-1, -1) it is gone
VACATE: Final = 2  # (-1,  0) it was told to leave: no longer counted, still physically there
RETURN: Final = 3  # (+1,  0) it stays after all
CLEAR: Final = 4  # ( 0, -1) it was told to leave, and now it is gone

# Fields of a claim that ``SetField`` writes; the numbers stand in journals.
STATE: Final = 0
PLACE: Final = 1
LEAVING: Final = 2
WAITS_FOR: Final = 3
BINDINGS: Final = 4
SPEC: Final = 5

# What else the digest tells apart; the bindings of a claim are numbered from the last one on.
_SPEC_KIND: Final = 16
_CELL_KIND: Final = 17
_ACCOUNT_KIND: Final = 18
_LIMITS_KIND: Final = 19
_BINDING_KIND: Final = 32


@mypyc_attr(acyclic=True)
class Change:
    """One step of a transaction."""

    def apply(self, state: State) -> None:
        raise RuntimeError("a change must say how it is applied")

    def revert(self, state: State) -> None:
        raise RuntimeError("a change must say how it is reverted")

    def digest(self, state: State) -> None:
        """Move the digest from before to after this change."""

    def record(self) -> list[object]:
        raise RuntimeError("a change must have a plain form")

    def subject(self) -> str:
        """The uid of the claim it is about, the second item of its record; empty: it is not about a claim."""
        return ""

    def touches(self) -> tuple[Account, ...]:
        """Accounts whose headroom it may have changed."""
        return ()


@final
@mypyc_attr(acyclic=True)
class Charge(Change):
    """A claim starts or stops counting in some accounts, at a cost in each."""

    __slots__ = ("accounts", "busy", "claim", "costs", "mode", "slot", "used")

    def __init__(self, claim: Claim, accounts: tuple[Account, ...], costs: tuple[Vector, ...], mode: int) -> None:
        if len(accounts) != len(costs):
            raise ValueError(f"claim {claim.uid}: {len(costs)} costs for {len(accounts)} accounts")
        self.claim: Final = claim
        self.accounts: Final = accounts
        self.costs: Final = costs
        self.mode: Final = mode
        self.used: Final[i64] = 0 if mode == CLEAR else 1 if mode in (CHARGE, RETURN) else -1
        self.busy: Final[i64] = 0 if mode in (VACATE, RETURN) else 1 if mode == CHARGE else -1
        self.slot: Final[i64] = _slot_of(claim.bindings, accounts, costs)

    def apply(self, state: State) -> None:
        for account in self.accounts:
            if not account.opened:
                raise ValueError(f"claim {self.claim.uid}: account {account.name} is not in the ledger")
        add_costs(self.accounts, self.costs, self.used, self.busy)
        if self.used != 0:
            _tell(state, self.claim, self.accounts, self.costs, self.used)

    def revert(self, state: State) -> None:
        _take_back(self.accounts, self.costs, len(self.accounts), self.used, self.busy)
        if self.used != 0:
            _tell(state, self.claim, self.accounts, self.costs, -self.used)

    def digest(self, state: State) -> None:
        costs = self.costs
        for i, account in enumerate(self.accounts):
            state.digest_usage(account, costs[i], self.used, self.busy if account.physical else 0)

    def subject(self) -> str:
        return self.claim.uid

    def record(self) -> list[object]:
        if self.slot >= 0:
            return ["bound", self.claim.uid, self.mode, int(self.slot)]
        names = [account.name for account in self.accounts]
        return ["charge", self.claim.uid, self.mode, names, costs_record(self.costs)]

    def touches(self) -> tuple[Account, ...]:
        return self.accounts


def _slot_of(bindings: tuple[Binding | None, ...], accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> i64:
    """Which of the bindings names these very accounts and costs (the journal then says no more than that), or -1."""
    for i in range(len(bindings)):
        binding = bindings[i]
        if binding is not None and binding.accounts is accounts and binding.costs is costs:
            return i
    return -1


def add_costs(accounts: tuple[Account, ...], costs: tuple[Vector, ...], used: i64, busy: i64) -> None:
    """Add each cost to (1) or take it from (-1) the two sums of its account: all of them, or none on overflow."""
    done = 0
    try:
        for account in accounts:
            _add(account, costs[done], used, busy)
            done += 1
    except OverflowError:
        _take_back(accounts, costs, done, used, busy)
        raise


def _take_back(accounts: tuple[Account, ...], costs: tuple[Vector, ...], count: int, used: i64, busy: i64) -> None:
    # Backwards, through the very sums that were there before: those cannot overflow.
    for i in range(count - 1, -1, -1):
        _add(accounts[i], costs[i], -used, -busy)


def _add(account: Account, cost: Vector, used: i64, busy: i64) -> None:
    if used == 1:
        account.used.add(cost)
    elif used == -1:
        account.used.take(cost)
    if busy != 0 and account.physical:
        try:
            if busy == 1:
                account.busy.add(cost)
            else:
                account.busy.take(cost)
        except OverflowError:
            _add(account, cost, -used, 0)
            raise


def _tell(state: State, claim: Claim, accounts: tuple[Account, ...], costs: tuple[Vector, ...], sign: i64) -> None:
    if not state.charge_watchers:
        return
    for i, account in enumerate(accounts):
        watcher = state.charge_watchers.get(account.policy)
        if watcher is not None:
            watcher.charged(claim, account, costs[i], int(sign))


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
        state.claims[self.claim.uid] = self.claim

    def revert(self, state: State) -> None:
        del state.claims[self.claim.uid]

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
        del state.claims[claim.uid]
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
        state.claims[claim.uid] = claim

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
        self.claim.state = self.new

    def revert(self, state: State) -> None:
        self.claim.state = self.old

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
        write_field(self.claim, self.field, self.new)

    def revert(self, state: State) -> None:
        write_field(self.claim, self.field, self.old)

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
    if field == PLACE and isinstance(value, str):
        claim.place = value
    elif field == LEAVING and isinstance(value, bool):
        claim.leaving = value
    elif field == WAITS_FOR and isinstance(value, tuple):
        claim.waits_for = value
    elif field == SPEC and isinstance(value, ClaimSpec):
        claim.spec = value
    else:
        raise ValueError(f"{value!r} does not go into field {field} of a claim")


def _field_mark(value: object) -> int:
    if isinstance(value, ClaimSpec):
        return value.mark
    return name_mark(value) if isinstance(value, str) else fingerprint(ascii(value))


@final
@mypyc_attr(acyclic=True)
class PutCell(Change):
    """A cell of a policy's table gets another value; None removes it."""

    __slots__ = ("key", "new", "old", "policy", "table")

    def __init__(self, state: State, policy: str, table: str, key: str, new: object) -> None:
        self.policy: Final = policy
        self.table: Final = table
        self.key: Final = key
        self.old: Final = state.cell(table, key)
        self.new: Final = new
        if not is_plain(new):
            raise TypeError(f"cell {table}/{key}: {new!r} is not plain (None, bool, int, str or tuples of those)")

    def apply(self, state: State) -> None:
        _put(state, self, self.old, self.new)

    def revert(self, state: State) -> None:
        _put(state, self, self.new, self.old)

    def digest(self, state: State) -> None:
        if self.old is not None:
            state.digest_pair(cell_mark(self.table, self.key, self.old), _CELL_KIND, 1, -1)
        if self.new is not None:
            state.digest_pair(cell_mark(self.table, self.key, self.new), _CELL_KIND, 1, 1)

    def record(self) -> list[object]:
        return ["cell", self.policy, self.table, self.key, self.new]


def is_plain(value: object) -> bool:
    """Whether a value can stand in a cell: it comes back from the journal as the very same."""
    if isinstance(value, tuple):
        for item in value:
            if not is_plain(item):
                return False
        return True
    return value is None or isinstance(value, (str, int))


def _put(state: State, change: PutCell, before: object, after: object) -> None:
    cells = state.tables.get(change.table)
    if cells is None:
        cells = {}
        state.tables[change.table] = cells
    if after is None:
        cells.pop(change.key, None)
    else:
        cells[change.key] = after
    watcher = state.watchers.get(change.policy)
    if watcher is not None:
        watcher.cell_changed(change.table, change.key, before, after)


@final
@mypyc_attr(acyclic=True)
class OpenAccount(Change):
    """An account comes into being, empty and without limits."""

    __slots__ = ("account",)

    def __init__(self, account: Account) -> None:
        self.account: Final = account

    def apply(self, state: State) -> None:
        if self.account.name in state.accounts:
            raise ValueError(f"account {self.account.name} exists already")
        self.account.opened = True
        state.accounts[self.account.name] = self.account

    def revert(self, state: State) -> None:
        del state.accounts[self.account.name]
        self.account.opened = False

    def digest(self, state: State) -> None:
        state.digest_pair(self.account.mark, _ACCOUNT_KIND, 1, 1)

    def record(self) -> list[object]:
        account = self.account
        return ["open", account.policy, account.name, account.topic, account.physical]


@final
@mypyc_attr(acyclic=True)
class CloseAccount(Change):
    """An account ends. It must be empty: what is charged somewhere must stay findable."""

    __slots__ = ("account",)

    def __init__(self, account: Account) -> None:
        self.account: Final = account

    def apply(self, state: State) -> None:
        account = self.account
        if account.used.vector() or account.busy.vector():
            raise ValueError(f"account {account.name} is still in use: {account.used.vector().show()}")
        if not account.opened:
            raise ValueError(f"account {account.name} is not in the ledger")
        del state.accounts[account.name]
        account.opened = False

    def revert(self, state: State) -> None:
        self.account.opened = True
        state.accounts[self.account.name] = self.account

    def digest(self, state: State) -> None:
        state.digest_pair(self.account.mark, _ACCOUNT_KIND, 1, -1)

    def record(self) -> list[object]:
        return ["close", self.account.name]

    def touches(self) -> tuple[Account, ...]:
        return (self.account,)


@final
@mypyc_attr(acyclic=True)
class SetLimits(Change):
    """An account gets other limits."""

    __slots__ = ("account", "new", "old")

    def __init__(self, account: Account, new: Limits) -> None:
        self.account: Final = account
        self.old: Final = account.limits
        self.new: Final = new

    def apply(self, state: State) -> None:
        self.account.limits = self.new

    def revert(self, state: State) -> None:
        self.account.limits = self.old

    def digest(self, state: State) -> None:
        if self.old != NO_LIMITS:
            state.digest_pair(self.account.mark, _LIMITS_KIND, _limits_mark(self.old), -1)
        if self.new != NO_LIMITS:
            state.digest_pair(self.account.mark, _LIMITS_KIND, _limits_mark(self.new), 1)

    def record(self) -> list[object]:
        return ["limits", self.account.name, self.new.listed, self.new.stock]

    def touches(self) -> tuple[Account, ...]:
        return (self.account,)


def _limits_mark(limits: Limits) -> int:
    return fingerprint(ascii((limits.listed, limits.stock)))
