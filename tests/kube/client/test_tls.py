"""TLS: only the server we trust, with the certificate that we were given."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bursar.kube.client.api import PODS, Api
from bursar.kube.client.auth import ClusterConfig, Given, Secret, Trust
from bursar.kube.client.errors import Unanswered
from bursar.kube.client.http import NO_RETRY, Http
from tests.kube.client.certificates import Certificate, authority, issued_by
from tests.kube.fakeapi import FakeApi

pytestmark = pytest.mark.anyio

AUTHORITY = authority("ours")
SOMEBODY = authority("somebody else")


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[FakeApi]:
    """A server that asks for client certificates of our authority."""
    served = issued_by(AUTHORITY, "server")
    (tmp_path / "pair").write_text(served.pem + served.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair")
    context.load_verify_locations(cadata=AUTHORITY.pem)
    context.verify_mode = ssl.CERT_REQUIRED
    async with FakeApi(tls=context) as server:
        yield server


async def reaches(server: FakeApi, trust: Trust, shown: Certificate | None) -> bool:
    secret = Secret("", shown.pem, shown.key) if shown else Secret()
    async with Http(ClusterConfig(server.url, trust, Given(secret)), retry=NO_RETRY) as http:
        return await Api(http).serves(PODS)


async def test_both_sides_know_each_other(strict: FakeApi) -> None:
    assert await reaches(strict, Trust(AUTHORITY.pem), issued_by(AUTHORITY, "client"))


async def test_an_unknown_server_is_refused(strict: FakeApi) -> None:
    with pytest.raises(Unanswered, match="certificate verify failed"):
        await reaches(strict, Trust(SOMEBODY.pem), issued_by(AUTHORITY, "client"))
    assert strict.seen == []


async def test_insecure_takes_any_server(strict: FakeApi) -> None:
    assert await reaches(strict, Trust(insecure=True), issued_by(AUTHORITY, "client"))


async def test_another_name_is_refused(strict: FakeApi) -> None:
    with pytest.raises(Unanswered, match="certificate verify failed"):
        await reaches(strict, Trust(AUTHORITY.pem, server_name="elsewhere"), issued_by(AUTHORITY, "client"))


@pytest.mark.parametrize("shown", [None, issued_by(SOMEBODY, "client")], ids=["none", "foreign"])
async def test_the_server_refuses_unknown_clients(strict: FakeApi, shown: Certificate | None) -> None:
    with pytest.raises(Unanswered):
        await reaches(strict, Trust(AUTHORITY.pem), shown)
