"""What the client rests on, on a real API server: the cases that also keep the server in memory honest."""

from collections.abc import AsyncIterator

import pytest

from bursar.kube.client.api import Api
from bursar.kube.client.http import Http
from bursar.kube.client.kubeconfig import load
from tests.cluster.controlplane import ControlPlane
from tests.kube.client.conformance import CASES, Case

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    async with Http(load(str(plane.kubeconfig))) as http:
        yield Api(http)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_case(case: Case, api: Api, namespace: str) -> None:
    await case(api, namespace)
