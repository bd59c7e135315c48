"""Rows about a cluster, of now or of the past: claims, the queue, nodes, GPUs, objects.

Read-only. The caller holds the cluster's lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from bursar.engine.decision import NEVER, Decision
from bursar.ledger.claims import STATES, Claim
from bursar.ledger.state import Account
from bursar.objects.core import Pod
from bursar.objects.kinds import NODE, POD
from bursar.objects.requests import pod_resources
from bursar.objects.validation import timestamp
from bursar.policies.plugin import Plugin, Registry
from bursar.policies.policy import Policy
from bursar.policies.quota_table import GpuRecord
from bursar.policies.results import Check
from bursar.resources import UNLIMITED, dimension
from bursar.server import types
from bursar.sim.cluster import Cluster
from bursar.sim.objects import Stored
from bursar.sim.pods import PENDING, SimPod

NODE_PREFIX = "nodes/"


# Objects


def stored_objects(cluster: Cluster, kind: str, namespace: str | None = None) -> list[Stored]:
    """Objects never change, so reading them needs no lock."""
    kinds = [kind] if kind else cluster.objects.kinds()
    return [stored for name in kinds for stored in cluster.objects.all(name, namespace)]


def labels_of(stored: Stored) -> dict[str, str]:
    given = (stored.body.get("metadata") or {}).get("labels") or {}
    return {**given, **written_labels(stored)}


def written_labels(stored: Stored) -> dict[str, str]:
    return cast("dict[str, str]", stored.written.get("labels", {}))


# Claims


class ClaimView:
    """Claims of a cluster; what is the same for all of them is looked up once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._state = cluster.engine.state
        self._pairs = cluster.registry.paired(cluster.engine.policies)
        self._borrowers = _borrowers(self._pairs)
        self._called_by = {
            policy.name: partial(plugin.quotas.called, policy)
            for plugin, policy in self._pairs
            if plugin.quotas.called is not None
        }
        self._over_quota = [plugin.quotas.over_quota for plugin in cluster.registry if plugin.quotas.over_quota]

    def all_keys(self) -> list[str]:
        """namespace/name of all claims: the pods there are, and claims without a pod."""
        pods = self._cluster.pods()
        known = set(pods)
        return sorted([*pods, *(claim.key for claim in self._state.claims.values() if claim.key not in known)])

    def claim(self, key: str) -> Claim | None:
        pod = self._cluster.doing(key)
        if pod is not None:
            return self._state.claims.get(pod.uid)
        found = self._cluster.controller.claim(key) or self._state.claims.get(key)
        return found if found is not None and found.key == key else None

    def matches(self, key: str, wanted: dict[str, str]) -> bool:
        """Whether its row would have these values; without making one, because that is asked of everybody."""
        if "namespace" in wanted and key.rpartition("/")[0] != wanted["namespace"]:
            return False
        pod = self._cluster.doing(key) if "phase" in wanted or "node" in wanted else None
        if "phase" in wanted and (PENDING if pod is None else pod.phase) != wanted["phase"]:
            return False
        claim = self.claim(key) if "node" in wanted else None
        place = claim.place if claim is not None else "" if pod is None else pod.node
        return "node" not in wanted or place == wanted["node"]

    def row(self, key: str) -> types.ClaimRow | None:
        claim = self.claim(key)
        stored = self._cluster.objects.find(POD.name, key)
        pod = self._cluster.doing(key)
        if claim is not None:
            return self._known(claim, stored, pod)
        return None if stored is None or pod is None else self._ended(stored, pod)

    def _known(self, claim: Claim, stored: Stored | None, pod: SimPod | None) -> types.ClaimRow:
        reason, message = self._cluster.controller.reason(claim.uid)
        if pod is not None and pod.evicted:
            reason, message = pod.reason, pod.message
        decision = claim.decision if isinstance(claim.decision, Decision) else None
        return types.ClaimRow(
            uid=claim.uid,
            namespace=claim.namespace,
            name=claim.name,
            phase=PENDING if pod is None else pod.phase,
            state=STATES[claim.state],
            node=claim.place,
            priority=claim.spec.priority,
            preemptible=claim.spec.preemptible,
            created=timestamp(claim.created),
            requests=claim.spec.quota_requests.show(),
            labels=claim.spec.labels if stored is None else {**claim.spec.labels, **written_labels(stored)},
            quotas=[account.name for account in self._accounts(claim)],
            quota_names=self._called(claim),
            group=claim.spec.group,
            leaving=claim.leaving,
            waits_for=[self._cluster.controller.name(uid) for uid in claim.waits_for],
            borrowing=self._borrows(claim.uid, stored),
            reason=reason,
            message=message,
            decided_at="" if decision is None else timestamp(decision.at),
            decided_by=0 if decision is None else decision.seq,
            gpus=shown_requests(self._cluster.registry, claim.spec.labels, claim.spec.annotations),
        )

    def _ended(self, stored: Stored, pod: SimPod) -> types.ClaimRow:
        typed = cast("Pod", stored.applied.typed)
        return types.ClaimRow(
            uid=pod.uid,
            namespace=stored.namespace,
            name=stored.name,
            phase=pod.phase,
            state="gone",
            node=pod.node,
            priority=typed.spec.priority or 0,
            preemptible=True,
            created=timestamp(stored.created),
            requests=pod_resources(typed.spec).requests.show(),
            labels=labels_of(stored),
            quotas=[],
            reason=pod.reason,
            message=pod.message,
            gpus=shown_requests(self._cluster.registry, typed.metadata.labels, typed.metadata.annotations),
        )

    def _accounts(self, claim: Claim) -> list[Account]:
        return [*quota_accounts(claim), *self._more_accounts(claim)]

    def gpu_requests(self, claim: Claim) -> dict[str, str]:
        return shown_requests(self._cluster.registry, claim.spec.labels, claim.spec.annotations)

    def borrows(self, claim: Claim) -> bool:
        return self._borrows(claim.uid, self._cluster.objects.find(POD.name, claim.key))

    def _called(self, claim: Claim) -> list[str]:
        """What people call the quotas of its accounts, each once."""
        found = (self._called_by.get(account.policy, _own_name)(account) for account in self._accounts(claim))
        return list(dict.fromkeys(name for name in found if name))

    def _more_accounts(self, claim: Claim) -> Iterator[Account]:
        """Those that govern the claim and that no binding lists."""
        for plugin, policy in self._pairs:
            if plugin.quotas.accounts is not None:
                yield from plugin.quotas.accounts(policy, claim)

    def _borrows(self, uid: str, stored: Stored | None) -> bool:
        if uid in self._borrowers:
            return True
        labels = {} if stored is None else written_labels(stored)
        return any(labels.get(label) == value for label, value in self._over_quota)


