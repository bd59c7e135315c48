"""One control plane for all tests of this folder, a namespace of its own for each test that asks for one.

Tests that disturb the shared plane leave it as they found it: in one process they run one after the other, and each
process has a plane of its own (tools/run_suite.py).
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bursar.kube.client.api import Api
from bursar.kube.client.http import Http
from bursar.kube.client.kubeconfig import load
from tests.cluster.controlplane import ControlPlane

FOLDER = Path(__file__).resolve().parent.parent.parent / "build" / "test" / "control-plane"


@pytest.fixture(scope="session")
def plane(request: pytest.FixtureRequest, worker_id: str) -> Iterator[ControlPlane]:
    """The shared control plane. Its folder, with the logs, stays after a session with failures."""
    plane = ControlPlane.start(folder=FOLDER / f"{worker_id}-{os.getpid()}")
    yield plane
    failed = request.session.testsfailed > 0
    plane.stop(keep=failed)
    if failed:
        request.config.get_terminal_writer().line(f"\nlogs of the control plane: {plane.folder / 'logs'}")


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    """Bursar's own client, as the administrator."""
    async with Http(load(str(plane.kubeconfig))) as http:
        yield Api(http)


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[str]:
    name = plane.create_namespace()
    yield name
    plane.delete_namespace(name)


@pytest.fixture
def nodes(plane: ControlPlane) -> Iterator[list[str]]:
    """Two nodes for the time of a test."""
    names = plane.add_nodes(2)
    yield names
    plane.remove_nodes(names)
