"""Fail when the package breaks a rule on its structure.

``python tools/check_house.py CHECK... [--root DIR]`` runs the named checks on ``DIR/src``, by default this one:

- ``cycles``: the import graph of the modules has no cycle. Only imports that run when a module is imported count:
  neither those under ``if TYPE_CHECKING`` nor those inside functions. ``from package import name`` is an import of
  ``package.name`` if that is a module, else of the package itself. That Python imports the parent package of every
  module is no edge.
- ``classes``: a class name is defined in one module only, but for ``SHARED_CLASSES``.
- ``sizes``: a module has at least 80 and at most 450 lines. ``SMALL_MODULES`` may be smaller. ``__init__`` and
  ``__main__`` may have any size.

An entry of an allow-list that is not needed any more is a failure too.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from house import LARGE, ROOT, SMALL, Module, repeated_classes, sources

# Class names that several modules define, and why.
SHARED_CLASSES: dict[str, str] = {
    "Change": "the ledger's reversible change, and the API component of that name, which is a contract",
}

# Modules under the least size, by dotted name, and why.
SMALL_MODULES: dict[str, str] = {
    "bursar._version": "read by the build",
    "bursar.cli.exit_codes": "a contract, imported by every command",
    "bursar.kube.controller.shadow": "shadow mode, documented by that name; no neighbour is about comparing decisions",
    "bursar.policies.crossquota.status": "the status writer, a module that each policy folder has",
    "bursar.policies.status": "the base of all status writers; in a policy's folder it would make a cycle",
    "bursar.server.audit_child": "entry point of a child process, which imports nothing else of the server",
    "bursar.server.snapshot_child": "entry point of a child process, which imports nothing else of the server",
}

EXEMPT = {"__init__", "__main__"}


def imports(module: Module, known: set[str]) -> set[str]:
    """The modules of the tree that importing this one imports by a statement of its own."""
    package = module.name if module.stem == "__init__" else module.name.rpartition(".")[0]
    found: set[str] = set()
    for node in imported_statements(module.tree.body):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        else:
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            full = {f"{base}.{alias.name}" for alias in node.names}
            found |= full & known
            if full - known:
                found.add(base)
    return (found & known) - {module.name}


def imported_statements(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements that run when the module is imported."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and is_type_checking(node.test):
            yield from imported_statements(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in ("body", "orelse", "finalbody"):
                yield from imported_statements(getattr(node, part, []))
            for part in ("handlers", "cases"):
                for inner in getattr(node, part, []):
                    yield from imported_statements(inner.body)


def is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return name == "TYPE_CHECKING"


def check_cycles(modules: list[Module], _allowed: Mapping[str, str]) -> list[str]:
    known = {module.name for module in modules}
    graph = {module.name: sorted(imports(module, known)) for module in modules}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return ["these modules import each other in a cycle: " + " -> ".join(reversed(cycle))]
    return []


def check_classes(modules: list[Module], allowed: Mapping[str, str]) -> list[str]:
    found = repeated_classes(modules)
    wrong = {name: places for name, places in found.items() if name not in allowed}
    return [
        f"class {name} is defined in {len(places)} modules: {', '.join(places)}" for name, places in wrong.items()
    ] + [f"class {name} is defined once: remove it from SHARED_CLASSES" for name in sorted(set(allowed) - set(found))]


def check_sizes(modules: list[Module], allowed: Mapping[str, str]) -> list[str]:
    sized = {module.name: module.lines for module in modules if module.stem not in EXEMPT}
    problems = []
    for name, lines in sorted(sized.items()):
        if lines > LARGE:
            problems.append(f"module {name} has {lines} lines, more than {LARGE}: split it by subject")
        elif lines < SMALL and name not in allowed:
            problems.append(f"module {name} has {lines} lines, fewer than {SMALL}: merge it with what it belongs to")
    stale = sorted(name for name in allowed if sized.get(name, SMALL) >= SMALL)
    return problems + [f"module {name} is no small module: remove it from SMALL_MODULES" for name in stale]


Check = Callable[[list[Module], Mapping[str, str]], list[str]]
CHECKS: dict[str, tuple[Check, Mapping[str, str]]] = {
    "cycles": (check_cycles, {}),
    "classes": (check_classes, SHARED_CLASSES),
    "sizes": (check_sizes, SMALL_MODULES),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", metavar="CHECK", nargs="+", choices=[*CHECKS], help=", ".join(CHECKS))
    parser.add_argument("--root", metavar="DIR", type=Path, default=ROOT, help="default: this repository")
    options = parser.parse_args(arguments)
    modules = sources(options.root.resolve())
    if not modules:
        parser.error(f"{options.root} has no Python sources")
    failed = False
    for name in options.checks:
        check, allowed = CHECKS[name]
        problems = check(modules, allowed)
        failed = failed or bool(problems)
        for problem in problems:
            print(f"{name}: {problem}")
        print(f"{name}: {len(problems)} problems in {len(modules)} modules")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
