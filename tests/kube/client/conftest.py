"""A server in memory and a session with it, for each test."""

from collections.abc import AsyncIterator

import pytest

from bursar.kube.client.api import Api
from bursar.kube.client.http import Http, Retry
from tests.kube.fakeapi import FakeApi

QUICK = Retry(attempts=4, base=0.01, cap=0.05)


@pytest.fixture
async def fake() -> AsyncIterator[FakeApi]:
    async with FakeApi() as server:
        yield server


@pytest.fixture
async def http(fake: FakeApi) -> AsyncIterator[Http]:
    async with Http(fake.config(), timeout=3.0, retry=QUICK) as session:
        yield session


@pytest.fixture
def api(http: Http) -> Api:
    return Api(http)
