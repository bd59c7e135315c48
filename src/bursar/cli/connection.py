"""The target of a command: a server, or (read-only) a store file or a Kubernetes cluster; and how errors are printed.

All commands with a target have the same options for it. Every error is one line that says what to do next, with the
exit code that scripts rely on.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from bursar.cli import exit_codes

if TYPE_CHECKING:
    from bursar.cli.contexts import Context
    from bursar.server.client import Client
    from bursar.server.types import Problem

    Opened = Callable[[], AbstractContextManager[Client]]


F = TypeVar("F", bound=Callable[..., Any])
PLUGIN = "kubectl-bursar"
FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class Target:
    """The server, file or cluster of a command."""

    server: str
    data: Path | None
    token_file: Path | None
    ca_file: Path | None
    cluster: bool  # the one of the kubeconfig
    kubeconfig: str
    context: str  # of the kubeconfig
    seconds: float = 60.0  # that an answer may take
    own_namespace: str = ""  # of the context of our own that it is

    @property
    def live(self) -> bool:
        """Whether it is a Kubernetes cluster: as a plugin of kubectl, a command reads kubectl's cluster by default."""
        named = Path(sys.argv[0]).stem == PLUGIN and not self.server and self.data is None
        return self.cluster or bool(self.context) or bool(self.kubeconfig) or named

    @property
    def namespace(self) -> str:
        """For names and manifests that have none: that of the context; empty if it has none, and the server decides."""
        if self.own_namespace or not self.live:
            return self.own_namespace
        from bursar.kube.client.errors import ConfigError
        from bursar.kube.client.kubeconfig import load

        try:
            return load(self.kubeconfig, self.context).namespace
        except ConfigError as error:
            fail(str(error))

    @contextmanager
    def open(self, *, changes: bool = False, past: bool = False) -> Iterator[Client]:
        """A client; ``past`` if it is asked about the past. Failed requests end the program."""
        if changes and self.data is not None:
            fail("a store file is only read; to change it, ask the server that has it (--server URL)")
        if changes and self.live:
            fail("a live cluster is only read here; change it with kubectl")
        with self.looking(past=past) as opened, opened() as client:
            yield client

    @contextmanager
    def looking(self, *, past: bool = False) -> Iterator[Opened]:
        """A function that opens a client; each one answers as of its opening."""
        if past and self.live:
            fail("a live cluster is known here as it is now; ask a server (--server URL) or a store file (--data FILE)")
        with reporting():
            if self.live:
                from bursar.cli.live_cluster import live_cluster

                with live_cluster(self.kubeconfig, self.context) as opened:
                    yield opened
            elif self.data is not None:
                from bursar.cli.store_file import open_file

                yield functools.partial(open_file, self.data)
            else:
                client = self.remote()
                yield lambda: nullcontext(client)

    def remote(self) -> Client:
        """A client of the server, which is not asked yet."""
        from bursar.server.client import DEFAULT_ADDRESS, Client

        try:
            return Client(
                self.server or DEFAULT_ADDRESS, token=self._token(), ca_file=self.ca_file, timeout=self.seconds
            )
        except ValueError as error:
            fail(str(error))

    def _token(self) -> str:
        """The first token of the file: the last word of its first line, so that a server's own file serves too."""
        if self.token_file is None and not self.server:
            from bursar.local.places import usual_token

            return os.environ.get("BURSAR_TOKEN", "") or usual_token()
        if self.token_file is None:
            return os.environ.get("BURSAR_TOKEN", "")
        try:
            lines = self.token_file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            fail(f"{self.token_file}: cannot be read: {getattr(error, 'strerror', None) or error}")
        words = next((line.split() for line in lines if line.strip() and not line.startswith("#")), None)
        if not words:
            fail(f"{self.token_file}: holds no token")
        return words[-1]


_TARGET_OPTIONS = (
    ("--server", {"metavar": "URL", "default": "",
                  "help": "The server to ask (BURSAR_SERVER); http://127.0.0.1:8321 if nothing else is said."}),
    ("--data", {"type": FILE, "help": "Ask a store file instead of a server; read-only."}),
    ("--cluster", {"is_flag": True, "help": "Ask the Kubernetes cluster of the kubeconfig; read-only."}),
    ("--kubeconfig", {"default": "", "metavar": "FILE",
                      "help": "The kubeconfig (default: as kubectl); implies --cluster."}),
    ("--context", {"default": "", "metavar": "NAME",
                   "help": "The context of `bursar config` (BURSAR_CONTEXT), or else of the kubeconfig."}),
    ("--token-file", {"type": FILE, "help": "A file with the token for the server (or BURSAR_TOKEN)."}),
    ("--ca-file", {"type": FILE, "help": "Certificates to trust for https (PEM)."}),
)  # fmt: skip


