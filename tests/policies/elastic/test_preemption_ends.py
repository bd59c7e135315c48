"""Preemption ends (see ``preemption_ends``); here a small part of what the long run does."""

from __future__ import annotations

from random import Random

import pytest

from tests.policies.elastic.preemption_ends import Instance, run


@pytest.mark.parametrize("seed", [11, 12])
def test_preemption_comes_to_rest(seed: int) -> None:
    preemptions, most = run(250, seed)
    assert preemptions > 100
    assert most < 20


def test_a_fixed_demand_has_one_history() -> None:
    """The same instance, lived twice, is decided in the same way to the last byte."""
    histories = []
    for _ in range(2):
        instance = Instance(Random("history"))
        instance.wander()
        instance.rest()
        histories.append(instance.engine.journal.take())
    assert histories[0] == histories[1]
