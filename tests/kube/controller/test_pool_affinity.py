"""Which nodes a started pod may use: the affinity that is written says what the pools policy decided; and what is told
when nodes leave a pool that is in use.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bursar.kube.client.api import NODES, Resource
from bursar.kube.controller.patches import admission_of, node_terms
from bursar.policies.pools.api import PROFILE as PROFILE_KIND
from bursar.policies.pools.api import QUOTA as QUOTA_KIND
from bursar.policies.pools.settings import PREFIX
from tests.kube.controller.stage import GPU, Stage, stage

Body = dict[str, Any]
QUOTA = Resource.of(QUOTA_KIND)
PROFILE = Resource.of(PROFILE_KIND)
KEYS = {PREFIX + "resource-keys": f'["{GPU}"]'}
CPU_ONLY = {"resources": {"requests": {"cpu": "1"}}}
pytestmark = pytest.mark.anyio


def among(key: str, *values: str) -> Body:
    return {"key": key, "operator": "In", "values": list(values)}


def apart(key: str, *values: str) -> Body:
    return {"key": key, "operator": "NotIn", "values": list(values)}


def pools(cluster: Stage, **selectors: dict[str, str]) -> None:
    """A profile for each selector, in the order of their names, and a team in the last one's tree."""
    for resource in (QUOTA, PROFILE):
        cluster.fake.serve(resource)
    cluster.namespace("kube-system")
    for name in ("team", "other"):
        cluster.namespace(name, {"bursar.dev/quota": "enforced"})
    for name, match in selectors.items():
        labels = {PREFIX + "is-parent": "true"}
        spec = {"quotaName": f"root-{name}", "quotaLabels": labels, "nodeSelector": {"matchLabels": match}}
        metadata = {"name": name, "annotations": KEYS, "labels": {PREFIX + "tree-id": "last" if name > "b" else name}}
        cluster.fake.state.create(PROFILE, "kube-system", {"metadata": metadata, "spec": spec})
    labels = {PREFIX + "parent": f"root-{max(selectors)}", PREFIX + "tree-id": "last" if max(selectors) > "b" else "b"}
    spec = {"max": {GPU: 8}}
    cluster.fake.state.create(QUOTA, "team", {"metadata": {"name": "team", "labels": labels}, "spec": spec})


def node(cluster: Stage, name: str, **labels: str) -> None:
    allocatable = {GPU: "8", "cpu": "64", "pods": "200"}
    cluster.fake.state.create(
        NODES, "", {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}
    )


async def started(cluster: Stage, namespace: str, name: str, terms: list[Body] | None = None, **more: Any) -> Body:  # noqa: ANN401
    """The pod once it is ungated."""
    if terms:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        more["affinity"] = {"nodeAffinity": required}
    pod = cluster.pod(namespace, name, **more)
    await cluster.until(lambda: cluster.started(pod))
    found = cluster.find(namespace, name)
    assert found is not None
    return found


async def test_a_pod_of_the_default_tree_is_kept_off_the_pools() -> None:
    async with stage() as cluster:
        node(cluster, "n1", pool="x")
        node(cluster, "n2")
        pools(cluster, a={"pool": "x"}, b={"pool": "y"})
        await cluster.lead()
        found = await started(cluster, "other", "p")
        assert node_terms(found) == [{"matchExpressions": [apart("pool", "x", "y")]}]
        zone = {"matchExpressions": [among("zone", "z")]}
        waits = cluster.pod("other", "q", affinity={"nodeAffinity": {}}, nodeSelector={"pool": "x"})
        found = await started(cluster, "other", "r", [zone, {"matchFields": [among("metadata.name", "n2")]}])
        assert [apart("pool", "x", "y") in term["matchExpressions"] for term in node_terms(found)] == [True, True]
        assert cluster.gated(waits)


async def test_a_pod_of_a_tree_is_kept_off_nodes_that_an_earlier_profile_won() -> None:
    async with stage() as cluster:
        node(cluster, "both", pool="x", disk="ssd")
        node(cluster, "mine", disk="ssd")
        pools(cluster, a={"pool": "x"}, b={"disk": "ssd"})
        await cluster.lead()
        found = await started(cluster, "team", "p")
        assert node_terms(found) == [{"matchExpressions": [among("disk", "ssd"), apart("pool", "x")]}]
        record = admission_of(found["metadata"]["annotations"])
        assert record is not None
        assert (record.place, record.pinned) == ("mine", False)
        await cluster.until(lambda: any("both (to kube-system/a)" in one.message for one in cluster.told))


async def test_a_pod_with_terms_gets_the_alternative_of_its_node_also_if_only_the_scheduler_judges_it() -> None:
    async with stage() as cluster:
        node(cluster, "n2", pool="d")
        pools(cluster, c={"pool": "c"}, d={"pool": "d"})
        await cluster.lead()
        own = {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]
        for name, more in (("plain", {}), ("bound", {"volumes": volumes})):
            found = await started(cluster, "team", name, [own], **more)
            assert node_terms(found) == [{"matchExpressions": [*own["matchExpressions"], among("pool", "d")]}]


async def test_a_profile_that_comes_while_a_pod_waits_is_in_its_affinity() -> None:
    async with stage() as cluster:
        pools(cluster, a={"pool": "x"})
        await cluster.lead()
        pod = cluster.pod("other", "p")
        labels = {PREFIX + "is-parent": "true"}
        spec = {"quotaName": "root-b", "quotaLabels": labels, "nodeSelector": {"matchLabels": {"pool": "y"}}}
        await cluster.until(lambda: any(one.key == "other/p" for one in cluster.told))
        cluster.fake.state.create(
            PROFILE, "kube-system", {"metadata": {"name": "b", "annotations": KEYS}, "spec": spec}
        )
        node(cluster, "n1", pool="y")
        node(cluster, "n2")
        await cluster.until(lambda: cluster.started(pod))
        found = cluster.find("other", "p")
        assert found is not None
        assert node_terms(found) == [{"matchExpressions": [apart("pool", "x", "y")]}]


def relabelled(cluster: Stage, name: str, **labels: str) -> Body:
    """The node with other labels."""
    after: Body = copy.deepcopy(cluster.fake.state.objects[NODES, "", name])
    after["metadata"]["labels"] = labels
    return after


async def test_a_quota_whose_pods_run_on_nodes_that_leave_its_tree_gets_an_event() -> None:
    async with stage() as cluster:
        for name in ("n1", "n2"):
            node(cluster, name, pool="x")
        pools(cluster, a={"pool": "x"})
        await cluster.lead()
        cluster.bind(await started(cluster, "team", "p"), "n1")
        before = cluster.fake.state.objects[NODES, "", "n1"]
        cluster.fake.state._store("MODIFIED", (NODES, "", "n1"), before, relabelled(cluster, "n1"))
        await cluster.until(lambda: "NodesLost" in {notice.reason for notice in cluster.told})
        lost = {(notice.key, notice.message) for notice in cluster.told if notice.reason == "NodesLost"}
        assert lost == {("team/team", "its pods run on nodes that left its tree: n1. They count until they end")}