def asks(command: F) -> F:
    """Give a command the options of its target, as its argument ``target``."""

    @functools.wraps(command)
    def asking(*arguments: object, **options: Any) -> object:  # noqa: ANN401 each of its own type
        given = {name: options.pop(name) for name in _NAMES}
        outside = click.get_current_context().find_root().params
        merged = {name: value or outside.get(name) for name, value in given.items()}
        return command(*arguments, target=target_of(merged), **options)

    for name, settings in reversed(_TARGET_OPTIONS):
        asking = click.option(name, **settings)(asking)
    return asking  # type: ignore[return-value] # click takes it for what it wraps


_NAMES = tuple(name.removeprefix("--").replace("-", "_") for name, _ in _TARGET_OPTIONS)


def outer_options() -> list[click.Parameter]:
    """The same options for the program itself, so that they may stand before the command."""
    return [click.Option([name], hidden=True, **settings) for name, settings in _TARGET_OPTIONS]


def target_of(given: Mapping[str, Any], seconds: float = 60.0) -> Target:
    """The target that options name; else the context, the server of the environment, or the current context."""
    options = {name: given.get(name) for name in _NAMES}
    chosen = options["context"] or os.environ.get("BURSAR_CONTEXT", "")
    explicit = bool(options["server"] or options["data"] or options["cluster"] or options["kubeconfig"])
    plugin = Path(sys.argv[0]).stem == PLUGIN
    context = None if explicit else _context(chosen, plugin=plugin)
    if context is None:
        if chosen and not explicit and not options["context"]:
            fail(f"BURSAR_CONTEXT: there is no context {chosen!r:.80}; `bursar config get-contexts` lists them")
        if not explicit and not chosen:
            options["server"] = os.environ.get("BURSAR_SERVER", "")
        return Target(**_plain(options), seconds=seconds)
    own = {
        "server": context.server, "data": _file(context.data), "cluster": context.cluster,
        "kubeconfig": context.kubeconfig, "context": context.kube_context,
        "token_file": options["token_file"] or _file(context.token_file),
        "ca_file": options["ca_file"] or _file(context.ca_file),
    }  # fmt: skip
    return Target(**_plain(own), seconds=seconds, own_namespace=context.namespace)


def _context(chosen: str, *, plugin: bool) -> Context | None:
    """The context of our own file that is meant, if one is: a kubeconfig has contexts, too."""
    if plugin or (not chosen and os.environ.get("BURSAR_SERVER")):
        return None
    from bursar.cli.contexts import context_path, load_contexts

    if not context_path().exists():
        return None
    known = load_contexts()
    if chosen:
        return known.contexts.get(chosen)
    return known.find(known.current) if known.current else None


def _file(path: str) -> Path | None:
    return Path(path).expanduser() if path else None


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    texts = ("server", "kubeconfig", "context")
    found = {name: (options[name] or "") if name in texts else options[name] or None for name in _NAMES}
    return {**found, "cluster": bool(options["cluster"])}


def at_option(command: F) -> F:
    text = "Show the state at a moment: a time (2026-11-01T10:03:00Z), a time ago (-10m) or a journal record (1234)."
    return click.option("--at", metavar="TIME", default="", help=text)(command)


@contextmanager
def reporting() -> Iterator[None]:
    """Failed requests become one line and an exit code."""
    from bursar.objects.decode import ManifestError
    from bursar.server.client import RequestFailedError
    from bursar.store.schema import StoreError

    try:
        yield
    except RequestFailedError as error:
        refuse(error.problem)
    except (ManifestError, StoreError) as error:
        fail(str(error))
    except LiveError as error:
        fail(str(error), exit_codes.UNREACHABLE)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(exit_codes.OK)


def refuse(problem: Problem) -> NoReturn:
    """The server's answer in a line, and what to do about it."""
    click.echo(f"error: {problem.detail}", err=True)
    advice = _ADVICE.get(problem.status, "")
    if advice:
        click.echo(f"  {advice}", err=True)
    if problem.status == 0:
        sys.exit(exit_codes.UNREACHABLE)
    sys.exit(exit_codes.BAD_INPUT if problem.status in {400, 413, 415} else exit_codes.FAILED)


_ADVICE = {
    0: "start one with `bursar serve`, name another with --server URL, or read a store file with --data FILE",
    401: "give a token: --token-file FILE or BURSAR_TOKEN",
    403: "this needs a token with the role admin: --token-file FILE or BURSAR_TOKEN",
    404: "`bursar get pods`, `bursar get changes` and `bursar get KIND` list what there is",
    409: "look at the present state with `bursar describe`, and try again",
    413: "apply fewer objects at a time",
    429: "ask again in a moment: such questions are answered one at a time",
    503: "see what the server says: its log, and /healthz",
}


def fail(problem: str, code: int = exit_codes.BAD_INPUT) -> NoReturn:
    """End the program with one line; by default because the command line or a file is wrong."""
    click.echo(f"error: {problem}", err=True)
    sys.exit(code)


class LiveError(Exception):
    """A live cluster cannot be read. It is defined here because ``live_cluster`` is slow to import."""