def _own_name(account: Account) -> str:
    return account.name


def quota_accounts(claim: Claim) -> Iterator[Any]:
    for binding in claim.bindings:
        if binding is not None:
            for account in binding.accounts:
                if not account.physical:
                    yield account


def _borrowers(pairs: list[tuple[Plugin, Policy]]) -> set[str]:
    """The claims that use what others lend, as far as policies know it."""
    listed = [plugin.quotas.borrowers(policy) for plugin, policy in pairs if plugin.quotas.borrowers is not None]
    return set().union(*listed)


def shown_requests(registry: Registry, labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    """What a pod requests by labels and annotations, for people."""
    found: dict[str, str] = {}
    for plugin in registry:
        if plugin.quotas.requests is not None:
            found |= plugin.quotas.requests(labels, annotations)
    return found


def claim_rows(
    cluster: Cluster, after: str, limit: int, wanted: dict[str, str], keep: Callable[[types.ClaimRow], bool]
) -> tuple[list[types.ClaimRow], int]:
    """A page of rows after a key, and how many more keys there are to look at. ``wanted``: namespace, phase, node."""
    view = ClaimView(cluster)
    keys = [key for key in view.all_keys() if key > after and view.matches(key, wanted)]
    found: list[types.ClaimRow] = []
    for index, key in enumerate(keys):
        row = view.row(key)
        if row is not None and keep(row):
            if len(found) == limit:
                return found, len(keys) - index
            found.append(row)
    return found, 0


def queue_rows(cluster: Cluster) -> Iterator[types.QueueRow]:
    """Who waits, the most urgent first; then who is held until its victims have left."""
    held = [claim for claim in cluster.engine.state.claims.values() if claim.waits_for]
    held.sort(key=lambda claim: (-claim.spec.priority, claim.created, claim.key))
    for position, claim in enumerate([*cluster.controller.queue.waiting(), *held], 1):
        reason, message = cluster.controller.reason(claim.uid)
        decision = claim.decision if isinstance(claim.decision, Decision) else None
        yield types.QueueRow(
            position=position,
            uid=claim.uid,
            namespace=claim.namespace,
            name=claim.name,
            priority=claim.spec.priority,
            created=timestamp(claim.created),
            state=STATES[claim.state],
            requests=claim.spec.quota_requests.show(),
            never=decision is not None and decision.outcome == NEVER,
            group=claim.spec.group,
            reason=reason,
            message=message,
            decided_by=0 if decision is None else decision.seq,
            gpus=shown_requests(cluster.registry, claim.spec.labels, claim.spec.annotations),
        )


# Checks


def check_node(check: Check) -> types.CheckNode:
    return types.CheckNode(
        title=check.title,
        passed=check.passed,
        note=check.note,
        reason=check.reason,
        binding=check.binding,
        checks=[check_node(child) for child in check.children],
    )


# Nodes and GPUs


def node_rows(cluster: Cluster) -> Iterator[types.NodeRow]:
    state = cluster.engine.state
    pods = Counter(claim.place for claim in state.claims.values())
    gpus = Counter(gpu.node for _, gpu in gpu_records(cluster))
    for stored in cluster.objects.all(NODE.name):
        account = state.accounts.get(NODE_PREFIX + stored.key)
        body = stored.body
        limits = {} if account is None else account.limits.listed
        used = {} if account is None else account.used.vector().show()
        busy = {} if account is None else dict(account.busy.vector().pairs())
        counted = {} if account is None else dict(account.used.vector().pairs())
        yield types.NodeRow(
            name=stored.key,
            ready=node_is_ready(body),
            labels=labels_of(stored),
            allocatable={name: dimension(name).show(most) for name, most in limits.items() if most != UNLIMITED},
            used=used,
            leaving={
                name: dimension(name).show(amount - counted.get(name, 0))
                for name, amount in busy.items()
                if amount > counted.get(name, 0)
            },
            pods=pods[stored.key],
            gpus=gpus[stored.key],
        )


def node_is_ready(body: dict[str, Any]) -> bool:
    if (body.get("spec") or {}).get("unschedulable"):
        return False
    conditions = (body.get("status") or {}).get("conditions") or []
    return all(one.get("status") == "True" for one in conditions if one.get("type") == "Ready")


def gpu_records(cluster: Cluster) -> Iterator[tuple[str, GpuRecord]]:
    """All GPUs, each with the policy that has it."""
    for plugin, policy in cluster.registry.paired(cluster.engine.policies):
        if plugin.quotas.gpus is not None:
            yield from ((plugin.name, gpu) for gpu in plugin.quotas.gpus(policy))


def gpu_rows(cluster: Cluster) -> Iterator[types.GpuRow]:
    users: dict[tuple[str, str], list[str]] = {}
    policies = {plugin.name for plugin in cluster.registry if plugin.quotas.gpus is not None}
    for claim in cluster.engine.state.claims.values():
        for binding in claim.bindings:
            if binding is not None and binding.policy in policies and claim.state > 0:
                for held in binding.accounts:
                    users.setdefault((binding.policy, held.name), []).append(claim.key)
    for policy, gpu in gpu_records(cluster):
        account = cluster.engine.state.accounts.get(gpu.account)
        yield types.GpuRow(
            name=gpu.name,
            node=gpu.node,
            model=gpu.model,
            capacity=gpu.capacity,
            uuid=gpu.uuid,
            used={} if account is None else account.used.vector().show(),
            claims=sorted(users.get((policy, gpu.account), [])),
        )
