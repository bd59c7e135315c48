"""What-if is what then happens: verdict, victims and node of random pods, tried and then created.

More trials: ``PYTHONPATH=src:. .venv/bin/python -m tests.answers.test_trials SEED COUNT``.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter

import pytest

from bursar.engine.decision import NEVER, Decision
from bursar.kube.client.api import PODS
from bursar.ledger.claims import HELD, PENDING
from bursar.server.operations import Operations
from tests.answers.scene import Scene, scene
from tests.answers.test_questions import manifest
from tests.kube.controller.stage import Body, gpus_of

pytestmark = pytest.mark.anyio
TEAMS = ("a", "b", "c")
NODES = ("n1", "n2", "n3")
PER_NODE = 4
STAYS = "example.com/stays"


class Trials:
    """Random pods on one cluster. What leaves stays until the trial that made it leave is compared."""

    def __init__(self, on: Scene, seed: int) -> None:
        self.on = on
        self.stage = on.stage
        self.random = random.Random(seed)
        self.made = 0
        self.verdicts: Counter[str] = Counter()

    async def set_up(self) -> None:
        stage = self.stage
        for node in NODES:
            stage.node(node, PER_NODE)
        for team in TEAMS:
            stage.namespace(team)
            stage.quota(team, self.random.choice((6, 8, 12)), self.random.choice((2, 4)))
        await stage.lead()
        for _ in range(8):
            self.create(*self.drawn())
        await self.rest()

    def drawn(self) -> tuple[str, int, int]:
        """Team, GPUs and priority of a pod."""
        return self.random.choice(TEAMS), self.random.choice((1, 1, 2, 3, 4, 5)), self.random.choice((0, 0, 0, 10))

    def create(self, team: str, gpus: int, priority: int) -> Body:
        self.made += 1
        return self.stage.pod(team, f"p{self.made}", gpus, priority=priority, finalizers=[STAYS])

    async def rest(self) -> None:
        """Until nothing moves: pods that leave are gone, and started ones are bound."""
        while True:
            await self.settled()
            if not self._moved():
                return

    async def settled(self) -> None:
        """Until leader and replica have decided all that they have seen, and the leader's writes have come back."""
        await self.on.same()
        term = self.stage.term
        assert term is not None
        idle = 0
        while idle < 3:
            await asyncio.sleep(0.03)
            busy = term._inbox or term._wake.is_set() or any(len(queue) for queue in term._queues())
            idle = 0 if busy else idle + 1
        await self.on.same()

    def _moved(self) -> bool:
        leaving = [pod for pod in self.stage.pods() if pod["metadata"].get("deletionTimestamp")]
        for pod in leaving:
            metadata = pod["metadata"]
            self.stage.fake.state._drop((PODS, metadata["namespace"], metadata["name"]), pod)
        bound = sum(1 for pod in self.stage.pods() if pod["spec"].get("nodeName"))
        self._bind()
        return bool(leaving) or bound != sum(1 for pod in self.stage.pods() if pod["spec"].get("nodeName"))

    def _bind(self) -> None:
        """Each started pod goes to the node that was decided."""
        term = self.stage.term
        assert term is not None
        for pod in self.stage.pods():
            tracked = term.mirror.pods.by_uid.get(pod["metadata"]["uid"])
            if not pod["spec"].get("nodeName") and not self.stage.gated(pod) and tracked and tracked.record:
                self.stage.bind(pod, tracked.record.place)

    async def one(self) -> None:
        """Try a pod, create it, compare, and let some others end."""
        team, gpus, priority = self.drawn()
        name = f"p{self.made + 1}"
        tried = await self.on.ask(Operations.what_if, manifest(team, name, gpus, priority=priority))
        (row,) = tried["pods"]
        pod = self.create(team, gpus, priority)
        await self.settled()
        said = {"verdict": row["verdict"], "victims": sorted(row["victims"]), "node": row["node"]}
        assert self.happened(pod) == said, tried
        self.verdicts[row["verdict"]] += 1
        await self.rest()
        for ended in self.random.sample(self.stage.pods(), k=min(2, len(self.stage.pods()))):
            if sum(map(gpus_of, self.stage.pods())) > self.random.randrange(8, 30):
                self.stage.fake.state._drop((PODS, ended["metadata"]["namespace"], ended["metadata"]["name"]), ended)
        await self.rest()

    def happened(self, pod: Body) -> Body:
        """What became of it, in the words of what-if."""
        term = self.stage.term
        assert term is not None
        claim = term.mirror.engine.claim(pod["metadata"]["uid"])
        if claim.state == PENDING:
            never = isinstance(claim.decision, Decision) and claim.decision.outcome == NEVER
            return {"verdict": "never" if never else "queued", "victims": [], "node": ""}
        victims = sorted(term.mirror.controller.name(uid) for uid in claim.waits_for)
        verdict = "after-evictions" if claim.state == HELD else "now"
        return {"verdict": verdict, "victims": victims, "node": claim.place}


async def run(seed: int, count: int) -> Counter[str]:
    async with scene(*TEAMS) as on:
        trials = Trials(on, seed)
        await trials.set_up()
        for _ in range(count):
            await trials.one()
        return trials.verdicts


@pytest.mark.parametrize("seed", [1, 2])
async def test_what_if_is_what_then_happens(seed: int) -> None:
    assert set(await run(seed, 12)) >= {"now", "queued"}


if __name__ == "__main__":
    print(asyncio.run(run(int(sys.argv[1]), int(sys.argv[2]))))  # noqa: T201 its only result
