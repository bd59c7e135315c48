"""Which classes of pods the scheduler refused on a node: an annotation of the node, written by the controller.

A class is what the scheduler treats alike beyond what Bursar judges itself: namespace, labels, node selector, volumes,
pod affinity and topology spread. Room, taints and node affinity are no part of it. A refusal is remembered for a while,
and twice as long each time it is repeated; an entry that is no longer in force is kept for as long again, to count.

Users decide how many classes there are, so the oldest entries of the namespace with the most go first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from bursar.objects.constraints import constraints_mark
from bursar.objects.core import Lenient, Pod
from bursar.resources import fingerprint_bytes

REFUSED_PODS: Final = "bursar.dev/refused-pods"
MOST: Final = 32  # entries of a node
LONGEST: Final = 6  # how often the time doubles
_WORDS: Final = 160


class RefusedClass(Lenient, frozen=True):
    """One class of pods that the scheduler refused on the node. Times are in milliseconds."""

    namespace: str
    since: int
    until: int
    why: str = ""
    times: int = 1
    over: bool = False  # it is remembered only to count


Refusals = dict[str, RefusedClass]
"""By class."""

_decode = msgspec.json.Decoder(Refusals).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def pod_class(pod: Pod) -> str:
    """The class of a pod, as it was before Bursar narrowed its node affinity."""
    return class_of(pod.metadata.namespace, pod.metadata.labels, pod.spec.node_selector, constraints_mark(pod.spec))


def class_of(namespace: str, labels: Mapping[str, str], selector: Mapping[str, str], constraints: str) -> str:
    return f"{fingerprint_bytes(_encode((namespace, labels, selector, constraints))):016x}"


def read_refusals(annotations: Mapping[str, str]) -> Refusals:
    """What the annotation says; nothing if it cannot be read: it is a memory, not a setting of a user."""
    text = annotations.get(REFUSED_PODS, "")
    try:
        return _decode(text) if text else {}
    except (msgspec.DecodeError, RecursionError):
        return {}


def written_refusals(refusals: Refusals) -> str:
    return _encode(refusals).decode()


def refused_again(known: Refusals, name: str, entry: RefusedClass, base: int) -> Refusals:
    """The refusals of a node with one more, which holds from ``entry.since`` on for ``base`` or a multiple of it."""
    before = known.get(name)
    times = 1 if before is None else min(before.times + 1, LONGEST)
    until = entry.since + base * 2 ** (times - 1)
    new = msgspec.structs.replace(entry, until=until, times=times, why=entry.why[:_WORDS], over=False)
    found = {**known, name: new}
    while len(found) > MOST:
        del found[_least_missed(found)]
    return found


def _least_missed(refusals: Refusals) -> str:
    """The entry to forget: the oldest of the namespace with the most."""
    counts = Counter(one.namespace for one in refusals.values())
    most = max(counts.values())
    candidates = [(one.since, name) for name, one in refusals.items() if counts[one.namespace] == most]
    return min(candidates)[1]


def refusals_at(known: Refusals, now: int) -> Refusals:
    """The refusals of a node as they are at that moment: entries end, and are forgotten later."""
    found: Refusals = {}
    for name, one in known.items():
        if now < one.until:
            found[name] = one
        elif now < 2 * one.until - one.since:
            found[name] = msgspec.structs.replace(one, over=True)
    return found


class RefusedNodes:
    """The memory of all nodes.

    It is read from the annotation of a node that is seen for the first time. From then on the memory here counts, and
    the annotation is its copy for the next leader: an older event, or an edit by others, changes nothing.
    """

    def __init__(self) -> None:
        self._by_node: dict[str, Refusals] = {}

    def marked(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of a node with the annotation as it should be."""
        annotations = dict(metadata.get("annotations") or {})
        name = metadata.get("name", "")
        if name not in self._by_node:
            self._by_node[name] = read_refusals(annotations)
        annotations.pop(REFUSED_PODS, None)
        text = self.text(name)
        if text is not None:
            annotations[REFUSED_PODS] = text
        return {**metadata, "annotations": annotations}

    def text(self, node: str) -> str | None:
        """What is to be written on the node; None: nothing."""
        known = self._by_node.get(node)
        return written_refusals(known) if known else None

    def remember(self, node: str, pod_class: str, entry: RefusedClass, base: int) -> None:
        self._by_node[node] = refused_again(self._by_node.get(node, {}), pod_class, entry, base)

    def ended(self, now: int) -> list[str]:
        """The nodes of which entries ended or are forgotten; from now on they are as they should be."""
        changed: list[str] = []
        for node, known in self._by_node.items():
            current = refusals_at(known, now) if known else known
            if current != known:
                self._by_node[node] = current
                changed.append(node)
        return changed

    def forget(self, node: str) -> None:
        """The node is gone."""
        self._by_node.pop(node, None)
