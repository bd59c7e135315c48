"""The only writers of ledger state: small immutable changes that can be done, undone, recorded and replayed.

Each change can ``apply`` itself and ``revert`` itself exactly. ``digest`` is its contribution to the digest, called
once when it is committed, and ``record`` its plain form for the journal, from which ``ledger.replay`` builds it again.
Reverting runs in reverse order, so a change finds the state just as it left it.

A change that cannot be applied raises before it has written anything; once applied, its ``digest`` and ``record``
cannot fail. Both are called later, so a change keeps what they need and does not read it from the claim.

Vectors, accounts, claims, bindings, changes, records and decisions are declared ``acyclic``: compiled, Python's cyclic
collector does not visit them. That is sound only while none of them refers to what holds it (a ledger, a policy).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from bursar.ledger.claims import Binding, Claim, cell_mark, costs_record
from bursar.ledger.state import Account, State, Table
from bursar.resources import NO_LIMITS, Limits, Vector, fingerprint

# What a charge does to the two sums of an account: (used, busy).
CHARGE: Final = 0  # (+1, +1) the claim takes its place
RELEASE: Final = 1  # (-1, -1) it is gone
VACATE: Final = 2  # (-1,  0) it was told to leave: no longer counted, still physically there
RETURN: Final = 3  # (+1,  0) it stays after all
CLEAR: Final = 4  # ( 0, -1) it was told to leave, and now it is gone
_OPPOSITE: Final = {CHARGE: RELEASE, RELEASE: CHARGE, VACATE: RETURN, RETURN: VACATE}


@mypyc_attr(acyclic=True)
class Change:
    """One step of a transaction."""

    def apply(self, state: State) -> None:
        raise RuntimeError("a change must say how it is applied")

    def revert(self, state: State) -> None:
        raise RuntimeError("a change must say how it is reverted")

    def inverse(self, state: State) -> Change:
        """The change that undoes this one after its commit, as long as the state is as this one left it."""
        raise ValueError(f"a {type(self).__name__} cannot be undone once it is committed")

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

    def inverse(self, state: State) -> Change:
        if self.mode not in _OPPOSITE:
            return super().inverse(state)
        return Charge(self.claim, self.accounts, self.costs, _OPPOSITE[self.mode])

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
    """The position of the binding with these very accounts and costs, or -1. The journal then needs no more."""
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


# What the digest tells apart.
_CELL_KIND: Final = 17
_ACCOUNT_KIND: Final = 18
_LIMITS_KIND: Final = 19


@final
@mypyc_attr(acyclic=True)
class PutCell(Change):
    """A cell of a policy's table gets another value; None removes it."""

    __slots__ = ("kept", "key", "new", "old", "policy", "table")

    def __init__(self, state: State, policy: str, table: str, key: str, new: object) -> None:
        self.policy: Final = policy
        self.table: Final = table
        self.key: Final = key
        found = state.tables.get(table)
        self.kept: Final = Table(table) if found is None else found
        self.old: Final = self.kept.cells.get(key)
        self.new: Final = new
        if not is_plain(new):
            raise TypeError(f"cell {table}/{key}: {new!r} is not plain (None, bool, int, str or tuples of those)")

    def apply(self, state: State) -> None:
        _put(state, self, self.old, self.new)

    def revert(self, state: State) -> None:
        _put(state, self, self.new, self.old)

    def inverse(self, state: State) -> Change:
        return PutCell(state, self.policy, self.table, self.key, self.old)

    def digest(self, state: State) -> None:
        if self.old is not None:
            state.digest_pair(cell_mark(self.kept.mark, self.key, self.old), _CELL_KIND, 1, -1)
        if self.new is not None:
            state.digest_pair(cell_mark(self.kept.mark, self.key, self.new), _CELL_KIND, 1, 1)

    def record(self) -> list[object]:
        return ["cell", self.policy, self.table, self.key, self.new]


def is_plain(value: object) -> bool:
    """Whether a value can be in a cell: it comes back from the journal equal and of the same type."""
    if isinstance(value, tuple):
        for item in value:
            if not is_plain(item):
                return False
        return True
    return value is None or isinstance(value, (str, int))


def _put(state: State, change: PutCell, before: object, after: object) -> None:
    kept = change.kept
    if after is not None:
        if not kept.cells:
            state.tables[change.table] = kept  # an empty table is not kept
        kept.cells[change.key] = after
    elif before is not None:
        del kept.cells[change.key]
        if not kept.cells:
            del state.tables[change.table]
    watcher = state.watchers.get(change.policy)
    if watcher is not None:
        watcher.cell_changed(change.table, change.key, before, after)


@final
@mypyc_attr(acyclic=True)
class OpenAccount(Change):
    """An account is opened, empty and without limits."""

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
    """An account is closed. It must be empty: every charge must stay findable."""

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
