"""The sentence about a refusal names what the user wrote, never an account of the ledger."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bursar.control.admission import known_kinds
from bursar.objects.manifests import load_text
from bursar.policies.plugin import default_registry
from bursar.sim.cluster import Cluster
from bursar.sim.runner import act
from bursar.sim.scenario import load_scenarios

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = load_scenarios([ROOT / "examples", ROOT / "tests" / "scenarios"], known_kinds(default_registry()))


ID = re.compile(r"\b\d{15,}\b")  # such as the id of a tree


def said() -> dict[str, list[str]]:
    """The sentences of all decisions about waiting pods that the scenarios come to, by reason."""
    found: dict[str, list[str]] = {}
    for scenario in SCENARIOS:
        cluster = Cluster()
        for step in scenario.steps:
            if step.refused is None:
                act(cluster, step)
            for claim in cluster.engine.state.claims.values():
                code, sentence = cluster.controller.reason(claim.uid)
                found.setdefault(code, []).append(sentence)
                assert "elastic/" not in sentence
                why = cluster.explain(claim.key)
                for text in (sentence, *([] if why is None else why.lines())):
                    assert "pools/" not in text
                    assert not ID.search(text), text
    return found


def test_quotas_are_named_as_they_were_written() -> None:
    sentences = said()
    assert all("ElasticQuota " in text for text in sentences["pools.max.cpu"])
    assert any(" of its max of " in text for text in sentences["pools.max.cpu"])
    told = [text for texts in sentences.values() for text in texts]
    assert any("that all elastic quotas guarantee are in use" in text for text in told)


DOCUMENTS = """
{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: 99}}}
---
{apiVersion: n8s.nebuly.ai/v1alpha1, kind: ElasticQuota, metadata: {namespace: a, name: q},
 spec: {min: {cpu: 2}, max: {cpu: 3}}}
---
{apiVersion: n8s.nebuly.ai/v1alpha1, kind: ElasticQuota, metadata: {namespace: b, name: q}, spec: {min: {cpu: 2}}}
---
{apiVersion: quota.koordinator.sh/v1alpha1, kind: ElasticQuotaProfile, metadata: {namespace: kube-system, name: big},
 spec: {quotaName: root, quotaLabels: {quota.scheduling.koordinator.sh/is-parent: "true"},
        nodeSelector: {matchLabels: {size: big}}}}
---
{apiVersion: v1, kind: Node, metadata: {name: m, labels: {size: big}}, status: {allocatable: {cpu: 8, memory: 8Gi}}}
---
{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: ElasticQuota, metadata: {namespace: c, name: c,
 labels: {quota.scheduling.koordinator.sh/parent: root}}, spec: {min: {cpu: 1}, max: {cpu: 2, memory: 8Gi}}}
"""
POD = """
{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: %s, labels: {%s}},
 spec: {containers: [{resources: {requests: {cpu: %s}}}]}}
"""
KEEP = 'bursar.dev/preemptible: "false"'


@pytest.mark.parametrize(
    ("pods", "sentence"),
    [
        ([("a", "", 4)], "ElasticQuota a/q: needs 4 cpu, 0 of its max of 3 in use"),
        (
            [("a", KEEP, 2), ("a", KEEP, 1)],
            "ElasticQuota a/q: needs 1 cpu, 2 of its min of 2 in use by pods that may not be preempted",
        ),
        (
            [("a", "", 3), ("b", KEEP, 1), ("b", "", 2)],
            "ElasticQuota b/q: needs 2 cpu, 4 of the 4 that all elastic quotas guarantee are in use",
        ),
        ([("c", "", 3)], "ElasticQuota c/c of profile kube-system/big: needs 3 cpu, 0 of its max of 2 in use"),
    ],
)
def test_the_sentence_says_what_is_used_of_what(pods: list[tuple[str, str, int]], sentence: str) -> None:
    cluster = Cluster()
    cluster.apply(load_text(DOCUMENTS))
    for number, (namespace, labels, cpu) in enumerate(pods):
        cluster.apply(load_text(POD % (namespace, f"p{number}", labels, cpu)))
    claim = cluster.controller.claim(f"{pods[-1][0]}/p{len(pods) - 1}")
    assert claim is not None
    assert cluster.controller.reason(claim.uid)[1].partition(";")[0] == sentence
