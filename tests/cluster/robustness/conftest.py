"""One control plane for the bad days, with Bursar installed and not running: each test starts the replicas it wants."""

from collections.abc import Iterator

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.installation import install
from tests.cluster.robustness.scene import Scene


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane.start() as plane:
        install(plane)
        yield plane


@pytest.fixture
def scene(plane: ControlPlane) -> Iterator[Scene]:
    scene = Scene(plane)
    yield scene
    scene.end()
