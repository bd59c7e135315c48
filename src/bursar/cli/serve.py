"""`bursar serve`: the durable cluster of one machine behind an HTTP API."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from bursar.cli import exit_codes
from bursar.cli.connection import fail
from bursar.cli.upkeep import KeptFor

if TYPE_CHECKING:
    from bursar.server.local_agent import MachineOptions
    from bursar.server.serve import ServeOptions


@click.command()
@click.option("--data", type=click.Path(dir_okay=False, path_type=Path), default=None,
              help="The store file; made if it is not there. [default: bursar.db]")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; others need --tokens.")
@click.option("--port", type=click.IntRange(0, 65535), default=8321, show_default=True, help="0: any that is free.")
@click.option("--tokens", type=click.Path(dir_okay=False, path_type=Path), help="A file of lines: ROLE TOKEN NAME.")
@click.option("--oidc", type=click.Path(dir_okay=False, path_type=Path),
              help="A file that names an OIDC provider and the roles of its groups.")  # fmt: skip
@click.option("--tls-cert", type=click.Path(dir_okay=False, path_type=Path), help="Certificate chain (PEM).")
@click.option("--tls-key", type=click.Path(dir_okay=False, path_type=Path), help="Its private key (PEM).")
@click.option("--demo", is_flag=True, help="Load a small organisation, and keep it lively.")
@click.option("--retain", type=KeptFor(), metavar="TIME",
              help="Keep history for this time (30d, 12h), and drop what is older; for ever if not given.")  # fmt: skip
@click.option("--local", is_flag=True, help="Run the jobs of `bursar run` on this machine, with its GPUs.")
@click.option("--socket", type=click.Path(dir_okay=False, path_type=Path), envvar="BURSAR_SOCKET",
              help="Where `bursar run` finds the agent (BURSAR_SOCKET).")  # fmt: skip
@click.option("--gpus", default="auto", show_default=True, envvar="BURSAR_GPU_DRIVER",
              help="The GPUs of --local: auto, nvml, amdsmi, none.")  # fmt: skip
@click.option("--cgroups", type=click.Choice(["auto", "none"]), default="auto", show_default=True,
              help="none: --local does without cgroups, and says what is not enforced.")  # fmt: skip
@click.option("--slice", default="bursar.slice", hidden=True, help="The cgroup of all jobs.")
@click.option("--machine", default="", metavar="NAME", help="What --local calls this machine. [default: its host name]")
@click.option("--max-body", type=click.IntRange(1), default=8 * 1024 * 1024, show_default=True,
              help="The largest request body, in bytes.")  # fmt: skip
@click.option("--request-timeout", type=click.FloatRange(min=0.1), default=30.0, show_default=True,
              help="Seconds that a request may take.")  # fmt: skip
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
              show_default=True, help="What to log to stderr.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="How to log: lines of text, or of JSON.")  # fmt: skip
@click.option("--max-connections", type=click.IntRange(1), default=1000, show_default=True,
              help="The most connections at a time.")  # fmt: skip
def serve(
    tls_cert: Path | None,
    tls_key: Path | None,
    max_body: int,
    request_timeout: float,
    log_level: str,
    log_format: Literal["text", "json"],
    max_connections: int,
    local: bool,
    **given: Any,  # noqa: ANN401
) -> None:
    """Run the cluster of this machine and its HTTP API until interrupted.

    Everything that was acknowledged is in the store file, whatever happens to the process. Exit code 0: ended by a
    signal; 1: the store or the address cannot be used; 2: the command line is wrong.
    """
    from bursar.server import logs
    from bursar.server.app import RequestLimits
    from bursar.server.connections import ConnectionLimits
    from bursar.server.serve import ServeOptions, StartError, UnsafeError, serve_forever

    logs.configure(log_level, log_format)
    machine = _machine(local, given)
    limits = RequestLimits(max_body, request_timeout)
    connections = ConnectionLimits(connections=max_connections)
    options = ServeOptions(
        **given, certificate=tls_cert, key=tls_key, local=machine, limits=limits, connections=connections
    )
    source = f"{options.data}" if options.data.exists() else f"{options.data}, a new store"
    try:
        serve_forever(options, lambda address: click.echo("\n".join(_greeting(address, source, options))))
    except UnsafeError as error:
        fail(str(error))
    except StartError as error:
        fail(str(error), exit_codes.FAILED)


def _machine(local: bool, given: dict[str, Any]) -> MachineOptions | None:
    """What --local means; its options are taken out of the given ones, and the usual files and tokens put in."""
    from bursar.local.places import default_socket, make_tokens, state_folder
    from bursar.server.local_agent import MachineOptions

    asked = {name: given.pop(name) for name in ("socket", "gpus", "cgroups", "slice", "machine")}
    if not local:
        given["data"] = given["data"] or Path("bursar.db")
        return None
    try:
        given["data"] = given["data"] or state_folder() / "bursar.db"
        given["tokens"] = given["tokens"] or make_tokens(given["data"].parent)
        asked["socket"] = asked["socket"] or default_socket()
        return MachineOptions(given["data"].parent / "agent", **asked)
    except OSError as error:
        fail(f"--local: {error}", exit_codes.FAILED)


def _greeting(address: str, source: str, options: ServeOptions) -> list[str]:
    lines = [f"Bursar serves {address} from {source}"]
    if options.local is not None:
        lines += [f"`bursar run` on this machine: {options.local.socket}; the admin's token: {options.tokens}"]
    if options.demo:
        lines += ["", "Three things to try, in another terminal:", *(f"  {line}" for line in _things_to_try(address))]
    return [*lines, "", "Ctrl-C ends it; nothing is lost."]


def _things_to_try(address: str) -> list[str]:
    """Commands that show what Bursar is about, each with a word on it; they can be pasted as they are."""
    from bursar.server.client import DEFAULT_ADDRESS
    from bursar.server.demo import FIRST_POD

    called = _called()
    where = [] if address == DEFAULT_ADDRESS else [f"export BURSAR_SERVER={address}"]
    commands = {
        f"{called} top": "who uses how much",
        f"{called} get queue": "who waits, and why",
        f"{called} explain {FIRST_POD}": "what would help this one",
    }
    width = max(map(len, commands))
    return [*where, *(f"{command:<{width}}  # {remark}" for command, remark in commands.items())]


def _called() -> str:
    """How this program is called from the folder it was started in."""
    here = Path(sys.argv[0])
    if here.name == "__main__.py":
        return "python -m bursar"
    return here.name if shutil.which(here.name) == str(here) else sys.argv[0]
