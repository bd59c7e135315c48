"""Measurements that measure nothing, for the tests of child processes."""

from benchmarks.children import COMPILED, loaded_mode


def figures(number: int) -> dict[str, float]:
    return {"twice": 2 * number, "compiled": float(loaded_mode() == COMPILED)}


def fail() -> dict[str, float]:
    raise RuntimeError("fails on purpose")
