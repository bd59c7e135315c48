"""What is known of a cluster, and what policies make of it: kept for as long as it is right."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bursar.control.admission import known_kinds
from bursar.kube.controller.object_cache import ObjectCache
from bursar.policies.plugin import ObjectView, default_registry, derived
from bursar.policies.pools.plugin import _read_profile
from bursar.policies.pools.topology import Topology, topology_of
from tests.kube.controller.test_invalid_objects import branch, pool
from tests.kube.controller.test_mirror import node, quota

Body = dict[str, Any]


def world_of(*bodies: Body) -> ObjectCache:
    cache = ObjectCache(known_kinds(default_registry()))
    for body in bodies:
        take(cache, body)
    return cache


def take(cache: ObjectCache, body: Body) -> None:
    kind = next(one for one in cache.kinds if (one.api_version, one.kind) == (body["apiVersion"], body["kind"]))
    cache.keep(*cache.read(kind, msgspec.json.encode(body)))


def drop(cache: ObjectCache, kind: str, key: str) -> None:
    cache.drop(cache.kinds.find(kind).name, key)


def topology(view: ObjectView) -> Topology:
    return derived(view, Topology, fresh)


def fresh(view: ObjectView) -> Topology:
    return topology_of(view, _read_profile)


def content(found: Topology, names: tuple[str, ...] = ("a", "b", "leaf", "other", "root", "top")) -> object:
    quotas = {name: (found.object(name), found.quota(name), found.children(name)) for name in names}
    return quotas, {name: (found.name_of(name, {}), found.promised(name)) for name in names}


QUOTA = "ElasticQuota.scheduling.sigs.k8s.io"


@pytest.mark.parametrize(
    "body",
    [
        branch("leaf", "top", leaf=True),
        branch("top", leaf=True),  # another form of a quota that is known
        node("n", 8),
        pool(),
        quota("a", 1, 1),
    ],
    ids=["a new quota", "a quota", "a node", "a profile", "a quota of another dialect"],
)
def test_the_tree_of_quotas_follows_what_changes(body: Body) -> None:
    cache = world_of(branch("top"), branch("other"))
    before = topology(cache)
    take(cache, body)
    assert topology(cache) is before
    assert content(before) == content(fresh(cache))


def test_a_layer_leaves_what_is_below_as_it_is() -> None:
    cache = world_of(pool(), branch("top"), branch("leaf", "top", leaf=True), branch("other"))
    below, before = topology(cache), content(fresh(cache))
    layer = below.layer()
    layer.follow(QUOTA, "a/leaf", None)
    layer.follow(QUOTA, "a/b", branch("b", "top", leaf=True))
    layer.follow(QUOTA, "a/other", branch("other", "top", leaf=True))
    assert layer.children("top") == ["b", "other"]
    assert content(below) == before
    again = layer.layer()
    again.follow(QUOTA, "a/b", None)
    assert (again.children("top"), layer.children("top")) == (["other"], ["b", "other"])


def test_names_that_two_objects_have_are_read_anew() -> None:
    cache = world_of(branch("top"))
    second = branch("top")
    second["metadata"]["namespace"] = "b"
    before = topology(cache)
    take(cache, second)
    assert before.quota("top") == fresh(cache).quota("top")
    drop(cache, QUOTA, "kube-system/top")
    assert topology(cache) is not before
    assert content(topology(cache)) == content(fresh(cache))


def test_a_quota_that_lists_namespaces_is_found_when_it_comes_and_not_when_it_is_gone() -> None:
    cache = world_of(branch("top"))
    assert topology(cache).name_of("b", {}) == "koordinator-default-quota"
    lists = branch("leaf", leaf=True)
    lists["metadata"]["annotations"] = {"quota.scheduling.koordinator.sh/namespaces": '["b"]'}
    take(cache, lists)
    assert topology(cache).name_of("b", {}) == "leaf"
    drop(cache, QUOTA, f"{lists['metadata']['namespace']}/leaf")
    assert topology(cache).name_of("b", {}) == "koordinator-default-quota"
    assert content(topology(cache)) == content(fresh(cache))


def test_objects_are_listed_by_namespace() -> None:
    cache = world_of(quota("a", 1, 1), quota("b", 1, 1), quota("a", 2, 2))
    kind = "ElasticQuota.n8s.nebuly.ai"
    assert [body["spec"]["min"] for body in cache.list(kind, "a")] == [{"nvidia.com/gpu": 2}]
    assert len(list(cache.list(kind))) == 2
    drop(cache, kind, "a/quota")
    assert list(cache.list(kind, "a")) == []
    assert len(list(cache.list(kind))) == 1
