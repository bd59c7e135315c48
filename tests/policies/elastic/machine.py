"""Drives an engine with elastic quotas and its reference model through the same life, and compares after each step.

Steps take plain numbers, so that Hypothesis and a seeded generator can both feed it. Victims are gone at once, and stay
away unless a step brings them back as new claims.
"""

from __future__ import annotations

from random import Random

from bursar.ledger.claims import PENDING
from bursar.policies.elastic.quota import ElasticQuotaState
from bursar.policies.elastic.quotas import QuotaBook
from bursar.policies.elastic.settings import (
    CAPACITY_LABEL,
    COMPOSITE,
    ELASTIC_QUOTA,
    IN_QUOTA,
    OVER_QUOTA,
    QUOTA_SETTING,
    quota_id,
)
from bursar.policies.results import Setting
from bursar.resources import dimension
from tests.policies.elastic.reference_model import Pod, Quota, ReferenceModel
from tests.policies.elastic.world import World, claim_of, quota_setting

DIMENSIONS = ("example.com/x", "memory")
NAMESPACES = ("a", "b", "c", "d")


class Machine:
    """One engine, one replica of it by its journal, one reference model."""

    def __init__(self) -> None:
        self.world = World()
        self.replica = self.world.replayed()
        self.reference = ReferenceModel()
        self.count = 0
        self.checks = 0
        self.labels: dict[str, object] = {}  # by key of the pod: as last written
        self.set_quota(0, 4, 2, 9)
        self.set_quota(1, 3, 3, 9)
        self.set_composite(2, 2, 2)

    # Steps

    def set_quota(self, number: int, first: int, second: int, most: int) -> None:
        """An ElasticQuota of one of the first two namespaces; 0: the dimension is not listed."""
        namespace = NAMESPACES[number % 2]
        least = _listed(first, second)
        maximum = {name: max(most, least.get(name, 0)) for name in DIMENSIONS[:1] if most < 9}
        self.world.engine.configure([quota_setting(namespace, least, maximum)], self.world.now)
        self.reference.quotas[quota_id(ELASTIC_QUOTA, f"{namespace}/quota")] = Quota((namespace,), least, maximum)

    def set_composite(self, width: int, first: int, second: int) -> None:
        """The composite of the last namespaces."""
        namespaces = NAMESPACES[2 : 3 + width % 2 + 1][:2] if width % 3 else NAMESPACES[3:]
        least = _listed(first, second)
        self.world.engine.configure([quota_setting("x", least, {}, namespaces)], self.world.now)
        self.reference.quotas[quota_id(COMPOSITE, "x/quota")] = Quota(namespaces, least, {})

    def remove_quota(self, number: int) -> None:
        namespace = NAMESPACES[number % 2]
        key = quota_id(ELASTIC_QUOTA, f"{namespace}/quota")
        self.world.engine.configure([Setting(QUOTA_SETTING, key, None)], self.world.now)
        self.reference.quotas.pop(key, None)

    def set_options(self, bounded: bool, by_priority: bool) -> None:
        self.reference.bounded, self.reference.by_priority = bounded, by_priority
        self.world.options(16, "min" if bounded else "capacity", "priority" if by_priority else "creation")

    def ask(self, namespace: int, first: int, second: int, priority: int, preemptible: bool) -> None:
        self.count += 1
        self.world.now += self.count % 2  # some are created at the same moment
        wants = {name: amount for name, amount in zip(DIMENSIONS, (first, second), strict=True) if amount}
        pod = Pod(f"p{self.count:05}", NAMESPACES[namespace % 4], wants, priority, self.world.now, preemptible)
        claim = claim_of(pod.uid, pod.namespace, wants, priority, pod.created, preemptible=preemptible)
        self._same_decision(pod, list(self.world.decide(claim).victims))

    def ask_again(self, choice: int) -> None:
        waiting = self.world.waiting()
        if waiting:
            claim = self.world.engine.claim(waiting[choice % len(waiting)])
            spec = claim.spec
            pod = Pod(
                claim.uid, claim.namespace, dict(spec.requests.pairs()), spec.priority, claim.created, spec.preemptible
            )
            self._same_decision(pod, list(self.world.decide(claim).victims))

    def _same_decision(self, pod: Pod, victims: list[str]) -> None:
        admitted = self.world.engine.claim(pod.uid).state != PENDING
        expected = self.reference.decide(pod) if self.reference.quota_of(pod.namespace) else []
        if self.reference.quota_of(pod.namespace) is None:
            self.reference.pods[pod.uid] = pod
        assert (victims if admitted else None) == expected
        self.world.leave()

    def release(self, choice: int) -> None:
        claims = sorted(self.world.engine.state.claims)
        if claims:
            uid = claims[choice % len(claims)]
            self.world.engine.release(uid, self.world.now)
            self.reference.gone(uid)

    def run(self, choice: int) -> None:
        counted = self.world.counted()
        if counted:
            self.world.run(counted[choice % len(counted)])

    # Judging

    def check(self) -> None:
        reference, book = self.reference, self.world.policy.book
        assert self.world.counted() == sorted(reference.pods)
        assert sorted(quota.id for quota in book.live()) == sorted(reference.quotas)
        shuffled = list(reference.pods.items())
        Random(len(shuffled)).shuffle(shuffled)  # labels depend on the set of pods alone
        for name in reference.quotas:
            quota = book.quotas[name]
            assert ranks_of(book, quota) == reference.classes(name, dict(shuffled))
            account = self.world.engine.state.accounts[quota.account]
            for what in DIMENSIONS:
                assert account.used.amount(what) == reference.used(name, what, reference.pods)
        for what in DIMENSIONS:
            self._check_sums(what)
        self.checks += 1
        if self.checks % 3 == 0:  # several changes come together
            self._check_labels()

    def _check_labels(self) -> None:
        """Whoever runs in a quota carries the label of its class, and nobody else does."""
        for output in self.world.policy.outputs(0):
            if output.kind == "Pod":
                self.labels[output.key] = (output.value or {})[CAPACITY_LABEL]
        claims, policy = self.world.engine.state.claims, self.world.policy
        wanted: dict[str, object] = {}
        for quota in policy.book.live():
            ranks = self.reference.classes(quota.id, self.reference.pods)
            running = [uid for uid in quota.members if uid in policy.runners]
            wanted |= {claims[uid].key: OVER_QUOTA if ranks[uid] < 2 else IN_QUOTA for uid in running}
        present = {claim.key for claim in claims.values()}
        assert {key: label for key, label in self.labels.items() if key in present and label is not None} == wanted

    def _check_sums(self, what: str) -> None:
        reference, book = self.reference, self.world.policy.book
        dim = dimension(what).index
        pool, total = book.pool.get(dim, 0), book.total_min.get(dim, 0)
        assert (pool, total) == (reference.pool(what, reference.pods), reference.total_min(what))
        guaranteed = [book.guaranteed(q)[q.position(dim)] for q in book.live() if q.position(dim) >= 0]
        assert sum(guaranteed) <= pool <= total
        state = self.world.engine.state
        assert state.accounts["elastic/total"].used.amount(what) == reference.total_used(what, reference.pods)

    def check_replica(self) -> None:
        """Restart = incremental: what the journal rebuilds stands where the living one stands."""
        replica, world = self.replica, self.world
        replica.engine.replay(world.engine.journal.take())
        assert replica.engine.digest == world.engine.digest
        assert replica.engine.state.plain() == world.engine.state.plain()
        for quota in world.policy.book.live():
            copied = replica.policy.book.quotas[quota.id]
            assert (copied.used, copied.idle) == (quota.used, quota.idle)
            assert replica.policy.book.share(copied) == world.policy.book.share(quota)
            assert ranks_of(replica.policy.book, copied) == ranks_of(world.policy.book, quota)
        assert replica.policy.book.pool == world.policy.book.pool
        assert sorted(replica.policy.runners) == sorted(world.policy.runners)


def ranks_of(book: QuotaBook, quota: ElasticQuotaState) -> dict[str, int]:
    standing = quota.standing(book.share(quota))
    return {uid: standing.rank(member) for uid, member in quota.members.items()}


def _listed(first: int, second: int) -> dict[str, int]:
    return {name: amount for name, amount in zip(DIMENSIONS, (first, second), strict=True) if amount}


def random_step(machine: Machine, rng: Random) -> None:
    n = rng.randrange
    roll = n(100)
    if roll < 45:
        machine.ask(n(5), n(4), n(3), n(3), n(8) > 0)
    elif roll < 60:
        machine.ask_again(n(1000))
    elif roll < 75:
        machine.release(n(1000))
    elif roll < 85:
        machine.run(n(1000))
    elif roll < 90:
        machine.set_quota(n(2), n(6), n(4), 3 + n(7))
    elif roll < 95:
        machine.set_composite(n(3), n(6), n(4))
    elif roll < 97:
        machine.remove_quota(n(2))
    else:
        machine.set_options(n(3) > 0, n(2) > 0)
    while len(machine.world.engine.state.claims) > 16:
        machine.release(n(1000))
    machine.check()
