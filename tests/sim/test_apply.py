"""Applying what is there already, what was read from the cluster, and what was read from an older one."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.policies.pools.parse import tree_id
from bursar.policies.pools.settings import PREFIX
from bursar.server.demo import organisation
from bursar.sim.apply import ConflictError
from tests.builders import disruption_budget, node, pod
from tests.policies.pools.test_admission import profile
from tests.policies.pools.test_admission import quota as pool_quota
from tests.sim.steps import TestBed

CPU = {"cpu": 8, "memory": "32Gi"}

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"nvidia.com/gpu": 4}},
}
QUOTA = {
    "apiVersion": "n8s.nebuly.ai/v1alpha1",
    "kind": "ElasticQuota",
    "metadata": {"namespace": "a", "name": "quota"},
    "spec": {"min": {"nvidia.com/gpu": 4}},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"namespace": "a", "name": "p"},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
}
ALL = ("Node/n1", "ElasticQuota.n8s.nebuly.ai/a/quota", "Pod/a/p")


@pytest.fixture
def bed() -> TestBed:
    return TestBed(NODE, QUOTA, POD)


def test_applying_the_same_again_changes_nothing(bed: TestBed) -> None:
    before = [bed.whole(name) for name in ALL], bed.engine.version, bed.objects.version
    bed.give(NODE, QUOTA, POD)
    assert ([bed.whole(name) for name in ALL], bed.engine.version, bed.objects.version) == before


@pytest.mark.parametrize("name", ALL)
def test_applying_what_was_read_changes_nothing(bed: TestBed, name: str) -> None:
    before = bed.whole(name), bed.engine.version
    bed.give(bed.whole(name))
    assert (bed.whole(name), bed.engine.version) == before


def test_an_older_version_is_refused(bed: TestBed) -> None:
    read = bed.whole(ALL[1])
    bed.give({**QUOTA, "spec": {"min": {"nvidia.com/gpu": 3}}})
    with pytest.raises(ConflictError, match=r"metadata.resourceVersion: the object has version \d+ now"):
        bed.give({**read, "spec": {"min": {"nvidia.com/gpu": 2}}})
    assert bed.whole(ALL[1])["spec"] == {"min": {"nvidia.com/gpu": 3}}


def test_the_present_version_is_taken(bed: TestBed) -> None:
    bed.give({**bed.whole(ALL[1]), "spec": {"min": {"nvidia.com/gpu": 2}}})
    assert bed.whole(ALL[1])["spec"] == {"min": {"nvidia.com/gpu": 2}}


def test_a_version_of_an_object_that_is_gone_is_refused(bed: TestBed) -> None:
    read = bed.whole(ALL[1])
    bed.take(ALL[1])
    with pytest.raises(ConflictError, match="there is no such object any more"):
        bed.give(read)


def test_a_user_keeps_a_label_that_bursar_writes_too(bed: TestBed) -> None:
    label = "n8s.nebuly.ai/capacity"
    bed.give({**POD, "metadata": {**POD["metadata"], "labels": {"team": "x"}}})  # type: ignore[dict-item]
    read = bed.whole("Pod/a/p")
    assert read["metadata"]["labels"] == {"team": "x", label: "in-quota"}
    bed.give(read)
    assert bed.objects.all("Pod")[0].applied.body["metadata"]["labels"] == {"team": "x"}


def test_a_pod_that_asks_for_a_part_of_a_gpu_is_refused_and_nothing_is_applied(bed: TestBed) -> None:
    part = {**POD, "metadata": {"namespace": "a", "name": "part"}}
    part["spec"] = {"containers": [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": 1.5}}}]}
    before = bed.objects.version
    field = r"Pod a/part: spec.containers\[0\].resources.requests.nvidia.com/gpu"
    with pytest.raises(ManifestError, match=rf"^{field}: '1.5' must be a whole number"):
        bed.give({**POD, "metadata": {"namespace": "a", "name": "q"}}, part)
    assert bed.objects.version == before


class TestListings:
    """A listing of all objects can be applied as it is: on its own cluster it changes nothing."""

    def cluster(self) -> TestBed:
        labels = {f"{PREFIX}is-parent": "true"}
        bed = TestBed(*(document.body for document in organisation()))
        bed.give(
            node("pool-1", {"cpu": 8, "memory": "32Gi", "nvidia.com/gpu": 2}, labels={"pool": "ml"}),
            pool_quota("top", CPU, namespace="kube-system", is_parent="true"),
            pool_quota("mid", CPU, parent="top", is_parent="true"),
            pool_quota("a-leaf", CPU, parent="mid", namespace="a-leaf"),
            disruption_budget("keep", "a-leaf", {"app": "web"}, minAvailable=1),
            pod("runs", "a-leaf", {"cpu": 1}),
            pod("waits", "a-leaf", {"cpu": 9}),
        )
        bed.give(profile("ml", "top", {"pool": "ml"}, quotaLabels=labels))  # takes the quotas along
        return bed

    def listing(self, bed: TestBed) -> list[dict[str, Any]]:
        found = [stored.manifest() for kind in bed.objects.kinds() for stored in bed.objects.all(kind)]
        return sorted(
            found, key=lambda one: (one["metadata"].get("namespace", ""), one["kind"], one["metadata"]["name"])
        )

    def test_on_its_own_cluster(self) -> None:
        bed = self.cluster()
        before = self.listing(bed)
        assert {one["kind"] for one in before} > {"ElasticQuotaProfile", "QuotaTree", "GPUResourceQuota", "Pod"}
        bed.take_news()
        applied = bed.apply([Document("", number, copy.deepcopy(one)) for number, one in enumerate(before)])
        assert {one.key for one in applied if one.result != "unchanged"} == {
            "quotas/mid",
            "a-leaf/a-leaf",
        }  # given their tree
        assert [_lasting(one) for one in self.listing(bed)] == [_lasting(one) for one in before]
        assert bed.take_news() == ([], [])

    @pytest.mark.parametrize("backwards", [False, True])
    def test_on_a_new_one(self, backwards: bool) -> None:
        before = self.listing(self.cluster())
        plain = [{**one, "metadata": {**one["metadata"], "resourceVersion": ""}} for one in before]
        bed = TestBed()
        bed.give(*(reversed(plain) if backwards else plain))
        assert [_lasting(one) for one in self.listing(bed)] == [_lasting(one) for one in before]


def _lasting(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest without what each cluster counts for itself."""
    own = {"uid", "resourceVersion", "generation", "creationTimestamp"}
    return {**manifest, "metadata": {name: one for name, one in manifest["metadata"].items() if name not in own}}


