"""The quotas of all dialects in one table.

Each dialect keeps its numbers in its own place: manifests, statuses that its policy writes, annotations, the ledger's
accounts. One small reader a dialect brings them to one form: used, min, max, runtime, borrowed. What is lent follows
from that for all of them alike: what somebody borrowed of a resource is shared out over those whose min is idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bursar.policies.crossquota.policy import CrossQuotaPolicy
from bursar.policies.elastic.settings import PREFIX as ELASTIC_PREFIX
from bursar.policies.elastic.settings import quota_id
from bursar.policies.namespace.policy import PREFIX as LIMITS_PREFIX
from bursar.policies.pools import settings as pools
from bursar.policies.pools.propagation import account_key
from bursar.policies.trees.model import QuotaTreeModel, account_name
from bursar.policies.trees.policy import TreesPolicy
from bursar.quantity import QuantityError
from bursar.resources import UNLIMITED, Vector, dimension
from bursar.server import types
from bursar.sim.cluster import Cluster
from bursar.sim.objects import Stored

_ELASTIC = ("ElasticQuota.n8s.nebuly.ai", "CompositeElasticQuota.n8s.nebuly.ai")
_LIMITS = "GPUResourceQuota.tensor-fusion.ai"
_TREE = "QuotaTree.bursar.dev"
_ENDLESS = "4611686018427387"


@dataclass(slots=True)
class QuotaFigures:
    """One resource of a quota, in the exact units of its dimension; None: does not apply."""

    used: int = 0
    min: int | None = None
    max: int | None = None
    runtime: int | None = None
    borrowed: int | None = None
    idle: int | None = None
    lent: int | None = None


@dataclass(slots=True)
class QuotaRecord:
    policy: str
    kind: str
    namespace: str
    name: str
    node: str = ""
    parent: str = ""
    tree: str = ""
    resources: dict[str, QuotaFigures] = field(default_factory=dict)
    message: str = ""

    @property
    def lends_in(self) -> str:
        """Quotas that lend to each other: those of a policy and tree."""
        return f"{self.policy} {self.tree}"

    @property
    def label(self) -> str:
        """What people call it."""
        key = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{key}:{self.node}" if self.node else key


@dataclass(frozen=True, slots=True)
class Gathered:
    """What the quotas of one moment are read from: objects, which never change, and what the ledger had to say."""

    elastic: list[Stored]
    limits: list[Stored]
    pools: list[Stored]
    others: list[QuotaRecord]

    def quotas(self) -> list[QuotaRecord]:
        """All quotas, by policy, namespace and name. Needs no lock."""
        found = [*map(_elastic, self.elastic), *map(_limits, self.limits), *map(_pools, self.pools), *self.others]
        _share_out(found)
        found.sort(key=lambda quota: (quota.policy, quota.kind, quota.namespace, quota.name, quota.node))
        return found


def gather(cluster: Cluster) -> Gathered:
    """Whoever calls holds the cluster's lock, and may let it go to read the quotas."""
    return Gathered(
        _objects(cluster, _ELASTIC),
        _objects(cluster, (_LIMITS,)),
        _objects(cluster, (pools.QUOTA_OBJECT,)),
        [*_trees(cluster), *_crossquota(cluster)],
    )


def quotas(cluster: Cluster) -> list[QuotaRecord]:
    """All quotas of a cluster. Whoever calls holds its lock."""
    return gather(cluster).quotas()


def accounts_called(cluster: Cluster, text: str) -> list[str]:
    """The accounts that a text may mean: the one of that name, or those of quotas that the table calls so."""
    accounts = cluster.engine.state.accounts
    if text in accounts:
        return [text]
    tree, _, node = text.partition(":")
    found = {account_name(tree, node)} & accounts.keys()
    known = (cluster.objects.find(kind, text) for kind in (*_ELASTIC, _LIMITS, pools.QUOTA_OBJECT))
    return sorted(found.union(_account_of(stored) for stored in known if stored is not None))


def _account_of(stored: Stored) -> str:
    if stored.kind.name == _LIMITS:
        return LIMITS_PREFIX + stored.namespace
    if stored.kind.name == pools.QUOTA_OBJECT:
        return account_key(_pools(stored).tree, stored.name)
    return ELASTIC_PREFIX + quota_id(stored.kind.kind, stored.key)


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
    )


def _shown(name: str, figures: QuotaFigures) -> types.QuotaAmounts:
    show = dimension(name).show

    def text(amount: int | None) -> str:
        return "" if amount is None else show(amount)

    return types.QuotaAmounts(
        used=show(figures.used),
        min=text(figures.min),
        max=text(figures.max),
        runtime=text(figures.runtime),
        borrowed=text(figures.borrowed),
        idle=text(figures.idle),
        lent=text(figures.lent),
    )


# The dialects


def _elastic(stored: Stored) -> QuotaRecord:
    quota = _named("elastic", stored)
    status = stored.written.get("status", {})
    spec = stored.body.get("spec") or {}
    _fill(quota, "min", spec.get("min"))
    _fill(quota, "max", spec.get("max"))
    _fill(quota, "used", status.get("reserved"))
    _borrow(quota)
    return quota


