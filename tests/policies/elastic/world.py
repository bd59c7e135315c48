"""An engine with elastic quotas and nodes, and short ways to fill it."""

from __future__ import annotations

from collections.abc import Mapping

from bursar.engine.decision import Decision
from bursar.engine.engine import Engine
from bursar.ledger.claims import PENDING, RUNNING, Claim, ClaimSpec
from bursar.policies.elastic.policy import ElasticPolicy
from bursar.policies.elastic.quota import ElasticQuotaState
from bursar.policies.elastic.settings import (
    COMPOSITE,
    ELASTIC_QUOTA,
    OPTIONS_SETTING,
    QUOTA_SETTING,
    ElasticOptionsBody,
    ElasticQuotaBody,
    quota_id,
)
from bursar.policies.nodes.policy import KIND as NODE_SETTING
from bursar.policies.nodes.policy import NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.results import Setting
from bursar.resources import parse_vector
from tests.amounts import parse_limits

GM = "n8s.nebuly.ai/gpu-memory"
GPU = "nvidia.com/gpu"
LOW, MIDDLE, HIGH = 10, 100, 1000

Amounts = Mapping[str, object]


def quota_setting(
    namespace: str,
    minimum: Amounts | None = None,
    maximum: Amounts | None = None,
    namespaces: tuple[str, ...] = (),
    takeover: bool = False,
    name: str = "quota",
) -> Setting:
    """An ElasticQuota, or with ``namespaces`` a composite one."""
    kind = COMPOSITE if namespaces else ELASTIC_QUOTA
    key = f"{namespace}/{name}"
    limits = parse_limits(minimum or {}), parse_limits(maximum or {})
    return Setting(
        QUOTA_SETTING, quota_id(kind, key), ElasticQuotaBody(kind, key, namespaces or (namespace,), *limits, takeover)
    )


def claim_of(
    uid: str,
    namespace: str,
    requests: Amounts | None = None,
    priority: int = 0,
    created: int = 0,
    *,
    preemptible: bool = True,
    owner: str = "",
    labels: dict[str, str] | None = None,
) -> Claim:
    spec = ClaimSpec(
        parse_vector(requests or {}), priority=priority, preemptible=preemptible, owner=owner, labels=labels
    )
    return Claim(uid, spec, created, namespace, uid)


class World:
    """Quotas by namespace (or ``ns/name``), claims by name; every call is one transaction."""

    def __init__(self, gpu_gb: int = 16, borrowing: str = "min", order: str = "priority", placed: bool = False) -> None:
        self.policy = ElasticPolicy()
        self.engine = Engine([self.policy, NodesPolicy()] if placed else [self.policy])
        self.placed = placed
        self.now = 0
        self.options(gpu_gb, borrowing, order)

    def options(self, gpu_gb: int = 16, borrowing: str = "min", order: str = "priority", **slices: int) -> None:
        named = {name.replace("__", "/").replace("_", "."): size for name, size in slices.items()}
        self.engine.configure(
            [Setting(OPTIONS_SETTING, "default", ElasticOptionsBody(gpu_gb, named, borrowing, order))]
        )

    def quota(self, namespace: str, minimum: Amounts | None = None, maximum: Amounts | None = None) -> None:
        self.engine.configure([quota_setting(namespace, minimum, maximum)])

    def composite(
        self,
        namespace: str,
        namespaces: tuple[str, ...],
        minimum: Amounts | None = None,
        maximum: Amounts | None = None,
        takeover: bool = False,
    ) -> None:
        self.engine.configure([quota_setting(namespace, minimum, maximum, namespaces, takeover)])

    def remove(self, namespace: str, kind: str = ELASTIC_QUOTA) -> None:
        self.engine.configure([Setting(QUOTA_SETTING, quota_id(kind, f"{namespace}/quota"), None)])

    def node(self, name: str, allocatable: Amounts) -> None:
        self.engine.configure([Setting(NODE_SETTING, name, NodeBody(parse_limits(allocatable)))])

    # Claims

    def decide(self, claim: Claim) -> Decision:
        return self.engine.decide(claim, self.now)

    def ask(self, uid: str, namespace: str, requests: Amounts, priority: int = 0, **kind: bool) -> Decision:
        """A new claim, newer than all before it."""
        self.now += 1
        return self.decide(claim_of(uid, namespace, requests, priority, self.now, **kind))  # type: ignore[arg-type]

    def fact(self, uid: str, namespace: str, requests: Amounts, priority: int = 0, node: str = "") -> None:
        """A claim that is there already, whoever would have refused it; it runs."""
        self.now += 1
        claim = claim_of(uid, namespace, requests, priority, self.now)
        self.engine.submit(claim, self.now)
        if node:
            self.engine.place(uid, node, self.now, forced=True)
        else:
            assert self.engine.admit(claim, self.now).admitted
        self.engine.observe(uid, RUNNING, self.now)

    def run(self, *uids: str) -> None:
        for uid in uids:
            self.engine.observe(uid, RUNNING, self.now)

    def leave(self) -> None:
        """Everybody who was told to leave is gone."""
        for uid in [uid for uid, claim in sorted(self.engine.state.claims.items()) if claim.leaving]:
            self.engine.release(uid, self.now)

    def names(self, decision: Decision) -> list[str]:
        return list(decision.victims)

    # Answers

    def found(self, namespace: str) -> ElasticQuotaState:
        quota = self.policy.book.governing(namespace)
        assert quota is not None
        return quota

    def used(self, namespace: str) -> dict[str, str]:
        """What decisions count in the quota of the namespace."""
        return self.engine.state.accounts[self.found(namespace).account].used.vector().show()

    def classes(self, namespace: str) -> dict[str, int]:
        quota = self.found(namespace)
        standing = quota.standing(self.policy.book.share(quota))
        return {uid: standing.rank(quota.members[uid]) for uid in sorted(quota.members)}

    def counted(self) -> list[str]:
        return sorted(uid for uid, claim in self.engine.state.claims.items() if claim.counts())

    def waiting(self) -> list[str]:
        return sorted(uid for uid, claim in self.engine.state.claims.items() if claim.state == PENDING)

    def replayed(self) -> World:
        """Another world made of this one's journal; the journal is used up."""
        other = World.__new__(World)
        other.policy = ElasticPolicy()
        other.engine = Engine([other.policy, NodesPolicy()] if self.placed else [other.policy])
        other.placed, other.now = self.placed, self.now
        other.engine.replay(self.engine.journal.take())
        return other
