"""The short form of the long random run, and that it notices what it is made for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from msgspec import structs

from tests.builders import node, pod
from tests.server.live import ManualClock, live
from tests.server.what_if_trials import differences, run_world


@pytest.mark.parametrize("seed", [3, 5, 117])
def test_what_is_said_of_new_pods_is_what_happens(tmp_path: Path, seed: int) -> None:
    assert run_world(tmp_path, seed, 12, Counter()) == 12


def test_a_knock_on_effect_that_is_not_said_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(tmp_path / "bursar.db", clock=ManualClock()) as bed:
        bed.give(node("n1", {"cpu": 4}), pod("large", "a", {"cpu": 4}), pod("small", "a", {"cpu": 1}))
        answered = bed.client.what_if
        monkeypatch.setattr(bed.client, "what_if", lambda body: structs.replace(answered(body), starts=[]))
        problems = differences(bed, (pod("p", "a", {"cpu": 3}, priority=9),), Counter())
    assert problems == ["starts: said [], but was ['a/small']"]
