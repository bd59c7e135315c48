"""Elastic quotas against their reference model, and properties that hold whatever happens."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.policies.elastic.machine import Machine, random_step

few = st.integers(0, 3)
some = st.integers(0, 5)
many = st.integers(0, 999)


class ElasticMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()

    @rule(namespace=few, first=few, second=st.integers(0, 2), priority=st.integers(0, 2), preemptible=st.booleans())
    def ask(self, namespace: int, first: int, second: int, priority: int, preemptible: bool) -> None:
        self.machine.ask(namespace, first, second, priority, preemptible)

    @rule(choice=many)
    def ask_again(self, choice: int) -> None:
        self.machine.ask_again(choice)

    @rule(choice=many)
    def release(self, choice: int) -> None:
        self.machine.release(choice)

    @rule(choice=many)
    def run(self, choice: int) -> None:
        self.machine.run(choice)

    @rule(number=few, first=some, second=few, most=st.integers(3, 9))
    def set_quota(self, number: int, first: int, second: int, most: int) -> None:
        self.machine.set_quota(number, first, second, most)

    @rule(width=few, first=some, second=few)
    def set_composite(self, width: int, first: int, second: int) -> None:
        self.machine.set_composite(width, first, second)

    @precondition(lambda self: self.machine.count > 4)
    @rule(number=few)
    def remove_quota(self, number: int) -> None:
        self.machine.remove_quota(number)

    @rule(bounded=st.booleans(), by_priority=st.booleans())
    def set_options(self, bounded: bool, by_priority: bool) -> None:
        self.machine.set_options(bounded, by_priority)

    @invariant()
    def agrees_with_the_reference_model(self) -> None:
        self.machine.check()

    def teardown(self) -> None:
        self.machine.check_replica()


def test_the_policy_agrees_with_its_reference_model() -> None:
    run_state_machine_as_test(ElasticMachine, settings=settings(max_examples=25, stateful_step_count=30))


@pytest.mark.parametrize("seed", range(4))
def test_long_random_lives(seed: int) -> None:
    rng = Random(seed)
    machine = Machine()
    for step in range(250):
        random_step(machine, rng)
        if step % 50 == 49:
            machine.check_replica()
