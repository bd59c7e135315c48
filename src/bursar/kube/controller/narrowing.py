"""What is kept of the objects that a term watches: what somebody here reads of them.

A real node is tens of kilobytes, most of it the list of its images, which no decision reads. Of a node the fields of
its struct are kept, and of its annotations those that policies look at: drivers and agents write others, some every
half minute. So what is not read costs no memory, and a change of it is no news. Of all other objects everything is
kept, because a strict kind is refused for a field that nobody knows; except the record of who wrote which field.
"""

from __future__ import annotations

import msgspec
from msgspec import structs

from bursar.kube.client.models import Meta
from bursar.kube.client.store import Decode
from bursar.objects.core import Node
from bursar.objects.corekinds import NODE
from bursar.objects.kinds import Kind
from bursar.policies.crossquota.names import NODE_MARKS

READ_MARKS = (NODE_MARKS,)
"""How the annotations of nodes begin that policies read."""

_MANAGED = "managedFields"
_decode_node = msgspec.json.Decoder(Node).decode
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def narrowed(kind: Kind) -> Decode[bytes]:
    """How objects of the kind are kept."""
    return _node if kind.name == NODE.name else _object


def _node(meta: Meta, raw: bytes) -> bytes:
    try:
        node = _decode_node(raw)
    except msgspec.ValidationError:  # who takes it in says what is wrong, or passes over what is null
        return _object(meta, raw)
    marks = {name: value for name, value in node.metadata.annotations.items() if name.startswith(READ_MARKS)}
    return _encode(structs.replace(node, metadata=structs.replace(node.metadata, annotations=marks)))


def _object(_meta: Meta, raw: bytes) -> bytes:
    if _MANAGED.encode() not in raw:
        return raw
    body = _decode_parts(raw)
    metadata = _decode_parts(body["metadata"])
    metadata.pop(_MANAGED, None)
    return _encode({**body, "metadata": metadata})
