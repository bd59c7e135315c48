"""How the nodes policy joins, and what it makes of a Node."""

from __future__ import annotations

from bursar.objects.core import Node
from bursar.objects.quantities import limits_from
from bursar.policies.nodes.facts import NodeBody
from bursar.policies.nodes.policy import KIND, NodesPolicy
from bursar.policies.nodes.rules import NAME
from bursar.policies.plugin import Plugin
from bursar.policies.settings import Setting
from bursar.selectors import Taint


def node_settings(key: str, node: Node | None) -> list[Setting]:
    """A Node as a setting; its capacity stands in where it does not say what is allocatable."""
    if node is None:
        return [Setting(KIND, key, None)]
    status = node.status
    if status.allocatable:
        allocatable = limits_from(status.allocatable, "status.allocatable", True)
    else:
        allocatable = limits_from(status.capacity, "status.capacity", True)
    taints = tuple(Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints)
    return [Setting(KIND, key, NodeBody(allocatable, node.metadata.labels, taints, node.spec.unschedulable))]


PLUGIN = Plugin(NAME, 50, NodesPolicy, translate={"Node": node_settings})
