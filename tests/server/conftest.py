from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.live import Live, ManualClock, live, node, quota


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bed(tmp_path: Path, clock: ManualClock) -> Iterator[Live]:
    """A server with one node of four GPUs and two teams that are sure of two each."""
    with live(tmp_path / "bursar.db", clock=clock) as found:
        found.give(node("n1"), quota("a", 2), quota("b", 2))
        yield found
