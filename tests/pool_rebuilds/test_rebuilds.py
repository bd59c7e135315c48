"""Random histories in short: fixed seeds. The long run is ``python -m tests.pool_rebuilds``."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.pool_rebuilds.history import drawn
from tests.pool_rebuilds.play import BrokenHistoryError, played, shrunk
from tests.pool_rebuilds.rebuild import DifferenceError

SEEDS = range(3_000_000, 3_000_030)


def test_a_rebuilt_cluster_is_the_same() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        counts += played(seed)
    for happened in ("compared", "gang", "found", "options", "profile", "remove", "relabel", "wait"):
        assert counts[happened], f"no {happened} in {counts}"


def test_a_history_that_differs_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that no cluster may have a pod: one step is left of many."""
    monkeypatch.setattr("tests.pool_rebuilds.play.compare", _no_pods)
    with pytest.raises(BrokenHistoryError) as caught:
        played(SEEDS[0], drawn(SEEDS[0]))
    found = shrunk(caught.value)
    assert len(found.moves) == 1
    assert found.what == "pods"


def _no_pods(cluster: object, _rng: object) -> None:
    pods = getattr(cluster, "pods")()  # noqa: B009
    if pods:
        raise DifferenceError("pods", pods, [])
