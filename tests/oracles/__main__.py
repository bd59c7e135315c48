"""``python -m tests.oracles --instances 100000 --seed 1 [elastic] [trees]``: compare Bursar with brute force.

Prints how many decisions there were, what came of them, and every difference with its seed and a description by which
it can be repeated. Exits with 1 if there is a difference.
``--show N`` prints at most N differences of each kind in full.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import count

from tests.oracles import elastic_worlds, trees_worlds
from tests.oracles.verdicts import Play, Tally, Verdict, tally_first

WORLDS: dict[str, Play] = {"elastic": elastic_worlds.play, "trees": trees_worlds.play}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracles", description="Compare with brute force.")
    parser.add_argument("which", nargs="*", help=f"of {sorted(WORLDS)}; both if none is named")
    parser.add_argument("--instances", type=int, default=1000, help="decisions to compare")
    parser.add_argument("--seed", type=int, default=1, help="the first seed; a difference names its own")
    parser.add_argument("--show", type=int, default=1_000_000, help="differences of each kind to print in full")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.which) - set(WORLDS))
    if unknown:
        parser.error(f"no oracle for {', '.join(unknown)}")
    sums = [_compare(which, given.instances, given.seed, given.show) for which in given.which or sorted(WORLDS)]
    return 1 if any(one.differences for one in sums) else 0


def _compare(which: str, instances: int, seed: int, show: int) -> Tally:
    shown: Counter[str] = Counter()

    def report(verdict: Verdict) -> None:
        shown[verdict.fault] += 1
        story = f"\n{verdict.story}" if shown[verdict.fault] <= show else ""
        sys.stdout.write(f"{which} seed {verdict.seed}: {verdict.fault}{story}\n")
        sys.stdout.flush()

    sums = tally_first(WORLDS[which], count(seed), instances, report)
    sys.stdout.write(f"{which} from seed {seed}\n" + "\n".join(sums.lines()) + "\n")
    return sums


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
