"""Profiles and their root quotas: vectors 6.7, overlaps, and what is written."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from bursar.control.admission import known_kinds
from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.policies.plugin import Registry
from bursar.policies.pools.node_pools import PoolNode, Profile
from bursar.policies.pools.parse import ratio_from, tree_id
from bursar.policies.pools.plugin import PLUGIN
from bursar.policies.pools.settings import PREFIX, PROFILE_OBJECT, QUOTA_OBJECT
from tests.builders import Manifest, node
from tests.policies.pools.test_admission import profile, quota
from tests.policies.pools.world import World

P = PREFIX
KINDS = known_kinds(Registry([PLUGIN]))
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
EACH = {"cpu": 10, "memory": 1000, "storage": 1000}


def apply(world: World, *manifests: Manifest) -> None:
    """As the control loop does it: read, translate, configure."""
    settings = []
    for manifest in manifests:
        read = KINDS.read(Document("", 0, manifest))
        settings.extend(PLUGIN.translate[read.kind.name](read.key, read.typed))
    world.engine.configure(settings, world.now)


def three_nodes() -> World:
    world = World()
    for name, zone, ready in (("node1", "a", True), ("node2", "a", False), ("node3", "b", True)):
        given = node(name, EACH, labels={"zone": zone})
        given["status"]["conditions"] = [{"type": "Ready", "status": str(ready)}]
        apply(world, given)
    return world


def in_zone(zone: str, **more: object) -> Manifest:
    given = profile("profile1" if zone == "a" else "profile2", "root", {"zone": zone}, **more)
    given["spec"]["quotaLabels"] = more.get("quotaLabels", {})
    return given


def root_of(world: World, key: str = "kube-system/root") -> dict[str, Any]:
    found = world.written(world.outputs(), QUOTA_OBJECT, key, "object")
    assert found is not None
    return cast("dict[str, Any]", found)


def numbers(cpu: str, memory: str) -> dict[str, str]:
    return {"cpu": cpu, "memory": memory, "storage": memory}


TREE = {"labels": {P + "tree-id": "tree1"}}


@pytest.mark.parametrize(
    ("given", "minimum", "total", "idle", "tree"),
    [
        pytest.param(in_zone("a"), ("20", "2000"), ("20", "2000"), ("10", "1k"), None, id="zone-a"),
        pytest.param(in_zone("b"), ("10", "1k"), ("10", "1k"), None, None, id="zone-b"),
        pytest.param(
            in_zone("a", resourceRatio="0.9"), ("18", "1800"), ("18", "1800"), ("9", "900"), None, id="ratio 0.9"
        ),
        pytest.param(
            in_zone("a", resourceRatio="0.9", **TREE), ("18", "1800"), ("18", "1800"), ("9", "900"), "tree1", id="pin"
        ),
    ],
)
def test_6_7_root_quotas(
    given: Manifest,
    minimum: tuple[str, str],
    total: tuple[str, str],
    idle: tuple[str, str] | None,
    tree: str | None,
) -> None:
    world = three_nodes()
    apply(world, given)
    root = root_of(world)
    assert root["spec"]["min"] == {"cpu": minimum[0], "memory": minimum[1]}
    assert root["spec"]["max"] == {"cpu": "4611686018427387", "memory": "4611686018427387"}
    annotations = root["metadata"]["annotations"]
    assert json.loads(annotations[P + "total-resource"]) == numbers(*total)
    assert json.loads(annotations[P + "unschedulable-resource"]) == ({} if idle is None else numbers(*idle))
    name = given["metadata"]["name"]
    labels = {P + "profile": name, P + "is-root": "true", P + "parent": "koordinator-root-quota"}
    assert root["metadata"]["labels"] == labels | {P + "tree-id": tree or tree_id("kube-system", name)}


def test_6_7_labels_for_the_root_quota_and_those_it_has_stay() -> None:
    world = three_nodes()
    existing = quota("root", {"cpu": 10, "memory": 100}, {"cpu": 5, "memory": 50}, namespace="kube-system")
    existing["metadata"]["labels"]["a"] = "a"
    apply(world, existing, in_zone("a", quotaLabels={"zone": "a", P + "tree-id": "mine", P + "is-root": "no"}))
    apply(world, existing)
    root = root_of(world)
    assert root["spec"]["min"] == {"cpu": "20", "memory": "2000"}
    labels = root["metadata"]["labels"]
    assert (labels["a"], labels["zone"], labels[P + "is-root"]) == ("a", "a", "true")
    assert labels[P + "tree-id"] == tree_id("kube-system", "profile1")


def test_6_7_resource_keys() -> None:
    world = three_nodes()
    given = in_zone("a", resourceRatio="0.9", **TREE)
    given["metadata"]["annotations"] = {P + "resource-keys": '["cpu"]'}
    apply(world, given)
    root = root_of(world)
    assert (root["spec"]["min"], list(root["spec"]["max"])) == ({"cpu": "18"}, ["cpu"])
    assert json.loads(root["metadata"]["annotations"][P + "total-resource"]) == numbers("18", "1800")


@pytest.mark.parametrize(
    ("amount", "ratio", "expected"),
    [
        (1000, "0.9", 900),
        (100, "0.5", 50),
        (2**30 * 1000, "0.9", 966367641600),
        (2**30, "0.5", 2**29),
        (100, "0.29", 29),
    ],
)
def test_6_7_a_ratio_multiplies_exactly(amount: int, ratio: str, expected: int) -> None:
    found = Profile("", "p", "q", "t", (), *ratio_from(ratio))
    assert found.scaled(amount) == expected


def test_6_7_generated_tree_ids() -> None:
    assert (tree_id("", "profile1"), tree_id("", "profile2")) == ("2862972692226656278", "2862971592715028067")


def test_a_generated_tree_id_is_written_back_once() -> None:
    world = three_nodes()
    apply(world, in_zone("a"))
    outputs = world.outputs()
    labels = world.written(outputs, PROFILE_OBJECT, "kube-system/profile1", "labels")
    assert labels == {P + "tree-id": tree_id("kube-system", "profile1")}
    assert world.written(outputs, PROFILE_OBJECT, "kube-system/profile1", "status") == {
        "nodes": 2,
        "total": {"cpu": "20", "memory": "2000", "storage": "2000"},
        "treeId": tree_id("kube-system", "profile1"),
    }
    assert world.outputs() == []


def test_two_pools_have_two_trees_and_a_child_follows_its_root() -> None:
    world = three_nodes()
    apply(world, in_zone("a"), profile("profile2", "root-b", {"zone": "b"}, resourceRatio="0.5"))
    assert world.total(tree_id("kube-system", "profile1"))["cpu"] == 20_000
    assert world.total(tree_id("kube-system", "profile2"))["cpu"] == 5000
    assert world.total() == {}


def test_overlapping_profiles_share_no_node_and_say_so() -> None:
    world = World()
    world.node("n1", {"cpu": 10}, {"pool": "x"})
    world.profile("b", {"pool": "x"})
    assert world.total("tree-b")["cpu"] == 10
    world.outputs()
    world.profile("a", {})
    assert (world.total("tree-a")["cpu"], world.total("tree-b")) == (10, {})
    assert _overlaps(world) == ["n1 (to ns/a)"]
    world.node("n2", {"cpu": 5}, {"pool": "x"})
    assert _overlaps(world) == ["n1 (to ns/a), n2 (to ns/a)"]
    world.node("n2", {"cpu": 5}, {"pool": "x"})
    world.profile("b", {"pool": "x"}, numerator=1, denominator=2)
    assert _overlaps(world) == []
    world.set("pools.Profile", "ns/a", None)
    assert world.total("tree-b")["cpu"] == 7


def _overlaps(world: World) -> list[str]:
    """The nodes that profile b lost, from the events of late."""
    found = [(output.key, output.value or {}) for output in world.outputs() if output.part == "event"]
    assert all((key, value["type"], value["reason"]) == ("ns/b", "Warning", "Overlap") for key, value in found)
    return [str(value["message"]).rpartition(": ")[2] for _, value in found]


def test_ignore_default_tree_is_ignored_with_an_event() -> None:
    world = World()
    world.node("n1", {"cpu": 10, "pods": 1, "memory": 1}, {"pool": "x"})
    world.profile("a", {"pool": "x"}, labels=((P + "ignore-default-tree", "true"),))
    assert world.total() == {}
    events = [str((output.value or {})["reason"]) for output in world.outputs() if output.part == "event"]
    assert events == ["Ignored"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"resourceRatio": "two"}, "spec.resourceRatio"),
        ({"resourceRation": "0.9"}, "spec.resourceRation"),
        ({"quotaName": ""}, "spec.quotaName"),
        ({"nodeSelector": None}, "spec.nodeSelector"),
        ({"nodeSelector": {"matchLables": {}}}, "spec.nodeSelector.matchLables"),
    ],
)
def test_bad_profiles_are_named(change: Manifest, path: str) -> None:
    given = profile("a", "root", {"pool": "a"})
    given["spec"] |= change
    with pytest.raises(ManifestError) as caught:
        KINDS.read(Document("f.yaml", 1, given))
    assert caught.value.path == path
    assert str(caught.value).startswith("f.yaml: document 1: ElasticQuotaProfile kube-system/a: ")


def test_a_node_that_is_emptied_and_cordoned() -> None:
    (setting,) = PLUGIN.translate["Node"]("n", None)
    assert setting.body is None
    given = KINDS.read(Document("", 0, node("n", {"cpu": 1}, unschedulable=True)))
    (setting,) = PLUGIN.translate["Node"]("n", given.typed)
    assert isinstance(setting.body, PoolNode)
    assert not setting.body.schedulable


def test_options() -> None:
    world = World()
    body = {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": {"name": "default"}}
    spec = {"pools": {"guaranteeUsage": True, "delayEvictTime": "5m", "revokeOveruse": False}}
    read = KINDS.read(Document("", 0, body | {"spec": spec}))
    settings = PLUGIN.translate["Configuration"]("default", read.typed.spec.pools)  # type: ignore[attr-defined]
    world.engine.configure(settings)
    options = world.policy.derived.options
    assert (options.guarantee, options.delay, options.revoke, options.runtime) == (True, 300_000, False, True)
    world.engine.configure(PLUGIN.translate["Configuration"]("default", None))
    assert world.policy.derived.options.delay == 120_000
    bad = KINDS.read(Document("", 0, body | {"spec": {"pools": {"delayEvictTime": "soon"}}}))
    with pytest.raises(ManifestError) as caught:
        PLUGIN.translate["Configuration"]("default", bad.typed.spec.pools)  # type: ignore[attr-defined]
    assert caught.value.path == "spec.pools.delayEvictTime"
