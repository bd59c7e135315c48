"""The long run: engine against its reference model, seeded. ``python -m tests.soak --steps 100000 --seed 1``."""

from __future__ import annotations

import argparse
import sys
import time
from random import Random

from tests.engine.machine import HOSTS, PROJECTS, TEAMS, Machine


def step(machine: Machine, rng: Random) -> None:
    """One random step, then the comparison."""
    n = rng.randrange
    roll = n(100)
    if roll < 38:
        machine.decide_new(n(4), n(3), 1 + n(3), n(2), n(4), n(10) > 0)
    elif roll < 56:
        machine.release(n(1000))
    elif roll < 74:
        machine.advance(n(1000))
    elif roll < 84:
        machine.decide_again(n(1000))
    elif roll < 88:
        machine.try_only(n(4), n(3), 1 + n(3), n(2), n(4))
    elif roll < 91:
        machine.decide_group([1 + n(2) for _ in range(2 + n(2))], n(4))
    elif roll < 94:
        machine.resize(n(1000), 1 + n(4))
    elif roll < 96:
        machine.give_up(n(1000))
    else:
        policy, path = [("hosts", HOSTS[n(3)]), ("teams", TEAMS[n(4)]), ("projects", PROJECTS[n(2)])][n(3)]
        machine.set_room(policy, path, 1 + n(8), n(5))
    while len(machine.engine.state.claims) > 14:
        machine.release(n(1000))
    machine.check()


def soak(steps: int, seed: int) -> None:
    rng = Random(seed)
    machine = Machine()
    begun = time.monotonic()
    for done in range(1, steps + 1):
        step(machine, rng)
        if done % 200 == 0:
            machine.check_replica()
        if done % 5000 == 0 or done == steps:
            rate = done / (time.monotonic() - begun)
            sys.stderr.write(f"\r{done:,} of {steps:,} steps without a difference ({rate:,.0f}/s)")
            sys.stderr.flush()
    machine.check_replica()
    sys.stderr.write("\n")
    sys.stdout.write(f"seed {seed}: {steps:,} steps, {machine.engine.version:,} records, no difference\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    soak(arguments.steps, arguments.seed)


if __name__ == "__main__":
    main()
