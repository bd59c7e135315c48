"""Settings of the whole suite.

With BURSAR_EXPECT=interpreted or compiled, the session refuses to start on the other kind of modules: a
compiled run that quietly tested the sources would prove nothing.

Tests that start a process or the fake API server have the marker ``slow``. It is set here, by what the module of the
test or of one of its fixtures imports. ``make check`` leaves these tests out.
"""

import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

# How long it takes to make an example up is a matter of the machine, and no failure.
settings.register_profile(
    "suite", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")

MODES = ("interpreted", "compiled")


def loaded_mode() -> tuple[str, str]:
    """Which kind of module bursar.resources is, and its file."""
    file = str(import_module("bursar.resources").__file__)
    return ("compiled" if file.endswith(tuple(EXTENSION_SUFFIXES)) else "interpreted"), file


def pytest_sessionstart() -> None:
    expected = os.environ.get("BURSAR_EXPECT")
    if expected is None:
        return
    if expected not in MODES:
        pytest.exit(f"BURSAR_EXPECT={expected}: must be one of {', '.join(MODES)}", returncode=2)
    mode, file = loaded_mode()
    if mode != expected:
        pytest.exit(f"expected {expected} modules, but bursar.resources is {mode}: {file}", returncode=2)


SLOW = (
    "subprocess",
    "tests.kube.fakeapi",
    "tests.kube.controller.stage",
    "tests.robustness",
    "tests.server.crash",
    "playwright",
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: starts a process or the fake API server; left out of make check")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and any(map(_imports_slow_module, _modules(item))):
            item.add_marker(pytest.mark.slow)


def _modules(test: pytest.Function) -> Iterator[ModuleType]:
    """The module of a test and those of its fixtures."""
    yield test.module
    for definitions in test._fixtureinfo.name2fixturedefs.values():
        yield from (sys.modules[definition.func.__module__] for definition in definitions)


@cache
def _imports_slow_module(module: ModuleType) -> bool:
    return any(f"{_origin(one)}.".startswith(f"{slow}.") for one in vars(module).values() for slow in SLOW)


def _origin(one: object) -> object:
    return one.__name__ if isinstance(one, ModuleType) else getattr(one, "__module__", None)


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of tests that are coroutines."""
    return "asyncio"


@pytest.fixture
def repository() -> Path:
    return Path(__file__).resolve().parent.parent
