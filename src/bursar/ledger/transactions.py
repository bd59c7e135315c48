"""Transactions: changes that are applied at once, logged, and kept or undone as a whole.

A ledger has one transaction at a time. Inside it, ``savepoint`` marks a position of the log and ``rollback_to``
undoes everything after it, exactly and in reverse; savepoints nest freely, because they are just positions. Try,
what-if, dry run and the search for victims are all built on this.

The methods below are the vocabulary that policies and the engine write with; nothing else changes ledger state.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from bursar.ledger.account_changes import CloseAccount, OpenAccount, PutCell, SetLimits
from bursar.ledger.accounts import Account
from bursar.ledger.changes import CHARGE, CLEAR, RELEASE, RETURN, VACATE, Change, Charge
from bursar.ledger.claim_changes import (
    LEAVING,
    PLACE,
    SPEC,
    WAITS_FOR,
    AddClaim,
    DropClaim,
    SetBindings,
    SetField,
    SetState,
)
from bursar.ledger.claims import Binding, Claim, ClaimSpec
from bursar.ledger.state import State
from bursar.limits import NO_LIMITS, Limits
from bursar.vectors import Vector

_MOMENTS: Final[i64] = 4294967296  # of one transaction; more changes than that do not fit in memory


@final
class Transaction:
    """The log of one transaction and the verbs that write it."""

    __slots__ = ("log", "seq", "state")

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self.log: list[Change] = []
        self.seq: i64 = 0  # the number that its record will have

    def do(self, change: Change) -> None:
        change.apply(self.state)
        self.log.append(change)

    def savepoint(self) -> int:
        return len(self.log)

    def moment(self) -> int:
        """A number for now: above those of all transactions before, and of all changes that are in the log.

        It follows from the journal, so a decision that is taken back or made anew finds the same one.
        """
        return int(self.seq * _MOMENTS + len(self.log))

    def rollback_to(self, savepoint: int) -> None:
        log = self.log
        while len(log) > savepoint:
            log.pop().revert(self.state)

    # Claims

    def add_claim(self, claim: Claim) -> None:
        self.do(AddClaim(claim))

    def drop_claim(self, claim: Claim) -> None:
        """The claim is gone; its charges must have been released."""
        self.do(DropClaim(claim))

    def set_state(self, claim: Claim, state: int) -> None:
        if claim.state != state:
            self.do(SetState(claim, state))

    def set_bindings(self, claim: Claim, bindings: tuple[Binding | None, ...]) -> None:
        if claim.bindings is not bindings:
            self.do(SetBindings(claim, bindings))

    def set_place(self, claim: Claim, place: str) -> None:
        if claim.place != place:
            self.do(SetField(claim, PLACE, place))

    def set_leaving(self, claim: Claim, leaving: bool) -> None:
        if claim.leaving != leaving:
            self.do(SetField(claim, LEAVING, leaving))

    def set_waits_for(self, claim: Claim, uids: tuple[str, ...]) -> None:
        if claim.waits_for != uids:
            self.do(SetField(claim, WAITS_FOR, uids))

    def set_spec(self, claim: Claim, spec: ClaimSpec) -> None:
        if claim.spec is not spec:
            self.do(SetField(claim, SPEC, spec))

    # Charges. All accounts of one call are charged or none (an overflow raises and leaves no trace).

    def charge(self, claim: Claim, accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> None:
        self.do(Charge(claim, accounts, costs, CHARGE))

    def release(self, claim: Claim, accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> None:
        """Stop counting the claim there: the mode follows from whether it is, or was, told to leave."""
        self.do(Charge(claim, accounts, costs, RELEASE))

    def vacate(self, claim: Claim, accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> None:
        """Told to leave: no longer counted, physically still there."""
        self.do(Charge(claim, accounts, costs, VACATE))

    def restore(self, claim: Claim, accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> None:
        """It was told to leave, but stays after all."""
        self.do(Charge(claim, accounts, costs, RETURN))

    def clear(self, claim: Claim, accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> None:
        """It was told to leave, and now it is physically gone."""
        self.do(Charge(claim, accounts, costs, CLEAR))

    # Accounts

    def open_account(self, policy: str, name: str, topic: str = "", physical: bool = False) -> Account:
        account = Account(policy, name, topic, physical)
        self.do(OpenAccount(account))
        return account

    def close_account(self, account: Account) -> None:
        mark = self.savepoint()
        self.set_limits(account, NO_LIMITS)
        try:
            self.do(CloseAccount(account))
        except ValueError:
            self.rollback_to(mark)
            raise

    def set_limits(self, account: Account, limits: Limits) -> None:
        if account.limits != limits:
            self.do(SetLimits(account, limits))

    # Cells

    def put(self, policy: str, table: str, key: str, value: object) -> None:
        """Set a cell to a plain immutable value; None removes it."""
        change = PutCell(self.state, policy, table, key, value)
        old = change.old
        # True == 1, but they are different cells: equal values are compared as they are written.
        if old is not value and (old is None or old != value or ascii(old) != ascii(value)):
            self.do(change)

    def get(self, table: str, key: str) -> object:
        return self.state.cell(table, key)
