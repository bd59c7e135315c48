"""The whole cluster on one page: what nodes have, what is used, reserved, free and usable, by resource, team and pool.

*Reserved* is what claims hold whose pods do not run yet. *Usable* is the part of what is free that comes in pieces as
large as the largest claim that waits: 8 free GPUs on four nodes are of no use to a pod that needs 4 at once. Claims
that fit no node, however empty, do not count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from bursar.engine.decision import NEVER, Decision
from bursar.ledger.claims import GONE, HELD, PENDING, RUNNING, TERMINATING, Claim
from bursar.ledger.state import Account
from bursar.objects.kinds import NODE
from bursar.resources import UNLIMITED, dimension
from bursar.server import total_types
from bursar.server.rows import NODE_PREFIX, ClaimView, gpu_records, labels_of, node_is_ready
from bursar.server.time_travel import moment_of
from bursar.sim.cluster import Cluster

_POOL_LABELS = (
    "pool", "node-pool", "tensor-fusion.ai/pool", "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool", "karpenter.sh/nodepool", "node.koordinator.sh/pool",
)  # fmt: skip
_WAITING = (PENDING, HELD)
Amounts = Counter[str]


@dataclass(slots=True)
class _Team:
    used: Amounts = field(default_factory=Counter)
    wanted: Amounts = field(default_factory=Counter)
    running: int = 0
    waiting: int = 0
    borrowing: int = 0


@dataclass(slots=True)
class _Pool:
    has: Amounts = field(default_factory=Counter)
    used: Amounts = field(default_factory=Counter)
    nodes: int = 0
    ready: int = 0


class OverviewCount:
    """One pass over nodes, GPUs and claims. The caller holds the cluster's lock."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._accounts = cluster.engine.state.accounts
        self._view = ClaimView(cluster)
        self._teams: defaultdict[str, _Team] = defaultdict(_Team)
        self._pools: defaultdict[str, _Pool] = defaultdict(_Pool)
        self._reserved: Amounts = Counter()
        self._waiting: defaultdict[str, dict[int, str]] = defaultdict(dict)  # by resource: amounts, each with a claim
        self._free: defaultdict[str, list[int]] = defaultdict(list)  # by resource: of each node or GPU
        self._most: Amounts = Counter()  # by resource: what the largest node or GPU has

    def overview(self) -> total_types.Overview:
        for claim in self._cluster.engine.state.claims.values():
            if claim.state != GONE:
                self._claim(claim)
        for stored in self._cluster.objects.all(NODE.name):
            pool = _pool_of(labels_of(stored))
            account = self._accounts.get(NODE_PREFIX + stored.key)
            self._node(self._pools[pool], account, ready=node_is_ready(stored.body))
        self._gpus()
        return total_types.Overview(
            moment=moment_of(self._cluster),
            resources=list(self._totals()),
            teams=[_team_row(name, team) for name, team in sorted(self._teams.items())],
            pools=[_pool_row(name, pool) for name, pool in sorted(self._pools.items())],
        )

    def _claim(self, claim: Claim) -> None:
        team = self._teams[claim.namespace]
        amounts = self._asked(claim)
        if claim.state in _WAITING:
            team.waiting += 1
            team.wanted.update(amounts)
            never = isinstance(claim.decision, Decision) and claim.decision.outcome == NEVER
            for name, amount in () if never else amounts.items():
                self._waiting[name].setdefault(amount, claim.key)
            return
        team.used.update(amounts)
        team.running += 1
        team.borrowing += self._view.borrows(claim)
        if claim.state not in {RUNNING, TERMINATING}:
            self._reserved.update(amounts)

    def _asked(self, claim: Claim) -> dict[str, int]:
        found = dict(claim.spec.quota_requests.pairs())
        for name, text in self._view.gpu_requests(claim).items():
            found[name] = dimension(name).parse(text)
        return found

    def _node(self, pool: _Pool, account: Account | None, *, ready: bool) -> None:
        pool.nodes += 1
        pool.ready += ready
        if account is None or not ready:
            return
        used = dict(account.busy.vector().pairs())
        for name, most in account.limits.listed.items():
            if most != UNLIMITED:
                self._piece(pool, name, most, used.get(name, 0))

    def _gpus(self) -> None:
        """GPUs that are handed out in parts; their amounts stand beside those of nodes."""
        pools = {stored.key: _pool_of(labels_of(stored)) for stored in self._cluster.objects.all(NODE.name)}
        for _, gpu in gpu_records(self._cluster):
            account = self._accounts.get(gpu.account)
            used = {} if account is None else dict(account.used.vector().pairs())
            pool = self._pools[pools.get(gpu.node, "")]
            for name, text in gpu.capacity.items():
                self._piece(pool, name, dimension(name).parse(text), used.get(name, 0))

    def _piece(self, pool: _Pool, name: str, has: int, used: int) -> None:
        pool.has[name] += has
        pool.used[name] += used
        self._free[name].append(max(0, has - used))
        self._most[name] = max(self._most[name], has)

    def _totals(self) -> Iterator[total_types.ResourceTotal]:
        for name, free in sorted(self._free.items()):
            has = sum(pool.has[name] for pool in self._pools.values())
            used = sum(pool.used[name] for pool in self._pools.values())
            reserved = min(self._reserved[name], used)
            asked = self._waiting[name]
            largest = max((amount for amount in asked if amount <= self._most[name]), default=0)
            usable = sum(piece // largest * largest for piece in free) if largest else sum(free)
            show = dimension(name).show
            yield total_types.ResourceTotal(
                resource=name,
                allocatable=show(has),
                used=show(used - reserved),
                reserved=show(reserved),
                free=show(sum(free)),
                usable=show(usable),
                largest=show(largest) if largest else "",
                largest_claim=asked.get(largest, ""),
            )


def overview(cluster: Cluster) -> total_types.Overview:
    return OverviewCount(cluster).overview()


def _pool_of(labels: dict[str, str]) -> str:
    """The pool of a node, by the first label that says so; "" if none does."""
    return next((labels[label] for label in _POOL_LABELS if label in labels), "")


def _shown(amounts: Amounts) -> dict[str, str]:
    return {name: dimension(name).show(amount) for name, amount in sorted(amounts.items()) if amount}


def _team_row(name: str, team: _Team) -> total_types.TeamTotal:
    return total_types.TeamTotal(
        namespace=name,
        used=_shown(team.used),
        wanted=_shown(team.wanted),
        running=team.running,
        waiting=team.waiting,
        borrowing=team.borrowing,
    )


def _pool_row(name: str, pool: _Pool) -> total_types.PoolTotal:
    return total_types.PoolTotal(
        name=name, nodes=pool.nodes, ready=pool.ready, allocatable=_shown(pool.has), used=_shown(pool.used)
    )
