"""What is read of a pod, and what only the scheduler judges."""

import json
import sys
from typing import Any

import pytest

from bursar.kube.controller.pod_model import milliseconds, read_pod, user_annotations, user_labels
from bursar.objects.constraints import unjudged

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _read(**spec: Any) -> Any:  # noqa: ANN401 a pod
    return read_pod(json.dumps({"metadata": {"name": "p", "namespace": "n"}, "spec": spec}).encode())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ()),
        ({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {}}]}, ()),
        ({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "x"}}]}, ("volumes",)),
        ({"volumes": [{"name": "a", "csi": {}}]}, ("volumes",)),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, ()),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, ("topology spread",)),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{}]}}}, ("pod affinity",)),
        ({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}, ()),
        ({"resourceClaims": [{"name": "gpu"}]}, ("resource claims",)),
    ],
)
def test_unjudged(spec: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert unjudged(_read(**spec).spec) == expected


def test_a_pod_keeps_nothing_of_the_text_that_it_was_read_from() -> None:
    """Each pod of a cluster has a volume at least: a part that stays as it came would keep all of the text."""
    rules = {REQUIRED: [{"topologyKey": "zone"}]}
    spec = {
        "volumes": [{"name": "a", "projected": {"sources": [{}]}}, {"name": "b", "futureSource": ["x", 1, None]}],
        "affinity": {"podAffinity": rules, "podAntiAffinity": rules},
        "topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule", "topologyKey": "zone"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
    }
    text = json.dumps({"metadata": {"name": "p", "namespace": "n"}, "spec": spec}).encode()
    before = sys.getrefcount(text)
    pod = read_pod(text)
    assert sys.getrefcount(text) == before
    assert unjudged(pod.spec) == ("volumes", "topology spread", "pod affinity", "resource claims")


def test_gates_of_others_are_not_ours() -> None:
    assert _read(schedulingGates=[{"name": "bursar.dev/quota"}, {"name": "x"}]).gated
    assert not _read(schedulingGates=[{"name": "x"}]).gated


def test_what_bursar_wrote_is_no_wish() -> None:
    assert user_labels({"a": "1", "n8s.nebuly.ai/capacity": "over-quota"}) == {"a": "1"}
    marks = {"a": "1", "bursar.dev/admission": "{}", "tensor-fusion.ai/gpu-ids": "g"}
    assert user_annotations(marks) == {"a": "1"}


def test_timestamps() -> None:
    assert milliseconds("1970-01-01T00:00:02Z") == 2000
    assert milliseconds("") == 0
