from __future__ import annotations

import pytest

from bursar.policies.gpus.plugin import shown_requests
from bursar.server.rows import gpu_rows
from tests.server.live import Live, pod

DOMAIN = "tensor-fusion.ai/"


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({}, {}),
        ({"tflops-request": "20", "vram-request": "16Gi"}, {"tflops": "20", "vram": "16Gi"}),
        ({"vram-request": "512Mi"}, {"vram": "512Mi"}),
        (
            {"tflops-request": "1.5", "vram-request": "16Gi", "gpu-count": "2"},
            {"gpus": "2", "tflops": "3", "vram": "32Gi"},
        ),
        ({"compute-percent-request": "50", "vram-request": "1Gi"}, {"compute": "50%", "vram": "1Gi"}),
        ({"compute-percent-request": "12.5", "gpu-count": "3"}, {"gpus": "3", "compute": "37.5%"}),
        ({"isolation": "shared", "tflops-request": "20"}, {"gpus": "1"}),
        ({"tflops-request": "much"}, {}),
    ],
)
def test_what_is_asked_of_gpus_is_summed_over_them(asked: dict[str, str], shown: dict[str, str]) -> None:
    assert shown_requests({}, {DOMAIN + name: value for name, value in asked.items()}) == shown


def test_claims_and_queue_say_what_is_asked_of_gpus(bed: Live) -> None:
    worker = pod("a", "worker", 0)
    worker["metadata"]["annotations"] = {f"{DOMAIN}tflops-request": "20", f"{DOMAIN}vram-request": "16Gi"}
    bed.give(worker)
    (claim,), (waiting,) = bed.client.claims().items, bed.client.queue().items
    assert claim.gpus == waiting.gpus == {"tflops": "20", "vram": "16Gi"}


def test_gpus_list_the_claims_that_hold_some_of_them(bed: Live) -> None:
    gpu = {
        "apiVersion": f"{DOMAIN}v1",
        "kind": "GPU",
        "metadata": {"name": "g0"},
        "status": {
            "phase": "Running",
            "capacity": {"tflops": 100, "vram": "20Gi"},
            "nodeSelector": {"kubernetes.io/hostname": "n1"},
        },
    }
    worker = pod("a", "worker", 0)
    worker["metadata"]["annotations"] = {f"{DOMAIN}tflops-request": "20", f"{DOMAIN}vram-request": "16Gi"}
    bed.give(gpu, worker)
    service = bed.service
    with service.lock:
        assert [(row.name, row.claims) for row in gpu_rows(service.cluster)] == [("g0", ["a/worker"])]
