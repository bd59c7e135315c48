"""What is known of a cluster, and what policies make of it: kept for as long as it is right."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bursar.control.admission import known_kinds
from bursar.kube.controller.object_cache import ObjectCache
from bursar.policies.plugin import default_registry
from bursar.policies.pools.plugin import _topology, _topology_of
from bursar.policies.pools.topology import Topology
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


def content(topology: Topology) -> object:
    quotas = {name: (quota, topology.read(name)) for name, quota in topology.names.quotas.items()}
    listed = {name: topology.names.name_of(name, {}) for name in ("a", "b", "leaf")}
    return quotas, topology.names.children, listed


QUOTA = "ElasticQuota.scheduling.sigs.k8s.io"


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (branch("leaf", "top", leaf=True), True),
        (branch("top", leaf=True), True),  # another form of a quota that is known
        (node("n", 8), True),
        (pool(), False),
        (quota("a", 1, 1), True),
    ],
    ids=["a new quota", "a quota", "a node", "a profile", "a quota of another dialect"],
)
def test_the_tree_of_quotas_is_made_anew_only_when_it_must_be(body: Body, kept: bool) -> None:
    cache = world_of(branch("top"), branch("other"))
    before = _topology(cache)
    take(cache, body)
    assert (_topology(cache) is before) == kept
    assert content(_topology(cache)) == content(_topology_of(cache))


def test_a_profile_that_stands_for_its_root_quota_follows_the_nodes() -> None:
    cache = world_of(pool(), node("n", 8))
    before = _topology(cache)
    take(cache, node("m", 8))
    assert _topology(cache) is not before
    take(cache, branch("root"))
    assert content(_topology(cache)) == content(_topology_of(cache))
    known = _topology(cache)
    take(cache, node("o", 8))
    assert _topology(cache) is known


def test_a_quota_that_lists_namespaces_is_found_when_it_comes_and_not_when_it_is_gone() -> None:
    cache = world_of(branch("top"))
    assert _topology(cache).names.name_of("b", {}) == "koordinator-default-quota"
    lists = branch("leaf", leaf=True)
    lists["metadata"]["annotations"] = {"quota.scheduling.koordinator.sh/namespaces": '["b"]'}
    take(cache, lists)
    assert _topology(cache).names.name_of("b", {}) == "leaf"
    drop(cache, QUOTA, "a/leaf")
    assert _topology(cache).names.name_of("b", {}) == "koordinator-default-quota"
    assert content(_topology(cache)) == content(_topology_of(cache))


def test_objects_are_listed_by_namespace() -> None:
    cache = world_of(quota("a", 1, 1), quota("b", 1, 1), quota("a", 2, 2))
    kind = "ElasticQuota.n8s.nebuly.ai"
    assert [body["spec"]["min"] for body in cache.list(kind, "a")] == [{"nvidia.com/gpu": 2}]
    assert len(list(cache.list(kind))) == 2
    drop(cache, kind, "a/quota")
    assert list(cache.list(kind, "a")) == []
    assert len(list(cache.list(kind))) == 1