def _limits(stored: Stored) -> QuotaRecord:
    quota = _named("limits", stored)
    total = (stored.body.get("spec") or {}).get("total") or {}
    used = stored.written.get("status", {}).get("used") or {}
    for side in ("requests", "limits"):
        _fill(quota, "max", _prefixed(side, total.get(side)))
        _fill(quota, "used", _prefixed(side, used.get(side)))
    _fill(quota, "max", {"workers": total.get("maxWorkers")})
    _fill(quota, "used", {"workers": used.get("workers")})
    return quota


def _prefixed(side: str, amounts: Any) -> dict[str, Any]:  # noqa: ANN401 whatever the manifest has
    return {f"{side}.{name}": value for name, value in (amounts or {}).items()}


def _pools(stored: Stored) -> QuotaRecord:
    quota = _named("pools", stored)
    body = stored.body
    labels = {**((body.get("metadata") or {}).get("labels") or {}), **stored.written.get("labels", {})}
    quota.parent = labels.get(pools.PARENT, "")
    quota.tree = labels.get(pools.TREE, "")
    spec = body.get("spec") or {}
    _fill(quota, "min", spec.get("min"))
    _fill(quota, "max", {name: most for name, most in (spec.get("max") or {}).items() if str(most) != _ENDLESS})
    _fill(quota, "used", stored.written.get("status", {}).get("used"))
    runtime = stored.written.get("annotations", {}).get(pools.RUNTIME)
    _fill(quota, "runtime", msgspec.json.decode(runtime) if runtime else None)
    if labels.get(pools.IS_PARENT) != "true":
        _borrow(quota)
    return quota


def _trees(cluster: Cluster) -> Iterator[QuotaRecord]:
    for policy in cluster.engine.policies:
        if isinstance(policy, TreesPolicy):
            for tree in policy.trees.by_name.values():
                yield from _nodes_of_tree(tree)


def _nodes_of_tree(tree: QuotaTreeModel) -> Iterator[QuotaRecord]:
    borrowed: dict[str, Vector] = {}
    for node in tree.nodes.values():
        for seat in [] if node.leaf else tree.seated(node):
            if seat.group is not None and seat.group is not node:
                known = borrowed.get(seat.group.name)
                borrowed[seat.group.name] = seat.ask.cost if known is None else known.plus(seat.ask.cost)
    for name, node in tree.nodes.items():
        quota = QuotaRecord(
            "trees", _TREE, "", tree.name, name, "" if node.parent is None else node.parent.name, tree.name
        )
        loans = borrowed.get(name)
        for resource, amount in node.account.limits.listed.items():
            figures = quota.resources.setdefault(resource, QuotaFigures())
            figures.min = amount
            figures.max = amount if node.hard or node.parent is None else None
            figures.used = node.account.used.amount(resource)
            figures.borrowed = 0 if loans is None else loans.amount(resource)
            figures.idle = max(0, amount - figures.used) if node.leaf else None
        yield quota


def _crossquota(cluster: Cluster) -> Iterator[QuotaRecord]:
    for policy in cluster.engine.policies:
        if not isinstance(policy, CrossQuotaPolicy):
            continue
        for stored in cluster.objects.all("Node"):
            facts = policy.index.node(stored.key)
            if facts is None or not facts.is_gpu_node():
                continue
            account = cluster.engine.state.accounts.get(f"crossquota/{stored.key}")
            quota = QuotaRecord("crossquota", "Node", "", stored.key)
            for limit in facts.quotas:
                used = 0 if account is None else account.used.amount(limit.resource)
                most = None if limit.cap == UNLIMITED else limit.cap
                quota.resources[limit.resource] = QuotaFigures(used=used, max=most)
            yield quota


# Helpers


def _objects(cluster: Cluster, kinds: tuple[str, ...]) -> list[Stored]:
    return [stored for kind in kinds for stored in cluster.objects.all(kind)]


def _named(policy: str, stored: Stored) -> QuotaRecord:
    conditions = stored.written.get("status", {}).get("conditions") or []
    told = [one["message"] for one in conditions if one.get("message") and _is_bad(one)]
    return QuotaRecord(policy, stored.kind.name, stored.namespace, stored.name, message="; ".join(told))


def _is_bad(condition: dict[str, Any]) -> bool:
    good = condition.get("type") == "Ready"
    return (condition.get("status") == "True") != good or condition.get("reason") == "Exceeded"


def _fill(quota: QuotaRecord, name: str, amounts: dict[str, Any] | None) -> None:
    for resource, value in (amounts or {}).items():
        if value is not None:
            setattr(quota.resources.setdefault(resource, QuotaFigures()), name, _parse(resource, value))


def _parse(resource: str, value: object) -> int:
    try:
        return dimension(resource).parse(value)
    except QuantityError:  # only a status of an older format could be unreadable: what was applied was checked
        return 0


def _borrow(quota: QuotaRecord) -> None:
    for figures in quota.resources.values():
        if figures.min is not None:
            figures.borrowed = max(0, figures.used - figures.min)
            figures.idle = max(0, figures.min - figures.used)


def _share_out(found: list[QuotaRecord]) -> None:
    """What is borrowed of a resource was lent by those whose min is idle, in proportion."""
    borrowed, idle = _sums(found, lambda f: f.borrowed), _sums(found, lambda f: f.idle)
    for quota in found:
        for resource, figures in quota.resources.items():
            if figures.idle is not None:
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
