"""The engine and the library decide alike: who is admitted, and who has to leave for it."""

from __future__ import annotations

import random
from typing import cast

import pytest

from bursar.engine.engine import Engine
from bursar.policies.results import Setting
from bursar.policies.trees import NORMAL, QuotaManager
from bursar.policies.trees.api import tree_from
from bursar.policies.trees.model import Trees
from bursar.policies.trees.policy import KIND, TreesPolicy
from tests.policies.trees.machine import RESOURCES, Machine, document, info
from tests.policies.trees.reference_model import Wish

TREES = ("T1", "T2")


class Both:
    """The same trees and consumers in a manager and in an engine."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.source = Machine(seed, deep=seed % 2 == 0)  # only its trees and wishes are used
        self.manager = QuotaManager()
        self.engine = Engine([TreesPolicy()])
        self.manager.add_forest("F")
        for name in TREES:
            plain = document(name, RESOURCES, self.source.reference.now.trees[name])
            self.manager.add_tree_from_struct(plain)
            self.manager.add_tree_to_forest("F", name)
            self.engine.configure([Setting(KIND, name, tree_from(plain)[1])])
        self.manager.set_mode(NORMAL)
        self.there: list[str] = []
        self.count = 0

    def wish(self, tree: str) -> Wish:
        while True:
            found = self.source.wish(tree)
            if self.source.reference.is_leaf(tree, found.group):
                return found

    def release(self) -> None:
        if self.there:
            name = self.there.pop(self.random.randrange(len(self.there)))
            self.manager.deallocate_forest("F", name)
            self.manager.remove_consumer(name)
            self.engine.release(name)

    def decide(self) -> None:
        self.count += 1
        name = f"c{self.count}"
        trees = self.random.choice((("T1",), ("T2",), TREES))
        consumer = info(name, {tree: self.wish(tree) for tree in trees})
        self.manager.add_consumer(consumer)
        response = self.manager.allocate_forest("F", name)
        decision = self.engine.decide(consumer.claim(self.count))
        assert decision.admitted == response.allocated
        assert set(decision.victims) == set(response.preempted)
        for victim in decision.victims:
            self.there.remove(victim)
            self.engine.release(victim)
            self.manager.remove_consumer(victim)
        if response.allocated:
            self.there.append(name)
        else:
            self.engine.release(name)
            self.manager.remove_consumer(name)

    def same_seats(self) -> bool:
        """With victims in several steps the engine may seat somebody elsewhere; from there on they may differ."""
        mine = cast("TreesPolicy", self.engine.policies[0]).trees
        return seats(mine) == seats(self.manager._book.trees)


def seats(trees: Trees) -> dict[str, dict[str, str]]:
    return {name: {u: seat.node.name for u, seat in tree.allocations.items()} for name, tree in trees.by_name.items()}


@pytest.mark.parametrize("seed", range(30))
def test_they_decide_alike(seed: int) -> None:
    both = Both(seed)
    steps = 0
    while steps < 60 and both.same_seats():
        steps += 1
        if both.random.random() < 0.3:
            both.release()
        else:
            both.decide()
    other = Engine([TreesPolicy()])
    other.replay(both.engine.journal.take())
    assert other.state.plain() == both.engine.state.plain()
    assert other.digest == both.engine.digest
