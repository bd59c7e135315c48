"""The vectors of the quota store (notes 5.2), as the rulings have them."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.engine.decision import HOLDING, NEVER, WAITING
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import KindSet
from bursar.policies.namespace.api import QUOTA_KIND
from bursar.policies.namespace.plugin import quota_body
from bursar.policies.results import Output
from tests.builders import read
from tests.policies.gpus.world import NS, Pair, World, amounts, marks, total

KINDS = KindSet([QUOTA_KIND])


def world(totals: dict[str, int] | None = None, singles: dict[str, int] | None = None) -> World:
    found = World()
    for name in ("g1", "g2", "g3", "g4"):
        found.gpu(name, "n1", 1_000_000, 1_000_000)
    if totals is not None:
        found.quota(totals, singles)
    return found


def use(found: World, request: Pair, uid: str = "use", priority: int = 0) -> None:
    assert found.alloc(request, uid=uid, priority=priority).admitted


def validated(spec: dict[str, Any]) -> str:
    manifest: dict[str, Any] = {"apiVersion": "tensor-fusion.ai/v1", "kind": "GPUResourceQuota"}
    manifest |= {"metadata": {"name": "q", "namespace": NS}, "spec": spec}
    try:
        quota_body(read(manifest, KINDS).typed)  # type: ignore[arg-type]
    except ManifestError as error:
        return str(error)
    return ""


def spec(tflops: object = 100, vram: object = 1000, workers: object = 10, **more: object) -> dict[str, Any]:
    both = {"tflops": tflops, "vram": vram}
    return {"total": {"requests": both, "limits": both, "maxWorkers": workers, **more}}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param(spec(), "", id="S1"),
        pytest.param(spec(tflops=-10), "requests.tflops cannot be negative", id="S2"),
        pytest.param(
            spec(limits={"tflops": 50, "vram": 1000}), "limits.tflops cannot be less than requests.tflops", id="S3"
        ),
        pytest.param(
            spec(alertThresholdPercent=150), "alertThresholdPercent must be between 0 and 100, got 150", id="S4"
        ),
    ],
)
def test_validation(given: dict[str, Any], problem: str) -> None:
    found = validated(given)
    assert problem in found
    assert bool(problem) == bool(found)


def singles(tflops: int, vram: int, count: int) -> dict[str, int]:
    return amounts("limits", (tflops, vram)) | {"gpus": count}


@pytest.mark.parametrize(
    ("caps", "count", "reason"),
    [
        pytest.param(None, 1, "", id="S5: another namespace"),
        pytest.param(singles(50, 10000, 4), 1, "single.max.tflops.limit", id="S6"),
        pytest.param(singles(1000, 500, 4), 1, "single.max.vram.limit", id="S7"),
        pytest.param(singles(1000, 10000, 2), 3, "single.max.gpuCount.limit", id="S8"),
        pytest.param(singles(1000, 10000, 4), 2, "", id="S9"),
    ],
)
def test_one_workload(caps: dict[str, int] | None, count: int, reason: str) -> None:
    found = world(total(1000, 10000, 100), caps)
    namespace = "unknown-ns" if caps is None else NS
    decision = found.alloc((100, 1000), count, namespace=namespace)
    assert decision.reason == reason
    assert decision.admitted == (not reason)
    assert not reason or decision.outcome == NEVER


@pytest.mark.parametrize(
    ("caps", "reason"),
    [
        (amounts("requests", (99, 10000)), "single.max.tflops.request"),
        (amounts("requests", (1000, 999)), "single.max.vram.request"),
        (amounts("requests", (0, 0)), "single.max.tflops.request"),
        (amounts("requests", (100, 1000)), ""),
        (amounts("limits", (199, 2000)), "single.max.tflops.limit"),
    ],
)
def test_caps_of_one_workload_count_all_its_gpus(caps: dict[str, int], reason: str) -> None:
    """Ruling: single limits are per workload, so 50/500 on two GPUs is 100/1000; zero is none."""
    found = world(total(1000, 10000, 100), caps)
    assert found.alloc((50, 500), 2, limit=(100, 1000)).reason == reason


@pytest.mark.parametrize(
    ("totals", "before", "request_", "count", "reason"),
    [
        pytest.param(total(100, 10000, 10), (80, 0), (30, 1000), 1, "total.max.tflops.request", id="S10"),
        pytest.param(total(1000, 1000, 10), (0, 800), (10, 300), 1, "total.max.vram.request", id="S11"),
        pytest.param(total(100, 10000, 10), (50, 0), (20, 1000), 3, "total.max.tflops.request", id="S13"),
        pytest.param(total(100, 10000, 10), (50, 0), (20, 1000), 2, "", id="S13 with two GPUs"),
        pytest.param(amounts("limits", (100, 10000)), (80, 0), (30, 1), 1, "total.max.tflops.limit", id="limits T"),
        pytest.param(amounts("limits", (100, 100)), (8, 0), (3, 101), 1, "total.max.vram.limit", id="limits V"),
    ],
)
def test_totals(totals: dict[str, int], before: Pair, request_: Pair, count: int, reason: str) -> None:
    found = world(totals)
    use(found, before)
    decision = found.alloc(request_, count)
    assert decision.reason == reason
    assert not reason or decision.outcome == WAITING


def test_s12_workers() -> None:
    found = world({"workers": 5})
    for number in range(5):
        use(found, (1, 1), f"w{number}")
    assert found.alloc((10, 100)).reason == "total.max.workers.limit"


def test_s14_less_important_workers_of_the_namespace_make_room() -> None:
    found = world(total(100, 10000, 10))
    use(found, (60, 0), "kept", priority=5)
    use(found, (20, 0), "victim")
    decision = found.alloc((30, 1000), priority=5)
    assert (decision.outcome, decision.victims) == (HOLDING, ("victim",))


def test_s14_victims_of_other_namespaces_make_no_room() -> None:
    found = world(total(100, 10000, 10))
    use(found, (80, 0), "kept", priority=5)
    found.alloc((20, 0), namespace="other")
    assert found.alloc((30, 1000), priority=5).reason == "total.max.tflops.request"


def test_at_the_most_workers_a_less_important_one_makes_room() -> None:
    found = world({"workers": 1})
    use(found, (1, 1), "victim")
    assert found.alloc((1, 1), priority=1).victims == ("victim",)


def test_s15_what_is_admitted_but_has_no_place_counts() -> None:
    found = world(total(100, 10000, 10))
    use(found, (50, 0))
    assert found.engine.admit(found.claim(marks((40, 0)))).admitted
    assert found.alloc((20, 1000)).reason == "total.max.tflops.request"


def statuses(found: World) -> dict[str, dict[str, Any]]:
    outputs: list[Output] = found.engine.outputs(0)
    return {output.key: output.value for output in outputs if output.part == "status" and output.value is not None}


def test_s16_s26_a_charge_is_published_once() -> None:
    found = world(total(1000, 10000, 100))
    statuses(found)
    found.alloc((100, 1000), 2, limit=(150, 1500))
    assert found.used() == ("200", 2000, "300", 3000, 1)
    assert f"{NS}/q" in statuses(found)
    assert f"{NS}/q" not in statuses(found)


def test_s17_s18_without_a_quota_usage_is_kept_all_the_same() -> None:
    found = world()
    found.alloc((100, 1000), 2, uid="w", limit=(150, 1500))
    assert found.adjust("w", marks((50, 500), None, 2)).admitted
    assert found.used() == ("100", 1000, "100", 1000, 1)
    found.engine.release("w")
    assert found.used() == ("0", 0, "0", 0, 0)


def test_s19_adjust() -> None:
    found = world(total(1000, 10000, 10))
    use(found, (100, 0), "w")
    assert found.adjust("w", marks((150, 500), (175, 750))).admitted
    assert found.used() == ("150", 500, "175", 750, 1)


def test_s20_s22_status_is_a_copy() -> None:
    found = world(total(1000, 10000, 10))
    use(found, (100, 0))
    status = statuses(found)[f"{NS}/q"]
    assert (status["used"]["requests"]["tflops"], status["used"]["workers"]) == ("100", 1)
    status["used"]["requests"]["tflops"] = "999"
    assert found.used()[0] == "100"


def test_s21_a_namespace_without_a_quota_has_no_status() -> None:
    found = world()
    use(found, (100, 0))
    assert not [key for key in statuses(found) if "/" in key]


def test_s23_s24_s25_usage_is_the_sum_of_the_claims_whatever_a_status_said() -> None:
    found = world()
    found.alloc((100, 1000), uid="pod1")
    found.alloc((50, 500), 2, uid="pod2")
    found.alloc((7, 7), namespace="other-ns")
    found.quota(total(1000, 10000, 10))
    assert statuses(found)[f"{NS}/q"]["used"]["requests"] == {"tflops": "200", "vram": "2000"}
    assert found.used() == ("200", 2000, "200", 2000, 2)
    assert found.used("other-ns")[0] == "7"


def test_s27_the_text_of_a_refusal() -> None:
    found = world()
    found.quota(total(100, 10**9), key="production/q")
    decision = found.alloc((200, 1), namespace="production")
    expected = "quota exceeded in namespace production for total.max.tflops.request: requested 200, limit 100"
    assert decision.sentence() == expected


def test_numbers_in_a_refusal_are_canonical() -> None:
    found = world(amounts("requests", (2000, "40Gi")), {})
    found.gpu("big", "n2", 10_000, "200Gi")
    assert found.alloc(("2.5k", 0)).sentence().endswith("requested 2500, limit 2k")
    assert found.alloc((1, "80Gi")).sentence().endswith("requested 80Gi, limit 40Gi")
