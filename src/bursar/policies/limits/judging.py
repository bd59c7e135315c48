"""Does a worker fit the quotas of its namespace: the checks in their order, and the refusal of the first that fails.

First what one workload may ask for (nothing but a change of the workload or the quota helps there), then the totals
of the namespace. Only the amounts handed in are checked, so that a caller who shrinks hands in nothing.
"""

from __future__ import annotations

from typing import Final

from bursar.dimensions import dimension
from bursar.ledger.accounts import Account
from bursar.limits import first_short
from bursar.policies.checks import Refusal
from bursar.policies.limits.quotas import CHECKS, COUNT, COUNT_CODE, WORKERS, WORKERS_CODE, Quota, Space
from bursar.vectors import Tally, Vector

NAME: Final = "limits"
INVALID: Final = "limits.invalid"
_NOTHING_USED: Final = Tally()


def judge(space: Space, namespace: str, account: Account, cost: Vector, count: int) -> Refusal | None:
    """Why the cost, on top of what is used, is too much; ``count`` is the number of GPUs, 0 to leave it unchecked."""
    if space.unusable:
        return _unusable(space.quotas[space.unusable], account)
    if (
        first_short(_NOTHING_USED, cost, space.singles) < 0
        and (space.count < 0 or count <= space.count)
        and first_short(account.used, cost, space.totals) < 0
    ):
        return None
    return _first_single(space, namespace, account, cost, count) or _first_total(space, namespace, account, cost)


def _unusable(quota: Quota, account: Account) -> Refusal:
    note = f"quota {quota.key} is invalid and was never valid: {quota.problem}"
    return Refusal(NAME, INVALID, note, account.name)


def _first_single(space: Space, namespace: str, account: Account, cost: Vector, count: int) -> Refusal | None:
    for name, code, _ in CHECKS:
        for quota in space.quotas.values():
            most = quota.singles.get(name)
            if most is not None and 0 < cost.amount(name) > most:
                return _refusal(namespace, account, name, code, cost.amount(name), most, True)
    for quota in space.quotas.values():
        most = quota.singles.get(COUNT)
        if most is not None and count > most:
            return _refusal(namespace, account, COUNT, COUNT_CODE, count, most, True)
    return None


def _first_total(space: Space, namespace: str, account: Account, cost: Vector) -> Refusal | None:
    for name, _, code in (*CHECKS, (WORKERS, "", WORKERS_CODE)):
        wanted = cost.amount(name)
        for quota in space.quotas.values():
            most = quota.totals.get(name)
            if most is not None and wanted > 0 and account.used.amount(name) + wanted > most:
                return _refusal(namespace, account, name, code, wanted, most, False)
    return None


def _refusal(
    namespace: str, account: Account, name: str, code: str, wanted: int, most: int, permanent: bool
) -> Refusal:
    show = dimension(name).show
    note = f"quota exceeded in namespace {namespace} for {code}: requested {show(wanted)}, limit {show(most)}"
    used = "" if permanent else show(account.used.amount(name))
    return Refusal(NAME, code, note, account.name, name, show(wanted), used, show(most), permanent)
