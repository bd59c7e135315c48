"""Quotas and defaults from manifests: every field, and everything that is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from bursar.control.admission import known_kinds
from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.policies.namespace.plugin import PLUGIN, admit_pod
from bursar.policies.namespace.settings import DemandBody, NamespaceQuotaBody
from bursar.policies.plugin import default_registry
from tests.builders import Manifest, pod

API = "tensor-fusion.ai/v1"
KINDS = known_kinds(default_registry())
GI = 2**30


def quota(spec: Manifest, name: str = "q") -> Manifest:
    return {"apiVersion": API, "kind": "GPUResourceQuota", "metadata": {"name": name, "namespace": "a"}, "spec": spec}


def translated(manifest: Manifest) -> NamespaceQuotaBody:
    read = KINDS.read(Document("", 0, manifest))
    (setting,) = PLUGIN.translate[read.kind.name](read.key, read.typed)
    assert isinstance(setting.body, NamespaceQuotaBody)
    return setting.body


def test_every_field() -> None:
    body = translated(
        quota(
            {
                "total": {
                    "requests": {"tflops": "1.5", "vram": "1Gi"},
                    "limits": {"tflops": 2, "vram": "2Gi"},
                    "maxWorkers": 3,
                    "alertThresholdPercent": 80,
                },
                "single": {
                    "maxRequests": {"tflops": "1"},
                    "maxLimits": {"vram": 5},
                    "maxGPUCount": 4,
                    "defaultRequests": {"tflops": "500m"},
                    "defaultLimits": {"tflops": 1},
                },
            }
        )
    )
    totals = {"requests.tflops": 1500, "requests.vram": GI, "limits.tflops": 2000, "limits.vram": 2 * GI, "workers": 3}
    assert body.totals == totals
    assert body.singles == {"requests.tflops": 1000, "limits.vram": 5, "gpus": 4}
    assert (body.threshold, body.problem) == (80, "")


def test_an_empty_quota_limits_nothing() -> None:
    body = translated(quota({}))
    assert (body.totals, body.singles, body.threshold) == ({}, {}, 95)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"total": {"requests": {"tflops": "-1"}}}, "spec.total.requests.tflops: requests.tflops cannot be negative"),
        ({"total": {"requests": {"vram": "-1"}}}, "spec.total.requests.vram: requests.vram cannot be negative"),
        ({"total": {"limits": {"tflops": -1}}}, "spec.total.limits.tflops: limits.tflops cannot be negative"),
        ({"total": {"limits": {"vram": -1}}}, "spec.total.limits.vram: limits.vram cannot be negative"),
        ({"total": {"maxWorkers": -1}}, "spec.total.maxWorkers: maxWorkers cannot be negative"),
        (
            {"total": {"requests": {"vram": "2Gi"}, "limits": {"vram": "1Gi"}}},
            "spec.total.limits.vram: limits.vram cannot be less than requests.vram",
        ),
        (
            {"total": {"requests": {"tflops": 2}, "limits": {"tflops": 0}}},
            "spec.total.limits.tflops: limits.tflops cannot be less than requests.tflops",
        ),
        (
            {"total": {"alertThresholdPercent": -1}},
            "spec.total.alertThresholdPercent: alertThresholdPercent must be between 0 and 100, got -1",
        ),
        ({"total": {"requests": {"tflops": "many"}}}, "spec.total.requests.tflops: 'many' is not a quantity"),
        ({"total": {"requests": {"tflops": "NaN"}}}, "spec.total.requests.tflops: 'NaN' is not a quantity"),
        ({"single": {"maxGPUCount": -1}}, "spec.single.maxGPUCount: maxGPUCount cannot be negative"),
        (
            {"single": {"maxRequests": {"tflops": 2}, "maxLimits": {"tflops": 1}}},
            "spec.single.maxLimits.tflops: limits.tflops cannot be less than requests.tflops",
        ),
        (
            {"single": {"defaultRequests": {"vram": 2}, "defaultLimits": {"vram": 1}}},
            "spec.single.defaultLimits.vram: limits.vram cannot be less than requests.vram",
        ),
        (
            {"single": {"maxRequests": {"vram": "1Gi"}, "defaultRequests": {"vram": "2Gi"}}},
            "spec.single.defaultRequests.vram: is more than the maximum of one workload, 1Gi",
        ),
    ],
)
def test_a_wrong_quota_is_refused_when_applied_and_marked_when_seen(spec: Manifest, problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        PLUGIN.admit["GPUResourceQuota.tensor-fusion.ai"](View(), None, quota(spec))
    assert problem in str(caught.value)
    assert problem in translated(quota(spec)).problem


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"total": {"request": {}}}, "spec.total.request: is not a known field"),
        ({"single": {"maxGpuCount": 1}}, "spec.single.maxGpuCount: is not a known field; did you mean maxGPUCount?"),
        ({"total": {"requests": {"compute": 5}}}, "spec.total.requests.compute: is not a known field"),
        ({"total": {"maxWorkers": 1.5}}, "spec.total.maxWorkers: expected a whole number"),
        ({"total": {"maxWorkers": 2**40}}, "spec.total.maxWorkers"),
        ({"total": []}, "spec.total: expected a mapping"),
    ],
)
def test_what_is_no_quota_at_all(spec: Manifest, problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        KINDS.read(Document("", 0, quota(spec)))
    assert problem in str(caught.value)


class View:
    """Some quotas, as admission sees them."""

    def __init__(self, *quotas: Manifest) -> None:
        self.quotas = quotas

    def get(self, kind: str, key: str) -> Mapping[str, Any] | None:
        return None

    def list(self, kind: str, namespace: str | None = None) -> Iterable[Mapping[str, Any]]:
        return [quota for quota in self.quotas if namespace in {None, quota["metadata"]["namespace"]}]


def defaults(name: str, **single: object) -> Manifest:
    return quota({"single": single}, name)


def filled(view: View, old: Manifest | None = None, /, **marks: str) -> dict[str, str]:
    given = {f"tensor-fusion.ai/{key.replace('_', '-')}": value for key, value in marks.items()}
    manifest = pod("p", "a", labels={"tensor-fusion.ai/component": "worker"}, annotations=given)
    found = admit_pod(view, old, manifest)
    assert admit_pod(view, old, found) == found
    return {key.removeprefix("tensor-fusion.ai/"): value for key, value in found["metadata"]["annotations"].items()}


BOTH = defaults("q", defaultRequests={"tflops": 10, "vram": "1Gi"}, defaultLimits={"tflops": 20, "vram": "2Gi"})


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({}, {"tflops-request": "10", "tflops-limit": "20", "vram-request": "1Gi", "vram-limit": "2Gi"}),
        ({"tflops_request": "15"}, {"tflops-request": "15", "tflops-limit": "20"}),
        ({"tflops_request": "30"}, {"tflops-request": "30", "tflops-limit": "30"}),
        ({"tflops_limit": "5"}, {"tflops-request": "5", "tflops-limit": "5"}),
        ({"compute_percent_limit": "5"}, {"compute-percent-limit": "5", "vram-request": "1Gi"}),
        ({"tflops_limit": "many"}, {"tflops-request": "10", "tflops-limit": "many"}),
    ],
)
def test_defaults(marks: dict[str, str], expected: dict[str, str]) -> None:
    found = filled(View(BOTH), **marks)
    assert {key: found.get(key) for key in expected} == expected
    assert ("tflops-request" in found) == ("compute_percent_limit" not in marks)


def test_each_default_is_that_of_the_first_quota_that_has_one() -> None:
    view = View(defaults("b", defaultRequests={"tflops": 1, "vram": 7}), defaults("a", defaultRequests={"vram": 5}))
    assert filled(view) == {"tflops-request": "1", "vram-request": "5"}


def test_defaults_of_other_namespaces_and_pods_that_are_no_workers() -> None:
    elsewhere = defaults("q", defaultRequests={"tflops": 1})
    elsewhere["metadata"]["namespace"] = "b"
    assert filled(View(elsewhere)) == {}
    plain = pod("p", "a")
    assert admit_pod(View(BOTH), None, plain) is plain


def test_what_a_pod_got_it_keeps() -> None:
    old = pod("p", "a", annotations={"tensor-fusion.ai/tflops-request": "10", "tensor-fusion.ai/vram-request": "1Gi"})
    changed = View(defaults("q", defaultRequests={"tflops": 99, "vram": 99}))
    assert filled(changed, old) == {"tflops-request": "10", "vram-request": "1Gi"}
    assert filled(changed, old, compute_percent_request="5") == {"compute-percent-request": "5", "vram-request": "1Gi"}


@pytest.mark.parametrize(
    ("spec", "cost"),
    [
        ({}, None),
        ({"replicas": 2}, {"workers": 2}),
        (
            {"replicas": 2, "gpuCount": 3, "resources": {"requests": {"tflops": 5, "compute": 9, "vram": "1"}}},
            {"workers": 2, "requests.tflops": 30_000, "requests.vram": 6},
        ),
        ({"replicas": 1, "autoScalingConfig": {"anything": 1}}, {"workers": 1}),
    ],
)
def test_declared_demand(spec: Manifest, cost: dict[str, int] | None) -> None:
    manifest = {"apiVersion": API, "kind": "WorkloadProfile", "metadata": {"name": "w", "namespace": "a"}, "spec": spec}
    read = KINDS.read(Document("", 0, manifest))
    (setting,) = PLUGIN.translate["WorkloadProfile.tensor-fusion.ai"](read.key, read.typed)
    assert setting.key == "a/WorkloadProfile/w"
    body = setting.body
    assert (dict(body.cost.pairs()) if isinstance(body, DemandBody) else None) == cost


def test_bad_demand_names_the_field() -> None:
    manifest: Manifest = {
        "apiVersion": API,
        "kind": "TensorFusionWorkload",
        "metadata": {"name": "w", "namespace": "a"},
    }
    read = KINDS.read(Document("", 0, manifest | {"spec": {"replicas": -1}}))
    with pytest.raises(ManifestError, match=r"spec\.replicas"):
        PLUGIN.translate["TensorFusionWorkload.tensor-fusion.ai"](read.key, read.typed)
