"""Runtimes that are shared only where something changed equal those that are shared from scratch.

Quotas under one root and below two parents come, go and change, and their requests do; now and then one runtime is
read. At the end of each history every level is compared with the rule, in integers of any size.
"""

from __future__ import annotations

from random import Random

import pytest

from bursar.policies.pools.quota_node import Branch
from bursar.policies.pools.runtime import distribute
from bursar.policies.pools.settings import ROOT
from tests.policies.pools.tree_builder import Amounts, Grove

PARENTS = ("p", "q")  # q may be below p
NAMES = ("a", "b", "c", "d", "e", "f", *PARENTS)


def amounts(rng: Random, most: int) -> Amounts:
    return {"cpu": rng.randrange(most), "memory": rng.randrange(most)}


class History:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.grove = Grove(amounts(rng, 60), guarantee=rng.random() < 0.3)
        self.demands: dict[str, Amounts] = {name: {} for name in NAMES}
        for name in PARENTS:
            self.quota(name)

    def step(self) -> None:
        roll, name = self.rng.random(), self.rng.choice(NAMES)
        if roll < 0.15:
            self.quota(name)
        elif roll < 0.2 and name in self.grove.quotas:
            self.grove.remove(name)
        elif roll < 0.26:
            self.grove.total(amounts(self.rng, self.rng.choice((20, 60, 200))))
        elif roll < 0.28:
            self.grove.forest.set_guarantee(not self.grove.forest.guarantee)
        elif roll < 0.85:
            self.ask(name)
        elif name in self.grove.quotas:
            self.grove.forest.refresh(self.grove.branch(name))
        elif roll < 0.9:
            self.grove.forest.refresh_all("")

    def quota(self, name: str) -> None:
        rng = self.rng
        most = amounts(rng, 40)
        least = {key: min(value, most[key]) for key, value in amounts(rng, 15).items()}
        weight = None if rng.random() < 0.6 else amounts(rng, 4)
        above = [parent for parent in PARENTS if parent < name or name not in PARENTS]
        parent = rng.choice((ROOT, *above))
        is_parent = name in PARENTS and rng.random() < 0.85
        self.grove.quota(name, most, least, parent, is_parent=is_parent, lends=rng.random() < 0.7, weight=weight)

    def ask(self, name: str) -> None:
        """Its pods request something else, or use more or less."""
        before, now = self.demands[name], amounts(self.rng, 30) if self.rng.random() < 0.8 else {}
        self.demands[name] = now
        self.grove.ask(name, before, -1)
        self.grove.ask(name, now)
        if self.rng.random() < 0.5:
            self.grove.use(name, now)
            self.grove.use(name, now, -1)
        elif self.rng.random() < 0.3:
            self.grove.use(name, amounts(self.rng, 3))

    def check(self) -> None:
        forest = self.grove.forest
        forest.refresh_all("")
        for branch in (forest.tree("").root, *[forest.branch("", name) for name in PARENTS]):
            if not forest.is_connected(branch):
                assert not any(branch.runtime)
                continue
            for slot in range(len(forest.dims)):
                found = [int(child.runtime[slot]) for child in branch.children]
                assert found == self.right(branch, slot), (branch, slot)

    def right(self, branch: Branch, slot: int) -> list[int]:
        children = branch.children
        assert branch.needed[slot] == sum(int(child.need[slot]) for child in children)
        assert branch.wanted[slot] == sum(int(child.want[slot]) for child in children)
        return distribute(
            int(branch.runtime[slot]),
            [int(child.lim[slot]) for child in children],
            [child.base(slot) for child in children],
            [int(child.weights[slot]) for child in children],
            [child.lends for child in children],
        )


@pytest.mark.parametrize("seed", range(40))
def test_what_is_shared_in_steps_is_shared_by_the_rule(seed: int) -> None:
    rng = Random(seed)
    for _ in range(5):
        history = History(rng)
        for _ in range(rng.randrange(10, 60)):
            history.step()
            if rng.random() < 0.15:
                history.check()
        history.check()
