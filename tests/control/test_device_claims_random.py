"""Random histories of claims of devices, against a reference model that charges every pod from scratch.

After every step each pod that counts has what its claims cost: the model reads the applied manifests alone. Of pods
that share a claim exactly one is charged. The quota is above its max only where that one was evicted and the next is
charged, which an event says. A restarted cluster charges the same and goes on alike.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from bursar.objects.decode import ManifestError
from tests.control.devices_world import GPU, claim, exactly, first_of, gpus, result, template, user, world
from tests.sim.steps import TestBed
from tests.sim.tape import Tape

QUOTA = 6
NAMES = ("one", "two", "three")
STEPS = 60


class Model:
    """What was applied, and what each pod should be charged in GPUs."""

    def __init__(self) -> None:
        self.claims: dict[str, tuple[int, int | None]] = {}  # by name: the most that it asks for; GPUs it was given
        self.templates: dict[str, int] = {}
        self.pods: dict[str, tuple[str, str]] = {}  # by name: (claim, template)

    def cost(self, named: str) -> int | None:
        """None: there is no such claim."""
        found = self.claims.get(named)
        return None if found is None else found[0] if found[1] is None else found[1]


def request(chance: random.Random) -> tuple[dict[str, Any], int]:
    count = chance.randint(1, 4)
    if chance.random() < 0.3:
        other = chance.randint(1, 4)
        return first_of(exactly(count), exactly(other)), max(count, other)
    return exactly(count), count


class History:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.model = Model()
        self.requests: dict[str, dict[str, Any]] = {}
        self.made = 0
        self.above = False  # whether the quota is above its max, and an event said why
        self.tape = Tape()
        self.bed = TestBed(*world(gpus("n1", 16), gpus_of_quota=QUOTA))

    def restart(self) -> None:
        self.bed.take_news()
        old, new = self.bed, self.tape.restart(self.bed)
        assert new.engine.digest == old.engine.digest
        new.__class__ = TestBed
        assert isinstance(new, TestBed)
        self.bed = new
        new.settle()
        assert new.engine.digest == old.engine.digest

    def step(self) -> None:
        if self.chance.random() < 0.1:
            self.restart()
        self.chance.choice(
            (self.make_claim, self.make_template, self.make_pod, self.make_pod, self.allocate, self.drop)
        )()

    def make_claim(self) -> None:
        name = self.chance.choice(NAMES)
        if name not in self.model.claims:
            self.requests[name], most = request(self.chance)
            self.bed.give(claim(name, self.requests[name]))
            self.model.claims[name] = (most, None)

    def make_template(self) -> None:
        name = self.chance.choice(NAMES)
        if name not in self.model.templates:
            asked, most = request(self.chance)
            self.bed.give(template(name, asked))
            self.model.templates[name] = most

    def make_pod(self) -> None:
        self.made += 1
        name, of = f"p{self.made}", self.chance.choice(NAMES)
        named, of_template = (of, "") if self.chance.random() < 0.6 else ("", of)
        self.bed.advance(self.chance.choice((0, 1000)))
        self.bed.give(user(name, named, of_template, priority=self.chance.choice((0, 0, 10))))
        self.model.pods[name] = named, of_template

    def allocate(self) -> None:
        """The scheduler gives a claim that a running pod uses its devices; never more than it asks for."""
        running = [name for name in self.model.pods if self.bed.see(f"default/{name}").phase == "Running"]
        used = sorted({self.model.pods[name][0] for name in running} & set(self.model.claims))
        if used:
            name = self.chance.choice(used)
            most, given = self.model.claims[name]
            if given is None:
                given = self.chance.randint(1, most)
                results = [result(f"gpu-{i}", "gpu/choice-0") for i in range(given)]
                self.bed.give(claim(name, self.requests[name], allocated=results))
                self.model.claims[name] = (most, given)

    def drop(self) -> None:
        if self.model.pods and self.chance.random() < 0.7:
            name = self.chance.choice(sorted(self.model.pods))
            self.bed.take(f"Pod/default/{name}")
            del self.model.pods[name]
            return
        unused = [name for name in self.model.claims if not any(pod[0] == name for pod in self.model.pods.values())]
        if unused:
            name = self.chance.choice(sorted(unused))
            self.bed.take(f"ResourceClaim/default/{name}")
            del self.model.claims[name]

    # Checks

    def check(self) -> None:
        total = 0
        counted = {name: self.bed.controller.claim(f"default/{name}") for name in self.model.pods}
        running = {name: one for name, one in counted.items() if one is not None and one.counts()}
        for named in NAMES:
            sharing = [one for name, one in running.items() if self.model.pods[name][0] == named]
            paid = [one.spec.devices.amount(GPU) for one in sharing]
            assert sorted(paid) == [0] * (len(paid) - 1) + ([self.model.cost(named)] if paid else []), named
            total += sum(paid)
        for name, one in running.items():
            if self.model.pods[name][1]:
                assert one.spec.devices.amount(GPU) == self.model.templates[self.model.pods[name][1]]
                total += one.spec.devices.amount(GPU)
        used = self.bed.engine.state.accounts["elastic/ElasticQuota/default/quota"].used.amount(GPU)
        assert used == total
        said = "DevicesAboveQuota" in [event.reason for event in self.bed.take_news()[1]]
        assert used <= QUOTA or self.above or said
        self.above = used > QUOTA
        for name in sorted(set(counted) - set(running)):
            if counted[name] is not None:
                self.check_pending(name, used)

    def check_pending(self, name: str, used: int) -> None:
        """At rest no pod waits that has room."""
        named, of_template = self.model.pods[name]
        cost = self.model.cost(named) if named else self.model.templates.get(of_template)
        reason = self.bed.see(f"default/{name}").reason
        if cost is None:
            assert reason == "devices.claim"
            return
        assert used + cost > QUOTA, f"{name} waits for {reason}"


@pytest.mark.parametrize("seed", range(12))
def test_every_claim_is_charged_once(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        try:
            history.step()
        except ManifestError as error:
            raise AssertionError(f"{error}") from error
        history.check()
