"""`bursar config`: the contexts of the command line, which name servers, store files and clusters."""

from __future__ import annotations

from typing import Any

import click

from bursar.cli.connection import fail
from bursar.cli.contexts import Context, load_contexts
from bursar.cli.output import Column, echo, table


@click.group()
def config() -> None:
    """Keep contexts: named servers, store files or clusters, each with a namespace.

    Every command asks the current context unless --context, --server, --data, --cluster or BURSAR_SERVER says
    otherwise. The contexts are in the file that BURSAR_CONFIG names, else in ~/.config/bursar/config.yaml.
    """


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in load_contexts().contexts if name.startswith(incomplete)]


@config.command("get-contexts")
@click.option("-o", "--output", type=click.Choice(["table", "name"]), default="table", help="How to print it.")
def get_contexts(output: str) -> None:
    """List the contexts; the current one is marked."""
    known = load_contexts()
    if output == "name":
        echo(list(known.contexts))
        return
    columns = (Column("CURRENT", fixed=True), Column("NAME", name=True), Column("ASKS"), Column("NAMESPACE", name=True))
    rows = [
        ("*" if name == known.current else "", name, one.where, one.namespace) for name, one in known.contexts.items()
    ]
    echo(table(columns, rows) if rows else [f"no contexts in {known.path}; make one: bursar config set-context NAME"])


@config.command("current-context")
def current_context() -> None:
    """Print the name of the current context."""
    known = load_contexts()
    if not known.current:
        fail(f"no context is current; choose one: bursar config use-context NAME ({known.path})", 1)
    echo([known.current])


@config.command("use-context")
@click.argument("name", shell_complete=_complete)
def use_context(name: str) -> None:
    """Make a context the current one."""
    known = load_contexts()
    known.find(name)
    known.current = name
    known.save()
    echo([f"context {name} is current"])


@config.command("set-context")
@click.argument("name", shell_complete=_complete)
@click.option("--server", metavar="URL", help="The server to ask.")
@click.option("--data", metavar="FILE", help="The store file to read instead of a server.")
@click.option("--cluster", is_flag=True, default=None, help="Ask the Kubernetes cluster of the kubeconfig.")
@click.option("--kubeconfig", metavar="FILE", help="The kubeconfig to use.")
@click.option("--kube-context", metavar="NAME", help="The context of the kubeconfig.")
@click.option("--token-file", metavar="FILE", help="A file with the token for the server.")
@click.option("--ca-file", metavar="FILE", help="Certificates to trust for https (PEM).")
@click.option("-n", "--namespace", help="The namespace of names and manifests that have none.")
def set_context(name: str, **given: Any) -> None:  # noqa: ANN401 each of its own type
    """Make a context, or change what is given of it. An empty value takes a field away."""
    known = load_contexts()
    before = known.contexts.get(name, Context())
    values = {field: getattr(before, field) if value is None else value for field, value in given.items()}
    context = Context(**values)
    kube = bool(context.cluster or context.kubeconfig or context.kube_context)
    if sum((bool(context.server), bool(context.data), kube)) > 1:
        fail(f"context {name} can ask one of a server, a store file and a cluster; take the other away with ''")
    result = "changed" if name in known.contexts else "created"
    known.contexts[name] = context
    known.current = known.current or name
    known.save()
    echo([f"context {name} {result}{' (current)' if known.current == name else ''}"])


@config.command("delete-context")
@click.argument("name", shell_complete=_complete)
def delete_context(name: str) -> None:
    """Delete a context."""
    known = load_contexts()
    known.find(name)
    del known.contexts[name]
    if known.current == name:
        known.current = ""
    known.save()
    echo([f"context {name} deleted"])
