"""The elastic policy: every quota is sure of its min, may borrow what others leave unused, and gives it back.

Each quota has three accounts and a cell. One account has all that counts, limited by max; one all that may not be
preempted, limited by min; one all that runs, without limits, for the status. The account ``elastic/total`` has what all
quotas use of the dimensions that their min lists. Its limits are the sums of the minimums, unless borrowing is bounded
by capacity.

A deleted quota keeps its accounts until no claim is charged to them. Everything else is derived and follows the ledger
through ``charged`` and ``cell_changed``, except ``search`` and ``status``, which belong to the current call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from bursar.ledger.claims import RUNNING, TERMINATING, Binding, Claim
from bursar.ledger.state import Account
from bursar.ledger.transaction import Transaction
from bursar.policies.elastic.preemption import Search
from bursar.policies.elastic.quota import ElasticQuotaState
from bursar.policies.elastic.quotas import QuotaBook, configure_options, configure_quota, lending
from bursar.policies.elastic.settings import (
    CLASSES,
    FIRM_SUFFIX,
    IN_MIN,
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
from bursar.resources import Vector, dimension, dimension_at

_SHOWN: Final = 5  # candidates that are named


def explain(book: QuotaBook, quota: ElasticQuotaState, claim: Claim, cost: Vector, accounts: Check) -> Check:
    """The checks of the accounts, with the quota, class, loans and rights behind them."""
    children = [_quota_check(book, quota, cost), *accounts.children, *_loan_checks(book, quota, cost)]
    if claim.counts():
        rank = quota.standing(book.share(quota)).rank(claim.uid)
        children.insert(1, Check("class", True, CLASSES[rank]))
    else:
        search = Search(book, claim, quota, cost)
        children.insert(1, Check("class", True, f"would be {CLASSES[search.rank]}"))
        children.append(Check("rights", True, _rights(search)))
        if not accounts.passed:
            children.extend(_candidate_checks(book, search, quota.measure(cost).listed))
    return Check(NAME, accounts.passed, "", tuple(children))


def _quota_check(book: QuotaBook, quota: ElasticQuotaState, cost: Vector) -> Check:
    extra = book.guaranteed(quota)
    notes = [_numbers(quota, k, extra[k]) for k in range(len(extra)) if cost.get(quota.dims[k]) > 0]
    return Check(quota.body.subject, True, "; ".join(notes) or "lists nothing that the claim requests")


def _numbers(quota: ElasticQuotaState, k: int, extra: int) -> str:
    resource = dimension_at(quota.dims[k])
    show = resource.show
    floor, used = quota.floor[k], quota.used[k]
    most = quota.body.max.listed.get(resource.name)
    ceiling = "none" if most is None else show(most)
    over = f", over-quota {show(used - floor)}" if used > floor else ""
    numbers = f"min {show(floor)}, max {ceiling}, used {show(used)}{over}, guaranteed over-quota {show(extra)}"
    return f"{resource.name}: {numbers}"


def _loan_checks(book: QuotaBook, quota: ElasticQuotaState, cost: Vector) -> list[Check]:
    found: list[Check] = []
    for name, all_loans in lending(book).items():
        if cost.amount(name) == 0:
            continue
        show = dimension(name).show
        for loan in all_loans:
            if loan.borrower == quota.body.subject:
                source = loan.lender or "spare capacity"
                found.append(Check("borrows", True, f"{show(loan.amount)} {name} from {source}"))
            elif loan.lender == quota.body.subject:
                found.append(Check("lends", True, f"{show(loan.amount)} {name} to {loan.borrower}"))
    return found


def _rights(search: Search) -> str:
    own = "lower-priority claims of its own quota"
    if search.rank < IN_MIN:
        own += " that are not of a better class"
    if search.claims_min:
        return f"may displace {own}, and over-quota claims of others: its quota stays within min"
    if search.claims_share:
        return f"may displace {own}, and beyond-share claims of others: its quota stays within min + guaranteed"
    return f"may displace {own} only: its quota would use more than min + guaranteed"


def _candidate_checks(book: QuotaBook, search: Search, short: Vector) -> list[Check]:
    """The claims that it could preempt, in order, and what it may take from the other quotas."""
    shown: list[str] = []
    total = 0
    for candidate in search.candidates(False):
        if search.may_take(candidate, short):
            total += 1
            if total <= _SHOWN:
                claim = candidate.member.claim
                rank = search.standing(candidate.quota).rank(claim.uid)
                mark = "" if claim.spec.preemptible else ", may not be preempted"
                shown.append(f"{claim.key} ({CLASSES[rank]}, priority {claim.spec.priority}{mark})")
    more = f" and {total - _SHOWN} more" if total > _SHOWN else ""
    others = [quota for quota in book.live() if quota.id != search.quota.id]
    return [
        Check("candidates", True, (", ".join(shown) + more) if shown else "nobody"),
        *[Check(quota.body.subject, True, _takeable(search, quota)) for quota in others],
    ]


def _takeable(search: Search, quota: ElasticQuotaState) -> str:
    standing = search.standing(quota)
    if not standing.beyond and not standing.within:
        return "within its min: nothing to take"
    over = len(standing.beyond) + len(standing.within)
    text = f"{over} over-quota claims, {len(standing.beyond)} of them beyond its share"
    if search.claims_min:
        return text
    if not search.claims_share:
        return f"{text}; not for this claim"
    return f"{text}; only those beyond"


_MAX: Final = f"{NAME}.{MAX_RULE}."
_TOTAL: Final = f"{NAME}.{TOTAL_RULE}."


@final
class ElasticPolicy(QuotaPolicy):
    """ElasticQuota and CompositeElasticQuota."""

    def __init__(self) -> None:
        super().__init__(NAME, (QUOTA_SETTING, OPTIONS_SETTING))
        self.book: Final = QuotaBook()
        self.runners: Final[dict[str, tuple[Account, Vector]]] = {}  # by uid: where a claim that runs is counted
        self.status: Final = ElasticStatusWriter(self.book)
        self.search: Search | None = None

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
        for account in accounts:
            tx.close_account(account)

    # What follows from the ledger

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        quota = self.book.by_account.get(account.name)
        if quota is not None:
            if self.search is not None:
                self.search.keep(quota)
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
            cost = self.book.memory.cost(claim.spec.requests)
        except OverflowError as error:
            return Refusal(NAME, f"{NAME}.unreadable", str(error), quota.account, permanent=True)
        return quota.new_binding(claim.spec, cost, accounts, accounts[TOTAL])

    def check(self, claim: Claim, binding: Binding) -> Refusal | None:
        return super().check(claim, binding)

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

    def order_node_victims(
        self, tx: Transaction, claim: Claim, victims: list[Claim], short: Vector
    ) -> list[Claim] | None:
        return None if self.search is None else self.search.contest(victims, short)

    def node_victims_topic(self) -> str:
        return TOTAL

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
        return self.status.outputs(self.state, self.runners)
