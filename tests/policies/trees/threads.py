"""Many threads on one manager: half of them hold the lock over try and undo, half take their chances."""

from __future__ import annotations

import random
import threading
from collections import Counter

from bursar.policies.trees import NORMAL, QuotaError, QuotaManager, StaleTokenError
from tests.policies.trees.machine import document, info
from tests.policies.trees.reference_model import Node, Wish

NODES = {
    "R": Node("", False, {"n": 12}),
    "A": Node("R", False, {"n": 4}),
    "B": Node("R", True, {"n": 6}),
    "A1": Node("A", False, {"n": 2}),
    "A2": Node("A", False, {"n": 2}),
    "B1": Node("B", False, {"n": 3}),
}
GROUPS = ("A1", "A2", "B1")
TREES = ("T", "U")


def contend(threads: int, rounds: int) -> Counter[str]:
    """So many rounds in each thread; returns how often what happened. Raises what a thread raised."""
    manager = QuotaManager()
    for tree in TREES:
        manager.add_tree_from_struct(document(tree, ("n",), NODES))
    manager.add_forest("F")
    for tree in TREES:
        manager.add_tree_to_forest("F", tree)
    manager.set_mode(NORMAL)
    counts: Counter[str] = Counter()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        mine: Counter[str] = Counter()
        try:
            _work(manager, number, rounds, mine)
        except BaseException as error:  # noqa: BLE001 shown by the main thread
            errors.append(error)
        counts.update(mine)

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    _check(manager)
    return counts


def _work(manager: QuotaManager, number: int, rounds: int, mine: Counter[str]) -> None:
    dice = random.Random(number)
    for round_number in range(rounds):
        name = f"{number}-{round_number}"
        wish = Wish(dice.choice(GROUPS), {"n": dice.randint(1, 3)}, dice.randint(0, 2))
        manager.add_consumer(info(name, dict.fromkeys(TREES, wish)))
        if number % 2:
            with manager.atomic():
                _try_and_undo(manager, name, mine)
        elif dice.random() < 0.5:
            _try_and_undo(manager, name, mine)
        elif manager.allocate_forest("F", name).allocated:
            mine["allocated"] += 1
        _leave(manager, name, mine)


def _try_and_undo(manager: QuotaManager, name: str, mine: Counter[str]) -> None:
    tried = manager.try_allocate_forest("F", name)
    mine["tried"] += 1
    assert tried.token is not None
    try:
        manager.undo_allocate_forest(tried.token)
        mine["undone"] += 1
    except StaleTokenError:
        mine["stale"] += 1


def _leave(manager: QuotaManager, name: str, mine: Counter[str]) -> None:
    """Others may preempt it, or undo its preemption, between two calls: then it is there again."""
    while True:
        manager.deallocate_forest("F", name)
        try:
            manager.remove_consumer(name)
        except QuotaError:
            mine["back again"] += 1
        else:
            return


def _check(manager: QuotaManager) -> None:
    """Everybody left, so nothing may be in use."""
    assert manager.get_all_consumer_ids() == []
    for tree in TREES:
        for node in manager.get_tree_state(tree).values():
            assert (node.used, node.consumers) == ({}, ())
