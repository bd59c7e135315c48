"""A policy whose limit depends on the hour of the day: so many pods in each namespace, more by day than by night."""

from __future__ import annotations

from bursar.ledger.claims import Binding, Claim
from bursar.ledger.transaction import Transaction
from bursar.policies.plugin import Plugin, Registry, default_registry
from bursar.policies.policy import QuotaPolicy
from bursar.policies.results import Refusal
from bursar.resources import Limits, from_amounts

NAME = "hours"
HOUR = 3_600_000
DAY = 24 * HOUR
OPENS, CLOSES = 9 * HOUR, 17 * HOUR
_ONE = from_amounts({"pods": 1})


class HoursPolicy(QuotaPolicy):
    """Two pods from 9:00 to 17:00, else one."""

    def __init__(self) -> None:
        super().__init__(NAME)

    def open_accounts(self, tx: Transaction, claim: Claim) -> None:
        if f"{NAME}/{claim.namespace}" not in self.state.accounts:
            tx.set_limits(tx.open_account(NAME, f"{NAME}/{claim.namespace}"), limits_at(tx.now))

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        account = self.state.accounts.get(f"{NAME}/{claim.namespace}")
        return None if account is None else Binding(NAME, (account,), (_ONE,))

    def advance(self, tx: Transaction, now: int) -> None:
        for account in [one for one in self.state.accounts.values() if one.policy == NAME]:
            tx.set_limits(account, limits_at(now))

    def next_due(self, now: int) -> int | None:
        midnight = now - now % DAY
        return min(at for at in (midnight + OPENS, midnight + CLOSES, midnight + DAY + OPENS) if at > now)


def limits_at(now: int) -> Limits:
    return Limits({"pods": 2 if OPENS <= now % DAY < CLOSES else 1})


def hours_registry() -> Registry:
    """The built-in policies and this one."""
    found = Registry(default_registry())
    found.add(Plugin(NAME, 45, HoursPolicy))
    return found
