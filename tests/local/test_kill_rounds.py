"""Jobs whose clients, shims, processes and server are killed; ``make kill-rounds`` does it for long."""

from __future__ import annotations

from tests.local.kill_rounds import rounds_of


def test_no_gpu_is_lost_or_given_twice() -> None:
    assert sum(rounds_of(10, seed=3).values()) == 10
