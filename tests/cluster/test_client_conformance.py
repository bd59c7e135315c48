"""What the client rests on, on a real API server: the cases that also keep the server in memory honest."""

import pytest

from bursar.kube.client.api import Api
from tests.kube.client.conformance import CASES, Case

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_case(case: Case, api: Api, namespace: str) -> None:
    await case(api, namespace)
