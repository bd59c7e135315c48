"""Manifests as they were applied, kept elsewhere and read when somebody wants them.

There are many pods, and nothing that decides reads their manifests: a cluster that has somewhere to keep them holds
none in memory. Each is named by the resource version with which it was applied, and never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from bursar.objects.errors import ManifestError
from bursar.objects.kindset import KindSet, TypedObject
from bursar.objects.manifests import Document

Load = Callable[[int], bytes]
"""The text of the manifest that was applied with a resource version."""

_DECODER = msgspec.json.Decoder(dict[str, Any])
_ENCODER = msgspec.json.Encoder()


def manifest_text(body: dict[str, Any]) -> bytes:
    """A manifest as it is kept."""
    return _ENCODER.encode(body)


class Shelf:
    """Where the manifests are, and what they are read with."""

    def __init__(self, kinds: KindSet, load: Load | None = None) -> None:
        """``load`` None: all manifests are in memory."""
        self._kinds = kinds
        self._load = load

    def body(self, version: int) -> dict[str, Any]:
        """The manifest as it stands, unchecked."""
        if self._load is None:
            raise RuntimeError(f"the manifest applied as version {version} is nowhere")
        try:
            return _DECODER.decode(self._load(version))
        except msgspec.DecodeError as error:
            raise ManifestError(f"the manifest applied as version {version} cannot be read: {error}") from error

    def read(self, body: dict[str, Any]) -> TypedObject:
        """Read and checked; ``ManifestError`` for what this Bursar cannot read."""
        return self._kinds.read(Document("", 0, body))
