"""Victims that are submitted again for ever, in random orders, must come to rest."""

from __future__ import annotations

import random

from bursar.policies.trees import NORMAL, QuotaManager
from tests.policies.trees.machine import document, info
from tests.policies.trees.reference_model import Node, Wish

TREES = ("T1", "T2")


def instance(seed: int) -> int:
    """Submit everybody again until nothing changes; how many preemptions that took."""
    dice = random.Random(seed)
    manager = QuotaManager()
    for tree in TREES:
        manager.add_tree_from_struct(document(tree, ("n",), _nodes(dice)))
    manager.add_forest("F")
    for tree in TREES:
        manager.add_tree_to_forest("F", tree)
    manager.set_mode(NORMAL)
    names = [f"c{number}" for number in range(dice.randint(2, 7))]
    for name in names:
        trees = dice.choice((("T1",), ("T2",), TREES, TREES))
        manager.add_consumer(info(name, {tree: _wish(dice) for tree in trees}))
    preemptions = 0
    restful = False
    while not restful:
        restful = True
        dice.shuffle(names)
        for name in names:
            if not manager.is_allocated_forest("F", name):
                gone = manager.allocate_forest("F", name).preempted
                preemptions += len(gone)
                restful = restful and not gone
        assert preemptions <= len(names) ** 2, f"seed {seed}: no rest"
    return preemptions


def _nodes(dice: random.Random) -> dict[str, Node]:
    nodes = {"R": Node("", False, {"n": dice.randint(2, 6)})}
    for middle in ("A", "B"):
        nodes[middle] = Node("R", dice.random() < 0.2, {"n": dice.randint(0, 4)})
        for leaf in ("1", "2"):
            nodes[middle + leaf] = Node(middle, dice.random() < 0.2, {"n": dice.randint(0, 3)})
    return nodes


def _wish(dice: random.Random) -> Wish:
    leaf = dice.choice(("A1", "A2", "B1", "B2"))
    return Wish(leaf, {"n": dice.randint(1, 3)}, dice.choice((0, 0, 1, 2)), 0, dice.random() < 0.05)
