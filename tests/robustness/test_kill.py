from pathlib import Path

from tests.robustness.kill import Killer

ROUNDS = 20


def test_kill_at_random_instants_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    killer = Killer(tmp_path / "bursar.db", seed=7)
    for _ in range(ROUNDS):
        killer.round()
    assert killer.acknowledged > 100
    assert killer.restored > 5
    assert killer.auditor.counts["victims"] > 10
