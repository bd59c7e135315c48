"""The worker contract: what annotations ask for, and everything that is refused with the annotation's name."""

from __future__ import annotations

import pytest

from bursar.policies.gpus.worker import NOT_GIVEN, Unreadable, Worker, is_worker, read_worker

GI = 2**30


def marked(**marks: str) -> dict[str, str]:
    return {f"tensor-fusion.ai/{name.replace('_', '-')}": value for name, value in marks.items()}


def read(**marks: str) -> Worker:
    found = read_worker({}, marked(**marks))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({}, {}, False),
        ({"tensor-fusion.ai/component": "worker"}, {}, True),
        ({"tensor-fusion.ai/component": "client"}, marked(tflops_request="1"), False),
        ({}, marked(tflops_request="1"), True),
        ({}, marked(isolation="shared"), True),
        ({}, marked(gpu_ids="g1"), False),
        ({}, {"tflops-request": "1"}, False),
    ],
)
def test_who_is_a_worker(labels: dict[str, str], annotations: dict[str, str], expected: bool) -> None:
    assert is_worker(labels, annotations) is expected


@pytest.mark.parametrize(
    ("marks", "footprint"),
    [
        pytest.param(
            {"tflops_request": "10", "vram_request": "1Gi", "tflops_limit": "20", "vram_limit": "2Gi"},
            (10_000, GI, 20_000, 2 * GI),
            id="everything given",
        ),
        pytest.param({"tflops_limit": "20", "vram_limit": "2Gi"}, (20_000, 2 * GI, 20_000, 2 * GI), id="limits only"),
        pytest.param({"tflops_request": "500m", "vram_request": "5"}, (500, 5, 500, 5), id="requests only"),
        pytest.param({"vram_request": "1Gi"}, (0, GI, 0, GI), id="vram only"),
        pytest.param({"tflops_request": "0", "vram_request": "0"}, (0, 0, 0, 0), id="nothing, said so"),
        pytest.param({"compute_percent_request": "50"}, (50_000, 0, 50_000, 0), id="half of it"),
        pytest.param({"compute_percent_limit": "0.001", "vram_request": "1"}, (1, 1, 1, 1), id="a sliver"),
        pytest.param(
            {"compute_percent_request": "50", "tflops_limit": "10"}, (50_000, 0, 50_000, 0), id="limit below percent"
        ),
        pytest.param({"isolation": "shared"}, (100_000, 16 * GI, 100_000, 16 * GI), id="whole"),
        pytest.param(
            {"isolation": "shared", "tflops_request": "1"}, (100_000, 16 * GI, 100_000, 16 * GI), id="whole anyway"
        ),
        pytest.param(
            {"dedicated_gpu": "true", "gpu_model": "A100"}, (100_000, 16 * GI, 100_000, 16 * GI), id="dedicated"
        ),
    ],
)
def test_footprint_on_a_gpu_of_100_tflops_and_16_gi(marks: dict[str, str], footprint: tuple[int, ...]) -> None:
    assert read(**marks).footprint(100_000, 16 * GI) == footprint


@pytest.mark.parametrize(
    ("percent", "capacity", "tflops"),
    [("33", 71_000, 23_430), ("10", 312_000, 31_200), ("100", 1, 1), ("99.999", 1, 0)],
)
def test_percent_is_exact_to_the_thousandth(percent: str, capacity: int, tflops: int) -> None:
    """Ruling 1: the original cuts to whole tflops (33 percent of 71 is 23 there), which gives small shares away."""
    assert read(compute_percent_request=percent).footprint(capacity, 0)[0] == tflops


@pytest.mark.parametrize(
    ("marks", "count"),
    [
        ({}, 1),
        ({"gpu_count": "1"}, 1),
        ({"gpu_count": "128"}, 128),
        ({"gpu_indices": "0, 2,3"}, 3),
        ({"gpu_indices": "0,1", "gpu_count": "2"}, 2),
        ({"gpu_indices": " "}, 1),
        ({"container_gpu_count": '{"b": 1, "a": 2}'}, 3),
    ],
)
def test_count(marks: dict[str, str], count: int) -> None:
    assert read(tflops_request="1", **marks).count == count


