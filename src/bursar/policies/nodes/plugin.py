"""How the nodes policy joins, and what it makes of a Node."""

from __future__ import annotations

from bursar.objects.core import Node
from bursar.objects.errors import ManifestError
from bursar.policies.nodes.facts import NodeBody
from bursar.policies.nodes.policy import KIND, NAME, NodesPolicy
from bursar.policies.plugin import Plugin
from bursar.policies.settings import Setting
from bursar.quantity import QuantityError
from bursar.selectors import Taint
from bursar.vectors import parse_limits


def node_settings(key: str, node: Node | None) -> list[Setting]:
    """A Node as a setting; its capacity stands in where it does not say what is allocatable."""
    if node is None:
        return [Setting(KIND, key, None)]
    part = "allocatable" if node.status.allocatable else "capacity"
    try:
        allocatable = parse_limits(node.status.allocatable or node.status.capacity, f"status.{part}")
    except QuantityError as error:
        raise ManifestError(error.problem, error.path, subject=f"Node {key}") from error
    taints = tuple(Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints)
    return [Setting(KIND, key, NodeBody(allocatable, node.metadata.labels, taints, node.spec.unschedulable))]


PLUGIN = Plugin(NAME, 50, NodesPolicy, translate={"Node": node_settings})
