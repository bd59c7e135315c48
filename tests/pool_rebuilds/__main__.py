"""The long run: ``python -m tests.pool_rebuilds --histories 5000 --seed 1``.

Histories are numbered from ``seed`` times a million. One that differs from its rebuilt cluster is shortened and told,
and ends the run with exit code 1; ``--go-on`` counts such histories instead. ``--history NUMBER`` plays only that one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.pool_rebuilds.play import BrokenHistoryError, played, shrunk

_HISTORIES_OF_A_SEED = 1_000_000


def told(error: BrokenHistoryError) -> str:
    found = shrunk(error)
    return "\n".join([*found.story, str(found), f"played({found.seed}, {found.moves})"])


def run(histories: int, first: int, go_on: bool) -> int:
    counts: Counter[str] = Counter()
    broken: list[BrokenHistoryError] = []
    begun = time.monotonic()
    for done, seed in enumerate(range(first, first + histories), 1):
        try:
            counts += played(seed)
        except BrokenHistoryError as error:
            broken.append(error)
            sys.stderr.write(f"\n{error}\n")
            if not go_on:
                break
        if done % 20 == 0:
            sys.stderr.write(f"\r{done:,} of {histories:,} histories ({done / (time.monotonic() - begun):.1f}/s)")
            sys.stderr.flush()
    sys.stderr.write("\n")
    for name, count in sorted(counts.items()):
        sys.stdout.write(f"{name:>12}  {count:,}\n")
    for what, count in sorted(Counter(error.what for error in broken).items()):
        sys.stdout.write(f"{what} differ: {count} histories\n")
    if broken and not go_on:
        sys.stdout.write(told(broken[0]) + "\n")
    sys.stdout.write(f"{done:,} histories from {first}: {len(broken)} differ\n")
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--history", type=int, help="play only this one")
    parser.add_argument("--go-on", action="store_true", help="count histories that differ")
    arguments = parser.parse_args()
    if arguments.history is not None:
        return run(1, arguments.history, False)
    return run(arguments.histories, arguments.seed * _HISTORIES_OF_A_SEED, arguments.go_on)


if __name__ == "__main__":
    sys.exit(main())