def test_a_label_that_bursar_wrote_is_the_users_once_it_is_applied() -> None:
    """So a quota that moves again has the label of its tree, and not that of a former one."""
    bed = TestListings().cluster()
    key = "ElasticQuota.scheduling.sigs.k8s.io/a-leaf/a-leaf"
    stored = bed.objects.find("ElasticQuota.scheduling.sigs.k8s.io", "a-leaf/a-leaf")
    assert stored is not None
    assert stored.written["labels"] == {f"{PREFIX}tree-id": bed.whole(key)["metadata"]["labels"][f"{PREFIX}tree-id"]}
    for parent, tree in (("mid", tree_id("kube-system", "ml")), ("", None), ("shared-root", "shared")):
        amounts = {"nvidia.com/gpu": 1} if parent == "shared-root" else CPU
        bed.give(pool_quota("a-leaf", amounts, parent=parent, namespace="a-leaf"))
        assert bed.whole(key)["metadata"]["labels"].get(f"{PREFIX}tree-id") == tree
        stored = bed.objects.find("ElasticQuota.scheduling.sigs.k8s.io", "a-leaf/a-leaf")
        assert stored is not None
        assert stored.written.get("labels", {}) == {}


class TestRootQuotas:
    """What an apply says of a root quota is put right at once, with an event; labels of users stay."""

    ROOT = "ElasticQuota.scheduling.sigs.k8s.io/kube-system/root-a"

    def bed(self) -> TestBed:
        given = profile("a", "root-a", {"pool": "a"})
        return TestBed(node("n1", {"cpu": 8, "memory": "32Gi"}, labels={"pool": "a"}), given)

    def repairs(self, bed: TestBed) -> list[str]:
        return [event.message for event in bed.take_news()[1] if event.reason == "Repaired"]

    def test_other_amounts(self) -> None:
        bed = self.bed()
        before = bed.whole(self.ROOT)
        bed.give(pool_quota("root-a", {"cpu": 1}, namespace="kube-system", is_parent="true"))
        assert _lasting(bed.whole(self.ROOT)) == _lasting(before)
        [note] = self.repairs(bed)
        assert note.startswith(f"put right: Bursar writes metadata.labels.{PREFIX}is-root")
        assert note.endswith("more fields")

    def test_a_label_of_its_user_is_none_of_that(self) -> None:
        bed = self.bed()
        given = copy.deepcopy(bed.whole(self.ROOT))
        given["metadata"]["labels"]["owner"] = "ml"
        bed.give(given)
        assert bed.whole(self.ROOT)["metadata"]["labels"]["owner"] == "ml"
        assert self.repairs(bed) == []
        given = copy.deepcopy(bed.whole(self.ROOT))
        given["spec"]["min"]["cpu"] = "4"
        bed.give(given)
        assert bed.whole(self.ROOT)["metadata"]["labels"]["owner"] == "ml"
        assert bed.whole(self.ROOT)["spec"]["min"]["cpu"] == "8"
        assert self.repairs(bed) == ["put right: Bursar writes spec.min.cpu"]
