from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.bed import LocalBed, bed_in


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[LocalBed]:
    with bed_in(tmp_path) as found:
        yield found


@pytest.fixture(params=["auto", "none"], ids=["cgroups where they are", "without cgroups"])
def each_bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalBed]:
    with bed_in(tmp_path, cgroups=str(request.param)) as found:
        yield found
