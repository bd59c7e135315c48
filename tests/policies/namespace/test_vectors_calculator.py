"""The vectors of the quota calculator (notes 5.1), as the rulings have them."""

from __future__ import annotations

import pytest

from bursar.engine.session import EngineError
from bursar.policies.namespace.status import available_percent, reached
from tests.policies.gpus.world import NS, World, marks, total


def world() -> World:
    found = World()
    found.gpu("g1", "n1", 1_000_000, 1_000_000)
    found.gpu("g2", "n1", 1_000_000, 1_000_000)
    return found


@pytest.mark.parametrize(
    ("total_", "used", "percent"),
    [
        pytest.param(0, 0, "0.00", id="C1: by ruling a limit of zero has nothing left"),
        pytest.param(100, 50, "50.00", id="C7 requests.tflops"),
        pytest.param(1000, 500, "50.00", id="C7 requests.vram"),
        pytest.param(10, 5, "50.00", id="C7 workers"),
        pytest.param(None, 0, "100", id="C8: without a quota nothing is tracked"),
        pytest.param(3, 1, "66.67", id="rounded half up"),
        pytest.param(100, 40, "60.00", id="v0: used 40 percent"),
        pytest.param(10, 3, "70.00", id="v0: 3 of 10 workers"),
        pytest.param(32768, 1, "100.00", id="1 of 32768 workers"),
        pytest.param(32768, 2, "99.99", id="2 of 32768 workers"),
        pytest.param(50, 100, "0.00", id="never negative"),
    ],
)
def test_available_percent(total_: int | None, used: int, percent: str) -> None:
    assert available_percent(total_, used) == percent


@pytest.mark.parametrize(
    ("used", "threshold", "expected"),
    [
        pytest.param(96, 95, True, id="C9: 4 percent left of 95"),
        pytest.param(90, 95, False, id="C9: 10 percent left"),
        pytest.param(95, 95, True, id="C9: by ruling the threshold is reached at exactly its value"),
        pytest.param(92, 90, True, id="C9: 8 percent left of 90"),
        pytest.param(0, 0, False, id="a threshold of 0 wants some use"),
        pytest.param(1, 0, True, id="a threshold of 0 and some use"),
        pytest.param(99, 100, False, id="a threshold of 100"),
        pytest.param(100, 100, True, id="a threshold of 100 at all"),
    ],
)
def test_alert(used: int, threshold: int, expected: bool) -> None:
    assert reached(100, used, threshold) is expected


def test_c9_a_dimension_without_a_limit_never_alerts() -> None:
    """The original's empty percent cannot occur: what is not limited is not tracked."""
    assert reached(None, 5, 0) is False


def test_alert_compares_exact_shares_not_rounded_ones() -> None:
    assert reached(100_000, 94_999, 95) is False
    assert reached(100_000, 95_000, 95) is True


def test_c2_a_release_gives_back_what_was_charged_and_no_more() -> None:
    found = world()
    found.alloc((10, 100), uid="w")
    found.engine.release("w")
    assert found.used() == ("0", 0, "0", 0, 0)
    with pytest.raises(EngineError):
        found.engine.release("w")
    assert found.used() == ("0", 0, "0", 0, 0)


def test_c3_c5_a_claim_that_is_no_worker_is_none_of_its_business() -> None:
    found = world()
    found.quota(total(0, 0, 0))
    assert found.decide({}).admitted
    assert found.used() == ("0", 0, "0", 0, 0)


def test_c4_requests_and_limits_times_count_and_one_worker() -> None:
    found = world()
    found.alloc((100, 1000), 2, limit=(150, 1500))
    assert found.used() == ("200", 2000, "300", 3000, 1)


def test_c6_release_of_one_of_two() -> None:
    found = world()
    found.alloc((100, 1000), 2, uid="w1", limit=(150, 1500))
    found.alloc((0, 0), uid="w2")
    found.engine.release("w1")
    assert found.used() == ("0", 0, "0", 0, 1)


def test_three_workers_of_ten() -> None:
    """v0: op(10, 100) three times is 30/300 and three workers."""
    found = world()
    for _ in range(3):
        found.alloc((10, 100))
    assert found.used() == ("30", 300, "30", 300, 3)


def test_split_count_gives_the_same_amounts_but_more_workers() -> None:
    found = world()
    found.alloc((10, 100), 2, namespace="one")
    found.alloc((10, 100), namespace="two")
    found.alloc((10, 100), namespace="two")
    assert found.used("one")[:4] == found.used("two")[:4]
    assert (found.used("one")[4], found.used("two")[4]) == (1, 2)


def test_exact_fractions_are_not_rounded_up() -> None:
    """The original admits seven of these eight, because it rounds each operand up."""
    found = world()
    found.quota({"requests.tflops": 4000})
    decisions = [found.alloc(("500m", 0)) for _ in range(9)]
    assert [decision.admitted for decision in decisions] == [True] * 8 + [False]
    assert found.used() == ("4", 0, "4", 0, 8)
    assert found.engine.state.accounts[f"limits/{NS}"].used.amount("requests.tflops") == 4000


def test_annotations_of_the_world_are_those_of_the_contract() -> None:
    assert marks((1, 2), None, 3)["tensor-fusion.ai/gpu-count"] == "3"
