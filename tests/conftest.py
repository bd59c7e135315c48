"""Settings of the whole suite.

With BURSAR_EXPECT=interpreted or compiled, the session refuses to start on the other kind of modules: a
compiled run that quietly tested the sources would prove nothing.
"""

import os
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

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


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of tests that are coroutines."""
    return "asyncio"


@pytest.fixture
def repository() -> Path:
    return Path(__file__).resolve().parent.parent
