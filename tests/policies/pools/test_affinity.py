"""Which nodes are open to the pods of a tree: vectors 6.8, exclusive and shared pools, overlapping selectors."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from bursar.control.admission import known_kinds
from bursar.kube.controller.patches import within
from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.policies.plugin import default_registry
from bursar.policies.pools.affinity import MOST_TERMS, check_terms, needs_of, open_terms
from bursar.policies.pools.node_pools import NodePools, PoolNode, Profile, in_order
from bursar.policies.pools.policy import PoolsPolicy
from bursar.policies.pools.settings import EXCLUSIVE, PREFIX
from bursar.selectors import NodeNeeds, Requirement
from bursar.sim.cluster import Cluster
from tests.builders import Manifest, node, pod
from tests.policies.pools.test_admission import BIG, profile, quota

P = PREFIX
KINDS = known_kinds(default_registry())


def among(key: str, *values: str) -> Manifest:
    return {"key": key, "operator": "In", "values": list(values)}


def apart(key: str, *values: str) -> Manifest:
    return {"key": key, "operator": "NotIn", "values": list(values)}


def cluster_of(*manifests: Manifest) -> Cluster:
    cluster = Cluster()
    cluster.apply([Document("", number, body) for number, body in enumerate(manifests)])
    return cluster


def two_pools(*more: Manifest) -> Cluster:
    made: list[Manifest] = []
    for tree, pool in (("tree1", "A"), ("tree2", "B")):
        root = f"root-{pool.lower()}"
        made.append(
            profile(f"profile{pool}".lower(), root, {"node-pool": f"nodePool{pool}"}, labels={P + "tree-id": tree})
        )
        made.append(quota(f"{root}-child1", BIG, {}, root))
    made.append(quota("namespace1", BIG, {}, "root-a", namespace="namespace1"))
    made.append(quota("listing", BIG, {}, "root-b", annotations={"namespaces": '["namespace2"]'}))
    made.append(quota("other-quota", BIG))
    return cluster_of(*made, *more)


def needs(cluster: Cluster, given: Manifest) -> tuple[NodeNeeds, ...]:
    """What its quotas require of the node of a pod."""
    cluster.apply([Document("", 0, given)])
    claim = cluster.controller.claim(f"{given['metadata']['namespace']}/{given['metadata']['name']}")
    assert claim is not None
    [policy] = [policy for policy in cluster.engine.policies if isinstance(policy, PoolsPolicy)]
    found = policy.node_needs(claim)
    return () if found is None else (found,)


def terms_of(cluster: Cluster, given: Manifest, *own: Manifest, on: dict[str, str] | None = None) -> list[Any]:
    return within(list(own), needs(cluster, given), "n1", on or {})


def labelled(name: str, namespace: str = "default") -> Manifest:
    return pod("p", namespace, labels={P + "name": name} if name else {})


@pytest.mark.parametrize(
    ("namespace", "label", "expected"),
    [
        ("default", "", ()),
        ("default", "other-quota", ()),
        ("default", "root-a-child1", ("nodePoolA",)),
        ("default", "root-b-child1", ("nodePoolB",)),
        ("namespace1", "", ("nodePoolA",)),
        ("namespace2", "", ("nodePoolB",)),
        ("namespace2", "unknown", ()),  # B14: one resolver, so an unknown label means the default quota
    ],
)
def test_6_8_the_affinity_of_the_tree(namespace: str, label: str, expected: tuple[str, ...]) -> None:
    """Ruled: pods of the default tree are kept off the pools."""
    other = apart("node-pool", "nodePoolA", "nodePoolB")
    wanted = [among("node-pool", *expected)] if expected else [other]
    assert terms_of(two_pools(), labelled(label, namespace)) == [{"matchExpressions": wanted}]


def test_6_8_it_is_merged_into_every_term() -> None:
    zone, gpu = among("zone", "cn-hangzhou-a"), among("gpu", "yes")
    own = {"matchExpressions": [zone]}, {"matchExpressions": [gpu]}
    pool = among("node-pool", "nodePoolA")
    found = terms_of(two_pools(), labelled("root-a-child1"), *own)
    assert found == [{"matchExpressions": [zone, pool]}, {"matchExpressions": [gpu, pool]}]
    assert terms_of(two_pools(), labelled("root-a-child1"), *found) == found


def test_b15_an_empty_term_keeps_matching_nothing() -> None:
    field = among("metadata.name", "n1")
    found = terms_of(two_pools(), labelled("root-a-child1"), {}, {"matchFields": [field]})
    assert found == [{}, {"matchFields": [field], "matchExpressions": [among("node-pool", "nodePoolA")]}]


class TestAlternatives:
    def cluster(self) -> Cluster:
        return two_pools(profile("profilec", "root-a", {"disk": "ssd"}, labels={P + "tree-id": "tree1"}))

    def test_several_profiles_of_a_tree(self) -> None:
        pools = [among("node-pool", "nodePoolA")], [among("disk", "ssd"), apart("node-pool", "nodePoolB")]
        found = terms_of(self.cluster(), labelled("root-a-child1"))
        assert found == [{"matchExpressions": expressions} for expressions in pools]

    def test_a_pod_with_terms_gets_that_of_the_node_that_was_chosen(self) -> None:
        """The API server adds no terms to a gated pod that has some."""
        zone = among("zone", "z")
        found = terms_of(self.cluster(), labelled("root-a-child1"), {"matchExpressions": [zone]}, on={"disk": "ssd"})
        assert found == [{"matchExpressions": [zone, among("disk", "ssd"), apart("node-pool", "nodePoolB")]}]

    def test_a_selector_that_takes_every_node(self) -> None:
        cluster = cluster_of(profile("all", "root", {}, labels={P + "tree-id": "t"}), quota("q", BIG, {}, "root"))
        assert needs(cluster, labelled("q")) == ()
        assert terms_of(cluster, labelled("")) == [{}]  # which matches no node


class TestExclusive:
    def test_a_pool_that_is_shared_takes_pods_of_the_default_tree(self) -> None:
        cluster = cluster_of(node("n1", {"cpu": 4}, labels={"pool": "a"}), _pool("a", exclusive="true"), pod("p"))
        assert cluster.controller.reason("default/p#3")[0] == "nodes.none"
        cluster.apply([Document("", 0, _pool("a", exclusive="false"))])
        found = cluster.pod("default/p")
        assert found is not None
        assert (found.phase, found.node) == ("Running", "n1")

    def test_the_annotation_is_true_or_false(self) -> None:
        with pytest.raises(ManifestError, match="'no' is neither 'true' nor 'false'") as caught:
            cluster_of(_pool("a", exclusive="no"))
        assert caught.value.path == f"metadata.annotations.{EXCLUSIVE}"

    def test_pods_of_daemon_sets_run_on_their_own_node(self) -> None:
        owner = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}]
        given = pod("p")
        given["metadata"]["ownerReferences"] = owner
        assert needs(cluster_of(_pool("a")), given) == ()


def _pool(name: str, *, exclusive: str = "") -> Manifest:
    given = profile(name, f"root-{name}", {"pool": name})
    if exclusive:
        given["metadata"]["annotations"] = {EXCLUSIVE: exclusive}
    return given


def test_selectors_that_need_too_many_terms_are_refused() -> None:
    selectors = [{f"{key}{number}": "x" for key in "abc"} for number in range(5)]
    with pytest.raises(ManifestError, match=f"more than {MOST_TERMS} terms of node affinity") as caught:
        cluster_of(*[profile(f"p{number}", f"root{number}", match) for number, match in enumerate(selectors)])
    assert caught.value.path == "spec.nodeSelector"


KEYS = ("a", "b", "c")
LABELS = ("x", "y", "z")


def random_profiles(random: Random) -> list[Profile]:
    made: list[Profile] = []
    for number in range(random.randint(1, 5)):
        wanted: list[Requirement] = []
        for _ in range(random.choice([0, 1, 1, 2, 3])):
            operator = random.choice(["In", "In", "NotIn", "Exists", "DoesNotExist"])
            values = random.sample(LABELS, random.randint(1, 2)) if operator.endswith("In") else []
            wanted.append(Requirement(random.choice(KEYS), operator, tuple(values)))
        requirements = None if random.random() < 0.05 else tuple(wanted)
        found = Profile("", f"p{number}", "root", random.choice(["s", "t"]), requirements)
        found.exclusive = random.random() < 0.6
        made.append(found)
    return in_order(made)


@pytest.mark.parametrize("seed", range(8))
def test_a_node_is_open_to_the_tree_of_its_first_profile(seed: int) -> None:
    random = Random(seed)
    for _ in range(100):
        node_pools = NodePools()
        for one in random_profiles(random):
            node_pools.profile_changed(one.key, one)
        check_terms(node_pools.order)
        wanted = {tree: needs_of(open_terms(node_pools.order, tree)) for tree in ("", "s", "t")}
        for number in range(30):
            labels = {key: random.choice(LABELS) for key in KEYS if random.random() < 0.7}
            node_pools.node_changed(f"n{number}", PoolNode({}, labels))
            owner = node_pools.owners[f"n{number}"]
            for tree, one_needs in wanted.items():
                allowed = tree == "" if not owner else tree in node_pools.profiles[owner].open_to()
                assert (one_needs is None or one_needs.selects("n", labels)) == allowed
