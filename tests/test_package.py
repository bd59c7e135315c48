"""The front door of the library."""

import subprocess
import sys

import pytest

import bursar


def test_the_engine_is_at_the_front_door() -> None:
    from bursar.engine.engine import Engine

    assert bursar.Engine is Engine


def test_importing_the_package_loads_nothing_of_the_core() -> None:
    script = "import sys, bursar; print([name for name in sys.modules if name.startswith('bursar.')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['bursar._version']"


def test_other_names_are_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        _ = bursar.Motor
