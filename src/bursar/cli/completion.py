"""`bursar completion SHELL`: the script that teaches a shell to complete commands and options."""

import click
from click.shell_completion import get_completion_class

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
