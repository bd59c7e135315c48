"""From manifests to settings, everything that is refused on the way, and a ledger that is rebuilt from pods."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.control.admission import known_kinds
from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.policies.gpus.plugin import PLUGIN
from bursar.policies.gpus.settings import GpuBody, GpuOptionsBody, PoolBody, TemplateBody
from bursar.policies.plugin import default_registry
from bursar.policies.results import Body
from bursar.sim.cluster import Cluster
from tests.builders import Manifest, node, pod

API = "tensor-fusion.ai/v1"
KINDS = known_kinds(default_registry())
GI = 2**30


def gpu(name: str = "g1", on: str = "n1", labels: dict[str, str] | None = None, /, **status: object) -> Manifest:
    whole = {"phase": "Running", "capacity": {"tflops": "100", "vram": "16Gi"}} | status
    if on:
        whole["nodeSelector"] = {"kubernetes.io/hostname": on}
    return {"apiVersion": API, "kind": "GPU", "metadata": {"name": name, "labels": labels or {}}, "status": whole}


def translated(manifest: Manifest) -> Body | None:
    read = KINDS.read(Document("", 0, manifest))
    (setting,) = PLUGIN.translate[read.kind.name](read.key, read.typed)
    return setting.body


def test_a_whole_gpu_object() -> None:
    capabilities = '{"SupportsSoftIsolation": true, "SupportsHardIsolation": false}'
    labels = {"tensor-fusion.ai/gpupool": "p"}
    manifest = gpu("g1", "n1", labels, index=3, gpuModel="A100", vendor="AMD", isolationMode="soft")
    manifest["metadata"]["annotations"] = {"tensor-fusion.ai/virtualization-capabilities": capabilities}
    body = translated(manifest)
    assert isinstance(body, GpuBody)
    expected = ("n1", 100_000, 16 * GI, "p", "A100", "AMD", 3, True, False, "soft", ("soft",))
    assert body.gpu.cell() == expected


@pytest.mark.parametrize("text", ["no JSON", "[]", "[" * 5000])
def test_capabilities_that_cannot_be_read_are_none_that_are_told(text: str) -> None:
    manifest = gpu("g1", "n1")
    manifest["metadata"]["annotations"] = {"tensor-fusion.ai/virtualization-capabilities": text}
    body = translated(manifest)
    assert isinstance(body, GpuBody)
    assert body.gpu.cell()[-1] is None


@pytest.mark.parametrize(
    ("status", "usable", "plugin"),
    [
        ({}, True, False),
        ({"phase": "Pending"}, False, False),
        ({"usedBy": "tensor-fusion"}, True, False),
        ({"usedBy": "nvidia-device-plugin"}, True, True),
        ({"isolationPolicy": "Static"}, True, False),
        ({"isolationPolicy": "Dynamic"}, False, False),
    ],
)
def test_which_gpus_are_usable(status: dict[str, object], usable: bool, plugin: bool) -> None:
    body = translated(gpu(**status))
    assert isinstance(body, GpuBody)
    assert (body.gpu.usable, body.gpu.plugin) == (usable, plugin)


def test_a_gpu_on_no_node_is_none() -> None:
    assert translated(gpu("g1", "")) is None
    by_label = translated(gpu("g1", "", {"tensor-fusion.ai/managed-by": "n7"}))
    assert isinstance(by_label, GpuBody)
    assert by_label.gpu.node == "n7"


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (gpu(capacity=None), "status.capacity.tflops: is required of a GPU that runs"),
        (gpu(capacity={"tflops": 1}), "status.capacity.vram: is required of a GPU that runs"),
        (gpu(capacity={"tflops": "x", "vram": 1}), "status.capacity.tflops: 'x' is not a quantity"),
        (gpu(capacity={"tflops": 1, "vram": "-1"}), "status.capacity.vram: '-1' must not be negative"),
        (gpu(index="first"), "status.index: expected a whole number, not text"),
        (
            {"apiVersion": API, "kind": "SchedulingConfigTemplate", "metadata": {"name": "t"}}
            | {"spec": {"placement": {"mode": "Best"}}},
            "spec.placement.mode: 'Best' is none of CompactFirst, LowLoadFirst, NodeCompactGPULowLoad",
        ),
    ],
)
def test_bad_input_names_the_field(manifest: Manifest, problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        Cluster().apply([Document("file.yaml", 1, manifest)])
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"placementMode": "Best"}, "spec.gpus.placementMode: 'Best' is none of"),
        ({"vramWeight": 101}, "spec.gpus.vramWeight"),
        ({"models": {"X": {"tflops": "many"}}}, "spec.gpus.models.X: 'many' is not a quantity"),
        ({"mode": "x"}, "spec.gpus.mode: is not a known field"),
    ],
)
def test_a_bad_section_names_the_field(section: dict[str, Any], problem: str) -> None:
    manifest = {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": {"name": "default"}}
    with pytest.raises(ManifestError) as caught:
        Cluster().apply([Document("", 0, manifest | {"spec": {"gpus": section}})])
    assert problem in str(caught.value)


def test_pools_templates_and_options() -> None:
    manifest: Manifest = {"apiVersion": API, "kind": "GPUPool", "metadata": {"name": "p"}}
    manifest["metadata"]["annotations"] = {"tensor-fusion.ai/is-default-pool": "true"}
    manifest["spec"] = {"schedulingConfigTemplate": "t", "capacityConfig": {"oversubscription": {}}, "qosConfig": 1}
    pool = translated(manifest)
    assert isinstance(pool, PoolBody)
    assert (pool.template, pool.default) == ("t", True)
    (template,) = PLUGIN.translate["SchedulingConfigTemplate.tensor-fusion.ai"]("t", None)
    assert template.body is None
    mode = translated({"apiVersion": API, "kind": "SchedulingConfigTemplate", "metadata": {"name": "t"}})
    assert isinstance(mode, TemplateBody)
    assert mode.mode == "NodeCompactGPULowLoad"
    assert [none.body for none in PLUGIN.translate["Configuration"]("default", None)] == [None, None]


def worker(name: str, namespace: str = "a", /, **marks: str) -> Manifest:
    given = {f"tensor-fusion.ai/{key.replace('_', '-')}": value for key, value in marks.items()}
    return pod(name, namespace, annotations=given)


def usage(cluster: Cluster) -> dict[str, list[tuple[str, int]]]:
    accounts = cluster.engine.state.accounts.values()
    return {account.name: account.used.vector().pairs() for account in accounts if account.used.vector()}


def as_seen(cluster: Cluster, key: str) -> Manifest:
    """A pod as a list of the cluster shows it; its version belongs to the store that it came from."""
    found = cluster.find(KINDS.find("Pod"), key)
    assert found is not None
    kept = {name: value for name, value in found["metadata"].items() if name not in {"resourceVersion", "uid"}}
    return found | {"metadata": kept}


def test_a_cluster_that_is_started_from_the_pods_of_another_has_the_same_ledger() -> None:
    quota = {"apiVersion": API, "kind": "GPUResourceQuota", "metadata": {"name": "q", "namespace": "a"}}
    objects = [
        node("n1"),
        node("n2"),
        *[gpu(f"g{number}", f"n{1 + number % 2}", index=number) for number in range(6)],
        quota | {"spec": {"total": {"requests": {"tflops": "400"}}, "single": {"defaultRequests": {"vram": "1Gi"}}}},
    ]
    live = Cluster()
    live.apply([Document("", 0, manifest) for manifest in objects])
    workers = [
        worker("one", tflops_request="10"),
        worker("two", tflops_request="20", gpu_count="2"),
        worker("percent", compute_percent_request="33.3", gpu_count="3"),
        worker("whole", isolation="shared"),
        worker("other", "b", vram_request="2Gi", tflops_limit="50"),
        worker("bad", tflops_request="many"),
        worker("late", tflops_request="99", gpu_count="3"),
    ]
    for manifest in workers:
        live.apply([Document("", 0, manifest)])
    live.delete([KINDS.reference("Pod/a/one")])
    live.advance(1000)
    again = Cluster()
    again.apply([Document("", 0, manifest) for manifest in objects])
    for key in reversed(live.pods()):
        again.apply([Document("", 0, as_seen(live, key))])
    assert usage(again) == usage(live)
    assert [again.pod(key) for key in live.pods()] == [live.pod(key) for key in live.pods()]
    quotas = [cluster.find(KINDS.find("GPUResourceQuota"), "a/q") or {} for cluster in (live, again)]
    assert quotas[0]["status"]["used"] == quotas[1]["status"]["used"]


def test_options_are_settings() -> None:
    manifest = {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": {"name": "default"}}
    spec = {"gpus": {"placementMode": "CompactFirst", "vramWeight": 50, "models": {"X": {"tflops": 5, "vram": "1Gi"}}}}
    read = KINDS.read(Document("", 0, manifest | {"spec": spec}))
    setting, whole = PLUGIN.translate["Configuration"]("default", read.typed.spec.gpus)  # type: ignore[attr-defined]
    assert whole.body is None
    assert isinstance(setting.body, GpuOptionsBody)
    assert setting.body.options.cell() == ("CompactFirst", 50)
    assert setting.body.cell() == (False, (("X", (5000, GI)),))
