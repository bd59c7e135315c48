"""The entry point of `bursar` and `kubectl-bursar`, and the table of commands.

A new command is one module and one row here.
"""

import sys
from pathlib import Path

from bursar.cli.lazy import LazyGroup

COMMANDS = {
    "apply": "bursar.cli.apply:apply",
    "audit": "bursar.cli.audit:audit",
    "completion": "bursar.cli.completion:completion",
    "controller": "bursar.cli.controller:controller",
    "delete": "bursar.cli.delete:delete",
    "describe": "bursar.cli.describe:describe",
    "diff": "bursar.cli.diff:diff",
    "explain": "bursar.cli.explain:explain",
    "get": "bursar.cli.get:get",
    "history": "bursar.cli.history:history",
    "plan": "bursar.cli.plan:plan",
    "reasons": "bursar.cli.reasons:reasons",
    "serve": "bursar.cli.serve:serve",
    "test": "bursar.cli.test:test",
    "top": "bursar.cli.top:top",
    "undo": "bursar.cli.undo:undo",
    "version": "bursar.cli.version:version",
    "what-if": "bursar.cli.what_if:what_if",
}

PROGRAMS = ("bursar", "kubectl-bursar")

cli = LazyGroup(
    "bursar",
    COMMANDS,
    help="Quotas for shared GPU clusters: who may use which GPUs now, and why.",
)


def program_name(invoked_as: str) -> str:
    """The installed name it was called by; `python -m bursar` and the like count as `bursar`."""
    name = Path(invoked_as).stem
    return name if name in PROGRAMS else PROGRAMS[0]


def main() -> None:
    cli.main(prog_name=program_name(sys.argv[0]))
