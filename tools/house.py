"""Measure a tree of Python sources: sizes of modules and functions, and class names that are not unique.

``python tools/house.py [DIR]`` prints a table; without DIR it measures this repository. ``-v`` lists the repeated class
names and the modules outside the size limits. ``--json`` prints the same as JSON.

Sources are the files under ``DIR/src`` if that folder exists, else all files under DIR that are no tests. Tests are the
files below a folder named ``tests`` or ``test``, and files named ``test_*.py``, ``*_test.py`` or ``conftest.py``.
Hidden folders, ``DIR/build`` and ``DIR/dist`` are skipped. Lines are lines of the file, with comments and blank lines.
``__init__`` modules count for lines and functions, but not as modules. Classes are those at the top level of a module.
A file that does not parse counts for its lines only, with a warning.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SMALL, LARGE = 80, 450  # lines: a module below or above is hard to justify
SKIPPED = {"build", "dist"}
TESTS = {"tests", "test"}


@dataclass(frozen=True)
class Module:
    """One source file, parsed."""

    path: Path
    name: str  # dotted, from the root of the tree
    lines: int
    tree: ast.Module

    @property
    def stem(self) -> str:
        return self.path.stem

    def classes(self) -> list[str]:
        return [node.name for node in top_level(self.tree.body) if isinstance(node, ast.ClassDef)]

    def functions(self) -> list[int]:
        """The length of every function and method in lines, without decorators."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        found = [node for node in ast.walk(self.tree) if isinstance(node, kinds)]
        return [(node.end_lineno or node.lineno) - node.lineno + 1 for node in found]


@dataclass
class Measure:
    """The figures of one tree."""

    modules: int
    median_lines: float
    small: dict[str, int] = field(default_factory=dict)
    large: dict[str, int] = field(default_factory=dict)
    repeated_classes: dict[str, list[str]] = field(default_factory=dict)
    source_lines: int = 0
    test_lines: int = 0
    functions: int = 0
    function_median: float = 0
    function_p90: float = 0


def top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run at import outside classes and functions: also those inside if, try and with."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from top_level(node.body)
            yield from top_level(getattr(node, "orelse", []))
            yield from top_level(getattr(node, "finalbody", []))
            for handler in getattr(node, "handlers", []):
                yield from top_level(handler.body)


def python_files(root: Path) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(root):
        skipped = SKIPPED if Path(folder) == root else set()
        folders[:] = sorted(name for name in folders if name not in skipped and not name.startswith("."))
        found += [Path(folder, name) for name in sorted(names) if name.endswith(".py")]
    return found


def is_test(path: Path, root: Path) -> bool:
    inside = path.relative_to(root)
    named = path.stem.startswith("test_") or path.stem.endswith("_test") or path.stem == "conftest"
    return named or not TESTS.isdisjoint(inside.parts[:-1])


def read(path: Path, root: Path) -> Module:
    text = text_of(path)
    parts = path.relative_to(root).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    try:
        tree = ast.parse(text, str(path))
    except (SyntaxError, ValueError) as error:
        print(f"warning: {path} does not parse: {error}", file=sys.stderr)
        tree = ast.Module([], [])
    return Module(path, name, len(text.splitlines()), tree)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def sources(root: Path) -> list[Module]:
    base = root / "src" if (root / "src").is_dir() else root
    return [read(path, base) for path in python_files(base) if not is_test(path, base)]


def repeated_classes(modules: list[Module]) -> dict[str, list[str]]:
    """Class names that two or more modules define, with those modules."""
    places: dict[str, set[str]] = {}
    for module in modules:
        for name in module.classes():
            places.setdefault(name, set()).add(module.name)
    return {name: sorted(found) for name, found in sorted(places.items()) if len(found) > 1}


def measure(root: Path) -> Measure:
    everything = sources(root)
    modules = [module for module in everything if module.stem != "__init__"]
    lengths = sorted(length for module in everything for length in module.functions()) or [0]
    tests = [path for path in python_files(root) if is_test(path, root)]
    return Measure(
        modules=len(modules),
        median_lines=statistics.median([module.lines for module in modules] or [0]),
        small={module.name: module.lines for module in modules if module.lines < SMALL},
        large={module.name: module.lines for module in modules if module.lines > LARGE},
        repeated_classes=repeated_classes(everything),
        source_lines=sum(module.lines for module in everything),
        test_lines=sum(len(text_of(path).splitlines()) for path in tests),
        functions=sum(len(module.functions()) for module in everything),
        function_median=statistics.median(lengths),
        function_p90=lengths[(len(lengths) - 1) * 9 // 10],
    )


def table(found: Measure) -> str:
    rows: list[tuple[str, float]] = [
        ("modules (without __init__)", found.modules),
        ("median lines of a module", found.median_lines),
        (f"modules under {SMALL} lines", len(found.small)),
        (f"modules over {LARGE} lines", len(found.large)),
        ("class names in two or more modules", len(found.repeated_classes)),
        ("lines of source", found.source_lines),
        ("lines of tests", found.test_lines),
        ("functions", found.functions),
        ("median lines of a function", found.function_median),
        ("90th percentile of function lines", found.function_p90),
    ]
    return "\n".join(f"{title:<36}{value:>10,.10g}" for title, value in rows)


def details(found: Measure) -> str:
    lines = [f"\nclass names in two or more modules: {len(found.repeated_classes)}"]
    lines += [f"  {name}: {', '.join(places)}" for name, places in found.repeated_classes.items()]
    for title, modules in ((f"under {SMALL}", found.small), (f"over {LARGE}", found.large)):
        lines.append(f"\nmodules {title} lines: {len(modules)}")
        lines += [f"  {length:>5} {name}" for name, length in sorted(modules.items(), key=lambda item: item[1])]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", metavar="DIR", nargs="?", type=Path, default=ROOT, help="default: this repository")
    parser.add_argument("-v", "--verbose", action="store_true", help="list repeated class names, small, large modules")
    parser.add_argument("--json", action="store_true", help="print JSON, always with the lists")
    options = parser.parse_args(arguments)
    if not options.root.is_dir():
        parser.error(f"{options.root} is no folder")
    found = measure(options.root.resolve())
    if options.json:
        print(json.dumps(asdict(found), indent=2))
        return 0
    print(table(found))
    if options.verbose:
        print(details(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
