"""`bursar version`: which Bursar this is and whether its core runs compiled."""

import platform
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

import click

from bursar._version import __version__


def core_is_compiled() -> bool:
    """Looks where the vectors module would come from, without importing it."""
    spec = find_spec("bursar.vectors")
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


@click.command()
def version() -> None:
    """Print the version and whether the core is compiled."""
    core = "compiled" if core_is_compiled() else "interpreted"
    click.echo(f"bursar {__version__} ({core} core, Python {platform.python_version()})")
