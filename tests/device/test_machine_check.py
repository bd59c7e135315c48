"""The check of a GPU machine passes where NVML, MPS and CUDA are fakes; ``make device-check`` runs all its stages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_check_passes_with_fakes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.device.machine_check", "--fake", "--short", "--out", str(tmp_path / "seen.txt")],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=900,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "All is as it must be" in (tmp_path / "seen.txt").read_text(encoding="utf-8")
