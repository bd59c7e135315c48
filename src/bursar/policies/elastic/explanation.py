"""The explain tree of a claim in an elastic quota: numbers, class, loans, and whom it may displace."""

from __future__ import annotations

from typing import Final

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account
from bursar.policies.elastic.quota import ElasticQuotaState
from bursar.policies.elastic.quotas import QuotaBook, lending
from bursar.policies.elastic.rights import MIN, SHARE, ElasticRights
from bursar.policies.elastic.settings import BEYOND_SHARE, CLASSES, IN_MIN, NAME, WITHIN_SHARE
from bursar.policies.quota_table import QuotaRecord
from bursar.policies.results import Check
from bursar.policies.rights import Shortage, missing_rows
from bursar.resources import Vector, dimension, dimension_at

_SHOWN: Final = 5  # candidates that are named


def explain(
    book: QuotaBook,
    quota: ElasticQuotaState,
    claim: Claim,
    cost: Vector,
    accounts: dict[str, Account],
    checks: Check,
) -> Check:
    """The checks of the accounts, with the quota, class, loans and rights behind them."""
    children = [_quota_check(book, quota, cost), *checks.children, *_loan_checks(book, quota, cost.names())]
    if claim.counts():
        rank = quota.standing(book.share(quota)).rank(quota.members[claim.uid])
        children.insert(1, Check("class", True, CLASSES[rank]))
    else:
        rights = ElasticRights(book, claim, quota, cost, accounts)
        children.insert(1, Check("class", True, f"would be {CLASSES[rights.rank]}"))
        children.append(Check("rights", True, _rights(rights)))
        if not checks.passed:
            children.extend(_candidate_checks(book, rights, shortage_of(rights, cost)))
    return Check(NAME, checks.passed, "", tuple(children))


def shortage_of(rights: ElasticRights, cost: Vector) -> Shortage:
    """What the claim is short of in its quota and in all quotas together, wherever it runs."""
    listed = rights.quota.measure(cost).listed
    dims = cost.indices()
    rows = missing_rows(rights.account, dims, [cost.get(dim) for dim in dims])
    dims = listed.indices()
    rows.extend(missing_rows(rights.total, dims, [listed.get(dim) for dim in dims]))
    return Shortage("", rows, [])


def _quota_check(book: QuotaBook, quota: ElasticQuotaState, cost: Vector) -> Check:
    extra = book.guaranteed(quota)
    notes = [_numbers(quota, k, extra[k]) for k in range(len(extra)) if cost.get(quota.dims[k]) > 0]
    return Check(quota.body.subject, True, "; ".join(notes) or "lists nothing that the claim requests")


def _numbers(quota: ElasticQuotaState, k: int, extra: int) -> str:
    return f"{dimension_at(quota.dims[k]).name}: {_figures(quota, k, extra)}"


def _figures(quota: ElasticQuotaState, k: int, extra: int) -> str:
    resource = dimension_at(quota.dims[k])
    show = resource.show
    floor, used = quota.floor[k], quota.used[k]
    most = quota.body.max.listed.get(resource.name)
    ceiling = "none" if most is None else show(most)
    over = f", over-quota {show(used - floor)}" if used > floor else ""
    return f"min {show(floor)}, max {ceiling}, used {show(used)}{over}, guaranteed over-quota {show(extra)}"


def explain_quota(book: QuotaBook, quota: ElasticQuotaState, row: QuotaRecord) -> Check:
    """What the quota has of each resource, what it borrows and from whom, and what it lends to whom."""
    extra = book.guaranteed(quota)
    children: list[Check] = []
    for name, check in row.checks():
        k = quota.position(dimension(name).index)
        loans = tuple(_loan_checks(book, quota, [name]))
        note = check.note if k < 0 else _figures(quota, k, extra[k])
        children.append(Check(name, check.passed, note, loans))
    passed = all(child.passed for child in children)
    namespaces = f"of namespaces {', '.join(quota.body.namespaces)}" if len(quota.body.namespaces) > 1 else ""
    return Check(quota.body.subject, passed, namespaces, tuple(children))


def _loan_checks(book: QuotaBook, quota: ElasticQuotaState, names: list[str]) -> list[Check]:
    found: list[Check] = []
    for name, all_loans in lending(book).items():
        if name not in names:
            continue
        show = dimension(name).show
        for loan in all_loans:
            if loan.borrower == quota.body.subject:
                source = loan.lender or "spare capacity"
                found.append(Check("borrows", True, f"{show(loan.amount)} {name} from {source}"))
            elif loan.lender == quota.body.subject:
                found.append(Check("lends", True, f"{show(loan.amount)} {name} to {loan.borrower}"))
    return found


def _rights(rights: ElasticRights) -> str:
    own = "lower-priority claims of its own quota"
    if rights.rank < IN_MIN:
        own += " that are not of a better class"
    if rights.rank == IN_MIN and not rights.above_min:
        return f"may displace {own}, and over-quota claims of others: its quota stays within min"
    if rights.rank >= WITHIN_SHARE and not rights.above_share:
        return f"may displace {own}, and beyond-share claims of others: its quota stays within min + guaranteed"
    if rights.rank == IN_MIN:
        return f"may displace {own}, and over-quota claims of others if its quota then ends within min"
    if rights.rank == WITHIN_SHARE:
        return f"may displace {own}, and beyond-share claims of others if its quota then ends within min + guaranteed"
    return f"may displace {own} only: its quota would use more than min + guaranteed"


def _candidate_checks(book: QuotaBook, rights: ElasticRights, shortage: Shortage) -> list[Check]:
    """The claims that it could preempt, in order, and what it may take from the other quotas."""
    shown: dict[str, str] = {}
    for way in rights.ways():
        for found in rights.everywhere(way, shortage):
            claim = found.claim
            mark = "" if claim.spec.preemptible else ", may not be preempted"
            shown.setdefault(claim.uid, f"{claim.key} ({CLASSES[found.rank]}, priority {claim.spec.priority}{mark})")
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    others = [quota for quota in book.live() if quota.id != rights.quota.id]
    return [
        *([Check("candidates", True, ", ".join(list(shown.values())[:_SHOWN]) + more)] if shown else []),
        *[Check(quota.body.subject, True, _takeable(rights, quota)) for quota in others],
    ]


def _takeable(rights: ElasticRights, quota: ElasticQuotaState) -> str:
    standing = rights.standing(quota)
    ranks = [(standing.rank(member), member) for member in quota.members.values()]
    over = [member for rank, member in ranks if rank < IN_MIN]
    beyond = [member for rank, member in ranks if rank == BEYOND_SHARE]
    if not over:
        return "within its min: nothing to take"
    text = f"{len(over)} over-quota claims, {len(beyond)} of them beyond its share"
    ways = rights.ways()
    if MIN in ways:
        return text
    if SHARE not in ways:
        return f"{text}; not for this claim"
    kept = [member for member in beyond if rights.spares(quota, member)]
    spared = f"; without {len(kept)} of them alone it would fall below its min" if kept else ""
    return f"{text}; only those beyond{spared}"
