"""A control plane of its own with Bursar installed on it and running; a story of its own for each test.

The definitions of GPUs and their pools are as strict as those of TensorFusion, whose users keep them.

Bursar acts on the whole cluster, so it is kept off the plane that other tests share. The controller runs with exactly
the roles of deploy/rbac.yaml. Pytest shows a test's part of the controller's log when the test fails.
"""

import sys
from collections.abc import Iterator

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.ports import Ports
from tests.cluster.installation import install, install_tensor_fusion
from tests.cluster.stories.controller_process import Running
from tests.cluster.stories.story import Story


@pytest.fixture(scope="package")
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Its folder, with the logs, stays after a session with failures."""
    plane = ControlPlane.start()
    yield plane
    plane.stop(keep=request.session.testsfailed > 0)


@pytest.fixture(scope="package")
def bursar(plane: ControlPlane) -> Iterator[Running]:
    ports = Ports()
    running = Running(plane, ports)
    try:
        install(plane, running.webhook_port)
        install_tensor_fusion(plane)
        running.start()
        yield running
        running.stop()
        assert running.audit(), "there are journals, and they are right"
    finally:
        running.close()
        ports.close()


@pytest.fixture
def story(plane: ControlPlane, bursar: Running) -> Iterator[Story]:
    before = len(bursar.log.read_text())
    failed = forbidden(bursar)
    story = Story(plane)
    yield story
    sys.stdout.write(f"the controller's log of {story.name}:\n{bursar.log.read_text()[before:]}\n")
    story.end()
    metrics = bursar.metrics()
    assert metrics["bursar_ledger_differences_total"] == 0, "ledger and cluster differ"
    assert not metrics.get('bursar_terms_total{why="rebuilt"}'), "the ledger was built anew, and counts from 0 again"
    assert not metrics.get('bursar_terms_total{why="failed"}'), "a fault ended a term"
    assert forbidden(bursar) <= failed, "the roles do not allow what the controller does"


def forbidden(bursar: Running) -> set[str]:
    """The calls of the controller that its roles did not allow."""
    return {name for name in bursar.metrics() if name.startswith("bursar_api_failures_total") and 'code="403"' in name}
