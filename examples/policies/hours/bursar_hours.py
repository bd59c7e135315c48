"""Quotas of namespaces that are larger at night: an ``HourlyQuota`` has one limit for the day and one for the night."""

from __future__ import annotations

import bursar

NAME = "hours"
HOUR = 3_600_000  # milliseconds; all times are in UTC
OPENS, CLOSES, DAY = 8 * HOUR, 20 * HOUR, 24 * HOUR


class HourlySpec(bursar.Part, frozen=True):
    day: bursar.Quantities  # the limits from 8:00 to 20:00
    night: bursar.Quantities


class HourlyQuota(bursar.Manifest, frozen=True, kw_only=True):
    spec: HourlySpec


KIND = bursar.Kind("hours.example.com", "v1", "HourlyQuota", "hourlyquotas", True, HourlyQuota, strict=True)


class HourlyBody(bursar.Body):
    def __init__(self, spec: HourlySpec) -> None:
        self.day, self.night = bursar.amounts_from(spec.day, "spec.day"), bursar.amounts_from(spec.night, "spec.night")


class HoursPolicy(bursar.QuotaPolicy):
    """Each quota has an account, and a cell with its limits for day and night. A pod counts in its namespace's."""

    def __init__(self) -> None:
        super().__init__(NAME, (KIND.name,))

    def configure(self, tx: bursar.Transaction, setting: bursar.Setting) -> list[str]:
        body, name = setting.body, f"{NAME}/{setting.key}"
        cell = (tuple(body.day.items()), tuple(body.night.items())) if isinstance(body, HourlyBody) else None
        tx.put(NAME, NAME, setting.key, cell)
        tx.set_limits(self.state.accounts.get(name) or tx.open_account(NAME, name), limits_at(cell, tx.now))
        namespace = setting.key.partition("/")[0]
        return sorted(uid for uid, claim in self.state.claims.items() if claim.namespace == namespace)

    def bind(self, claim: bursar.Claim, place: str) -> bursar.Binding | bursar.Refusal | None:
        keys = [key for key in sorted(self.state.cells(NAME)) if key.startswith(f"{claim.namespace}/")]
        accounts = tuple(self.state.accounts[f"{NAME}/{key}"] for key in keys)
        return bursar.Binding(NAME, accounts, (claim.spec.requests,) * len(accounts)) if accounts else None

    def advance(self, tx: bursar.Transaction, now: int) -> None:
        for key, cell in sorted(self.state.cells(NAME).items()):
            tx.set_limits(self.state.accounts[f"{NAME}/{key}"], limits_at(cell, now))

    def next_due(self, now: int) -> int | None:
        midnight = now - now % DAY
        return min(at for at in (midnight + OPENS, midnight + CLOSES, midnight + DAY + OPENS) if at > now)


def limits_at(cell: object, now: int) -> bursar.Limits:
    """The limits of a quota at a time; none once it is deleted."""
    day, night = cell if isinstance(cell, tuple) else ((), ())
    return bursar.Limits(dict(day if OPENS <= now % DAY < CLOSES else night))


def settings_of(key: str, quota: HourlyQuota | None) -> list[bursar.Setting]:
    return [bursar.Setting(KIND.name, key, None if quota is None else HourlyBody(quota.spec))]


def rows_of(policy: HoursPolicy) -> list[bursar.QuotaRecord]:
    accounts = policy.state.accounts
    return [
        bursar.QuotaRecord.of_account(accounts[f"{NAME}/{key}"], KIND.name, key) for key in policy.state.cells(NAME)
    ]


def fields_of(view: bursar.ObjectView, _claim: bursar.Claim, refusal: bursar.Refusal) -> list[bursar.LimitField]:
    quota = view.get(KIND.name, refusal.account.removeprefix(f"{NAME}/"))
    sides = (("spec", side, refusal.resource) for side in ("day", "night"))
    return [field for path in sides for field in bursar.limit_fields(KIND.name, quota, path, refusal.resource)]


PLUGIN = bursar.Plugin(
    NAME,
    45,  # after the quotas of namespaces (40), before nodes (50)
    HoursPolicy,
    kinds=(KIND,),
    translate={KIND.name: settings_of},
    namespaces={KIND.name: lambda key, _: (key.partition("/")[0],)},
    title="Quotas by the hour",
    reasons=(
        bursar.Reason("hours.limit.<resource>", "The quota is used up at this hour.", "Wait, or raise the quota."),
    ),
    quotas=bursar.QuotaTable(rows=rows_of),
    fixes=bursar.FixFields(limits=fields_of),
)
