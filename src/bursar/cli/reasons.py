"""`bursar reasons`: what a code means and what to do about it.

The page of them is made here, too: ``python -m bursar.cli.reasons > docs/reasons.md``.
"""

import sys
from typing import TYPE_CHECKING

import click

from bursar.cli import exit_codes
from bursar.cli.tables import wrapped

if TYPE_CHECKING:
    from bursar.policies.reasons import Reason

_START = """\
# Reasons

Every refusal and every eviction has a short, stable code: `<policy>.<rule>[.<resource>]`. You meet it in
`bursar get queue`, `bursar explain`, events, metrics, the API and scenario files. Scripts may rely on the codes;
sentences may change. `bursar reasons CODE` tells the same in a terminal.

This page is made from the code: `python -m bursar.cli.reasons > docs/reasons.md`.
"""
_TITLES = {
    "trees": "Quota trees ([guide](trees.md))",
    "pools": "Quota trees over node pools ([guide](pools.md))",
    "elastic": "Elastic quotas ([guide](elastic.md))",
    "limits": "Quotas of namespaces ([guide](namespace-gpu-quota.md))",
    "nodes": "Nodes",
    "crossquota": "CPU pods on GPU nodes ([guide](crossquota.md))",
    "gpus": "GPUs in parts ([guide](namespace-gpu-quota.md))",
    "engine": "The engine",
    "control": "The control loop",
}


@click.command()
@click.argument("code", required=False)
def reasons(code: str | None) -> None:
    """Say what a reason means and what to do about it: the one with that CODE, or all.

    CODE is as `bursar get queue` and events show it, or the beginning of one (elastic, nodes.).
    """
    from bursar.control.reasons import all_reasons

    listed = [reason for said in all_reasons().values() for reason in said]
    found = [reason for reason in listed if code is None or reason.covers(code)]
    found = found or [reason for reason in listed if code is not None and reason.code.startswith(code)]
    if not found:
        click.echo(f"error: no reason is called {code!r:.120}; `bursar reasons` lists all", err=True)
        sys.exit(exit_codes.FAILED)
    click.echo("\n\n".join("\n".join(_text(reason)) for reason in found))


def _text(reason: "Reason") -> list[str]:
    first, *more = wrapped(reason.means, 2)
    then, *rest = wrapped(f"What to do: {reason.helps}", 2)
    return [reason.code, f"  {first}", *more, f"  {then}", *rest]


def page() -> str:
    from bursar.control.reasons import all_reasons

    parts = [_START]
    for name, said in all_reasons().items():
        parts += [f"\n## {_TITLES[name]}\n\n", "| reason | what it means | what to do |\n|---|---|---|\n"]
        parts += [f"| `{reason.code}` | {reason.means} | {reason.helps} |\n" for reason in said]
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
