"""Random worlds in short: fixed seeds, all rules. The long run is ``python -m tests.all_policies``."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.all_policies.play import BrokenWorldError, Move, drawn, played, shrunk

SEEDS = (100, *range(102, 114))
STEPS = 150


def test_the_rules_hold_in_random_worlds() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        counts += played(seed, drawn(seed, STEPS))
    for happened in ("started", "waits", "evicted", "victims", "what-ifs", "gangs", "audits", "at rest", "undone"):
        assert counts[happened], f"no {happened} in {counts}"


def test_a_world_is_drawn_alike_every_time() -> None:
    for seed in (6, 7):  # the engine by itself, and a cluster
        assert played(seed, drawn(seed, STEPS)) == played(seed, drawn(seed, STEPS))


def test_a_broken_world_is_shrunk_to_the_steps_that_break_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that forbids a second pod: two steps are left of many."""
    monkeypatch.setattr("tests.all_policies.cluster_world.check_sums", _at_most_one_claim)
    with pytest.raises(BrokenWorldError) as caught:
        played(4, drawn(4, STEPS))
    found = shrunk(caught.value)
    assert len(found.moves) <= 2
    assert found.rule == "ValueError"
    _replayed(found.seed, found.moves)


def _at_most_one_claim(state: object) -> None:
    if len(getattr(state, "claims")) > 1:  # noqa: B009
        raise ValueError("two claims")


def _replayed(seed: int, moves: list[Move]) -> None:
    with pytest.raises(BrokenWorldError):
        played(seed, moves, 1)
