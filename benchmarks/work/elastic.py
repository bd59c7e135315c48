"""Elastic quotas at size: a thousand quotas with a hundred claims each, ten of them over-quota.

One more quota lends all that the others borrow, so the sum of the minimums is used up: whatever its owner asks for
must be taken from one of the ten thousand over-quota claims.
"""

from statistics import median
from time import perf_counter

from benchmarks.timing import collector, rate
from bursar.engine.engine import Engine
from bursar.ledger.claims import Binding, Claim, ClaimSpec
from bursar.ledger.transaction import Ledger
from bursar.policies.elastic.policy import ElasticPolicy
from bursar.policies.elastic.settings import (
    ELASTIC_QUOTA,
    QUOTA_SETTING,
    ElasticQuotaBody,
    quota_id,
)
from bursar.policies.placement_kit import NodeIndex
from bursar.policies.results import Setting
from bursar.resources import Limits, from_amounts

GPU = "nvidia.com/gpu"
OVER = 10  # over-quota claims of a quota
LENDER = "lender"


def quota(namespace: str, minimum: int) -> Setting:
    key = f"{namespace}/quota"
    body = ElasticQuotaBody(ELASTIC_QUOTA, key, (namespace,), Limits({GPU: minimum, "cpu": minimum * 1000}))
    return Setting(QUOTA_SETTING, quota_id(ELASTIC_QUOTA, key), body)


def quota_settings(quotas: int, each: int) -> list[Setting]:
    return [*[quota(f"team-{number}", each - OVER) for number in range(quotas)], quota(LENDER, quotas * OVER)]


def new_claim(uid: str, namespace: str, created: int, priority: int = 0) -> Claim:
    return Claim(uid, _SPECS[priority], created, namespace, uid)


_SPECS = [ClaimSpec(from_amounts({GPU: 1, "cpu": 1000, "memory": 2**30}), priority=priority) for priority in range(5)]


def full_engine(quotas: int, each: int, lines: list[bytes] | None = None) -> Engine:
    """The quotas with all their claims; the journal is sealed into ``lines``, or else dropped."""
    engine = Engine([ElasticPolicy()])
    engine.configure(quota_settings(quotas, each))
    for number in range(each):
        for team in range(quotas):
            claim = new_claim(f"c-{team}-{number}", f"team-{team}", number, (team + number) % 5)
            assert engine.decide(claim, number).admitted
        if lines is not None:
            lines.extend(engine.journal.take())
        engine.journal.drop()
    return engine


def preemptions(quotas: int, each: int, count: int) -> dict[str, float]:
    """Milliseconds of a decision that must find one victim among all over-quota claims, the first one included."""
    engine = full_engine(quotas, each)
    took: list[float] = []
    with collector(False):
        for number in range(count):
            begun = perf_counter()
            decision = engine.decide(new_claim(f"l-{number}", LENDER, 1000 + number), 1000)
            took.append((perf_counter() - begun) * 1000)
            assert len(decision.victims) == 1
            engine.release(decision.victims[0], 1000)
    return {"milliseconds": median(took), "worst": max(took), "first": took[0], "over": quotas * OVER}


def charges(quotas: int, each: int, count: int) -> dict[str, float]:
    """Bind, check, charge and release a second, in a transaction of the ledger: no decision, no journal."""
    policy = ElasticPolicy()
    ledger = Ledger()
    ledger.watch(policy.name, policy)
    policy.attach(ledger.state, NodeIndex())
    tx = ledger.begin()
    for setting in quota_settings(quotas, each + 1):
        policy.configure(tx, setting)
    for team in range(quotas):
        for number in range(each - OVER):
            claim = new_claim(f"c-{team}-{number}", f"team-{team}", number, (team + number) % 5)
            tx.add_claim(claim)
            _cycle(policy, ledger, claim, keep=True)
        tx.log.clear()
    claims = [new_claim(f"n-{number}", f"team-{number * 7919 % quotas}", 10**6, number % 5) for number in range(count)]

    def run() -> int:
        for claim in claims:
            _cycle(policy, ledger, claim, keep=False)
        tx.log.clear()
        return len(claims)

    with collector(False):
        return {"cycles": rate(run)}


def _cycle(policy: ElasticPolicy, ledger: Ledger, claim: Claim, keep: bool) -> None:
    binding = policy.bind(claim, "")
    assert isinstance(binding, Binding)
    refusal = policy.charge(ledger.tx, claim, binding, False)
    assert refusal is None
    if not keep:
        policy.release(ledger.tx, claim, binding)
