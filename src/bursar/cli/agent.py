"""`bursar agent`: real jobs on this machine, under the quotas and in the queue of a server elsewhere.

`bursar retire` says that such a machine is dead.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bursar.cli import exit_codes
from bursar.cli.connection import FILE, Target, asks, fail, target_of

if TYPE_CHECKING:
    from bursar.local.agent import LocalAgent


@click.command()
@click.option("--server", metavar="URL", envvar="BURSAR_SERVER", required=True, help="The server (BURSAR_SERVER).")
@click.option("--token-file", type=FILE, help="A file with the token of this machine's agent (or BURSAR_TOKEN).")
@click.option("--ca-file", type=FILE, help="Certificates to trust for https (PEM).")
@click.option("--state", type=click.Path(file_okay=False, path_type=Path), default=None,
              help="The folder of its records and logs. [default: /var/lib/bursar/agent for root]")  # fmt: skip
@click.option("--socket", type=click.Path(dir_okay=False, path_type=Path), envvar="BURSAR_SOCKET",
              help="Where `bursar run` finds the agent (BURSAR_SOCKET).")  # fmt: skip
@click.option("--gpus", default="auto", show_default=True, envvar="BURSAR_GPU_DRIVER",
              help="The GPUs: auto, nvml, amdsmi, none.")  # fmt: skip
@click.option("--cgroups", type=click.Choice(["auto", "none"]), default="auto", show_default=True,
              help="none: do without cgroups, and say what is not enforced.")  # fmt: skip
@click.option("--slice", "slice_", default="bursar.slice", hidden=True, help="The cgroup of all jobs.")
@click.option("--machine", default="", metavar="NAME", help="What it is called. [default: the host name]")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
              show_default=True, help="What to log to stderr.")  # fmt: skip
def agent(slice_: str, state: Path | None, socket: Path | None, gpus: str, log_level: str, **given: Any) -> None:  # noqa: ANN401
    """Run the jobs of `bursar run` on this machine, with its GPUs, for a server elsewhere.

    Queue, quotas and history are those of the server. Jobs go on when the agent or the server ends. Exit code 0: ended
    by a signal; 1: it cannot start; 2: the command line is wrong; 3: the server does not answer.
    """
    from bursar.local.agent import AgentOptions
    from bursar.local.devices.api import DriverError
    from bursar.local.links import LinkError, RefusedByClusterError
    from bursar.local.peers import SocketTakenError
    from bursar.local.places import default_socket, state_folder
    from bursar.server import logs
    from bursar.server.local_agent import AgentError
    from bursar.server.remote_agent import run_agent

    logs.configure(log_level, "text")
    client = target_of({name: given[name] for name in ("server", "token_file", "ca_file")}, seconds=30.0).remote()
    _warn(client.address)
    try:
        folder = state or state_folder() / "agent"
        options = AgentOptions(folder, socket or default_socket(), given["machine"], given["cgroups"], slice_)
        run_agent(client, options, gpus, lambda found: click.echo(_greeting(found, client.address)))
    except LinkError as error:
        fail(str(error), exit_codes.UNREACHABLE)
    except (AgentError, DriverError, RefusedByClusterError, SocketTakenError, OSError) as error:
        fail(str(error), exit_codes.FAILED)


def _warn(address: str) -> None:
    """A token that is read on its way lets others act as this machine."""
    from urllib.parse import urlsplit

    from bursar.server.sessions import is_loopback

    if address.startswith("http://") and not is_loopback(urlsplit(address).hostname or ""):
        click.echo(f"warning: {address} has no TLS, so the token can be read on its way: use https", err=True)


def _greeting(found: LocalAgent, address: str) -> str:
    return f"Bursar runs jobs on {found.machine} for {address}; `bursar run` on this machine: {found.options.socket}"


@click.command()
@click.argument("machine")
@asks
def retire(machine: str, target: Target) -> None:
    """Say that a machine is dead: its jobs have failed, and its GPUs and its node are deleted.

    Until then the GPUs of a machine whose agent is lost stay booked. Refused while the agent reports.
    """
    with target.open(changes=True) as client:
        found = client.retire(machine)
    jobs = ", ".join(found.failed) or "none"
    click.echo(f"{found.machine} is retired; jobs that have failed by that: {jobs}")
