"""Changes of what policies own: accounts open and close, get other limits, and cells get other values."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from bursar.fingerprints import fingerprint
from bursar.ledger.accounts import Account
from bursar.ledger.changes import Change
from bursar.ledger.marks import cell_mark
from bursar.ledger.state import State
from bursar.limits import NO_LIMITS, Limits

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
        self.kept: Final = state.table(table)
        self.old: Final = self.kept.cells.get(key)
        self.new: Final = new
        if not is_plain(new):
            raise TypeError(f"cell {table}/{key}: {new!r} is not plain (None, bool, int, str or tuples of those)")

    def apply(self, state: State) -> None:
        _put(state, self, self.old, self.new)

    def revert(self, state: State) -> None:
        _put(state, self, self.new, self.old)

    def digest(self, state: State) -> None:
        if self.old is not None:
            state.digest_pair(cell_mark(self.kept.mark, self.key, self.old), _CELL_KIND, 1, -1)
        if self.new is not None:
            state.digest_pair(cell_mark(self.kept.mark, self.key, self.new), _CELL_KIND, 1, 1)

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
    if after is None:
        change.kept.cells.pop(change.key, None)
    else:
        change.kept.cells[change.key] = after
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
