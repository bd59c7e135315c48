"""Measure in a child process: with the interpreted or the compiled package, and with memory of its own.

``measure("benchmarks.work.deciding:pairs", COMPILED, ...)`` runs that function in a fresh interpreter whose ``bursar``
is the wanted one, and returns what it returned, by way of JSON. A child that fails fails the part.
"""

import importlib
import json
import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INTERPRETED = "interpreted"
COMPILED = "compiled"
PACKAGES = {INTERPRETED: ROOT / "src", COMPILED: ROOT / "build" / "compiled"}

_MARK = "benchmark-result "


class ChildError(RuntimeError):
    """A measurement that gave no result."""


def measure(function: str, mode: str, /, **arguments: object) -> dict[str, float]:
    """Run ``module:function`` in a child with the package of that mode; the function returns figures by name."""
    return _run(function, mode, arguments, None)


def measure_within(seconds: float, function: str, mode: str, /, **arguments: object) -> dict[str, float] | None:
    """The same; a child that takes longer is stopped, and there are no figures."""
    try:
        return _run(function, mode, arguments, seconds)
    except subprocess.TimeoutExpired:
        return None


def _run(function: str, mode: str, arguments: dict[str, object], seconds: float | None) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.children", function, mode, json.dumps(arguments)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES[mode])}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False, timeout=seconds
    )
    for line in done.stdout.splitlines():
        if line.startswith(_MARK) and done.returncode == 0:
            return dict(json.loads(line.removeprefix(_MARK)))
    raise ChildError(f"{function} ({mode}) gave no result, exit {done.returncode}")


def loaded_mode() -> str:
    """Which kind of package this process has."""
    file = str(importlib.import_module("bursar.resources").__file__)
    return COMPILED if file.endswith(tuple(EXTENSION_SUFFIXES)) else INTERPRETED


def main(function: str, mode: str, arguments: str) -> None:
    """The child's side: refuse to measure the other kind of package, then call and report."""
    if loaded_mode() != mode:
        raise SystemExit(f"wanted {mode} modules, found {loaded_mode()} ones: make compiled builds them")
    module, _, name = function.partition(":")
    result = getattr(importlib.import_module(module), name)(**json.loads(arguments))
    print(_MARK + json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
