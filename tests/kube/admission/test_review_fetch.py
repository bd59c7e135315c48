"""What the webhook fetches: no more than admission reads, since there may be very many pods."""

from typing import Any

import pytest

from bursar.kube.admission.review import fetch_from
from bursar.kube.client.api import NODES, PODS, Api
from bursar.kube.client.http import Http
from tests.kube.fakeapi import FakeApi

pytestmark = pytest.mark.anyio


async def fetched(fake: FakeApi, kind: str) -> list[Any]:
    async with Http(fake.config()) as http:
        return list(await fetch_from(Api(http))(kind))


async def test_of_pods_that_have_not_ended_their_names_and_labels() -> None:
    async with FakeApi() as fake:
        for phase in ("Pending", "Running", "Succeeded", "Failed"):
            body = {"metadata": {"name": phase.lower(), "labels": {"a": "b"}}, "spec": {}, "status": {"phase": phase}}
            fake.state.create(PODS, "ns", body)
        found = [one["metadata"] for one in await fetched(fake, "Pod")]
        assert found == [{"name": name, "namespace": "ns", "labels": {"a": "b"}} for name in ("pending", "running")]
        assert "as=PartialObjectMetadataList" in dict(fake.seen[0].headers)["Accept"]


async def test_of_nodes_what_they_have() -> None:
    async with FakeApi() as fake:
        status = {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "5"}, "images": [{"names": ["x"]}]}
        fake.state.create(NODES, "", {"metadata": {"name": "n", "labels": {"a": "b"}}, "status": status})
        (found,) = await fetched(fake, "Node")
        assert found["metadata"] == {"name": "n", "labels": {"a": "b"}}
        assert found["status"] == {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "5"}}
