"""The elastic policy: every quota is sure of its min, may borrow what others leave unused, and gives it back.

Each quota has three accounts and a cell. One account has all that counts, limited by max; one all that may not be
preempted, limited by min; one all that runs, without limits, for the status. The account ``elastic/total`` has what all
quotas use of the dimensions that their min lists. Its limits are the sums of the minimums, unless borrowing is bounded
by capacity.

A deleted quota keeps its accounts until no claim is charged to them. Everything else is derived and follows the ledger
through ``charged`` and ``cell_changed``, except ``rights`` and ``status``, which belong to the current call.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import RUNNING, TERMINATING, Binding, Claim
from bursar.ledger.state import Account
from bursar.ledger.transaction import Transaction
from bursar.policies.elastic.explanation import explain
from bursar.policies.elastic.quota import ElasticQuotaState
from bursar.policies.elastic.quotas import QuotaBook, configure_options, configure_quota
from bursar.policies.elastic.rights import ElasticRights
from bursar.policies.elastic.settings import (
    FIRM_SUFFIX,
    MAX_RULE,
    MIN_RULE,
    NAME,
    OPTIONS,
    OPTIONS_SETTING,
    QUOTA_SETTING,
    QUOTAS,
    REMOVED,
    TOTAL,
    TOTAL_RULE,
    options_in,
)
from bursar.policies.elastic.status import ElasticStatusWriter
from bursar.policies.policy import QuotaPolicy
from bursar.policies.results import Check, Output, Refusal, Setting, refusal_for
from bursar.policies.rights import ROOM_TAKEN, Rights, Row
from bursar.resources import Vector


@final
class ElasticPolicy(QuotaPolicy):
    """ElasticQuota and CompositeElasticQuota."""

    def __init__(self) -> None:
        super().__init__(NAME, (QUOTA_SETTING, OPTIONS_SETTING))
        self.book: Final = QuotaBook()
        self.runners: Final[dict[str, tuple[Account, Vector]]] = {}  # by uid: where a claim that runs is counted
        self.status: Final = ElasticStatusWriter(self.book)
        self.rights: ElasticRights | None = None  # of the claim for which victims are searched now

    # Settings

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        if setting.kind == OPTIONS_SETTING:
            return configure_options(tx, self.book, setting)
        return configure_quota(tx, self.book, setting)

    def settle(self, tx: Transaction) -> None:
        """Closes the accounts of deleted quotas once no claim is charged to them."""
        if self.book.removed:
            for id in sorted(self.book.removed):  # noqa: A001 as the ledger calls it
                quota = self.book.quotas[id]
                if quota.state == REMOVED and not quota.members:
                    self._close(tx, quota)

    def _close(self, tx: Transaction, quota: ElasticQuotaState) -> None:
        accounts = [self.state.accounts[name] for name in (quota.account, quota.non_preemptible, quota.running)]
        for account in accounts:
            if account.used.vector():
                return
        tx.put(NAME, QUOTAS, quota.id, None)
        if not self.book.quotas:
            accounts.append(self.state.accounts[TOTAL])
        for account in accounts:
            tx.close_account(account)

    # What follows from the ledger

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        quota = self.book.by_account.get(account.name)
        if quota is not None:
            if self.rights is not None:
                self.rights.keep(quota)
            self.book.shift(quota, claim, cost, sign)
            self.status.dirty.add(quota.id)
        elif account.name == TOTAL:
            return
        elif not account.name.endswith(FIRM_SUFFIX):
            if sign > 0:
                self.runners[claim.uid] = (account, cost)
            else:
                del self.runners[claim.uid]
            self.status.runs(account.name, claim, sign > 0)

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        if table == OPTIONS:
            self.book.set_options(options_in(new))
            self.status.dirty.update(self.book.quotas)
        else:
            self.book.set_quota(key, new)
            self.status.dirty.add(key)
            self.concerns_changed()

    # One claim

    def concerns(self, claim: Claim) -> bool:
        return self.book.governing(claim.namespace) is not None

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        quota = self.book.governing(claim.namespace)
        if quota is None:
            return None
        known = quota.known_binding(claim.spec)
        if known is not None:
            return known
        accounts = self.state.accounts
        try:
            cost = self.book.memory.cost(claim.spec.quota_requests)
        except OverflowError as error:
            return Refusal(NAME, f"{NAME}.unreadable", str(error), quota.account, permanent=True)
        return quota.new_binding(claim.spec, cost, accounts, accounts[TOTAL])

    def check(self, claim: Claim, binding: Binding) -> Refusal | None:
        return super().check(claim, binding)

    def standing_refusal(self, claim: Claim, binding: Binding) -> Refusal | None:
        """Max leaves no room, and all members of its quota are as important: only of these could it take room."""
        account = binding.accounts[0]
        short = account.short_dimension(binding.costs[0])
        quota = self.book.by_account.get(account.name)
        if short < 0 or quota is None:
            return None
        if claim.spec.preempts and quota.order.has_preemptible_below(claim.spec.priority):
            return None
        return self.refusal(claim, account, short, binding.costs[0])

    def charge(self, tx: Transaction, claim: Claim, binding: Binding, forced: bool) -> Refusal | None:
        if not forced:
            refusal = self.check(claim, binding)
            if refusal is not None:
                return refusal
        tx.charge(claim, binding.accounts, binding.costs)
        if claim.state == RUNNING or claim.state == TERMINATING:  # noqa: PLR1714 compiled: quicker than a tuple
            self._run(tx, claim, binding)
        return None

    def release(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        tx.release(claim, binding.accounts, binding.costs)
        self._end_run(tx, claim)

    def begin_eviction(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        """Decisions stop counting it, but it runs until it is gone."""
        tx.release(claim, binding.accounts, binding.costs)

    def finish_eviction(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        self._end_run(tx, claim)

    def state_changed(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        """The claim moved on in its life: one that runs counts in the status, also while it leaves."""
        if claim.state == RUNNING or claim.state == TERMINATING:  # noqa: PLR1714 as above
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

    def search_begins(self, claim: Claim) -> Rights | None:
        quota = self.book.governing(claim.namespace)
        if quota is None:
            return None
        self.rights = ElasticRights(self.book, claim, quota, self._cost(claim), self.state.accounts)
        return self.rights

    def search_ends(self) -> None:
        self.rights = None

    def _cost(self, claim: Claim) -> Vector:
        return self.book.memory.cost(claim.spec.quota_requests)

    def missing(self, claim: Claim, binding: Binding) -> list[Row]:
        return self.missing_in_accounts(binding)

    def node_victims_topics(self, claim: Claim) -> tuple[str, ...]:
        return (TOTAL, ROOM_TAKEN)  # what a node is short of may decide, too

    def over_quota(self, claim: Claim) -> bool:
        binding = claim.binding_of(NAME)
        quota = None if binding is None else self.book.by_account.get(binding.accounts[0].name)
        member = None if quota is None else quota.members.get(claim.uid)
        return quota is not None and member is not None and not quota.inside().takes(member)

    # Answers

    def refusal(self, claim: Claim, account: Account, dim: int, cost: Vector) -> Refusal:
        rule = TOTAL_RULE if account.name == TOTAL else MIN_RULE if account.name.endswith(FIRM_SUFFIX) else MAX_RULE
        found = refusal_for(NAME, rule, account, dim, cost, cost.get(dim) > account.limits.get(dim))
        quota = self.book.governing(claim.namespace)
        if quota is None:
            return found
        used_of = f"{found.used} of its {rule} of {found.limit} in use"
        if rule == MIN_RULE:
            used_of += " by pods that may not be preempted"
        elif rule == TOTAL_RULE:
            used_of = f"{found.used} of the {found.limit} that all elastic quotas guarantee are in use"
        elif claim.spec.preempts and quota.order.has_preemptible_below(claim.spec.priority):
            # Which class those are of, and so whether it may displace them, depends on what all quotas use.
            found = found.listening((TOTAL,))
        return found.worded(quota.body.subject, used_of)

    def explain(self, claim: Claim, binding: Binding) -> Check:
        quota = self.book.by_account.get(binding.accounts[0].name)
        checks = self.account_checks(claim, binding)
        if quota is None:
            return checks
        return explain(self.book, quota, claim, self._cost(claim), self.state.accounts, checks)

    def outputs(self, now: int) -> list[Output]:
        return self.status.outputs(self.state, self.runners, self.nodes)
