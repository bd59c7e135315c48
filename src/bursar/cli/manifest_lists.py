"""Objects in `bursar get`: a table for people, and for programs manifests that can be applied again.

A list of manifests is a `List`, as kubectl prints it, and one object that was named is printed by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bursar.cli.listing import ListQuery, pages, selected
from bursar.cli.names import kinds_called, unknown_kind
from bursar.cli.output import MACHINES, Column, age, machine, shown, wall_time

if TYPE_CHECKING:
    from bursar.server import types
    from bursar.server.client import Client

Lines = list[str]


def now_of(found: Any, asked: ListQuery) -> str:  # noqa: ANN401 a list of the API
    """What ages are counted to: a server's own time stands still while nothing happens."""
    moment: str = found.moment.time
    return max(moment, wall_time()) if asked.live else moment


def shown_labels(labels: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def print_manifests(client: Client, asked: ListQuery, kind: str, keys: set[str] | None, output: str) -> Lines:
    """The manifests of objects with these keys (None: of all), as a list that can be applied again."""
    query = {name: value for name, value in asked.filters.items() if name in {"namespace", "label", "at"}}
    found = pages(client.objects, {**query, "kind": kind}, asked.most if keys is None else 0)
    items = [body for body in found.items if keys is None or _object_key(body) in keys]
    return _as_list(found, items[: asked.limit or None], asked, output)


def _as_list(found: Any, items: list[dict[str, Any]], asked: ListQuery, output: str) -> Lines:  # noqa: ANN401 a list of the API
    """As kubectl prints objects: one that was named by itself, else a list."""
    if len(asked.names) == 1 and len(items) == 1:
        return machine(items[0], output)
    version = {"resourceVersion": found.moment.resource_version}
    return machine({"apiVersion": "v1", "kind": "List", "metadata": version, "items": items}, output)


def object_table(client: Client, asked: ListQuery, output: str) -> Lines:
    query = asked.only("namespace", "label", "at")
    kinds = kinds_called(client, asked.what) or unknown_kind(client, asked.what)
    found = _found_objects(client, asked, query, kinds)
    if output in MACHINES:
        return _as_list(found, found.items, asked, output)
    spaced = any(_metadata(body).get("namespace") for body in found.items)
    columns = (
        Column("KIND", wide=True, name=True, spare=3), Column("NAMESPACE", wide=not spaced, name=True),
        Column("NAME", name=True), Column("AGE", fixed=True, right=True, spare=2),
        Column("VERSION", wide=True, right=True, spare=5), Column("LABELS", wide=True, spare=4),
    )  # fmt: skip
    now = now_of(found, asked)
    rows = [_object_row(body, now) for body in found.items]
    names = [f"{_kind_name(body, kinds)}/{_object_key(body)}" for body in found.items]
    return shown(found, output, columns, rows, f"no {asked.what} found", names)


def _kind_name(body: dict[str, Any], kinds: Sequence[types.KindInfo]) -> str:
    """With its group where it has one, so that the name is never ambiguous."""
    return next(info.name for info in kinds if info.api_version == body.get("apiVersion", info.api_version))


def _found_objects(client: Client, asked: ListQuery, query: dict[str, str], kinds: Sequence[types.KindInfo]) -> Any:  # noqa: ANN401 a list of the API
    """A page with all that were asked for. Whole names are looked up one by one: that also tells the kinds apart."""
    spaced = kinds[0].namespaced
    whole = [name if "/" in name or not spaced else f"{query.get('namespace', '')}/{name}" for name in asked.names]
    if not whole or any(name.startswith("/") for name in whole):
        return selected(client.objects, asked, {**query, "kind": asked.what}, lambda body: _object_forms(body, kinds))
    import msgspec

    at = {"at": query["at"]} if "at" in query else {}
    bodies = [client.object(*_object_named(name, asked.what, kinds), **at) for name in whole]
    empty = client.objects(kind=kinds[0].name, limit=1, **at)
    return msgspec.structs.replace(empty, items=bodies, remaining=0, next="")


def _object_named(name: str, what: str, kinds: Sequence[types.KindInfo]) -> tuple[str, str]:
    """(kind, key); the name may have its kind in front, as -o name prints it."""
    first, _, rest = name.partition("/")
    for info in kinds:
        if rest.count("/") == int(info.namespaced) and first.lower() in {info.name.lower(), info.kind.lower()}:
            return first, rest
    return what, name


def _object_forms(body: dict[str, Any], kinds: Sequence[types.KindInfo]) -> tuple[str, ...]:
    key = _object_key(body)
    return key, _object_name(body), *(f"{kind}/{key}" for info in kinds for kind in (info.name, info.kind))


def _object_row(body: dict[str, Any], now: str) -> tuple[object, ...]:
    meta = _metadata(body)
    born = age(meta.get("creationTimestamp", ""), now)
    labels = shown_labels(meta.get("labels") or {})
    return body.get("kind"), meta.get("namespace") or "", _object_name(body), born, meta.get("resourceVersion"), labels


def _object_key(body: dict[str, Any]) -> str:
    return "/".join(part for part in (_metadata(body).get("namespace"), _object_name(body)) if part)


def _object_name(body: dict[str, Any]) -> str:
    """Some kinds are named by an id in their spec."""
    name: str = _metadata(body).get("name") or (body.get("spec") or {}).get("id") or ""
    return name


def _metadata(body: dict[str, Any]) -> dict[str, Any]:
    return body.get("metadata") or {}
