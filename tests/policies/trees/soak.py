"""The long runs: ``python -m tests.policies.trees.soak [--steps N] [--instances N] [--rounds N] [--seed N]``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.policies.trees.machine import Machine
from tests.policies.trees.preemption_ends import instance
from tests.policies.trees.threads import contend

STEPS_A_HISTORY = 200


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--instances", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    _histories(options.seed, options.steps)
    preemptions = sum(instance(options.seed * 1_000_000 + number) for number in range(options.instances))
    _say(f"{options.instances} instances came to rest after {preemptions} preemptions")
    if options.rounds:
        _say(f"8 threads, {options.rounds} rounds each: {dict(contend(8, options.rounds))}")


def _histories(seed: int, steps: int) -> None:
    outcomes: Counter[str] = Counter()
    for number in range(steps // STEPS_A_HISTORY):
        machine = Machine(seed * 1_000_000 + number, deep=number % 3 == 0)
        try:
            for _ in range(STEPS_A_HISTORY):
                machine.step()
            machine.replayed()
        except BaseException:
            _say(f"history {number} of seed {seed} failed")
            raise
        outcomes.update(machine.outcomes)
    _say(f"{sum(outcomes.values())} operations agree with the reference model: {dict(outcomes)}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
