"""The long run: ``python -m tests.all_policies --steps 100000 --seed 1 [--processes 2]``.

``--world NUMBER`` plays one world and tells its story if it breaks a rule. Worlds are numbered from ``seed`` times a
million. A world that breaks a rule is shrunk and told, and ends the run with exit code 1; ``--go-on`` counts such
worlds instead and tells the first of each rule at the end.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import Pool

from tests.all_policies.play import BrokenWorldError, drawn, played, shrunk

_WORLDS_OF_A_SEED = 1_000_000

Outcome = tuple[int, Counter[str], str]
"""The world's seed, what happened there, and the rule that it broke or ""."""


def outcome(seed: int) -> Outcome:
    try:
        return seed, played(seed, drawn(seed)), ""
    except BrokenWorldError as error:
        error.counts["steps"] += len(error.moves)
        return seed, error.counts, error.rule


def outcomes(first: int, processes: int) -> Iterator[Outcome]:
    """Of one world after the other, without end."""
    numbers = range(first, first + _WORLDS_OF_A_SEED)
    if processes == 1:
        yield from map(outcome, numbers)
    else:
        with Pool(processes) as pool:
            yield from pool.imap_unordered(outcome, numbers, chunksize=4)


def told(seed: int) -> str:
    """The shortest story of a broken world, or that it holds."""
    try:
        played(seed, drawn(seed))
    except BrokenWorldError as error:
        sys.stderr.write(f"\n{error}\nshrinking {len(error.moves)} steps\n")
        found = shrunk(error)
        return "\n".join([*found.story, str(found), f"played({found.seed}, {found.moves}, 1)"])
    return f"world {seed} holds"


def run(steps: int, first: int, processes: int, go_on: bool) -> int:
    counts: Counter[str] = Counter()
    broken: dict[str, list[int]] = {}
    begun = time.monotonic()
    for seed, found, rule in outcomes(first, processes):
        counts += found
        counts["worlds"] += 1
        if rule:
            broken.setdefault(rule, []).append(seed)
        rate = counts["steps"] / (time.monotonic() - begun)
        sys.stderr.write(f"\r{counts['steps']:,} of {steps:,} steps, {counts['worlds']:,} worlds ({rate:,.0f} steps/s)")
        sys.stderr.flush()
        if counts["steps"] >= steps or (broken and not go_on):
            break
    sys.stderr.write("\n")
    for name, count in sorted(counts.items()):
        sys.stdout.write(f"{name:>20}  {count:,}\n")
    for rule, seeds in sorted(broken.items()):
        sys.stdout.write(f"broken: {rule}: {len(seeds)} worlds, {seeds[:5]}\n")
    if not go_on:
        for seeds in broken.values():
            sys.stdout.write(told(seeds[0]) + "\n")
    sys.stdout.write(
        f"{counts['steps']:,} steps from world {first}: {'rules were broken' if broken else 'no violation'}\n"
    )
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--world", type=int, help="play only this one, and tell its story if it breaks a rule")
    parser.add_argument("--go-on", action="store_true", help="count broken worlds instead of ending at the first")
    arguments = parser.parse_args()
    if arguments.world is not None:
        sys.stdout.write(told(arguments.world) + "\n")
        return 0
    return run(arguments.steps, arguments.seed * _WORLDS_OF_A_SEED, arguments.processes, arguments.go_on)


if __name__ == "__main__":
    sys.exit(main())
