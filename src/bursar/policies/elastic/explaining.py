"""How the elastic policy sees one claim, for people: its quota, its class, its rights, whom it could displace."""

from __future__ import annotations

from typing import Final

from bursar.dimensions import dimension
from bursar.ledger.claims import Claim
from bursar.policies.checks import Check
from bursar.policies.elastic.book import Book
from bursar.policies.elastic.names import CLASSES, IN_MIN, NAME
from bursar.policies.elastic.quota import Quota
from bursar.policies.elastic.search import Search
from bursar.policies.elastic.views import DimensionView, dimension_views, lending
from bursar.vectors import Vector

_SHOWN: Final = 5  # candidates that are named


def explain(book: Book, quota: Quota, claim: Claim, cost: Vector, accounts: Check) -> Check:
    """The checks of the accounts, with what stands behind them."""
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


def _quota_check(book: Book, quota: Quota, cost: Vector) -> Check:
    views = [view for view in dimension_views(book, quota) if cost.amount(view.name) > 0]
    note = "; ".join([_numbers(view) for view in views]) or "lists nothing that the claim requests"
    return Check(quota.body.subject, True, note)


def _numbers(view: DimensionView) -> str:
    show = dimension(view.name).show
    most = "none" if view.maximum is None else show(view.maximum)
    text = f"{view.name}: min {show(view.minimum)}, max {most}, used {show(view.used)}"
    over = f", over-quota {show(view.over_quota)}" if view.over_quota else ""
    return f"{text}{over}, guaranteed over-quota {show(view.guaranteed)}"


def _loan_checks(book: Book, quota: Quota, cost: Vector) -> list[Check]:
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


def _candidate_checks(book: Book, search: Search, short: Vector) -> list[Check]:
    """Whom it could displace, in order, and why others have nothing to fear."""
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
        *[Check(quota.body.subject, True, _fear(search, quota)) for quota in others],
    ]


def _fear(search: Search, quota: Quota) -> str:
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
