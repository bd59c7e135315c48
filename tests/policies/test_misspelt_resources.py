"""A resource that no node has guards nothing: a quota that names one which looks like another says so."""

from __future__ import annotations

import pytest

from bursar.objects.manifests import load_text
from bursar.policies.placement_kit import NodeIndex
from bursar.resources import Limits
from bursar.sim.cluster import Cluster

NODE = """
{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: 9, memory: 8Gi, nvidia.com/gpu: 8}}}
"""
ELASTIC = """
{apiVersion: n8s.nebuly.ai/v1alpha1, kind: ElasticQuota, metadata: {namespace: a, name: q},
 spec: {min: {nvidia.com/gpus: 2, cpu: 1, n8s.nebuly.ai/gpu-memory: 16}}}
"""
POOLS = """
{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: ElasticQuota, metadata: {namespace: a, name: q},
 spec: {min: {}, max: {nvidia.com/gpus: 2, cpu: 1}}}
"""
TREE = """
{kind: QuotaTree, metadata: {name: q}, spec: {resourceNames: [nvidia.com/gpus, cpu],
 nodes: {root: {quota: {nvidia.com/gpus: 2, cpu: 1}}}}}
"""
SENTENCE = "no node has nvidia.com/gpus: did you mean nvidia.com/gpu?"


@pytest.mark.parametrize(
    ("manifest", "kind"),
    [
        (ELASTIC, "ElasticQuota.n8s.nebuly.ai"),
        (POOLS, "ElasticQuota.scheduling.sigs.k8s.io"),
        (TREE, "QuotaTree.bursar.dev"),
    ],
)
def test_a_quota_with_a_misspelt_resource_says_so(manifest: str, kind: str) -> None:
    cluster = Cluster()
    cluster.apply(load_text(NODE))
    cluster.apply(load_text(manifest))
    assert conditions(cluster, kind)["ResourcesKnown"] == ("False", "UnknownResource", SENTENCE)
    assert [e.message for e in cluster.events if e.reason == "UnknownResource"] == [SENTENCE]
    cluster.apply(load_text(manifest.replace("gpus", "gpu")))
    assert "ResourcesKnown" not in conditions(cluster, kind)


def conditions(cluster: Cluster, kind: str) -> dict[str, tuple[str, str, str]]:
    stored = cluster._store.find(kind, "q" if kind.startswith("QuotaTree") else "a/q")
    assert stored is not None
    rows = stored.manifest()["status"]["conditions"]
    return {row["type"]: (row["status"], row["reason"], row["message"]) for row in rows}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("nvidia.com/gpu", ""),
        ("nvidia.com/gpus", "nvidia.com/gpu"),
        ("nvidia.com/mig-1g.10gb", ""),
        ("nos.nebuly.com/gpu-memory", "n8s.nebuly.ai/gpu-memory"),
        ("n8s.nebuly.ai/gpu-memory", ""),
        ("example.com/licence", ""),
    ],
)
def test_only_names_that_look_like_another_one_are_misspelt(name: str, meant: str) -> None:
    nodes = NodeIndex()
    offered = Limits({"nvidia.com/gpu": 8, "nvidia.com/mig-1g.5gb": 2, "cpu": 1}, True)
    assert nodes.misspelt([name], ("n8s.nebuly.ai/gpu-memory",)) == "", "nothing is known of a cluster without nodes"
    nodes.offers(offered, 1)
    text = nodes.misspelt([name], ("n8s.nebuly.ai/gpu-memory",))
    assert text == (f"no node has {name}: did you mean {meant}?" if meant else "")
    nodes.offers(offered, -1)
    assert nodes.misspelt([name]) == ""
