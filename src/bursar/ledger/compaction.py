"""Compaction: follow a journal record by record, and write snapshots of its state.

It needs no policy, so it can work beside a running engine, in another thread or process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, final

import msgspec

from bursar.ledger.claim_changes import LEAVING, PLACE, WAITS_FOR
from bursar.ledger.claims import Claim
from bursar.ledger.journal_lines import JournalLine
from bursar.ledger.replay import Provenance, ReplayError
from bursar.ledger.state import Account, State
from bursar.ledger.transaction import Ledger, Snapshot
from bursar.resources import NO_LIMITS

_LENGTH: Final = 1000  # effects a line


@final
class Summary:
    """Follows a journal, and writes snapshots of its state."""

    __slots__ = ("at", "ledger", "provenance")

    def __init__(self) -> None:
        self.ledger: Final = Ledger()
        self.provenance: Final = Provenance()
        self.at: int = 0

    def start_from(self, snapshot: Snapshot) -> None:
        """Begin with an older snapshot instead of the first record."""
        self.ledger.restore(snapshot, self.provenance)
        self.at = snapshot.at

    def follow(self, lines: Iterable[bytes]) -> Iterator[JournalLine]:
        """Repeat journal lines; yields each once it is verified."""
        for line in self.ledger.replay(lines, self.provenance):
            self.at = line.at
            yield line

    def snapshot(self, decisions: list[msgspec.Raw]) -> Snapshot:
        """The state after the last record, with the engine's decisions that still matter."""
        ledger = self.ledger
        lines: list[bytes] = []
        part: list[object] = []
        for effect in self._effects():
            part.append(effect)
            if len(part) == _LENGTH:
                lines.append(msgspec.json.encode(part))
                part = []
        lines.append(msgspec.json.encode(part))
        return Snapshot(ledger.version, self.at, ledger.journal.head, ledger.digest, decisions, lines)

    def _effects(self) -> Iterator[list[object]]:
        state = self.ledger.state
        early = [claim for claim in state.claims.values() if _closed_accounts(state, claim)]
        # Who is bound to accounts that were closed since comes first, with those accounts, so that they stay apart
        # from accounts of the same name that were opened later.
        for claim in early:
            closed = _closed_accounts(state, claim)
            for account in closed:
                yield from _account_effects(account)
            yield from _claim_effects(claim)
            for account in closed:
                yield ["close", account.name]
        apart = {claim.uid for claim in early}
        for account in state.accounts.values():
            yield from _account_effects(account)
        for claim in state.claims.values():
            if claim.uid not in apart:
                yield from _claim_effects(claim)
        for table in state.tables:
            for key, value in state.cells(table).items():
                yield ["cell", self.provenance.tables[table], table, key, value]
        for uid in self.provenance.charges:
            if uid not in state.claims:
                raise ReplayError(f"claim {uid} is gone, but still charged: this state cannot be summed up")
            yield from self.provenance.charge_effects(uid)
        if self.ledger.objects:
            yield ["objects", self.ledger.objects, 0, ""]


def _closed_accounts(state: State, claim: Claim) -> list[Account]:
    found: dict[str, Account] = {}
    for binding in claim.bindings:
        if binding is not None:
            for account in binding.accounts:
                if state.accounts.get(account.name) is not account:
                    found[account.name] = account
    return list(found.values())


def _account_effects(account: Account) -> Iterator[list[object]]:
    yield ["open", account.policy, account.name, account.topic, account.physical]
    if account.limits != NO_LIMITS:
        yield ["limits", account.name, account.limits.listed, account.limits.stock]


def _claim_effects(claim: Claim) -> Iterator[list[object]]:
    uid = claim.uid
    yield ["claim", *claim.record()]
    if claim.bindings:
        yield ["bind", uid, [None if b is None else b.record() for b in claim.bindings]]
    if claim.state:
        yield ["state", uid, claim.state]
    if claim.place:
        yield ["field", uid, PLACE, claim.place]
    if claim.leaving:
        yield ["field", uid, LEAVING, True]
    if claim.waits_for:
        yield ["field", uid, WAITS_FOR, list(claim.waits_for)]
