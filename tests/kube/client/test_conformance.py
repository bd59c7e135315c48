"""The cases of ``conformance`` on the server in memory."""

import pytest

from bursar.kube.client.api import Api
from tests.kube.client.conformance import CASES, Case

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_case(case: Case, api: Api) -> None:
    await case(api, "team-a")
