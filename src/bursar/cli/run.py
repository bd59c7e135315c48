"""`bursar run` and its company: commands that run on this machine, as jobs in the queue of its agent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from bursar.cli import exit_codes

if TYPE_CHECKING:
    from bursar.local.client import RunRequest

_ASKED = (
    "team", "name", "gpus", "vram", "tflops", "gpu_percent", "gpu_model", "cpu", "memory", "priority", "time", "grace",
    "checkpoint", "requeue", "private",
)  # fmt: skip


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option("-n", "--team", default="", help="The team to charge; your only team, or your own group, if not given.")
@click.option("--gpus", type=click.IntRange(0, 128), default=0, help="So many GPUs, whole unless a part is asked for.")
@click.option("--vram", default="", metavar="AMOUNT", help="Only so much memory of each GPU: 20Gi.")
@click.option("--tflops", default="", metavar="AMOUNT", help="Only so much compute of each GPU.")
@click.option("--gpu-percent", type=click.IntRange(1, 100), default=None, help="Only such a part of each GPU.")
@click.option("--gpu-model", default="", metavar="MODEL", help="Only GPUs of this model: H200.")
@click.option("--cpu", default="", metavar="AMOUNT", help="So many cpus: 8, 500m.")
@click.option("--memory", default="", metavar="AMOUNT", help="So much memory: 32Gi.")
@click.option("--priority", default="", metavar="P", help="A PriorityClass, or a number.")
@click.option("--name", default="", help="The name of the job; made up from the command if not given.")
@click.option("--time", default="", metavar="TIME", help="End the job after so long: 4h, 30m.")
@click.option("--grace", default="", metavar="TIME", help="Between SIGTERM and SIGKILL; at most the configured time.")
@click.option(
    "--checkpoint", default="", metavar="SIGNAL", help="Send this one first, one grace period before SIGTERM."
)
@click.option(
    "--gang", type=click.IntRange(1, 256), default=None, help="So many processes, all or none; see BURSAR_RANK."
)
@click.option("--requeue", is_flag=True, help="Queue the job again when it is evicted, or fails (at most 6 times).")
@click.option("--private", is_flag=True, help="Do not store the command line.")
@click.option("--detach", is_flag=True, help="Print the name and return; see `bursar logs` and `bursar attach`.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing while waiting.")
@click.option("-f", "--file", type=click.Path(dir_okay=False, path_type=Path), help="A Pod or Job with a command.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(gang: int | None, file: Path | None, detach: bool, quiet: bool, command: tuple[str, ...], **given: Any) -> None:  # noqa: ANN401
    """Run COMMAND on this machine once the team may: bursar run --gpus 1 -- python train.py

    The command gets your environment, folder and terminal, with CUDA_VISIBLE_DEVICES and BURSAR_* set. Exit code: that
    of the command, or 128 and the number of the signal that ended it; 126 and 127 if it cannot be run or found. Before
    it began 1: refused or taken out of the queue; 2: the command line is wrong; 3: no agent answers.
    """
    from bursar.local.client import RunRequest

    fields = {name: given[name] for name in _ASKED if given[name]}
    if gang:
        fields["members"] = gang
    if file is not None:
        request = _from_file(file, command, fields)
    elif command:
        request = RunRequest(list(command), fields, directory=str(Path.cwd()))
    else:
        _end("no command is given: bursar run -- COMMAND", exit_codes.BAD_INPUT)
    request.detach, request.quiet = detach, quiet
    _finish(lambda client: client.run(request))


def _from_file(path: Path, command: tuple[str, ...], fields: dict[str, Any]) -> RunRequest:
    """The request of a manifest; options of the command line come before what it says."""
    from bursar.local.job_file import read_job
    from bursar.objects.decode import ManifestError

    if command:
        _end("give either a file or a command", exit_codes.BAD_INPUT)
    try:
        return read_job(path, fields)
    except (ManifestError, OSError) as error:
        _end(str(error), exit_codes.BAD_INPUT)


@click.command()
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
def logs(job: str, follow: bool) -> None:
    """Print what a job wrote: bursar logs team/name"""
    _finish(lambda client: client.logs(job, follow=follow))


@click.command()
@click.argument("job")
def attach(job: str) -> None:
    """Watch a running job of yours, and type to it if it has a terminal. Exit code: that of the job."""
    _finish(lambda client: client.attach(job))


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option("--now", is_flag=True, help="Without a grace period.")
def stop(jobs: tuple[str, ...], now: bool) -> None:
    """End jobs of yours, or take them out of the queue: bursar stop team/name"""

    def ask(client: Any) -> int:  # noqa: ANN401 a module
        connection, message, _ = client.request_of("stop", pods=list(jobs), now=now)
        connection.close()
        click.echo("".join(f"{pod} is stopping\n" for pod in message["pods"]), nl=False)
        return exit_codes.OK

    _finish(ask)


def _finish(work: Callable[[Any], int]) -> NoReturn:
    """Do it, and end with its exit code; an error is one line."""
    from bursar.local import client

    try:
        code = work(client)
    except client.ClientError as error:
        _end(str(error), error.code)
    except BrokenPipeError:
        sys.stderr.close()
        code = exit_codes.OK
    sys.exit(code)


def _end(text: str, code: int) -> NoReturn:
    click.echo(f"error: {text}", err=True)
    sys.exit(code)
