"""The figures of the code base are counted right, and each check on its structure can fail."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return tool("house", monkeypatch)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return tool("check_house", monkeypatch)


def tool(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script of tools/, imported the way Python finds it when it runs as a script."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module(name)


def tree(root: Path, files: Mapping[str, str]) -> Path:
    """A tree with the package ``pkg`` of these files under src."""
    for name, text in {"__init__.py": "", **files}.items():
        path = root / "src" / "pkg" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def lines(count: int) -> str:
    return "x = 1\n" * count


# Figures


def test_table_counts_modules_lines_classes_and_functions(house: ModuleType, tmp_path: Path) -> None:
    shared = (
        "class Shared:\n    def short(self): ...\n\n    def long(self):\n        return (\n            1\n        )\n"
    )
    tree(tmp_path, {"small.py": shared, "other.py": shared + lines(93), "large.py": lines(451)})
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "helper.py").write_text(lines(5))
    found = house.measure(tmp_path)
    assert (found.modules, found.median_lines) == (3, 100)
    assert found.small == {"pkg.small": 7}
    assert found.large == {"pkg.large": 451}
    assert found.repeated_classes == {"Shared": ["pkg.other", "pkg.small"]}
    assert (found.source_lines, found.test_lines) == (7 + 100 + 451, 5)
    assert (found.functions, found.function_median, found.function_p90) == (4, 2.5, 4)


def test_tree_without_src_keeps_tests_apart(house: ModuleType, tmp_path: Path) -> None:
    for name in ("one.py", "test_one.py", "conftest.py", "build/left.py", ".venv/lib.py", "a/build/kept.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lines(10))
    found = house.measure(tmp_path)
    assert (found.modules, found.source_lines, found.test_lines) == (2, 20, 20)


def test_file_that_does_not_parse_counts_its_lines(
    house: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = house.measure(tree(tmp_path, {"old.py": "print 'no'\n"}))
    assert (found.modules, found.source_lines, found.functions) == (1, 1, 0)
    assert "old.py does not parse" in capsys.readouterr().err


def test_options_print_lists_and_json(house: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree(tmp_path, {"a.py": "class Twice: ...\n", "b.py": "if True:\n    class Twice: ...\n"})
    assert house.main([str(tmp_path)]) == 0
    assert "pkg.a" not in capsys.readouterr().out
    assert house.main([str(tmp_path), "-v"]) == 0
    assert "Twice: pkg.a, pkg.b" in capsys.readouterr().out
    assert house.main([str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["repeated_classes"] == {"Twice": ["pkg.a", "pkg.b"]}


# Checks


CYCLES = {
    "from module import name": {"a.py": "from pkg.b import x\n", "b.py": "from pkg.a import y\n"},
    "from package import module": {"a.py": "from pkg import b\n", "b.py": "from pkg import a\n"},
    "import module": {"a.py": "import pkg.b\n", "b.py": "import pkg.a\n"},
    "relative": {"a.py": "from .b import x\n", "b.py": "from . import a\n"},
    "relative, from a subpackage": {
        "a.py": "from pkg.s.b import x\n",
        "s/__init__.py": "",
        "s/b.py": "from ..a import y",
    },
    "in try": {"a.py": "try:\n    from pkg.b import x\nexcept ImportError:\n    pass\n", "b.py": "import pkg.a\n"},
    "in a class": {"a.py": "class A:\n    from pkg.b import x\n", "b.py": "import pkg.a\n"},
    "by way of a package": {"a.py": "import pkg\n", "__init__.py": "from pkg.a import x\n"},
    "other branch": {"a.py": "if TYPE_CHECKING:\n    x = 1\nelse:\n    import pkg.b\n", "b.py": "import pkg.a\n"},
}

NO_CYCLES = {
    "one way": {"a.py": "from pkg.b import x\n", "b.py": "import sys\n"},
    "types only": {"a.py": "import pkg.b\n", "b.py": "if TYPE_CHECKING:\n    import pkg.a\n"},
    "types only, by attribute": {"a.py": "import pkg.b\n", "b.py": "if typing.TYPE_CHECKING:\n    import pkg.a\n"},
    "in a function": {"a.py": "import pkg.b\n", "b.py": "def f():\n    import pkg.a\n"},
    "in a method": {"a.py": "import pkg.b\n", "b.py": "class B:\n    async def f(self):\n        import pkg.a\n"},
    "parent package": {"a.py": "import pkg.b\n", "b.py": "", "__init__.py": "from pkg.a import x\n"},
}


@pytest.mark.parametrize("how", CYCLES)
def test_cycle_fails(how: str, checks: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree(tmp_path, CYCLES[how])
    assert checks.main(["cycles", "--root", str(tmp_path)]) == 1
    assert "import each other in a cycle: pkg" in capsys.readouterr().out


@pytest.mark.parametrize("how", NO_CYCLES)
def test_imports_without_a_cycle_pass(how: str, checks: ModuleType, tmp_path: Path) -> None:
    assert checks.main(["cycles", "--root", str(tree(tmp_path, NO_CYCLES[how]))]) == 0


def test_cycle_is_printed_in_the_order_of_imports(
    checks: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(tmp_path, {"a.py": "import pkg.b\n", "b.py": "import pkg.c\n", "c.py": "import pkg.a\n"})
    assert checks.main(["cycles", "--root", str(tmp_path)]) == 1
    cycle = capsys.readouterr().out.splitlines()[0].partition("cycle: ")[2].split(" -> ")
    assert "".join(name[-1] for name in cycle) in {"abca", "bcab", "cabc"}


def test_class_name_in_two_modules_fails(
    checks: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(tmp_path, {"a.py": "class Same: ...\n", "b.py": "class Same: ...\nclass Other: ...\n"})
    assert checks.main(["classes", "--root", str(tmp_path)]) == 1
    assert "class Same is defined in 2 modules: pkg.a, pkg.b" in capsys.readouterr().out


def test_allowed_class_name_passes_while_it_is_needed(checks: ModuleType, tmp_path: Path) -> None:
    modules = checks.sources(tree(tmp_path, {"a.py": "class Same: ...\n", "b.py": "class Same: ...\n"}))
    assert checks.check_classes(modules, {"Same": "why"}) == []
    assert "remove it" in checks.check_classes(modules, {"Same": "why", "Gone": "why"})[0]


@pytest.mark.parametrize(("size", "problem"), [(79, "fewer than 80"), (451, "more than 450")])
def test_module_of_a_wrong_size_fails(
    size: int, problem: str, checks: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(tmp_path, {"a.py": lines(size), "__main__.py": ""})
    assert checks.main(["sizes", "--root", str(tmp_path)]) == 1
    assert f"module pkg.a has {size} lines, {problem}" in capsys.readouterr().out


def test_sizes_within_the_limits_pass(checks: ModuleType, tmp_path: Path) -> None:
    tree(tmp_path, {"least.py": lines(80), "most.py": lines(450), "tiny.py": lines(1), "__main__.py": lines(500)})
    modules = checks.sources(tmp_path)
    assert checks.check_sizes(modules, {"pkg.tiny": "why"}) == []
    assert "remove it" in checks.check_sizes(modules, {"pkg.tiny": "why", "pkg.least": "why"})[0]


def test_checks_are_selected_one_by_one(checks: ModuleType, tmp_path: Path) -> None:
    tree(tmp_path, {"a.py": "class Same: ...\n", "b.py": "class Same: ...\n"})
    assert checks.main(["cycles", "--root", str(tmp_path)]) == 0
    assert checks.main(["cycles", "classes", "--root", str(tmp_path)]) == 1


def test_modules_of_the_package_import_each_other_without_a_cycle(checks: ModuleType) -> None:
    assert checks.main(["cycles"]) == 0
