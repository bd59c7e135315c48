"""Kinds as people type them: for completion, and to tell an object from what they wrote."""

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from bursar.cli.connection import fail

if TYPE_CHECKING:
    from bursar.server.answers import KindInfo
    from bursar.server.client import Client

CLAIMS = ("pods", "pod", "po", "claims", "claim")
NODES = ("nodes", "node", "no")
TABLES = ("claims", "pods", "queue", "quotas", "trees", "nodes", "gpus", "events", "changes", "kinds")


def complete_kind(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What `get` can list: the tables, then the kinds of objects."""
    return [CompletionItem(name) for name in (*TABLES, *_kinds()) if name.lower().startswith(incomplete.lower())]


def complete_reference(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The kind of KIND/namespace/name."""
    return [CompletionItem(f"{name}/") for name in _kinds() if name.lower().startswith(incomplete.lower())]


def _kinds() -> list[str]:
    from bursar.control.kinds import known_kinds
    from bursar.policies.plugin import default_registry

    return sorted(kind.name for kind in known_kinds(default_registry()))


def reference(client: "Client", text: str) -> tuple[str, str]:
    """The kind and key that KIND/namespace/name names; namespace/name alone is a pod. A kind that two groups share is
    left for the server to refuse.
    """
    first, _, rest = text.partition("/")
    found = [info for info in client.kinds().items if first.lower() in _names(info)]
    if found and rest and (not found[0].namespaced or "/" in rest):
        return (found[0].name if len(found) == 1 else first), rest
    if text.count("/") != 1 or not rest:
        fail(f"{text!r:.120} names no object: expected KIND/namespace/name, KIND/name, or namespace/name of a pod")
    return "Pod", text


def _names(info: "KindInfo") -> set[str]:
    return {name.lower() for name in (info.kind, info.name, info.plural, *info.short_names)}
