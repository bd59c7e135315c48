"""The public API of the library: what it exports, its docstrings, and that documentation uses nothing else."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bursar
from bursar.policies import trees

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = {f"{module.__name__}.{name}": getattr(module, name) for module in (bursar, trees) for name in module.__all__}
CLASSES = [bursar.Engine, bursar.Auditor, *(value for value in vars(trees).values() if inspect.isclass(value))]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


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


def test_exports_are_loaded_on_first_use_and_listed() -> None:
    source = ast.parse(Path(str(bursar.__file__)).read_text())
    typed = [node for block in source.body if isinstance(block, ast.If) for node in block.body]
    named = {node.module: tuple(part.name for part in node.names) for node in typed if isinstance(node, ast.ImportFrom)}
    assert named == bursar._NAMES
    assert sorted([*bursar._MODULES, "__version__"]) == sorted(bursar.__all__)
    assert set(bursar.__all__) <= set(dir(bursar))


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if inspect.isroutine(value)])
def test_public_functions_have_docstrings(name: str) -> None:
    assert inspect.getdoc(PUBLIC[name])


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if inspect.isclass(value)])
def test_public_classes_have_docstrings(name: str) -> None:
    text = PUBLIC[name].__doc__
    assert text
    assert " " in text, "not just a signature"


@pytest.mark.parametrize("made", CLASSES, ids=lambda made: str(made.__name__))
def test_public_methods_have_docstrings_also_in_the_compiled_build(made: type) -> None:
    for name, value in inspect.getmembers(made):
        if (inspect.isroutine(value) or isinstance(value, property)) and not name.startswith("_"):
            assert value.__doc__, f"{made.__name__}.{name}"


def test_help_shows_signature_and_text() -> None:
    assert str(inspect.signature(trees.QuotaManager.allocate)).startswith("(self, ")
    assert inspect.getdoc(trees.QuotaManager.allocate) == "Allocate a consumer on one tree that it names."
    assert inspect.getdoc(trees.QuotaManager.digest) == "One number for the whole state."
    assert sys.modules[trees.QuotaManager.__module__].__doc__


def test_documentation_imports_only_the_public_api() -> None:
    examples = [path.read_text() for path in sorted((ROOT / "examples").rglob("*.py"))]
    pages = [block for page in PAGES for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]
    imported = re.findall(r"^\s*(?:from|import) (bursar[\w.]*)", "\n".join([*pages, *examples]), re.MULTILINE)
    assert set(imported) == {"bursar", "bursar.policies.trees"}
