"""Plant one-line faults in a copy of the sources, one at a time, and see whether the narrow tests notice each.

``make mutants [ONLY=engine/] [SEED=n]`` plants those that ``mutants.toml`` lists by hand, and in every module one that
SEED picks (``faults.py``). Each runs with the tests that ``mutants.toml`` names for its path, until one fails. Before,
these tests pass without a fault. A fault with which they take five times as long counts as noticed, because it hangs.
One that nothing notices must be listed as harmless, with the reason; the exit code is 1 otherwise.

Each run is a fork of one process that has pytest and the libraries in memory, so that narrow tests take seconds. The
working tree is never changed. Outcomes are kept in build/mutants/results.json; ``--again`` runs only those that were
not noticed the last time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import NamedTuple

from faults import Fault, planted, sample

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "bursar"
WORK = ROOT / "build" / "mutants"
LIST = ROOT / "tools" / "mutants.toml"
KILLED, HUNG, HARMLESS, SURVIVED, NO_FAULT = "killed", "hung", "harmless", "SURVIVED", "NO SUCH LINE"
BAD = {SURVIVED, NO_FAULT}
OPTIONS = ("-x", "-q", "--assert=plain", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist")
PRELOADED = ("pytest", "hypothesis", "msgspec", "yaml", "anyio", "asyncio", "sqlite3", "click", "cryptography.x509")


class Plan(NamedTuple):
    """What is listed by hand."""

    faults: list[Fault]
    harmless: dict[Fault, str]
    tests: dict[str, list[str]]

    def tests_for(self, path: str) -> tuple[str, ...]:
        """Those of the longest beginning of the path that is listed."""
        found = [begin for begin in self.tests if path.startswith(begin)]
        if not found:
            raise SystemExit(f"{LIST.name}: no tests are listed for {path}")
        return tuple(self.tests[max(found, key=len)])


def read_plan(file: Path = LIST) -> Plan:
    listed = tomllib.loads(file.read_text())
    harmless = {_fault(row): str(row["why"]) for row in listed.get("harmless", [])}
    return Plan([_fault(row) for row in listed["faults"]], harmless, listed["tests"])


def _fault(row: dict[str, str]) -> Fault:
    path, _, function = row["in"].partition(":")
    return Fault(path, function, row["line"], row["becomes"])


class Runner:
    """A copy of the package, and runs of narrow tests on it."""

    def __init__(self, work: Path = WORK, package: Path = PACKAGE) -> None:
        self.package = package
        self.copy = work / "src"
        self.log = work / "output"
        self._limits: dict[tuple[str, ...], float] = {}
        self._times = count(1)
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(package, self.copy / package.name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        for name in PRELOADED:
            with suppress(ImportError):
                import_module(name)

    def outcome(self, fault: Fault, tests: tuple[str, ...]) -> str:
        try:
            text = planted(self.package, fault)
        except (LookupError, SyntaxError) as error:
            print(error)
            return NO_FAULT
        limit = self._limit(tests)
        self._write(fault.path, text)
        try:
            status = self._run(tests, limit)
        finally:
            self._write(fault.path, (self.package / fault.path).read_text())
        return HUNG if status is None else SURVIVED if status == 0 else KILLED

    def _limit(self, tests: tuple[str, ...]) -> float:
        """Seconds for these tests, which must pass without a fault."""
        if tests not in self._limits:
            begin = time.monotonic()
            if self._run(tests, 1200) != 0:
                raise SystemExit(f"without a fault these tests do not pass: {' '.join(tests)}\n{self.log.read_text()}")
            taken = time.monotonic() - begin
            print(f"{taken:5.1f} s without a fault: {' '.join(tests)}", flush=True)
            self._limits[tests] = 30 + 5 * taken
        return self._limits[tests]

    def _write(self, path: str, text: str) -> None:
        """With a time of its own, because Python trusts a cached module of the same time and size."""
        file = self.copy / self.package.name / path
        file.write_text(text)
        os.utime(file, (next(self._times),) * 2)

    def _run(self, tests: tuple[str, ...], limit: float) -> int | None:
        """The exit code of pytest; None if it did not end in time."""
        child = os.fork()
        if child == 0:
            self._test(tests)
        end = time.monotonic() + limit
        status = None
        while status is None and time.monotonic() < end:
            done, code = os.waitpid(child, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if done else None
            time.sleep(0.02)
        with suppress(ProcessLookupError):  # what the tests started as well
            os.killpg(child, signal.SIGKILL)
        if status is None:
            os.waitpid(child, 0)
        return status

    def _test(self, tests: tuple[str, ...]) -> None:
        """In the child: become pytest, in a process group of its own."""
        os.setpgid(0, 0)
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ["PYTHONPATH"] = str(self.copy)
        sys.path.insert(0, str(self.copy))
        os.chdir(ROOT)
        status = 70
        try:
            pytest = import_module("pytest")
            status = int(pytest.main([*OPTIONS, *tests]))
        finally:
            sys.stdout.flush()
            os._exit(status)


def run(faults: Iterable[Fault], plan: Plan, runner: Runner, results: dict[str, str]) -> None:
    """Fills in the outcome of each fault, and keeps it at once."""
    total = len(faults := list(faults))
    for number, fault in enumerate(faults, 1):
        begin = time.monotonic()
        outcome = runner.outcome(fault, plan.tests_for(fault.path))
        if outcome == SURVIVED and fault in plan.harmless:
            outcome = HARMLESS
        results[str(fault)] = outcome
        (WORK / "results.json").write_text(json.dumps(results, indent=1))
        print(f"{number}/{total} {outcome} in {time.monotonic() - begin:.1f} s: {fault}", flush=True)


def report(faults: list[Fault], plan: Plan, results: dict[str, str]) -> bool:
    """Print the table and what is behind it; whether all is well."""
    columns = (KILLED, HUNG, HARMLESS, SURVIVED, NO_FAULT)
    print(f"\n{'':<22}{'faults':>8}" + "".join(f"{column:>14}" for column in columns))
    for folder in [*sorted({fault.folder for fault in faults}), ""]:
        counts = Counter(results[str(fault)] for fault in faults if folder in {fault.folder, ""})
        print(f"{folder or 'all':<22}{counts.total():>8}" + "".join(f"{counts[column]:>14}" for column in columns))
    well = True
    for fault in faults:
        outcome = results[str(fault)]
        if outcome == HARMLESS:
            print(f"\nharmless: {fault}\n  {plan.harmless[fault]}")
        elif outcome in BAD or fault in plan.harmless:
            print(f"\n{outcome}: {fault}" + ("\n  but it is listed as harmless" if fault in plan.harmless else ""))
            well = False
    return well


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", metavar="ONLY", nargs="*", help="a part of path, function or line, such as engine/")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per", type=int, default=1, metavar="N", help="faults of each module; default: 1")
    parser.add_argument("--again", action="store_true", help="only those that were not noticed the last time")
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    options = parser.parse_args(arguments)
    plan = read_plan()
    faults = list(dict.fromkeys([*plan.faults, *plan.harmless, *sample(PACKAGE, options.seed, options.per)]))
    faults = [one for one in faults if not options.only or any(part in str(one) for part in options.only)]
    WORK.mkdir(parents=True, exist_ok=True)
    file = WORK / "results.json"
    results: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    if options.again:
        faults = [one for one in faults if results.get(str(one)) in BAD]
    if options.list:
        print(*faults, sep="\n")
        return 0
    run(sorted(faults, key=lambda one: plan.tests_for(one.path)), plan, Runner(), results)
    return 0 if report(faults, plan, results) else 1


if __name__ == "__main__":
    sys.exit(main())
