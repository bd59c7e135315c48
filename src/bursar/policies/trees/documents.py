"""Documents of the library: text or plain data into bodies and consumers.

Text may be JSON or YAML, one document. What is wrong is a ``ManifestError`` with the line, where the text itself is
malformed, or the path of the field.
"""

from __future__ import annotations

from typing import cast

from bursar.objects.decode import decode
from bursar.objects.errors import ManifestError, join
from bursar.objects.manifests import load_text
from bursar.policies.trees.bodies import NodeBody, TreeBody
from bursar.policies.trees.consumer import ConsumerInfo
from bursar.policies.trees.kinds import Consumer, QuotaNode, QuotaTree, body_from, consumer_from, node_from

Plain = dict[str, object]


def parse(text: str) -> Plain:
    """The one document of a text."""
    found = load_text(text)
    if len(found) != 1:
        raise ManifestError(f"expected one document, found {len(found)}")
    return cast("Plain", found[0].body)


def tree_from(plain: Plain) -> tuple[str, TreeBody]:
    """(name, body) of a QuotaTree."""
    _check_kind(plain, "QuotaTree")
    typed, _ = decode(plain, QuotaTree)
    name = typed.metadata.name
    try:
        return name, body_from(typed)
    except ManifestError as error:
        raise error.located(subject=f"QuotaTree {name}") from None


def consumer_from_plain(plain: Plain) -> ConsumerInfo:
    _check_kind(plain, "Consumer")
    typed, _ = decode(plain, Consumer)
    try:
        return consumer_from(typed)
    except ManifestError as error:
        raise error.located(subject=f"Consumer {typed.spec.id}") from None


def node_from_plain(name: str, plain: Plain) -> NodeBody:
    """One node of a tree, as in ``spec.nodes``."""
    try:
        typed, _ = decode(plain, QuotaNode)
        return node_from(name, typed, "")
    except ManifestError as error:
        raise error.inside(join("nodes", name)) from None


def read_consumer(text: str) -> ConsumerInfo:
    return consumer_from_plain(parse(text))


def _check_kind(plain: Plain, wanted: str) -> None:
    if plain.get("kind") != wanted:
        raise ManifestError(f"{plain.get('kind')!r:.40} is not {wanted}", "kind")
    if not isinstance(plain.get("metadata", {}), dict):
        raise ManifestError("expected a mapping", "metadata")
