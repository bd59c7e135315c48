"""Run one part or every part, print its table, write build/bench/<part>.json.

Exit code 0 whether goals hold or not, 1 when a part crashed, 2 for an unknown part.
"""

import importlib
import pkgutil
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from benchmarks import parts
from benchmarks.children import ROOT
from benchmarks.rows import Row, table, write
from benchmarks.timing import say

RESULTS = ROOT / "build" / "bench"


def names() -> list[str]:
    """The parts there are: the modules of ``benchmarks.parts``."""
    return sorted(module.name for module in pkgutil.iter_modules(parts.__path__))


def run(part: str, results: Path = RESULTS) -> list[Row]:
    """Measure a part, print and write its rows."""
    say(f"== {part}")
    rows: list[Row] = []
    found: Iterator[Row] = importlib.import_module(f"benchmarks.parts.{part}").rows()
    for row in found:
        say("   " + "  ".join(cell for cell in row.cells() if cell))
        rows.append(row)
    write(rows, results / f"{part}.json")
    print(f"\n{part}\n{table(rows)}", flush=True)
    return rows


def closing(rows: list[Row], crashed: list[str]) -> str:
    """How many goals there were, and how many of them were missed."""
    held = [row for row in rows if row.goal is not None]
    short = [row for row in held if row.verdict == "short"]
    failed = f"; crashed: {', '.join(crashed)}" if crashed else ""
    return f"{len(held)} goals, {len(short)} short{failed}"


def main(arguments: list[str], results: Path = RESULTS) -> int:
    wanted = arguments or names()
    unknown = [part for part in wanted if part not in names()]
    if unknown:
        print(f"no part {', '.join(unknown)}; there are: {', '.join(names())}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    crashed: list[str] = []
    for part in wanted:
        try:
            rows.extend(run(part, results))
        except Exception:  # noqa: BLE001 one part must not keep the others from running
            traceback.print_exc()
            crashed.append(part)
    print(f"\n{closing(rows, crashed)}", flush=True)
    return 1 if crashed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
