"""Quotas of namespaces that are larger at night: an ``HourlyQuota`` has one limit for the day and one for the night."""

from __future__ import annotations

from bursar.ledger.claims import Binding, Claim
from bursar.ledger.transaction import Transaction
from bursar.objects.core import Manifest, Part, Quantities
from bursar.objects.kinds import Kind
from bursar.objects.requests import amounts_from
from bursar.policies.fix_fields import FixFields, LimitField, limit_fields
from bursar.policies.plugin import ObjectView, Plugin, Reason
from bursar.policies.policy import QuotaPolicy
from bursar.policies.quota_table import QuotaRecord, QuotaTable
from bursar.policies.results import Body, Refusal, Setting
from bursar.resources import Limits

NAME = "hours"
HOUR = 3_600_000  # milliseconds; all times are in UTC
OPENS, CLOSES, DAY = 8 * HOUR, 20 * HOUR, 24 * HOUR


class HourlySpec(Part, frozen=True):
    day: Quantities  # the limits from 8:00 to 20:00
    night: Quantities


class HourlyQuota(Manifest, frozen=True, kw_only=True):
    spec: HourlySpec


KIND = Kind("hours.example.com", "v1", "HourlyQuota", "hourlyquotas", True, HourlyQuota, strict=True)


class HourlyBody(Body):
    def __init__(self, spec: HourlySpec) -> None:
        self.day, self.night = amounts_from(spec.day, "spec.day"), amounts_from(spec.night, "spec.night")


class HoursPolicy(QuotaPolicy):
    """Each quota has an account, and a cell with its limits for day and night. A pod counts in its namespace's."""

    def __init__(self) -> None:
        super().__init__(NAME, (KIND.name,))

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        body, name = setting.body, f"{NAME}/{setting.key}"
        cell = (tuple(body.day.items()), tuple(body.night.items())) if isinstance(body, HourlyBody) else None
        tx.put(NAME, NAME, setting.key, cell)
        tx.set_limits(self.state.accounts.get(name) or tx.open_account(NAME, name), limits_at(cell, tx.now))
        namespace = setting.key.partition("/")[0]
        return sorted(uid for uid, claim in self.state.claims.items() if claim.namespace == namespace)

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        keys = [key for key in sorted(self.state.cells(NAME)) if key.startswith(f"{claim.namespace}/")]
        accounts = tuple(self.state.accounts[f"{NAME}/{key}"] for key in keys)
        return Binding(NAME, accounts, (claim.spec.requests,) * len(accounts)) if accounts else None

    def advance(self, tx: Transaction, now: int) -> None:
        for key, cell in sorted(self.state.cells(NAME).items()):
            tx.set_limits(self.state.accounts[f"{NAME}/{key}"], limits_at(cell, now))

    def next_due(self, now: int) -> int | None:
        midnight = now - now % DAY
        return min(at for at in (midnight + OPENS, midnight + CLOSES, midnight + DAY + OPENS) if at > now)


def limits_at(cell: object, now: int) -> Limits:
    """The limits of a quota at a time; none once it is deleted."""
    day, night = cell if isinstance(cell, tuple) else ((), ())
    return Limits(dict(day if OPENS <= now % DAY < CLOSES else night))


def settings_of(key: str, quota: HourlyQuota | None) -> list[Setting]:
    return [Setting(KIND.name, key, None if quota is None else HourlyBody(quota.spec))]


def rows_of(policy: HoursPolicy) -> list[QuotaRecord]:
    accounts = policy.state.accounts
    return [QuotaRecord.of_account(accounts[f"{NAME}/{key}"], KIND.name, key) for key in policy.state.cells(NAME)]


def fields_of(view: ObjectView, _claim: Claim, refusal: Refusal) -> list[LimitField]:
    quota = view.get(KIND.name, refusal.account.removeprefix(f"{NAME}/"))
    sides = (("spec", side, refusal.resource) for side in ("day", "night"))
    return [field for path in sides for field in limit_fields(KIND.name, quota, path, refusal.resource)]


PLUGIN = Plugin(
    NAME,
    45,  # after the quotas of namespaces (40), before nodes (50)
    HoursPolicy,
    kinds=(KIND,),
    translate={KIND.name: settings_of},
    namespaces={KIND.name: lambda key, _: (key.partition("/")[0],)},
    title="Quotas by the hour",
    reasons=(Reason("hours.limit.<resource>", "The quota is used up at this hour.", "Wait, or raise the quota."),),
    quotas=QuotaTable(rows=rows_of),
    fixes=FixFields(limits=fields_of),
)
