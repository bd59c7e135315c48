"""The vectors of quota and allocator together (notes 5.3), as the rulings have them.

Ruling: there is one ledger. What the original calls assumed is a reservation, which counts at once; so the vectors
about two ledgers (I12 to I14) are asserted on one. I18 and I19 (autoscaler) are out of scope.
"""

from __future__ import annotations

from threading import Thread

import pytest

from bursar.engine.decision import NEVER
from bursar.selectors import NodeNeeds
from tests.policies.gpus.world import NS, World, amounts, marks, total

EMPTY = ("0", 0, "0", 0, 0)


def world(tflops: int = 1000, vram: int = 10000, count: int = 2) -> World:
    found = World()
    for number in range(1, count + 1):
        found.gpu(f"gpu{number}", "node1", tflops, vram, pool="test-pool")
    return found


def test_i1_i2_i3_allocate_refuse_deallocate() -> None:
    found = world()
    found.quota(total(100, 1000, 10))
    assert found.alloc((30, 300), 2, "w").admitted
    assert found.used() == ("60", 600, "60", 600, 1)
    assert found.alloc((60, 600), 2).reason == "total.max.tflops.request"
    found.engine.release("w")
    assert found.used() == EMPTY


def test_i4_ten_threads() -> None:
    """Ruling: one transaction, so that exactly twelve would fit and all ten do; see also the threads test."""
    found = world()
    found.quota(total(100, 1000, 20))
    claims = [found.claim(marks((8, 80))) for _ in range(14)]
    outcomes: list[bool] = []
    threads = [Thread(target=lambda c=c: outcomes.append(found.engine.decide(c).admitted)) for c in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(outcomes), sum(outcomes)) == (14, 12)
    assert found.used() == ("96", 960, "96", 960, 12)


def test_i5_the_exact_boundary() -> None:
    found = world(count=10)
    found.quota(total(100, 1000, 10))
    assert found.alloc((10, 100), 10).admitted
    assert found.used() == ("100", 1000, "100", 1000, 1)


def test_a_worker_of_nothing_fits_a_full_quota_and_is_a_worker() -> None:
    found = world()
    found.quota(total(100, 1000, 10))
    found.alloc((50, 500), 2)
    assert found.alloc((0, 0)).admitted
    assert found.used()[4] == 2


def test_i6_zero_is_none() -> None:
    found = world()
    found.quota(total(0, 0, 0))
    assert found.alloc((1, 1)).reason == "total.max.tflops.request"


def test_i7_i17_allocate_and_deallocate_with_gpus() -> None:
    found = world(50, 500)
    found.quota(total(100, 1000, 10))
    assert found.alloc((30, 300), 2, "w").admitted
    assert found.on("w") == ["gpu1", "gpu2"]
    assert found.used() == ("60", 600, "60", 600, 1)
    assert found.free("gpu1") == ("20", "200")
    found.engine.release("w")
    assert found.used() == EMPTY
    assert found.free("gpu1") == ("50", "500")


def test_i8_gpus_have_room_the_quota_has_not() -> None:
    found = world(100, 1000)
    found.quota(total(100, 1000, 10))
    assert found.alloc((60, 600), 2).reason == "total.max.tflops.request"
    assert found.free("gpu1") == ("100", "1k")


def test_i11_adjust_beyond_what_one_workload_may_have() -> None:
    found = world(500, 5000, 1)
    found.quota(total(500, 5000, 10), amounts("limits", (100, 1000)))
    assert found.alloc((50, 500), uid="w").admitted
    decision = found.adjust("w", marks((50, 500), (150, 500)))
    assert (decision.reason, decision.outcome) == ("single.max.tflops.limit", NEVER)
    assert found.used() == ("50", 500, "50", 500, 1)


def test_i12_a_reservation_counts_against_the_quota_and_takes_no_gpu() -> None:
    found = world(50, 500)
    found.quota(total(100, 1000, 10))
    assert found.engine.admit(found.claim(marks((30, 300), None, 2), "w")).admitted
    assert found.used() == ("60", 600, "60", 600, 1)
    assert found.free("gpu1") == ("50", "500")
    assert found.alloc((30, 300), 2).reason == "total.max.tflops.request"


def test_i13_placing_it_takes_the_gpus() -> None:
    found = world(50, 500)
    found.quota(total(100, 1000, 10))
    found.engine.admit(found.claim(marks((30, 300), None, 2), "w"))
    assert found.engine.place("w", "node1").admitted
    assert found.on("w") == ["gpu1", "gpu2"]
    assert found.used() == ("60", 600, "60", 600, 1)
    assert found.free("gpu1") == ("20", "200")


def test_i14_releasing_it_makes_room() -> None:
    found = world(50, 500)
    found.quota(total(100, 1000, 10))
    found.engine.admit(found.claim(marks((30, 300), None, 2), "w"))
    found.engine.release("w")
    assert found.used() == EMPTY
    assert found.alloc((30, 300), 2).admitted


def test_i16_pods_that_run_at_the_start() -> None:
    found = world(100, 1000)
    found.quota(total(100, 1000, 10))
    for uid, request in (("worker1", (20, 200)), ("worker2", (30, 300))):
        annotations = marks(request, gpu_ids="gpu1")
        found.engine.submit(found.claim(annotations, uid, needs=NodeNeeds({}, node_name="node1")))
        found.engine.place(uid, "node1", forced=True)
    assert found.used() == ("50", 500, "50", 500, 2)
    assert found.free("gpu1") == ("50", "500")
    assert found.free("gpu2") == ("100", "1k")


def test_v0_eleventh_of_ten_workers() -> None:
    found = world()
    found.quota(total(100, 1000, 10))
    assert [found.alloc((9, 90)).admitted for _ in range(11)] == [True] * 10 + [False]


def test_worked_example_of_adjusting() -> None:
    found = world()
    found.quota(total(200, 2000, 10))
    found.alloc((30, 300), 2, "w")
    assert found.adjust("w", marks((40, 400), (50, 500), 2)).admitted
    assert found.used() == ("80", 800, "100", 1000, 1)
    assert found.free("gpu1") == ("960", "9600")
    assert found.adjust("w", marks((30, 300), None, 2)).admitted
    assert found.used() == ("60", 600, "60", 600, 1)


@pytest.mark.parametrize(
    ("request_", "admitted"),
    [((80, 800), True), ((99, 999), True), ((100, 1000), True), ((101, 1000), False)],
)
def test_over_a_lowered_quota_shrinking_is_allowed_and_growing_is_not(
    request_: tuple[int, int], admitted: bool
) -> None:
    found = world()
    found.quota(total(100, 1000, 10))
    found.alloc((100, 1000), uid="w")
    found.quota(total(50, 500, 0))
    assert found.adjust("w", marks(request_)).admitted == admitted


def test_a_quota_refusal_and_a_full_gpu_are_told_apart() -> None:
    found = world(50, 500)
    found.quota(total(100, 1000, 10))
    assert found.alloc((60, 60)).reason == "gpus.none"
    assert found.alloc((40, 40)).admitted
    assert found.alloc((40, 40)).admitted
    assert found.alloc((20, 20)).reason == "gpus.full"
    assert found.alloc((40, 40)).reason == "total.max.tflops.request"
    assert f"limits/{NS}" in found.engine.state.accounts
