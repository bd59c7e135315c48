"""One-line faults in the sources: found by seed, and checked to be what a list says.

A fault is a line of a function and what the line becomes. The line is named by its text, not its number, so a fault
outlives edits around it; a line whose text occurs twice in its function is not used. Faults are found in the syntax
tree: comparisons, ``and``/``or``, ``not``, signs, ``min``/``max``, constants off by one, flags, dropped statements,
lost early returns, ``continue`` and ``break``. Which ones a seed takes depends on their text alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

_OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: (" is ", " is not "),
    ast.IsNot: ("is not", "is"),
    ast.In: (" in ", " not in "),
    ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.And: (" and ", " or "),
    ast.Or: (" or ", " and "),
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_TOO_SMALL = 60  # lines of a module that nothing is sought in


class Fault(NamedTuple):
    path: str  # below src/bursar
    function: str
    line: str
    becomes: str

    def __str__(self) -> str:
        return f"{self.path}:{self.function}: {self.line}  ->  {self.becomes}"

    @property
    def folder(self) -> str:
        """The folder that the tables count it in: each policy and each part of kube is one."""
        parts = self.path.split("/")
        return "/".join(parts[: 2 if parts[0] in {"policies", "kube"} and len(parts) > 2 else 1]).removesuffix(".py")


class Edit(NamedTuple):
    """Bytes of one line, and what they become."""

    number: int
    start: int
    end: int
    text: str


def planted(package: Path, fault: Fault) -> str:
    """The text of the module with the fault; LookupError if its line is gone or not the only one."""
    file = package / fault.path
    if not file.exists():
        raise LookupError(f"{fault}: there is no {fault.path}")
    source = file.read_text()
    lines = source.splitlines(keepends=True)
    found = [
        number
        for function, name in functions(ast.parse(source))
        if name == fault.function
        for number in range(first_line(function) - 1, function.end_lineno or 0)
        if lines[number].strip() == fault.line
    ]
    if len(found) != 1:
        raise LookupError(f"{fault}: the function has {len(found)} such lines")
    lines[found[0]] = lines[found[0]].replace(fault.line, fault.becomes)
    text = "".join(lines)
    ast.parse(text)
    return text


def sample(package: Path, seed: int, count: int) -> list[Fault]:
    """Up to so many faults of every module."""
    chosen: list[Fault] = []
    for file in sorted(package.rglob("*.py")):
        path = str(file.relative_to(package))
        if len(file.read_text().splitlines()) >= _TOO_SMALL:
            found = sorted(set(faults_of(package, path)), key=lambda one: sha256(f"{seed} {one}".encode()).digest())
            chosen += found[:count]
    return chosen


def faults_of(package: Path, path: str) -> Iterator[Fault]:
    source = (package / path).read_text()
    lines = source.splitlines()
    for function, name in functions(ast.parse(source)):
        texts = [line.strip() for line in lines[first_line(function) - 1 : function.end_lineno]]
        for node in _own_nodes(function):
            for edit in _edits(node, lines):
                line = lines[edit.number - 1].encode()
                new = (line[: edit.start] + edit.text.encode() + line[edit.end :]).decode().strip()
                old = lines[edit.number - 1].strip()
                if texts.count(old) == 1 and not old.startswith("raise "):
                    yield Fault(path, name, old, new)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST, outer: str = "") -> Iterator[tuple[Function, str]]:
    """The functions and methods of a module by their qualified names; functions within functions are part of them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield node, outer + node.name
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{outer}{node.name}.")


def first_line(function: Function) -> int:
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """What is evaluated when the function is defined or called: no annotations, no text."""
    pending: list[ast.AST] = [
        *function.body,
        *function.args.defaults,
        *(one for one in function.args.kw_defaults if one),
    ]
    while pending:
        node = pending.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if name not in {"annotation", "returns"} and not isinstance(node, ast.JoinedStr):
                pending += [value] if isinstance(value, ast.AST) else []
                pending += [one for one in value if isinstance(one, ast.AST)] if isinstance(value, list) else []


def _edits(node: ast.AST, lines: list[str]) -> Iterator[Edit]:
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            yield from _between(left, operator, right, lines)
    elif isinstance(node, ast.BoolOp):
        for left, right in pairwise(node.values):
            yield from _between(left, node.op, right, lines)
    elif isinstance(node, ast.BinOp):
        yield from _between(node.left, node.op, node.right, lines)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield Edit(node.lineno, node.col_offset, node.col_offset + len("not "), "")
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMES:
        yield from _whole(node.func, _NAMES[node.func.id])
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):  # a flag is an int, too
        yield from _whole(node, str(node.value + 1 if type(node.value) is int else not node.value))
    elif isinstance(node, ast.stmt):
        yield from _statement_edits(node)


def _statement_edits(node: ast.stmt) -> Iterator[Edit]:
    if isinstance(node, ast.Continue):
        yield from _whole(node, "break")
    elif isinstance(node, ast.Break):
        yield from _whole(node, "continue")
    elif (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or isinstance(node, ast.AugAssign):
        yield from _whole(node, "pass")
    elif isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return):
        yield from _whole(node.body[-1], "pass")


def _between(left: ast.expr, operator: ast.AST, right: ast.expr, lines: list[str]) -> Iterator[Edit]:
    """The operator between two operands, where the line has nothing else there."""
    if type(operator) not in _OPERATORS or left.end_lineno != right.lineno:
        return
    start, end = left.end_col_offset or 0, right.col_offset
    old, new = _OPERATORS[type(operator)]
    text = lines[right.lineno - 1].encode()[start:end].decode()
    if text.count(old) == 1:
        yield Edit(right.lineno, start, end, text.replace(old, new))


def _whole(node: ast.stmt | ast.expr, text: str) -> Iterator[Edit]:
    if node.end_lineno == node.lineno:
        yield Edit(node.lineno, node.col_offset, node.end_col_offset or 0, text)
