"""The elastic policy: every quota is sure of its min, may borrow what others leave unused, and gives it back.

In the ledger, for each quota: an account for all that counts (its limits are max), one for what may not be preempted
(limits: min), one for what runs (no limits; the status counts it), and a cell with the quota itself. One account,
``elastic/total``, holds what all quotas use of the dimensions that their min lists; its limits are the sums of the
minimums, unless borrowing is bounded by real capacity alone.

A deleted quota keeps its accounts until nobody stands on them. Everything else here is derived and follows the ledger
through ``charged`` and ``cell_changed``; only ``search`` and ``reports`` are notes of the moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast, final

from bursar.ledger.accounts import Account
from bursar.ledger.claims import RUNNING, TERMINATING, Binding, Claim
from bursar.ledger.transactions import Transaction
from bursar.policies.base import Policy
from bursar.policies.checks import Check, Refusal, refusal_for
from bursar.policies.elastic.book import Book
from bursar.policies.elastic.configuring import configure_options, configure_quota
from bursar.policies.elastic.explaining import explain
from bursar.policies.elastic.names import (
    FIRM_SUFFIX,
    MAX_RULE,
    MIN_RULE,
    NAME,
    OPTIONS,
    OPTIONS_SETTING,
    QUOTA_SETTING,
    QUOTAS,
    TOTAL,
    TOTAL_RULE,
)
from bursar.policies.elastic.quota import Quota
from bursar.policies.elastic.reports import Reports
from bursar.policies.elastic.search import Search
from bursar.policies.elastic.settings import REMOVED, options_of
from bursar.policies.settings import Output, Setting
from bursar.vectors import Vector

_MAX: Final = f"{NAME}.{MAX_RULE}."
_TOTAL: Final = f"{NAME}.{TOTAL_RULE}."


@final
class ElasticPolicy(Policy):
    """ElasticQuota and CompositeElasticQuota."""

    def __init__(self) -> None:
        super().__init__(NAME, False, (QUOTA_SETTING, OPTIONS_SETTING), False, True, False, True, TOTAL)
        self.book: Final = Book()
        self.runners: Final[dict[str, tuple[Account, Vector]]] = {}  # by uid: where a claim that runs is counted
        self.reports: Final = Reports(self.book)
        self.search: Search | None = None

    # Settings

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        if setting.kind == OPTIONS_SETTING:
            return configure_options(tx, self.book, setting)
        return configure_quota(tx, self.book, setting)

    def settle(self, tx: Transaction) -> None:
        """Close the accounts of deleted quotas that nobody stands on any more."""
        if self.book.removed:
            for id in sorted(self.book.removed):  # noqa: A001 as the ledger calls it
                quota = self.book.quotas[id]
                if quota.state == REMOVED and not quota.members:
                    self._close(tx, quota)

    def _close(self, tx: Transaction, quota: Quota) -> None:
        accounts = [self.state.accounts[name] for name in (quota.account, quota.firm, quota.running)]
        for account in accounts:
            if account.used.vector():
                return
        tx.put(NAME, QUOTAS, quota.id, None)
        for account in accounts:
            tx.close_account(account)

    # What follows from the ledger

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        quota = self.book.by_account.get(account.name)
        if quota is not None:
            if self.search is not None:
                self.search.keep(quota)
            self.book.shift(quota, claim, cost, sign)
            self.reports.changed(quota.id)
        elif account.name == TOTAL:
            return
        elif not account.name.endswith(FIRM_SUFFIX):
            if sign > 0:
                self.runners[claim.uid] = (account, cost)
            else:
                del self.runners[claim.uid]
            self.reports.runs(account.name, claim, sign > 0)

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        if table == OPTIONS:
            self.book.set_options(options_of(new))
            self.reports.all_changed()
        else:
            self.book.set_quota(key, cast("tuple[object, ...] | None", new))
            self.reports.changed(key)

    # One claim

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        quota = self.book.governing(claim.namespace)
        if quota is None:
            return None
        known = quota.known_binding(claim.spec)
        if known is not None:
            return known
        accounts = self.state.accounts
        try:
            cost = self.book.memory.cost(claim.spec.requests)
        except OverflowError as error:
            return Refusal(NAME, f"{NAME}.unreadable", str(error), quota.account, permanent=True)
        return quota.new_binding(claim.spec, cost, accounts, accounts[TOTAL])

    def charge(self, tx: Transaction, claim: Claim, binding: Binding, forced: bool) -> Refusal | None:
        if not forced:
            refusal = self.first_refusal(claim, binding.accounts, binding.costs)
            if refusal is not None:
                return refusal
        tx.charge(claim, binding.accounts, binding.costs)
        if claim.state == RUNNING or claim.state == TERMINATING:  # noqa: PLR1714 compiled: quicker than a tuple
            self._run(tx, claim, binding)
        return None

    def release(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        tx.release(claim, binding.accounts, binding.costs)
        self._end_run(tx, claim)

    def leave(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        """Decisions stop counting it, but it runs until it is gone."""
        tx.release(claim, binding.accounts, binding.costs)

    def left(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        self._end_run(tx, claim)

    def seen(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        """The claim moved on in its life: one that runs counts in the status."""
        if claim.state == RUNNING:
            self._run(tx, claim, binding)

    def _run(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        quota = self.book.by_account.get(binding.accounts[0].name)
        if quota is not None and claim.uid not in self.runners:
            tx.charge(claim, (self.state.accounts[quota.running],), (binding.costs[0],))

    def _end_run(self, tx: Transaction, claim: Claim) -> None:
        running = self.runners.get(claim.uid)
        if running is not None:
            tx.release(claim, (running[0],), (running[1],))

    # Victims

    def search_begins(self, claim: Claim) -> None:
        quota = self.book.governing(claim.namespace)
        self.search = None if quota is None else Search(self.book, claim, quota, self._cost(claim))

    def search_ends(self) -> None:
        self.search = None

    def _cost(self, claim: Claim) -> Vector:
        return self.book.memory.cost(claim.spec.requests)

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        search = self.search
        if search is None or not refusal.reason.startswith((_MAX, _TOTAL)):
            return
        own_only = refusal.reason.startswith(_MAX)
        at = 0 if own_only else 1
        for candidate in search.candidates(own_only):
            short = binding.accounts[at].missing(binding.costs[at])
            if not short:
                return
            if search.may_take(candidate, short):
                yield candidate.member.claim

    def contest(self, tx: Transaction, claim: Claim, occupants: list[Claim], short: Vector) -> list[Claim] | None:
        return None if self.search is None else self.search.contest(occupants, short)

    def approve(self, tx: Transaction, claim: Claim, binding: Binding, victims: list[Claim]) -> bool:
        return self.search is None or self.search.leaves_min(victims)

    # Answers

    def refusal(self, claim: Claim, account: Account, dim: int, cost: Vector) -> Refusal:
        rule = TOTAL_RULE if account.name == TOTAL else MIN_RULE if account.name.endswith(FIRM_SUFFIX) else MAX_RULE
        return refusal_for(NAME, rule, account, dim, cost, cost.get(dim) > account.limits.get(dim))

    def explain(self, claim: Claim, binding: Binding) -> Check:
        quota = self.book.by_account.get(binding.accounts[0].name)
        checks = self.account_checks(claim, binding)
        return checks if quota is None else explain(self.book, quota, claim, self._cost(claim), checks)

    def outputs(self, now: int) -> list[Output]:
        return self.reports.outputs(self.state, self.runners)
