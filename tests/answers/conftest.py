"""Settings of everything that follows a cluster."""

import pytest

from tests.kube.process_clock import be_patient


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)
