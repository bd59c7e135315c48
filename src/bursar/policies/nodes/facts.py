"""What is known of a node, in its three forms: the setting, the cell in the ledger, and the typed facts.

A node that its cluster no longer has, but on which claims still count, keeps the cell ``REMOVED``: it has no facts,
so nothing fits, but what stands there stays findable.

The cell repeats what the limits of the node's account say. It must: policies hear of changed cells, not of changed
limits, and the dense arrays over all nodes have to follow an undo and a replay too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast, final

from bursar.limits import UNLIMITED, Limits
from bursar.policies.settings import Body
from bursar.selectors import Taint

PREFER: Final = "PreferNoSchedule"
UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
REMOVED: Final[tuple[object, ...]] = ()
NOTHING: Final = Limits({}, True)

# A manifest for the embedded cluster need not list these; a node without them is none that somebody wants.
_ALWAYS_THERE: Final = ("cpu", "memory", "pods")


def stock(listed: Mapping[str, int]) -> Limits:
    """What a node has: cpu, memory and pods without limit unless listed, of anything else what is listed."""
    whole = dict(listed)
    for name in _ALWAYS_THERE:
        whole.setdefault(name, UNLIMITED)
    return Limits(whole, True)


@final
class NodeBody(Body):
    """A node as it comes from outside; the limits are read as a stock."""

    __slots__ = ("allocatable", "labels", "taints", "unschedulable")

    def __init__(
        self,
        allocatable: Limits,
        labels: dict[str, str] | None = None,
        taints: tuple[Taint, ...] = (),
        unschedulable: bool = False,
    ) -> None:
        self.allocatable: Final = stock(allocatable.listed)
        self.labels: Final = labels if labels is not None else {}
        self.taints: Final = taints
        self.unschedulable: Final = unschedulable

    def cell(self) -> tuple[object, ...]:
        """The plain form for the ledger."""
        taints = tuple([(t.key, t.value, t.effect) for t in self.taints])
        return (
            tuple(sorted(self.labels.items())),
            taints,
            self.unschedulable,
            tuple(self.allocatable.listed.items()),
        )


@final
class Facts:
    """A node as the rules see it."""

    __slots__ = ("labels", "limits", "name", "soft", "taints", "unschedulable")

    def __init__(
        self, name: str, labels: dict[str, str], taints: tuple[Taint, ...], unschedulable: bool, limits: Limits
    ) -> None:
        self.name: Final = name
        self.labels: Final = labels
        self.taints: Final = tuple([t for t in taints if t.effect != PREFER])
        self.soft: Final = tuple([t for t in taints if t.effect == PREFER])
        self.unschedulable: Final = unschedulable
        self.limits: Final = limits


def facts_of(name: str, cell: object) -> Facts | None:
    """The facts in a cell; None for no cell or a removed node."""
    if cell is None or cell == REMOVED:
        return None
    labels, taints, unschedulable, listed = cast("tuple[object, ...]", cell)
    return Facts(
        name,
        dict(cast("tuple[tuple[str, str], ...]", labels)),
        tuple([Taint(key, value, effect) for key, value, effect in cast("tuple[tuple[str, str, str], ...]", taints)]),
        cast("bool", unschedulable),
        Limits(dict(cast("tuple[tuple[str, int], ...]", listed)), True),
    )
