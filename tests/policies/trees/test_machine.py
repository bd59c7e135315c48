"""Random histories against the reference model, many threads, and rest: short runs; ``soak`` has the long ones."""

from __future__ import annotations

import pytest

from tests.policies.trees.machine import Machine
from tests.policies.trees.preemption_ends import instance
from tests.policies.trees.threads import contend
from tests.policies.trees.world import World


@pytest.mark.parametrize("seed", range(24))
def test_the_library_does_what_the_reference_model_does(seed: int) -> None:
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
    counts = contend(8, 200)
    assert counts["undone"] > 0
    assert counts["allocated"] > 0


def test_what_is_kept_does_not_grow_with_what_has_been() -> None:
    world = World(T="R9(A9)")
    for number in range(600):
        world.allocate(f"c{number}", "A", 1)
        if number >= 3:
            world.manager.deallocate("T", f"c{number - 3}")
            world.manager.remove_consumer(f"c{number - 3}")
    tree = world.manager._book.trees.by_name["T"]
    assert sorted(tree.allocations) == ["c597", "c598", "c599"]
    assert len(world.manager._book.parsed) == 3
