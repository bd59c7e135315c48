"""Completion of what is typed: kinds from the installed policies, and names from the server that the command asks.

A server that does not answer soon, or at all, completes nothing: a shell that waits is worse than no completion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import redirect_stderr
from io import StringIO
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from bursar.cli.connection import target_of
from bursar.cli.listing import pages
from bursar.cli.names import PODS, QUOTAS, TABLES, kind_names, quota_label

if TYPE_CHECKING:
    from bursar.server.client import Client

SECONDS = 2.0
_MOST = 500  # names of one answer

Items = list[CompletionItem]
Find = Callable[["Client", str], Iterable[str]]
"""(client, the beginning of a name) -> names; those that begin otherwise are left out afterwards."""


def complete_kind(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """What `get` can list: the tables, then the kinds of objects, and with a slash their names."""
    if "/" in incomplete:
        return _items(_asked(ctx, incomplete, _objects), incomplete)
    return _items([*TABLES, *_kinds()], incomplete)


def complete_name(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """The names of what `get` lists."""
    return _of_kind(ctx, ctx.params.get("what") or "", incomplete)


def complete_reference(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """KIND/namespace/name, namespace/name of a pod, or names after a kind."""
    given = ctx.params.get(param.name or "") or ()
    if isinstance(given, tuple) and given and "/" not in given[0]:
        return _of_kind(ctx, given[0], incomplete)
    kinds = _items([f"{name}/" for name in _kinds()], incomplete)
    if not incomplete or (kinds and "/" not in incomplete):
        return kinds
    return [*kinds, *_items(_asked(ctx, incomplete, _objects), incomplete)]


def complete_pod(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    return _items(_asked(ctx, incomplete, _pods), incomplete)


def complete_explained(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """A pod, or the word before the name of a quota."""
    return [*_items([QUOTAS[1]], incomplete), *_items(_asked(ctx, incomplete, _pods), incomplete)]


def complete_quota(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    return _items(_asked(ctx, incomplete, _quotas), incomplete)


def complete_node(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    return _items(_asked(ctx, incomplete, _nodes), incomplete)


def complete_namespace(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    def find(client: Client, _text: str) -> Iterable[str]:
        of_pods = [row.namespace for row in client.claims(limit=_MOST).items]
        return [name for name in (*of_pods, *(row.namespace for row in client.quotas(limit=_MOST).items)) if name]

    return _items(_asked(ctx, incomplete, find), incomplete)


def complete_change(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    def find(client: Client, _text: str) -> Iterable[str]:
        return [str(change.id) for change in client.changes(limit=20).items]

    return _items(_asked(ctx, incomplete, find), incomplete)


def _of_kind(ctx: click.Context, kind: str, incomplete: str) -> Items:
    lower = kind.lower()
    if lower in {*PODS, "claims", "claim", "queue", "events"}:
        return _items(_asked(ctx, incomplete, _pods), incomplete)
    if lower in {*QUOTAS, "trees", "tree"}:
        return _items(_asked(ctx, incomplete, _quotas), incomplete)
    if lower in TABLES and lower != "nodes":
        return []
    found = _asked(ctx, f"{kind}/{incomplete}", _objects)
    return _items([name.partition("/")[2] for name in found], incomplete)


def _pods(client: Client, text: str) -> Iterable[str]:
    namespace, slash, _ = text.partition("/")
    rows = client.claims(namespace=namespace if slash else "", limit=_MOST).items
    return [f"{row.namespace}/{row.name}" for row in rows]


def _quotas(client: Client, _text: str) -> Iterable[str]:
    return [quota_label(row) for row in pages(client.quotas, {}, _MOST).items]


def _nodes(client: Client, _text: str) -> Iterable[str]:
    return [row.name for row in client.nodes(limit=_MOST).items]


def _objects(client: Client, text: str) -> Iterable[str]:
    """KIND/key of the objects of a kind; of pods, if the text names no kind."""
    kind = text.partition("/")[0]
    infos = client.kinds().items
    if not any(kind.lower() in kind_names(one) for one in infos):
        return _pods(client, text)
    found: list[str] = []
    for body in client.objects(kind=kind, limit=_MOST).items:
        metadata = body.get("metadata") or {}
        key = "/".join(part for part in (metadata.get("namespace"), metadata.get("name")) if part)
        found.append(f"{kind}/{key}")
    return found


def _asked(ctx: click.Context, incomplete: str, find: Find) -> list[str]:
    """What the target of the command answers; nothing if it does not."""
    try:
        with redirect_stderr(StringIO()), target_of(ctx.params, seconds=SECONDS).open() as client:
            return list(find(client, incomplete))
    except (Exception, SystemExit):  # noqa: BLE001 whatever it is, no one would read it
        return []


def _items(names: Iterable[str], incomplete: str) -> Items:
    begun = incomplete.lower()
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.lower().startswith(begun)]


def _kinds() -> list[str]:
    from bursar.control.admission import known_kinds
    from bursar.policies.plugin import default_registry

    return sorted(kind.name for kind in known_kinds(default_registry()))