def test_marks() -> None:
    found = read(tflops_request="1", gpupool=" p ", gpu_model="A100", vendor="AMD", isolation="hard", gpu_indices="3,1")
    assert (found.pool, found.model, found.vendor, found.isolation) == ("p", "A100", "AMD", "hard")
    assert found.indices == (1, 3)
    assert found.limit.percent == NOT_GIVEN
    assert not found.varies()


def test_containers_are_dealt_in_order_of_their_names() -> None:
    assert read(tflops_request="1", container_gpu_count='{"b": 1, "a": 2, "c": 0}').containers == (
        ("a", 2),
        ("b", 1),
        ("c", 0),
    )


@pytest.mark.parametrize(
    ("marks", "annotation", "problem"),
    [
        ({"tflops_request": "ten"}, "tflops-request", "'ten' is not a quantity"),
        ({"tflops_request": "-1"}, "tflops-request", "must not be negative"),
        ({"tflops_request": ""}, "tflops-request", "is not a quantity"),
        ({"vram_request": "NaN"}, "vram-request", "is not a quantity"),
        ({"vram_limit": "1Qi"}, "vram-limit", "unknown suffix"),
        ({"vram_limit": "1" * 200}, "vram-limit", "longer than"),
        ({"tflops_request": "1", "compute_percent_request": "1"}, "compute-percent-request", "together with"),
        ({"tflops_limit": "1", "compute_percent_limit": "1"}, "compute-percent-limit", "together with"),
        ({"compute_percent_request": "101"}, "compute-percent-request", "more than 100 percent"),
        ({"tflops_request": "2", "tflops_limit": "1"}, "tflops-limit", "is less than the request"),
        ({"vram_request": "2Gi", "vram_limit": "1Gi"}, "vram-limit", "is less than the request"),
        (
            {"compute_percent_request": "2", "compute_percent_limit": "1"},
            "compute-percent-limit",
            "is less than the request",
        ),
        ({"tflops_request": "1", "gpu_count": "0"}, "gpu-count", "from 1 to 128"),
        ({"tflops_request": "1", "gpu_count": "129"}, "gpu-count", "from 1 to 128"),
        ({"tflops_request": "1", "gpu_count": "two"}, "gpu-count", "from 1 to 128"),
        ({"tflops_request": "1", "gpu_count": "1.5"}, "gpu-count", "from 1 to 128"),
        ({"tflops_request": "1", "gpu_count": "\uff13"}, "gpu-count", "from 1 to 128"),
        ({"tflops_request": "1", "gpu_count": "3", "gpu_indices": "0,1"}, "gpu-count", "is not the 2 of"),
        ({"tflops_request": "1", "gpu_indices": "0,x"}, "gpu-indices", "is not the index of a GPU"),
        ({"tflops_request": "1", "gpu_indices": "0,,1"}, "gpu-indices", "is not the index of a GPU"),
        ({"tflops_request": "1", "gpu_indices": "-1"}, "gpu-indices", "is not the index of a GPU"),
        ({"tflops_request": "1", "gpu_indices": "1,1"}, "gpu-indices", "is listed twice"),
        ({"tflops_request": "1", "gpu_indices": "2147483648"}, "gpu-indices", "is not the index of a GPU"),
        ({"tflops_request": "1", "isolation": "partitioned"}, "isolation", "is none of shared, soft, hard"),
        ({"tflops_request": "1", "dedicated_gpu": "yes", "gpu_model": "x"}, "dedicated-gpu", "neither"),
        ({"dedicated_gpu": "true"}, "gpu-model", "is required"),
        ({"gpu_count": "2"}, "tflops-request", "is missing"),
        ({"tflops_request": "1", "container_gpu_count": "3"}, "container-gpu-count", "is not a JSON mapping"),
        ({"tflops_request": "1", "container_gpu_count": '{"a": true}'}, "container-gpu-count", "is not a number"),
        ({"tflops_request": "1", "container_gpu_count": '{"a": 0}'}, "container-gpu-count", "gives 0 GPUs"),
        ({"tflops_request": "1", "container_gpu_count": '{"a": 1}', "gpu_count": "2"}, "gpu-count", "is not the 1"),
    ],
)
def test_what_cannot_be_read_names_the_annotation(marks: dict[str, str], annotation: str, problem: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read(**marks)
    assert caught.value.annotation == f"tensor-fusion.ai/{annotation}"
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
