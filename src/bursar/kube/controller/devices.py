"""Devices of nodes that drivers publish in ResourceSlices, by driver: how clusters without device plugins have GPUs.

What is counted goes to the loop as an annotation of the node, so that policies read it with everything else that they
know of the node. Of a pool only the newest generation counts; slices that are not about one node are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from bursar.kube.client.models import Wire
from bursar.policies.crossquota.names import DEVICES


class _Pool(Wire, frozen=True):
    name: str = ""
    generation: int = 0


class _SliceSpec(Wire, frozen=True):
    driver: str = ""
    node_name: str = ""
    pool: _Pool = _Pool()
    devices: tuple[msgspec.Raw, ...] = ()


class _Slice(Wire, frozen=True):
    spec: _SliceSpec = _SliceSpec()


class Published(msgspec.Struct, frozen=True):
    """What one slice says."""

    node: str
    driver: str
    pool: str
    generation: int
    count: int


_decode = msgspec.json.Decoder(_Slice).decode


def read_slice(raw: bytes) -> Published:
    spec = _decode(raw).spec
    return Published(spec.node_name, spec.driver, spec.pool.name, spec.pool.generation, len(spec.devices))


class Devices:
    """The slices of all nodes."""

    def __init__(self) -> None:
        self._slices: dict[str, Published] = {}  # by name of the slice
        self._by_node: dict[str, set[str]] = {}  # names of slices

    def seen(self, name: str, published: Published) -> set[str]:
        """A slice came or changed; the nodes that it is and was about."""
        touched = self.gone(name)
        if published.node:
            self._slices[name] = published
            self._by_node.setdefault(published.node, set()).add(name)
            touched.add(published.node)
        return touched

    def gone(self, name: str) -> set[str]:
        known = self._slices.pop(name, None)
        if known is None:
            return set()
        names = self._by_node[known.node]
        names.discard(name)
        if not names:
            del self._by_node[known.node]
        return {known.node}

    def counts(self, node: str) -> dict[str, int]:
        """How many devices of each driver the node has."""
        slices = [self._slices[name] for name in self._by_node.get(node, ())]
        newest: dict[tuple[str, str], int] = {}
        for one in slices:
            pool = (one.driver, one.pool)
            newest[pool] = max(newest.get(pool, 0), one.generation)
        found: Counter[str] = Counter()
        for one in slices:
            if one.generation == newest[one.driver, one.pool]:
                found[one.driver] += one.count
        return {driver: count for driver, count in sorted(found.items()) if count}

    def marked(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of a node with its devices, and without what somebody else says of them."""
        annotations = dict(metadata.get("annotations") or {})
        annotations.pop(DEVICES, None)
        counts = self.counts(metadata.get("name", ""))
        if counts:
            annotations[DEVICES] = ",".join(f"{driver}={count}" for driver, count in counts.items())
        return {**metadata, "annotations": annotations}
