"""A small cluster behind a server, told the same story every time, and the commands that ask it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bursar.cli import manifest_lists
from bursar.cli.main import cli
from bursar.objects.validation import timestamp
from tests.server.live import Live, ManualClock, live, node, pod, quota

TREE: dict[str, Any] = {
    "apiVersion": "bursar.dev/v1alpha1",
    "kind": "QuotaTree",
    "metadata": {"name": "org"},
    "spec": {
        "resourceNames": ["nvidia.com/gpu"],
        "nodes": {
            "all": {"hard": True, "quota": {"nvidia.com/gpu": 4}},
            "x": {"parent": "all", "quota": {"nvidia.com/gpu": 1}},
            "y": {"parent": "all", "quota": {"nvidia.com/gpu": 3}},
        },
    },
}


class Shell:
    """Runs commands against one server, or against its file."""

    def __init__(self, bed: Live, data: Path, clock: ManualClock) -> None:
        self.environment: dict[str, str] = {}  # besides the server
        self.bed = bed
        self.data = data
        self.clock = clock

    def __call__(self, *arguments: object, width: int = 0, stdin: str | None = None) -> Result:
        return self._run(arguments, {"BURSAR_SERVER": self.bed.address, **self.environment}, width, stdin)

    def file(self, *arguments: object, width: int = 0) -> Result:
        return self._run((*arguments, "--data", self.data), {"BURSAR_SERVER": ""}, width, None)

    def _run(self, arguments: tuple[object, ...], environment: dict[str, str], width: int, stdin: str | None) -> Result:
        columns = str(width) if width else None
        env: dict[str, str | None] = {"BURSAR_CONFIG": "/nowhere", **environment, "COLUMNS": columns, "NO_COLOR": "1"}
        return CliRunner().invoke(cli, [*map(str, arguments)], prog_name="bursar", env=env, input=stdin)

    def lines(self, *arguments: object, width: int = 0) -> list[str]:
        result = self(*arguments, width=width)
        assert result.exit_code == 0, result.output
        return result.output.splitlines()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """Two teams that are sure of two GPUs each; b borrows one, and a second pod of b waits."""
    clock = ManualClock()
    with live(tmp_path / "bursar.db", clock=clock) as bed:
        bed.give(node("n1"), quota("a", 2), quota("b", 2, max={"nvidia.com/gpu": 3}), TREE)
        clock.now += 60_000
        bed.give(pod("b", "one", 3, runs_for="10m"))
        clock.now += 60_000
        bed.give(pod("b", "two", 2))
        clock.now += 60_000
        monkeypatch.setattr(manifest_lists, "wall_time", lambda: timestamp(clock.now))
        yield Shell(bed, tmp_path / "bursar.db", clock)
