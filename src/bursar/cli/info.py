"""Commands about Bursar itself: version, completion, reasons."""

from __future__ import annotations

import platform
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from bursar._version import __version__
from bursar.cli import exit_codes
from bursar.cli.connection import fail
from bursar.cli.output import wrapped

if TYPE_CHECKING:
    from bursar.policies.plugin import Reason


def core_is_compiled() -> bool:
    """Looks where the vectors module would come from, without importing it."""
    spec = find_spec("bursar.resources")
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


@click.command()
def version() -> None:
    """Print the version and whether the core is compiled."""
    click.echo(version_line())


def version_line() -> str:
    core = "compiled" if core_is_compiled() else "interpreted"
    return f"bursar {__version__} ({core} core, Python {platform.python_version()})"


SHELLS = ("bash", "zsh", "fish")


def completion_script(root: click.Context, shell: str) -> str:
    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.UsageError(f"click knows no completion for {shell}")
    program = root.info_name or "bursar"
    variable = f"_{program.replace('-', '_')}_COMPLETE".upper()
    return completion_class(root.command, {}, program, variable).source()


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    To load it:

    \b
      bash:  source <(bursar completion bash)
      zsh:   source <(bursar completion zsh)
      fish:  bursar completion fish | source
    """  # noqa: D301 click reads the escape
    click.echo(completion_script(ctx.find_root(), shell))


@click.command()
@click.argument("code", required=False)
def reasons(code: str | None) -> None:
    """Say what a reason means and what to do about it: the one with that CODE, or all.

    CODE is as `bursar get queue` and events show it, or the beginning of one (elastic, nodes.).
    """
    from bursar.control.admission import all_reasons
    from bursar.policies.plugin import default_registry

    listed = [reason for said in all_reasons(default_registry()).values() for reason in said]
    found = [reason for reason in listed if code is None or reason.covers(code)]
    found = found or [reason for reason in listed if code is not None and reason.code.startswith(code)]
    if not found:
        fail(f"no reason is called {code!r:.120}; `bursar reasons` lists all", exit_codes.FAILED)
    click.echo("\n\n".join("\n".join(_text(reason)) for reason in found))


def _text(reason: Reason) -> list[str]:
    first, *more = wrapped(reason.means, 2)
    then, *rest = wrapped(f"What to do: {reason.helps}", 2)
    return [reason.code, f"  {first}", *more, f"  {then}", *rest]
