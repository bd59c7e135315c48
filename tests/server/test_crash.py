"""Nothing that was acknowledged is lost by kill -9. The long run: ``python -m tests.server.crash --rounds 200``."""

from __future__ import annotations

from pathlib import Path

from tests.server.crash import run


def test_ten_rounds_of_kill_nine(tmp_path: Path) -> None:
    summary = run(tmp_path / "bursar.db", rounds=10, seed=11)
    assert summary.acknowledged >= 18
    assert summary.backups >= 6
