"""From a Node object to the policy's setting."""

from __future__ import annotations

import msgspec
import pytest

from bursar.objects.core import Node
from bursar.objects.decode import ManifestError
from bursar.policies.nodes.plugin import PLUGIN
from bursar.policies.nodes.policy import NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.plugin import default_registry


def translate(manifest: dict[str, object]) -> NodeBody:
    (setting,) = PLUGIN.translate["Node"]("n1", msgspec.convert(manifest, Node))
    assert (setting.kind, setting.key) == ("nodes.Node", "n1")
    assert isinstance(setting.body, NodeBody)
    return setting.body


def test_a_whole_node() -> None:
    found = translate(
        {
            "metadata": {"name": "n1", "labels": {"zone": "a"}},
            "spec": {"unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "3500m", "memory": "8Gi", "pods": "110"}, "capacity": {"cpu": 4}},
        }
    )
    assert found.allocatable.show() == {"cpu": "3500m", "memory": "8Gi", "pods": "110"}
    assert (found.labels, found.unschedulable) == ({"zone": "a"}, True)
    assert [taint.show() for taint in found.taints] == ["k=v:NoSchedule"]


def test_capacity_stands_in_for_allocatable() -> None:
    assert translate({"status": {"capacity": {"cpu": 4}}}).allocatable.cap("cpu") == 4000


def test_what_a_node_need_not_list() -> None:
    found = translate({"status": {"allocatable": {"nvidia.com/gpu": 8}}}).allocatable
    assert found.stock
    assert found.show() == {"cpu": "unlimited", "memory": "unlimited", "nvidia.com/gpu": "8", "pods": "unlimited"}
    assert found.cap("example.com/other") == 0


def test_a_deleted_node() -> None:
    (setting,) = PLUGIN.translate["Node"]("n1", None)
    assert (setting.kind, setting.key, setting.body) == ("nodes.Node", "n1", None)


@pytest.mark.parametrize("part", ["allocatable", "capacity"])
def test_a_bad_quantity_is_named(part: str) -> None:
    with pytest.raises(ManifestError) as caught:
        translate({"status": {part: {"cpu": "four"}}})
    assert caught.value.path == f"status.{part}.cpu"


def test_the_registry_knows_it() -> None:
    (policy,) = [policy for policy in default_registry().policies() if policy.name == "nodes"]
    assert isinstance(policy, NodesPolicy)
    assert PLUGIN.order == 50
