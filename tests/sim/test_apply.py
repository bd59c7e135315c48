"""Applying what is there already, what was read from the cluster, and what was read from an older one."""

from __future__ import annotations

import pytest

from bursar.objects.decode import ManifestError
from bursar.sim.apply import ConflictError
from tests.sim.steps import TestBed

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
