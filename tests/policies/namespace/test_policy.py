"""Quotas come late, change, turn invalid and go; several of them; alerts and conditions on their edges."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.engine.decision import NEVER, WAITING
from bursar.engine.what_if import Submit
from bursar.objects.validation import timestamp
from bursar.policies.namespace.policy import DEMAND
from bursar.policies.namespace.settings import DemandBody
from bursar.resources import from_amounts
from tests.policies.gpus.world import NS, World, amounts, marks, total


def world() -> World:
    found = World()
    found.gpu("g1", "n1", 1_000_000, 1_000_000)
    found.gpu("g2", "n1", 1_000_000, 1_000_000)
    return found


def test_a_quota_created_late_sees_what_is_used() -> None:
    found = world()
    found.alloc((30, 300), 2, "w")
    found.quota(total(100, 1000, 10))
    assert found.alloc((50, 1)).reason == "total.max.tflops.request"
    found.engine.release("w")
    assert found.used() == ("0", 0, "0", 0, 0)
    assert [found.alloc((1, 1)).admitted for _ in range(11)] == [True] * 10 + [False]


def test_a_deleted_quota_limits_nothing_and_one_created_again_sees_everything() -> None:
    found = world()
    found.quota(total(10, 10, 1))
    found.alloc((10, 10))
    found.quota(None)
    assert found.alloc((10, 10)).admitted
    found.quota(total(10, 10, 1))
    assert found.used()[0] == "20"
    assert found.alloc((1, 1)).reason == "total.max.tflops.request"


def test_every_quota_of_a_namespace_is_enforced_and_each_in_its_order() -> None:
    found = world()
    found.quota(amounts("requests", (100, 1000)), key=f"{NS}/a")
    found.quota({"workers": 1}, key=f"{NS}/b")
    found.quota({}, amounts("limits", (50, 500)), key=f"{NS}/c")
    assert found.alloc((60, 1)).reason == "single.max.tflops.limit"
    assert found.alloc((40, 400)).admitted
    assert found.alloc((10, 10)).reason == "total.max.workers.limit"
    found.quota(None, key=f"{NS}/b")
    assert found.alloc((40, 40)).admitted
    assert found.alloc((40, 40)).reason == "total.max.tflops.request"


def test_the_least_of_two_quotas_is_named() -> None:
    found = world()
    found.quota(amounts("requests", (100, 1000)), key=f"{NS}/a")
    found.quota(amounts("requests", (50, 1000)), key=f"{NS}/b")
    assert found.alloc((60, 1)).sentence().endswith("requested 60, limit 50")


def test_absent_is_unlimited_and_only_what_is_asked_for_is_checked() -> None:
    found = world()
    found.quota({"requests.tflops": 0})
    assert found.decide(marks(vram_request="5")).admitted
    assert found.decide(marks(tflops_request="1m")).reason == "total.max.tflops.request"


def test_single_refusals_are_for_good_total_ones_are_not() -> None:
    found = world()
    found.quota({"requests.tflops": 1000}, {"gpus": 1})
    assert found.alloc((1, 1), 2).outcome == NEVER
    assert found.alloc((2, 1)).outcome == WAITING


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {row["type"]: row["status"] for row in status["conditions"]}


def published(found: World, now: int = 0, key: str = f"{NS}/q") -> tuple[dict[str, Any] | None, list[str]]:
    """(status, reasons of events) of a quota in the next outputs."""
    status: dict[str, Any] | None = None
    events: list[str] = []
    for output in found.engine.outputs(now):
        if output.key == key and output.value is not None:
            if output.part == "status":
                status = output.value
            else:
                events.append(str(output.value["reason"]))
    return status, events


def test_an_invalid_quota_keeps_its_last_good_spec() -> None:
    found = world()
    found.quota(total(10, 10, 1))
    found.quota({}, problem="spec.total.requests.tflops: requests.tflops cannot be negative")
    assert found.alloc((11, 1)).reason == "total.max.tflops.request"
    status, _ = published(found)
    assert status is not None
    assert conditions(status)["Invalid"] == "True"
    assert conditions(status)["Ready"] == "False"
    assert "cannot be negative; the last valid spec stays in force" in status["conditions"][3]["message"]
    found.quota(total(20, 20, 1))
    assert found.alloc((11, 1)).admitted


def test_a_quota_that_was_never_valid_starts_nobody() -> None:
    found = world()
    found.alloc((1, 1), uid="before")
    found.quota({}, problem="spec: is wrong")
    decision = found.alloc((1, 1))
    assert (decision.reason, decision.outcome) == ("limits.invalid", WAITING)
    assert "was never valid: spec: is wrong" in decision.sentence()
    assert found.adjust("before", marks(("500m", 1))).admitted
    assert found.adjust("before", marks((1, 1))).reason == "limits.invalid"


def test_alerts_are_told_at_the_edges_only() -> None:
    found = world()
    found.quota(total(100, 1000), threshold=90)
    assert published(found)[1] == []
    seen: list[list[str]] = []
    for uid, request in (("a", (80, 1)), ("b", (10, 1)), ("c", (5, 1))):
        found.alloc(request, uid=uid)
        seen.append(published(found)[1])
    for uid in ("c", "b", "a"):
        found.engine.release(uid)
        seen.append(published(found)[1])
    assert seen == [[], ["AlertThresholdReached"], [], [], ["AlertThresholdNotReached"], []]


def test_an_alert_that_comes_and_goes_between_two_writes_is_not_told() -> None:
    found = world()
    found.quota(total(100, 1000))
    published(found)
    found.alloc((99, 1), uid="w")
    found.engine.release("w")
    assert published(found)[1] == []


def test_a_trial_tells_no_alert() -> None:
    found = world()
    found.quota(total(100, 1000))
    published(found)
    found.engine.what_if([Submit(found.claim(marks((99, 1))))])
    assert published(found)[1] == []
    found.alloc((99, 1))
    assert published(found)[1] == ["AlertThresholdReached"]


def test_a_late_or_lowered_quota_tells_its_alert() -> None:
    found = world()
    found.alloc((99, 1))
    found.quota(total(100, 1000))
    assert published(found)[1] == ["AlertThresholdReached"]
    found.quota(total(1000, 1000))
    assert published(found)[1] == ["AlertThresholdNotReached"]
    found.quota(total(10, 1000))
    assert published(found)[1] == ["AlertThresholdReached"]


def test_after_a_restart_statuses_are_written_again_and_alerts_are_not_told_again() -> None:
    found = world()
    found.quota(total(100, 1000))
    found.alloc((99, 1), uid="w")
    published(found)
    again = found.replayed()
    status, events = published(again)
    assert status is not None
    assert conditions(status)["AlertThresholdReached"] == "True"
    assert events == []
    again.engine.release("w")
    assert published(again)[1] == ["AlertThresholdNotReached"]


def test_conditions_and_percents_of_a_lowered_quota() -> None:
    found = world()
    found.quota(total(100, 1000, 4))
    found.alloc((60, 500), uid="w")
    status, _ = published(found, 1000)
    assert status is not None
    assert conditions(status) == {
        "Ready": "True",
        "Exceeded": "False",
        "AlertThresholdReached": "False",
        "Invalid": "False",
    }
    percents = {"requests.tflops": "40.00", "requests.vram": "50.00", "limits.tflops": "40.00", "limits.vram": "50.00"}
    assert status["availablePercent"] == percents | {"workers": "75.00"}
    assert status["lastUpdateTime"] == "1970-01-01T00:00:01Z"
    found.quota(total(50, 1000, 4))
    lowered, _ = published(found, 61_000)
    assert lowered is not None
    assert conditions(lowered)["Exceeded"] == "True"
    assert lowered["availablePercent"]["requests.tflops"] == "0.00"
    times = {row["type"]: row["lastTransitionTime"] for row in lowered["conditions"]}
    assert times["Ready"] == "1970-01-01T00:00:01Z"
    assert times["Exceeded"] == "1970-01-01T00:01:01Z"
    assert found.engine.claim("w").counts()


def test_a_drained_namespace_is_published_as_empty() -> None:
    found = world()
    found.quota(total(100, 1000, 4))
    found.alloc((60, 500), uid="w")
    published(found)
    found.engine.release("w")
    status, _ = published(found)
    assert status is not None
    assert status["used"] == {
        "requests": {"tflops": "0", "vram": "0"},
        "limits": {"tflops": "0", "vram": "0"},
        "workers": 0,
    }


def test_declared_demand_is_shown_beside_what_is_used() -> None:
    found = world()
    found.quota(total(100, 1000))
    cost = from_amounts({"requests.tflops": 5000, "workers": 2})
    found.set(DEMAND, f"{NS}/TensorFusionWorkload/a", DemandBody(cost))
    found.set(DEMAND, f"{NS}/WorkloadProfile/a", DemandBody(cost))
    status, _ = published(found)
    assert status is not None
    assert (status["declared"]["requests"]["tflops"], status["declared"]["workers"]) == ("10", 4)
    found.set(DEMAND, f"{NS}/TensorFusionWorkload/a", None)
    found.set(DEMAND, f"{NS}/WorkloadProfile/a", None)
    assert "declared" not in (published(found)[0] or {"declared": 1})


def test_an_unreadable_worker_is_refused_for_good_and_named() -> None:
    found = world()
    decision = found.decide(marks((1, 1), gpu_count="0"))
    assert (decision.reason, decision.outcome) == ("limits.annotation", NEVER)
    assert "tensor-fusion.ai/gpu-count" in decision.sentence()


def test_a_worker_can_be_mended_while_it_waits() -> None:
    found = world()
    claim = found.claim(marks((1, 1), gpu_count="0"), "w")
    assert not found.engine.decide(claim).admitted
    found.adjust("w", marks((1, 1)))
    assert found.engine.decide(claim).admitted


def test_percent_without_a_known_gpu_is_refused_with_advice() -> None:
    found = World()
    found.node("n1")
    decision = found.decide(marks(compute_percent_request="10"))
    assert decision.reason == "limits.capacity"
    assert "apply GPU objects" in decision.sentence()


def test_a_percent_of_gpus_that_are_all_out_of_service() -> None:
    found = World()
    found.gpu("g0", "n1", 100, 1000, usable=False)
    decision = found.decide(marks(compute_percent_request="10"))
    assert decision.reason == "limits.capacity"
    assert "1 of 1 GPUs are out of service" in decision.sentence()
    found.gpu("g0", "n1", 100, 1000)
    assert found.decide(marks(compute_percent_request="10"), "w").admitted


def test_percent_is_admitted_by_the_largest_gpu_and_charged_by_its_own() -> None:
    found = World()
    found.gpu("small", "n1", 100, 1000)
    found.gpu("large", "n2", 200, 1000)
    found.quota(amounts("requests", (20, 1000)))
    found.engine.admit(found.claim(marks(compute_percent_request="10"), "w"))
    assert found.used()[0] == "20"
    assert found.engine.place("w", "n1").admitted
    assert found.used()[0] == "10"


def test_percent_may_only_count_gpus_it_can_reach() -> None:
    found = World()
    found.gpu("small", "n1", 100, 1000, model="A10")
    found.gpu("large", "n2", 200, 1000, model="H100")
    found.quota(amounts("requests", (10, 1000)))
    assert found.decide(marks(compute_percent_request="10")).reason == "total.max.tflops.request"
    assert found.decide(marks(compute_percent_request="10", gpu_model="A10")).admitted


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400_000, "2000-02-29T00:00:00Z"),
        (1_709_164_799_999, "2024-02-28T23:59:59Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        (1_735_689_599_000, "2024-12-31T23:59:59Z"),
    ],
)
def test_timestamps(now: int, text: str) -> None:
    assert timestamp(now, whole=True) == text
