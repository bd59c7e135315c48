"""A build copies every file that the package ships."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.tools.test_house import tool

ROOT = Path(__file__).resolve().parent.parent.parent


def test_package_data_is_copied_and_every_file_of_the_sources_is_package_data(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ROOT / "src" / "bursar"
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    shipped = {package / name for name in options["package-data"]["bursar"]}
    copied = set(tool("sources", monkeypatch).build_inputs())
    ignored = {".py", ".pyc", ".so", ".pyd", ".c"}
    assert shipped == {path for path in package.rglob("*") if path.is_file() and path.suffix not in ignored}
    assert shipped <= copied
