"""`bursar explain`: why a claim is where it is, and what would let it in."""

from typing import TYPE_CHECKING

import click

from bursar.cli.connection import Target, asks, at_option, fail
from bursar.cli.output import echo, machine, output_option
from bursar.cli.tables import painted, wrapped

if TYPE_CHECKING:
    from bursar.server import verdicts


@click.command()
@click.argument("claim", metavar="NAMESPACE/POD")
@click.option("--fixes/--no-fixes", default=True, show_default=True, help="Search for what would let it in.")
@at_option
@output_option
@asks
def explain(claim: str, fixes: bool, at: str, output: str, target: Target) -> None:
    """Say why a claim is where it is: every check with its numbers, and the shortest fixes.

    The first check that fails is marked. Each fix was tried on a copy of the cluster, with everybody who waits, before
    it is shown; `docs/explain.md` says what kinds there are.
    """
    namespace, _, name = claim.removeprefix("Pod/").removeprefix("pod/").partition("/")
    if not namespace or not name or "/" in name:
        fail(f"{claim!r:.120} names no pod: write NAMESPACE/POD; `bursar get pods` lists them")
    with target.open(past=bool(at)) as client:
        found = client.explain(namespace, name, at=at, fixes=fixes)
    if output in {"json", "yaml"}:
        echo(machine(found, output))
        return
    echo(text(found, wide=output == "wide", searched=fixes))


def text(found: "verdicts.Explanation", *, wide: bool, searched: bool) -> list[str]:
    """The explanation for people."""
    lines = tree_text(found, wide=wide)
    if found.fixes:
        lines += ["", "What would let it in (each was tried):"]
        for number, fix in enumerate(found.fixes, 1):
            first, *more = wrapped(f"{fix.sentence}{_when(fix)}  [{fix.code}]", 5)
            lines += [f"  {number}. {first}", *more]
    elif searched and found.claim.state == "pending" and found.fixes_complete:
        lines += ["", "No change of one thing was found that would let it in now."]
    if not found.fixes_complete:
        lines += ["", "The search for fixes was ended early: there may be more."]
    return lines


def tree_text(found: "verdicts.Explanation", *, wide: bool = False) -> list[str]:
    """The checks; what is below a check that passed is left out unless it is to be wide."""
    return _tree(found.tree, "", wide=wide)


def _tree(check: "verdicts.CheckNode", indent: str, *, wide: bool) -> list[str]:
    word = "ok" if check.passed else "FAIL"
    mark = " <- first" if check.binding else ""
    # What was said when it was last tried is older than the checks below it, which were made now.
    outdated = not indent and any(not child.passed for child in check.checks)
    note = f": {check.note}" if check.note and not outdated else ""
    code = f" [{check.reason}]" if check.reason else ""
    first, *more = wrapped(f"{mark} {check.title}{note}{code}".lstrip(), len(indent) + 5)
    lines = [f"{indent}{painted(word.ljust(4), word)} {first}", *more]
    for child in check.checks:
        if wide or not check.passed or not indent:
            lines.extend(_tree(child, indent + "  ", wide=wide))
    return lines


def _when(fix: "verdicts.Fix") -> str:
    return f" (at {fix.ends_at})" if fix.ends_at else ""
