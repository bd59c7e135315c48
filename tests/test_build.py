"""The suite runs on what it says it runs on: all of the core compiled, or none of it."""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import bursar
from tests.conftest import loaded_mode

PACKAGE = Path(bursar.__file__).parent
ARITHMETIC = ("quantity.py", "resources.py", "selectors.py")
CORE = (*ARITHMETIC, "ledger/**/*.py", "policies/**/*.py", "engine/**/*.py")
INTERPRETED_NAMES = {"__init__.py", "api.py", "plugin.py", "journal_lines.py"}


def core_modules() -> list[str]:
    found = [path for pattern in CORE for path in PACKAGE.glob(pattern) if path.name not in INTERPRETED_NAMES]
    return sorted(str(path.relative_to(PACKAGE)) for path in found)


@pytest.mark.parametrize("module", core_modules())
def test_core_module_is_compiled_exactly_when_the_package_is(module: str) -> None:
    has_extension = any((PACKAGE / module).with_suffix(suffix).exists() for suffix in EXTENSION_SUFFIXES)
    assert has_extension == (loaded_mode()[0] == "compiled")


def test_no_extension_module_lies_in_the_sources(repository: Path) -> None:
    assert not [path for path in (repository / "src").rglob("*") if path.suffix in {".so", ".pyd"}]
