"""Who may use a quota: how rules are written, what counts of pods that may not, and what statuses say."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.objects.decode import ManifestError
from bursar.policies.ownership import named_by, selector_of_text
from tests.builders import node
from tests.sim.steps import TestBed

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("team=a", {"team": "a"}, True),
        ("team==a", {"team": "b"}, False),
        ("team!=a", {"team": "b"}, True),
        ("team!=a,env", {"team": "b"}, False),
        ("team in (a, b),!old", {"team": "b"}, True),
        ("team in (a, b),!old", {"team": "b", "old": ""}, False),
        ("team notin (a,b)", {"team": "a"}, False),
        ("lab/team", {"lab/team": ""}, True),
    ],
)
def test_selectors_are_written_as_for_kubectl(text: str, labels: dict[str, str], matches: bool) -> None:
    assert selector_of_text(text, "").matches(labels) is matches


@pytest.mark.parametrize("text", ["", "a,", "team in ()", "a b", "(a)", "team in (a", "-=x", "a=b)"])
def test_wrong_selectors_are_refused(text: str) -> None:
    with pytest.raises(ManifestError) as error:
        named_by({"bursar.dev/namespace-selector": text})
    assert error.value.path == "metadata.annotations.bursar.dev/namespace-selector"


@pytest.mark.parametrize(
    ("name", "text"),
    [("bursar.dev/namespaces", "Team"), ("bursar.dev/max-priority", "high"), ("bursar.dev/max-priority", "2147483648")],
)
def test_wrong_annotations_are_refused(name: str, text: str) -> None:
    with pytest.raises(ManifestError, match="is not"):
        named_by({name: text})


def quota(name: str, parent: str = "", is_parent: bool = False, **annotations: str) -> dict[str, Any]:
    prefix = "quota.scheduling.koordinator.sh/"
    labels = {f"{prefix}is-parent": str(is_parent).lower()} | ({f"{prefix}parent": parent} if parent else {})
    named = {f"bursar.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "quotas", "labels": labels, "annotations": named},
        "spec": {"min": {GPU: 0}, "max": {GPU: 8}},
    }


def pod(name: str, namespace: str, of: str, gpus: int = 1) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": {"quota.scheduling.koordinator.sh/name": of}}
    container = {"name": "main", "resources": {"limits": {GPU: gpus}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def request(bed: TestBed, name: str) -> str:
    found = bed.whole(f"ElasticQuota.scheduling.sigs.k8s.io/quotas/{name}")
    return str(found["metadata"]["annotations"]["quota.scheduling.koordinator.sh/request"])


def test_the_demand_of_pods_that_may_not_use_a_quota_counts_nowhere() -> None:
    bed = TestBed(node("n1", {GPU: 4}), quota("a", namespaces="team-a"), quota("b"))
    bed.give(pod("thief", "team-x", "a", 4))
    assert request(bed, "a") in {"{}", f'{{"{GPU}":"0"}}'}
    bed.give(pod("own", "team-b", "b", 4))
    assert bed.see("team-b/own").phase == "Running"
    bed.give(quota("a", namespaces="team-a,team-x"))
    assert bed.see("team-x/thief").reason != "access.namespace"
    assert request(bed, "a") == f'{{"{GPU}":"4"}}'
    bed.give(quota("a", namespaces="team-a"))
    assert bed.see("team-x/thief").reason == "access.namespace"
    assert request(bed, "a") in {"{}", f'{{"{GPU}":"0"}}'}


def owned(bed: TestBed, name: str) -> list[str]:
    found = bed.whole(f"ElasticQuota.scheduling.sigs.k8s.io/quotas/{name}")
    return [one["message"] for one in found["status"]["conditions"] if one["type"] == "Owned"]


def test_quotas_of_which_nothing_names_the_users_have_a_warning() -> None:
    bed = TestBed(
        node("n1", {GPU: 4}), quota("org", is_parent=True, namespaces="team-a"), quota("a", "org"), quota("b")
    )
    assert owned(bed, "b") == ["pods of every namespace may use quota b"]
    assert owned(bed, "a") == []
    bed.give(quota("org", is_parent=True))
    assert owned(bed, "a") == ["pods of every namespace may use quota a"]


def test_the_reason_names_the_priority_class() -> None:
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}
    high = pod("high", "quotas", "a")
    high["spec"]["priorityClassName"] = "urgent"
    bed = TestBed(node("n1", {GPU: 4}), urgent, quota("a", max_priority="5"))
    bed.give(high)
    expected = "its priority 9 of PriorityClass urgent is above 5, the highest in quota a"
    assert (bed.see("quotas/high").reason, bed.see("quotas/high").message) == ("access.priority", expected)


def test_a_polite_pod_counts_as_the_cap() -> None:
    """So it does not come before one that has the highest priority that counts."""
    polite = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "polite"}, "value": 9}
    first = pod("late", "quotas", "a", 4)
    bed = TestBed(node("n1", {GPU: 4}), {**polite, "preemptionPolicy": "Never"}, quota("a", max_priority="5"))
    first["spec"]["priorityClassName"] = "polite"
    bed.give(first)
    claim = next(iter(bed.engine.state.claims.values()))
    assert (claim.spec.priority, bed.see("quotas/late").phase) == (5, "Running")


def test_the_warning_moves_to_the_quotas_below_and_back() -> None:
    bed = TestBed(node("n1", {GPU: 4}), quota("org", is_parent=True))
    assert owned(bed, "org") == ["pods of every namespace may use quota org"]
    bed.give(quota("mid", "org", is_parent=True), quota("low", "mid"))
    assert (owned(bed, "org"), owned(bed, "mid")) == ([], [])
    assert owned(bed, "low") == ["pods of every namespace may use quota low"]
    bed.give(quota("org", is_parent=True, namespaces="team-a"))
    assert owned(bed, "low") == []
    bed.take(*(f"ElasticQuota.scheduling.sigs.k8s.io/quotas/{name}" for name in ("low", "mid")))
    bed.give(quota("org", is_parent=True))
    assert owned(bed, "org") == ["pods of every namespace may use quota org"]


def test_a_new_quota_touches_itself_and_the_one_above() -> None:
    bed = TestBed(node("n1", {GPU: 4}), quota("org", is_parent=True), quota("a", "org"), quota("b", "org"), quota("c"))
    touched = bed.engine.owner_rules.follow()
    bed.give(quota("d", "org"))
    prefix = "ElasticQuota.scheduling.sigs.k8s.io/quotas/"
    assert {source.removeprefix(prefix) for source in touched} == {"d", "org"}
