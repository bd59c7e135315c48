"""No thrash: in small random clusters with a fixed demand, preemption ends, whatever the order of attempts.

``python -m tests.policies.elastic.preemption_ends --instances 20000 --seed 1``

One instance: random quotas, nodes and claims; a random reachable state; then everybody who waits is tried over and
over, in a random order that changes in each round. Victims leave at once and come back, either as they were or as the
newest, as a controller brings them back. It must come to rest: a whole round in which nobody is admitted. At rest, who
waits and whose quota stays within min with it is checked to wait for a reason that the rules allow.
"""

from __future__ import annotations

import argparse
import sys
import time
from random import Random

from bursar.engine.engine import Engine
from bursar.ledger.claims import PENDING, RUNNING, Claim, ClaimSpec
from bursar.policies.elastic.policy import ElasticPolicy
from bursar.policies.elastic.settings import OPTIONS_SETTING, ElasticOptionsBody
from bursar.policies.nodes.policy import KIND as NODE_SETTING
from bursar.policies.nodes.policy import NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.results import Setting
from bursar.resources import Limits, from_amounts
from tests.policies.elastic.world import quota_setting

DIMENSIONS = ("cpu", "memory")
ROUNDS = 200  # far more than any instance of this size needs


class Instance:
    """One small cluster with a fixed set of owners, each of which wants one claim to run for ever."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.placed = rng.random() < 0.5
        self.renewed = rng.random() < 0.5  # evicted claims come back as the newest, not as they were
        self.policy = ElasticPolicy()
        self.engine = Engine([self.policy, NodesPolicy()] if self.placed else [self.policy])
        self.now = 0
        self.lives = 0
        self.preemptions = 0
        self.configure()
        for number in range(rng.randint(5, 14)):
            self.submit(self.random_claim(f"o{number}"))

    def configure(self) -> None:
        rng = self.rng
        borrowing = "capacity" if self.placed and rng.random() < 0.4 else "min"
        order = "creation" if rng.random() < 0.3 else "priority"
        settings = [Setting(OPTIONS_SETTING, "default", ElasticOptionsBody(16, {}, borrowing, order))]
        self.namespaces = [f"n{number}" for number in range(rng.randint(2, 4))]
        for namespace in self.namespaces:
            least = {name: rng.randint(0, 7) for name in DIMENSIONS if rng.random() < 0.8}
            most = {name: amount + rng.randint(0, 5) for name, amount in least.items() if rng.random() < 0.2}
            settings.append(quota_setting(namespace, least, most))
        if self.placed:
            for number in range(rng.randint(1, 3)):
                room = {name: 1000 * rng.randint(2, 7) if name == "cpu" else rng.randint(2, 7) for name in DIMENSIONS}
                settings.append(Setting(NODE_SETTING, f"m{number}", NodeBody(Limits(room))))
        self.engine.configure(settings)

    def random_claim(self, owner: str) -> Claim:
        rng = self.rng
        self.now += rng.randint(0, 1)
        wants = {name: rng.randint(0, 4) * (1000 if name == "cpu" else 1) for name in DIMENSIONS}
        spec = ClaimSpec(
            from_amounts(wants), priority=rng.randint(0, 2), preemptible=rng.random() < 0.9, owner=f"owner-{owner}"
        )
        return Claim(owner, spec, self.now, rng.choice(self.namespaces), owner)

    def submit(self, claim: Claim) -> None:
        self.engine.submit(claim, self.now)

    # Life

    def attempt(self, uid: str) -> bool:
        """Try one that waits; whether it was admitted. Its victims leave, and come back waiting."""
        decision = self.engine.decide(self.engine.claim(uid), self.now)
        if not decision.admitted:
            return False
        self.preemptions += len(decision.victims)
        for victim in decision.victims:
            self.come_back(victim)
        if self.rng.random() < 0.7:
            self.engine.observe(uid, RUNNING, self.now)
        return True

    def come_back(self, uid: str) -> None:
        claim = self.engine.claim(uid)
        if claim.state == PENDING:  # it had not started, and waits again by itself
            return
        self.engine.release(uid, self.now)
        self.lives += 1
        self.now += 1
        created = self.now if self.renewed else claim.created
        self.submit(Claim(f"{claim.name}.{self.lives}", claim.spec, created, claim.namespace, claim.name))

    def waiting(self) -> list[str]:
        return sorted(uid for uid, claim in self.engine.state.claims.items() if claim.state == PENDING)

    def wander(self) -> None:
        """Into a reachable state: some are tried, some end and come anew as other claims."""
        for _ in range(self.rng.randint(0, 16)):
            waiting = self.waiting()
            if waiting and self.rng.random() < 0.8:
                self.attempt(self.rng.choice(waiting))
            elif self.engine.state.claims and self.rng.random() < 0.5:
                uid = self.rng.choice(sorted(self.engine.state.claims))
                self.engine.release(uid, self.now)
                self.lives += 1
                self.submit(self.random_claim(f"x{self.lives}"))

    def rest(self) -> int:
        """Try all who wait until a whole round admits nobody; returns the number of rounds."""
        for rounds in range(1, ROUNDS + 1):
            waiting = self.waiting()
            self.rng.shuffle(waiting)
            moved = False
            for uid in waiting:
                claim = self.engine.state.claims.get(uid)
                if claim is not None and claim.state == PENDING and self.attempt(uid):
                    moved = True
            if not moved:
                return rounds
        raise AssertionError(f"no rest after {ROUNDS} rounds; {self.preemptions} preemptions")


def run(instances: int, seed: int, progress: bool = False) -> tuple[int, int]:
    """(preemptions altogether, most rounds of one instance)."""
    preemptions = most = 0
    begun = time.monotonic()
    for number in range(instances):
        instance = Instance(Random(f"{seed}/{number}"))
        try:
            instance.wander()
            most = max(most, instance.rest())
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, instance {number}: {error}") from error
        preemptions += instance.preemptions
        if progress and (number + 1) % 500 == 0:
            rate = (number + 1) / (time.monotonic() - begun)
            sys.stderr.write(f"\r{number + 1:,} of {instances:,} instances came to rest ({rate:,.0f}/s)")
            sys.stderr.flush()
    return preemptions, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    preemptions, most = run(arguments.instances, arguments.seed, progress=True)
    sys.stderr.write("\n")
    text = (
        f"{arguments.instances:,} instances came to rest, after {preemptions:,} preemptions, in at most {most} rounds"
    )
    sys.stdout.write(f"seed {arguments.seed}: {text}\n")


if __name__ == "__main__":
    main()
