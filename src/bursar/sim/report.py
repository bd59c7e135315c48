"""What happened, for people (tables that fit 80 columns) and for CI (JUnit XML)."""

from __future__ import annotations

import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence

from bursar.objects.validation import show_duration
from bursar.sim.runner import Result, StepResult

WIDTH = 80
_GAP = "  "
_STORY = ("STEP", "TIME", "POD", "OUTCOME", "NODE", "REASON")
_LEAST = 16  # a column that wraps is not made narrower than this


def table(header: Sequence[str], rows: Iterable[Sequence[str]], wrap: int, width: int = WIDTH) -> list[list[str]]:
    """The lines of each row, left-aligned; the column ``wrap`` is broken so that all fits the width, where it can."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    others = sum(widths) - widths[wrap] + len(_GAP) * (len(header) - 1)
    widths[wrap] = min(widths[wrap], max(_LEAST, width - others))
    return [_row(row, widths, wrap) for row in cells]


def _row(row: Sequence[str], widths: Sequence[int], wrap: int) -> list[str]:
    lines: list[str] = []
    for piece in textwrap.wrap(row[wrap], widths[wrap]) or [""]:
        shown = ["" for _ in row] if lines else list(row)
        shown[wrap] = piece
        padded = (cell.ljust(size) for cell, size in zip(shown, widths, strict=True))
        lines.append(_GAP.join(padded).rstrip())
    return lines


def summary(results: Sequence[Result]) -> list[str]:
    """One line a scenario, and the count."""
    rows = [(r.scenario.name, _count(r), "FAILED" if r.failed else "passed") for r in results]
    failed = sum(1 for result in results if result.failed)
    count = f"{len(results)} scenario{'s' if len(results) != 1 else ''}"
    verdict = f"{failed} of {count} failed" if failed else f"{count} passed"
    lines = [line for row in table(("SCENARIO", "STEPS", "RESULT"), rows, wrap=0) for line in row]
    return [*lines, "", verdict]


def _count(result: Result) -> str:
    """The steps of the file; for a scenario that failed, the one that did."""
    steps = sum(1 for step in result.scenario.steps if step.number)
    return f"{result.failed.step.number} of {steps}" if result.failed else str(steps)


def story(result: Result) -> list[str]:
    """What happened in one scenario, step by step. The titles of steps run over the columns of what they did."""
    happened = [("", show_duration(h.at), h.pod, h.what, h.node, h.reason) for s in result.steps for h in s.happenings]
    rows = table(_STORY, happened, wrap=len(_STORY) - 1)
    lines = [result.scenario.name, "", *rows.pop(0)]
    for step in result.steps:
        verdict = _verdict(step)
        title = f"{step.step.number or '-':<4}{_GAP}{step.title}{': ' if verdict else ''}{verdict}"
        lines += textwrap.wrap(title, WIDTH, subsequent_indent=" " * 6)
        for _ in step.happenings:
            lines += rows.pop(0)
    return [*lines, ""]


def _verdict(step: StepResult) -> str:
    if step.failure:
        return "FAILED"
    if step.step.action == "expect":
        return "all as expected"
    return "refused, as expected" if step.step.refused is not None else ""


def failure(result: Result) -> list[str]:
    """Why a scenario failed."""
    failed = result.failed
    if failed is None:
        return []
    where = f"step {failed.step.number}" if failed.step.number else "objects"
    head = f"FAILED {result.scenario.source}: document {result.scenario.number}: {result.scenario.name}"
    return [head, f"  {where}: {failed.title}", *(f"    {line}" for line in failed.failure)]


def junit(results: Sequence[Result], seconds: Sequence[float]) -> bytes:
    """One suite a file, one test case a scenario."""
    root = ET.Element("testsuites")
    suites: dict[str, list[tuple[Result, float]]] = {}
    for result, took in zip(results, seconds, strict=True):
        suites.setdefault(result.scenario.source, []).append((result, took))
    for source, cases in suites.items():
        failures = sum(1 for result, _ in cases if result.failed)
        counts = {"tests": str(len(cases)), "failures": str(failures), "errors": "0", "skipped": "0"}
        total = sum(took for _, took in cases)
        suite = ET.SubElement(root, "testsuite", {"name": _clean(source), **counts, "time": f"{total:.3f}"})
        for result, took in cases:
            names = {"classname": _clean(source), "name": _clean(result.scenario.name)}
            case = ET.SubElement(suite, "testcase", {**names, "time": f"{took:.3f}"})
            lines = failure(result)
            if lines:
                ET.SubElement(case, "failure", {"message": _clean(lines[1].strip())}).text = _clean("\n".join(lines))
    ET.indent(root)
    text: str = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _clean(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return "".join(char if char in "\n\t" or _in_xml(ord(char)) else "?" for char in text)


def _in_xml(code: int) -> bool:
    return 0x20 <= code < 0xD800 or 0xE000 <= code < 0xFFFE or code >= 0x10000
