"""Names of objects as people type them: every name that a command prints is understood by every command that takes one.

An object is KIND/namespace/name, KIND/name where the kind has no namespaces, or namespace/name alone, which is a pod.
KIND NAME... names several of one kind, with or without their namespace. Kinds are called as kubectl calls them, and
`quota` is any quota, called as `get quotas` calls it. A kind that two groups share is left for the server to resolve:
it means the one whose object is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from bursar.cli.connection import fail
from bursar.cli.listing import not_there, pages

if TYPE_CHECKING:
    from bursar.server.client import Client
    from bursar.server.types import KindInfo, QuotaRow

PODS = ("pods", "pod", "po")
CLAIMS = ("claims", "claim")
NODES = ("nodes", "node", "no")
QUOTAS = ("quotas", "quota")
TABLES = ("claims", "pods", "queue", "quotas", "trees", "nodes", "gpus", "events", "changes", "kinds")
DEFAULT_NAMESPACE = "default"

Reference = tuple[str, str]
"""(kind, key) of an object."""


def reference(client: Client, text: str) -> Reference:
    """The object that KIND/namespace/name, KIND/name, or namespace/name of a pod names."""
    first, _, rest = text.partition("/")
    found = kinds_called(client, first) if rest else []
    if found and (not found[0].namespaced or "/" in rest):
        return (found[0].name if len(found) == 1 else first), rest
    if found and not first.islower():  # no namespace is written so
        fail(f"{text!r:.120} does not have the form {first}/namespace/name")
    if first.lower() in QUOTAS and rest:
        return _object_of_quota(client, rest)
    if text.count("/") != 1 or not rest:
        fail(f"{text!r:.120} names no object: expected KIND/namespace/name, KIND/name, or namespace/name of a pod")
    return "Pod", text


def references(client: Client, words: Sequence[str], namespace: str = "") -> list[Reference]:
    """The objects that KIND NAME..., or any number of references, name."""
    first, *names = words
    if "/" in first or not names:
        return [reference(client, word) for word in words]
    if first.lower() in QUOTAS:
        return [_object_of_quota(client, name) for name in names]
    found = kinds_called(client, first)
    if not found:
        unknown_kind(client, first)
    kind = found[0].name if len(found) == 1 else first
    return [(kind, _key(found[0], name, namespace)) for name in names]


def pod_keys(words: Sequence[str], namespace: str = "") -> list[str]:
    """namespace/name of pods: as it stands, after Pod/ or pod, or as a name in the namespace."""
    names = words[1:] if len(words) > 1 and words[0].lower() in PODS else words
    found: list[str] = []
    for name in names:
        first, _, rest = name.partition("/")
        key = rest if first.lower() in PODS and "/" in rest else name
        if key.count("/") > 1 or not all(key.split("/")):
            fail(f"{name!r:.120} names no pod: write NAMESPACE/POD; `bursar get pods` lists pods")
        found.append(key if "/" in key else f"{namespace or DEFAULT_NAMESPACE}/{key}")
    return found


def _key(kind: KindInfo, name: str, namespace: str) -> str:
    """The key of an object of a kind; the name may have its kind in front, as lists of names print it."""
    first, _, rest = name.partition("/")
    if rest and first.lower() in kind_names(kind):
        name = rest
    return name if not kind.namespaced or "/" in name else f"{namespace or DEFAULT_NAMESPACE}/{name}"


def kinds_called(client: Client, text: str) -> list[KindInfo]:
    """The kinds of objects that people call so."""
    return [info for info in client.kinds().items if text.lower() in kind_names(info)]


def kind_names(info: KindInfo) -> set[str]:
    group = info.api_version.rpartition("/")[0]
    short = (info.kind, info.plural, *info.short_names)
    return {name.lower() for name in (info.name, *short, *(f"{name}.{group}" for name in short if group))}


def is_kind(client: Client, text: str) -> bool:
    """Whether people call a kind so, or all kinds of quotas."""
    return text.lower() in QUOTAS or bool(kinds_called(client, text))


def unknown_kind(client: Client, text: str) -> NoReturn:
    """End the program: nothing is called so. Says what was probably meant."""
    from bursar.objects.decode import nearest

    infos = client.kinds().items
    known = [*TABLES, *(name for info in infos for name in (info.name, info.kind, info.plural, info.kind.lower()))]
    close = nearest(text, known)
    hint = f"did you mean {close}?" if close else f"known are {', '.join(sorted(info.name for info in infos))}"
    fail(f"the kind {text!r:.80} is not known; {hint}")


# Quotas


def quota_label(row: QuotaRow) -> str:
    """What tables call a quota."""
    key = f"{row.namespace}/{row.name}" if row.namespace else row.name
    return f"{key}:{row.node}" if row.node else key


def quota_forms(row: QuotaRow) -> tuple[str, ...]:
    """What people may call a quota by: as tables, changes, checks or reasons print it; the first is that of tables."""
    key = f"{row.namespace}/{row.name}" if row.namespace else row.name
    label, kinds = quota_label(row), (row.kind, row.kind.partition(".")[0])
    short = f"{row.name}:{row.node}" if row.node else row.name
    named = [f"{kind}/{name}" for kind in kinds for name in (label, key)]
    return label, key, short, row.name, *([row.account] if row.account else []), *named


def _object_of_quota(client: Client, name: str) -> Reference:
    rows: list[QuotaRow] = pages(client.quotas, {}).items
    found = [row for row in rows if name == quota_label(row)] or [row for row in rows if name in quota_forms(row)]
    if not found:
        not_there("quota", name, [quota_label(row) for row in rows])
    objects = {(row.kind, f"{row.namespace}/{row.name}" if row.namespace else row.name) for row in found}
    if len(objects) > 1:
        fail(f"the quota {name!r:.120} is ambiguous: type {' or '.join(sorted('/'.join(one) for one in objects))}")
    return objects.pop()
