"""The entry point of `bursar` and `kubectl-bursar`, and the table of commands.

A new command is one module and one row in the table, from command name to "module:attribute". Running a command imports
its module and no other. An unknown name is answered from the table alone, with the nearest names.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import click

from bursar.cli import exit_codes
from bursar.cli.connection import outer_options


def load_command(address: str) -> click.Command:
    module_name, _, attribute = address.partition(":")
    command = getattr(import_module(module_name), attribute)
    if not isinstance(command, click.Command):
        raise TypeError(f"{address} is {type(command).__name__}, not a click command")
    return command


_EPILOG = "The options that name the server (--server, --data, --context ...) may stand before the command, too."


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from bursar.cli.info import version_line

        click.echo(version_line())
        ctx.exit()


class LazyGroup(click.Group):
    def __init__(self, name: str, table: Mapping[str, str], *, help: str) -> None:  # noqa: A002 click's own name
        settings = {"help_option_names": ["-h", "--help"]}
        options = [click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version,
                                help="Print the version and exit."), *outer_options()]  # fmt: skip
        super().__init__(name, help=help, epilog=_EPILOG, context_settings=settings, params=options)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        address = self.table.get(cmd_name)
        return None if address is None else load_command(address)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. An installed policy that cannot be used is bad input, whichever command loads it."""
        try:
            return super().invoke(ctx)
        except ImportError as error:
            from bursar.policies.plugin import PolicyLoadError

            if not isinstance(error, PolicyLoadError):
                raise
            click.echo(f"error: {error}", err=True)
            ctx.exit(exit_codes.BAD_INPUT)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.table and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.NoSuchCommand(name, possibilities=sorted(self.table), ctx=ctx)
        return super().resolve_command(ctx, args)


COMMANDS = {
    "agent": "bursar.cli.agent:agent",
    "answers": "bursar.cli.controller:answers",
    "apply": "bursar.cli.change:apply",
    "attach": "bursar.cli.run:attach",
    "audit": "bursar.cli.check:audit",
    "backup": "bursar.cli.upkeep:backup",
    "completion": "bursar.cli.info:completion",
    "config": "bursar.cli.config:config",
    "controller": "bursar.cli.controller:controller",
    "delete": "bursar.cli.change:delete",
    "describe": "bursar.cli.query:describe",
    "diff": "bursar.cli.change:diff",
    "edit": "bursar.cli.edit:edit",
    "explain": "bursar.cli.query:explain",
    "finish": "bursar.cli.change:finish",
    "get": "bursar.cli.query:get",
    "history": "bursar.cli.query:history",
    "logs": "bursar.cli.run:logs",
    "plan": "bursar.cli.trial:plan",
    "prune": "bursar.cli.upkeep:prune",
    "reasons": "bursar.cli.info:reasons",
    "restore": "bursar.cli.upkeep:restore",
    "retire": "bursar.cli.agent:retire",
    "run": "bursar.cli.run:run",
    "serve": "bursar.cli.serve:serve",
    "simulate": "bursar.cli.simulate:simulate",
    "stop": "bursar.cli.run:stop",
    "test": "bursar.cli.check:test",
    "top": "bursar.cli.top:top",
    "undo": "bursar.cli.change:undo",
    "version": "bursar.cli.info:version",
    "wait": "bursar.cli.wait:wait",
    "what-if": "bursar.cli.trial:what_if",
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
