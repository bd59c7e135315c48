"""The first search for a victim after a load or a restart, and quotas of very many claims: searches and labels.

A load is 100,000 decisions: a thousand quotas of a hundred claims, ten of each borrowed from one lender. It is compared
with as many decisions of a policy that only counts, made in the same process, so that the machine does not matter.
"""

import time
from statistics import median

from benchmarks.timing import collector
from benchmarks.work.deciding import admit, engine_over, new_claims
from benchmarks.work.elastic import LENDER, full_engine, new_claim
from benchmarks.work.tree import LEAVES
from bursar.engine.engine import Engine
from bursar.ledger.claims import RUNNING, Claim, ClaimSpec
from bursar.ledger.compaction import Summary
from bursar.policies.elastic.policy import ElasticPolicy
from bursar.policies.elastic.settings import ELASTIC_QUOTA, QUOTA_SETTING, ElasticQuotaBody, quota_id
from bursar.policies.results import Setting
from bursar.resources import Limits, from_amounts

_LOADS = 3
_PRIORITIES = (0, 10, 20)
_SHAPES = (1, 2, 4)
_ROOM = 80
_TOP = 30  # a priority above all others


def _milliseconds(begun: float) -> float:
    return (time.process_time() - begun) * 1000


def _ask_lender(engine: Engine, number: int) -> float:
    """The lender asks for one unit: milliseconds until it is decided and its record is sealed."""
    begun = time.process_time()
    decision = engine.decide(new_claim(f"l-{number}", LENDER, 1_000 + number), 1_000)
    engine.journal.take()
    took = _milliseconds(begun)
    assert len(decision.victims) == 1
    engine.release(decision.victims[0], 1_000)
    return took


def first_search(quotas: int, each: int) -> dict[str, float]:
    """The load, compared as said above, and the first decision after it that needs a victim; the worst of three."""
    loads: list[float] = []
    compared: list[float] = []
    firsts: list[float] = []
    for _ in range(_LOADS):
        with collector(enabled=False):
            begun = time.process_time()
            engine = full_engine(quotas, each)
            loads.append(_milliseconds(begun))
            firsts.append(_ask_lender(engine, 0))
            engine.journal.drop()
            begun = time.process_time()
            admit(engine_over(LEAVES), new_claims(LEAVES), quotas * each)
            compared.append(loads[-1] / _milliseconds(begun))
    return {"load": median(loads), "compared": median(compared), "first": max(firsts), "loads": len(firsts)}


def search_after_restart(quotas: int, each: int) -> dict[str, float]:
    """The first decision that needs a victim, in an engine that was restored from a snapshot."""
    with collector(enabled=False):
        summary = Summary()
        lines: list[bytes] = []
        full_engine(quotas, each, lines)
        for _ in summary.follow(lines):
            pass
        engine = Engine([ElasticPolicy()])
        engine.restore(summary.snapshot([]))
        return {"first": _ask_lender(engine, 0)}


class BigQuota:
    """One quota with very many running claims, of three shapes and three priorities; half of it is borrowed."""

    def __init__(self, claims: int) -> None:
        self.engine = Engine([ElasticPolicy()])
        self.specs = {
            (shape, priority): ClaimSpec(from_amounts({"cpu": shape}), priority=priority)
            for shape in _SHAPES
            for priority in (*_PRIORITIES, _TOP)
        }
        used = sum(_SHAPES[number % 3] for number in range(claims))
        self.engine.configure([_quota("big", used // 2), _quota(LENDER, used - used // 2)])
        self.count = 0
        for number in range(claims):
            self.run("big", _SHAPES[number % 3], _PRIORITIES[number // 3 % 3])
        self.engine.outputs(1)
        self.engine.journal.drop()

    def run(self, namespace: str, shape: int, priority: int) -> str:
        self.count += 1
        spec = self.specs.get((shape, priority)) or ClaimSpec(from_amounts({"cpu": shape}), priority=priority)
        claim = Claim(f"{namespace}-{self.count}", spec, self.count, namespace)
        decision = self.engine.decide(claim, 1)
        assert decision.admitted, decision
        self.engine.observe(claim.uid, RUNNING, 1)
        if self.count % 1_000 == 0:
            self.engine.journal.drop()
        return claim.uid

    def refill(self, victim: str) -> None:
        """The victim leaves; what its claimant did not need of its room is borrowed again."""
        size = self.engine.claim(victim).spec.requests.amount("cpu")
        self.engine.release(victim, 1)
        for _ in range(size - 1):
            self.run("big", 1, 0)


def _quota(namespace: str, minimum: int) -> Setting:
    body = ElasticQuotaBody(ELASTIC_QUOTA, f"{namespace}/quota", (namespace,), Limits({"cpu": minimum}))
    return Setting(QUOTA_SETTING, quota_id(ELASTIC_QUOTA, body.key), body)


def big_searches(claims: int, count: int) -> dict[str, float]:
    """The lender asks for one unit after the other; each displaces one claim of the big quota."""
    with collector(enabled=False):
        big = BigQuota(claims)
        took: list[float] = []
        for number in range(count):
            begun = time.process_time()
            claim = Claim(f"owner-{number}", big.specs[1, 0], 10**6 + number, LENDER)
            decision = big.engine.decide(claim, 2)
            big.engine.journal.take()
            took.append(_milliseconds(begun))
            assert len(decision.victims) == 1
            big.refill(decision.victims[0])
        return {"first": took[0], "median": median(took), "worst": max(took)}


def big_labels(claims: int, count: int, displaced: int) -> dict[str, float]:
    """Claims come, run and go, and labels and statuses are written: by the event, and by the label that changes.

    The plain event changes no other class: the newest claim of the lowest priority. The other one is a claim that
    comes first in the order and takes ``displaced`` units of the minimum.
    """
    with collector(enabled=False):
        big = BigQuota(claims)
        for number in range(claims // _ROOM):  # in the sum of the minimums, for the events
            big.engine.release(f"big-{number + 1}", 1)
        big.engine.outputs(1)
        took: list[float] = []
        for _ in range(count):
            came, went, _ = _event(big, 1, 0)
            took.extend((came, went))
        came, went, labels = _event(big, displaced, _TOP)
        return {"event": median(took), "worst": max(took), "label": (came + went) * 1000 / labels, "labels": labels}


def _event(big: BigQuota, shape: int, priority: int) -> tuple[float, float, int]:
    """Milliseconds until a claim runs, and until it is gone, each with all that is written; and how many labels."""
    begun = time.process_time()
    uid = big.run("big", shape, priority)
    written = big.engine.outputs(2)
    came = _milliseconds(begun)
    begun = time.process_time()
    big.engine.release(uid, 2)
    written.extend(big.engine.outputs(2))
    went = _milliseconds(begun)
    return came, went, sum(1 for output in written if output.part == "labels")
