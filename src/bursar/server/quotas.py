"""The quotas of all policies in one table.

Each plugin fills in its rows: used, min, max, runtime, borrowed. What is lent follows from these for all of them alike:
what is borrowed of a resource is shared out over the quotas whose min is idle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bursar.policies.quota_table import QuotaFigures, QuotaRecord, ReadQuota
from bursar.resources import dimension
from bursar.server import types
from bursar.sim.cluster import Cluster
from bursar.sim.objects import Stored


@dataclass(frozen=True, slots=True)
class Gathered:
    """What the quotas of one moment are read from: objects, which never change, and rows from the ledger."""

    policies: list[str]  # in their order
    objects: list[tuple[str, ReadQuota, Stored]]  # (policy, reader, object)
    others: list[QuotaRecord]

    def quotas(self) -> list[QuotaRecord]:
        """All quotas, by policy (those of single nodes last), namespace and name. Needs no lock."""
        found = [*(_read(*one) for one in self.objects), *self.others]
        _share_out(found)
        order = {name: place for place, name in enumerate(self.policies)}
        found.sort(key=lambda quota: (order[quota.policy], quota.kind, quota.namespace, quota.name, quota.node))
        return found

    def named(self, text: str) -> list[QuotaRecord]:
        """The quotas that the text may mean, without what they lend, which takes all others to say."""
        likely = [one for one in self.objects if f"/{text}".endswith((f"/{one[2].key}", f"/{one[2].name}"))]
        for objects in (likely, self.objects):
            found = [row for row in (*(_read(*one) for one in objects), *self.others) if text in row.forms]
            if found:
                return found
        return []


def gather(cluster: Cluster) -> Gathered:
    """The caller holds the cluster's lock, and may release it before it reads the quotas."""
    objects = [
        (plugin.name, read, stored)
        for plugin in cluster.registry
        for kind, read in plugin.quotas.objects.items()
        for stored in cluster.objects.all(kind)
    ]
    return Gathered([plugin.name for plugin in cluster.registry], objects, _rows(cluster))


def _rows(cluster: Cluster) -> list[QuotaRecord]:
    pairs = cluster.registry.paired(cluster.engine.policies)
    return [row for plugin, policy in pairs if plugin.quotas.rows is not None for row in plugin.quotas.rows(policy)]


def quotas(cluster: Cluster) -> list[QuotaRecord]:
    """All quotas of a cluster. The caller holds its lock."""
    return gather(cluster).quotas()


def accounts_called(cluster: Cluster, text: str) -> list[str]:
    """The accounts that a text may mean: the one of that name, or those of quotas that the table calls so."""
    accounts = cluster.engine.state.accounts
    if text in accounts:
        return [text]
    found = {row.account for row in _rows(cluster) if row.label == text} & accounts.keys()
    for plugin in cluster.registry:
        for kind, read in plugin.quotas.objects.items():
            stored = cluster.objects.find(kind, text)
            if stored is not None:
                found.add(_read(plugin.name, read, stored).account)
    return sorted(found)


def row(quota: QuotaRecord) -> types.QuotaRow:
    over = [name for name, figures in quota.resources.items() if figures.max is not None and figures.used > figures.max]
    return types.QuotaRow(
        policy=quota.policy,
        kind=quota.kind,
        namespace=quota.namespace,
        name=quota.name,
        node=quota.node,
        parent=quota.parent,
        tree=quota.tree,
        resources={name: _shown(name, figures) for name, figures in sorted(quota.resources.items())},
        exceeded=bool(over),
        message=quota.message,
        account=quota.account,
    )


def _shown(name: str, figures: QuotaFigures) -> types.QuotaAmounts:
    show = dimension(name).show
    amounts = ((side, getattr(figures, side)) for side in types.QuotaAmounts.__struct_fields__)
    return types.QuotaAmounts(**{side: "" if amount is None else show(amount) for side, amount in amounts})


def _read(policy: str, read: ReadQuota, stored: Stored) -> QuotaRecord:
    conditions = stored.written.get("status", {}).get("conditions") or []
    problems = [one["message"] for one in conditions if one.get("message") and _is_bad(one)]
    quota = QuotaRecord(policy, stored.kind.name, stored.namespace, stored.name, message="; ".join(problems))
    read(quota, stored.body, stored.written)
    return quota


def _is_bad(condition: dict[str, Any]) -> bool:
    good = condition.get("type") == "Ready"
    return (condition.get("status") == "True") != good or condition.get("reason") == "Exceeded"


def _share_out(found: list[QuotaRecord]) -> None:
    """What is borrowed of a resource was lent by those whose min is idle, in proportion."""
    borrowed = _sums(found, lambda f: None if f.idle is None else f.borrowed)
    idle = _sums(found, lambda f: f.idle)
    for quota in found:
        for resource, figures in quota.resources.items():
            if figures.idle is not None:  # quotas above others repeat what these borrow
                key = (quota.lends_in, resource)
                loans = min(borrowed.get(key, 0), idle[key])
                figures.lent = loans * figures.idle // idle[key] if idle[key] else 0


def _sums(found: list[QuotaRecord], amount: Callable[[QuotaFigures], int | None]) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for quota in found:
        for resource, figures in quota.resources.items():
            key = (quota.lends_in, resource)
            sums[key] = sums.get(key, 0) + (amount(figures) or 0)
    return sums
