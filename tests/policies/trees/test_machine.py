"""Random histories against the naive twin, many threads, and rest: short runs; ``soak`` has the long ones."""

from __future__ import annotations

import pytest

from tests.policies.trees.machine import Machine
from tests.policies.trees.thrash import instance
from tests.policies.trees.threads import contend


@pytest.mark.parametrize("seed", range(24))
def test_the_library_does_what_the_twin_does(seed: int) -> None:
    machine = Machine(seed, deep=seed % 3 == 0)
    for _ in range(120):
        machine.step()
    machine.replayed()


def test_the_same_operations_twice_give_the_same_state() -> None:
    first, second = Machine(99), Machine(99)
    for _ in range(150):
        first.step()
        second.step()
    assert first.manager.plain() == second.manager.plain()
    assert first.manager.digest == second.manager.digest


def test_victims_that_come_back_for_ever_come_to_rest() -> None:
    assert sum(instance(seed) for seed in range(300)) > 0


def test_eight_threads_lose_no_update() -> None:
    counts = contend(8, 1.5)
    assert counts["undone"] > 0
    assert counts["allocated"] > 0
