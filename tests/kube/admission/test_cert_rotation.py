"""Keeping certificates against an API server in memory: who writes what, and what a failure leaves."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from bursar.kube.admission import cert_rotation
from bursar.kube.admission.cert_rotation import CertificateKeeper, service_names
from bursar.kube.admission.certs import Certificates, make, secret_data
from bursar.kube.admission.manifests import GATE_HOOKS, QUOTA_HOOKS, gate_hooks, quota_hooks
from bursar.kube.admission.predicate import CERTIFICATES, AdmissionOptions
from bursar.kube.admission.webhook import TlsContext
from bursar.kube.client.api import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Api
from bursar.kube.client.errors import Unanswered
from bursar.kube.client.http import Http
from bursar.policies.plugin import default_registry
from tests.kube.fakeapi.server import FakeApi

NAMESPACE = "bursar-system"
NAMES = service_names(AdmissionOptions())
NOW = datetime(2026, 6, 1, tzinfo=UTC)
HOOKS = ((MUTATING_WEBHOOKS, QUOTA_HOOKS), (VALIDATING_WEBHOOKS, QUOTA_HOOKS), (MUTATING_WEBHOOKS, GATE_HOOKS))


def keeper(api: Api, tls: TlsContext, *, leading: bool = True) -> CertificateKeeper:
    return CertificateKeeper(api, NAMESPACE, NAMES, tls, lambda: leading, now=lambda: NOW, settle=0.0)


def run(work: Callable[[Api, FakeApi], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with FakeApi() as fake, Http(fake.config()) as http:
            await work(Api(http), fake)

    asyncio.run(whole())


async def install_hooks(api: Api) -> None:
    for one in (*quota_hooks(AdmissionOptions(), default_registry()), *gate_hooks(AdmissionOptions())):
        kind = MUTATING_WEBHOOKS if one["kind"].startswith("Mutating") else VALIDATING_WEBHOOKS
        await api.create(kind, one)


async def bundles(api: Api) -> set[bytes]:
    found: set[bytes] = set()
    for resource, name in HOOKS:
        for hook in (await api.get(resource, name)).plain()["webhooks"]:
            found.add(base64.b64decode(hook["clientConfig"].get("caBundle", "")))
    return found


async def secret(api: Api) -> dict[str, Any]:
    return (await api.get(SECRETS, CERTIFICATES, NAMESPACE)).plain()


def encoded(state: Certificates) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in secret_data(state).items()}


def test_the_leader_makes_them_and_has_them_trusted_everywhere() -> None:
    async def work(api: Api, _fake: FakeApi) -> None:
        await install_hooks(api)
        tls = TlsContext()
        await keeper(api, tls).sync()
        assert tls.loaded is not None
        assert (await secret(api))["data"] == encoded(tls.loaded)
        assert await bundles(api) == {tls.loaded.authorities}

    run(work)


def test_a_follower_only_reads() -> None:
    async def work(api: Api, fake: FakeApi) -> None:
        await install_hooks(api)
        tls = TlsContext()
        await keeper(api, tls, leading=False).sync()
        assert tls.loaded is None
        leader = TlsContext()
        await keeper(api, leader).sync()
        before = len(fake.seen)
        await keeper(api, tls, leading=False).sync()
        assert tls.loaded == leader.loaded
        assert {seen.method for seen in fake.seen[before:]} == {"GET"}

    run(work)


def test_an_empty_secret_that_somebody_made_is_filled() -> None:
    async def work(api: Api, _fake: FakeApi) -> None:
        await api.create(SECRETS, {"metadata": {"name": CERTIFICATES}}, NAMESPACE)
        tls = TlsContext()
        await keeper(api, tls).sync()
        assert tls.loaded is not None
        assert (await secret(api))["data"] == encoded(tls.loaded)

    run(work)


def test_without_webhook_configurations_there_is_still_a_certificate() -> None:
    async def work(api: Api, _fake: FakeApi) -> None:
        tls = TlsContext()
        await keeper(api, tls).sync()
        assert tls.loaded is not None

    run(work)


def test_who_was_slower_takes_what_the_other_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(api: Api, _fake: FakeApi) -> None:
        other = make(NAMES, NOW)

        async def late(_self: CertificateKeeper, _bundle: bytes) -> bool:
            await api.create(SECRETS, {"metadata": {"name": CERTIFICATES}, "data": encoded(other)}, NAMESPACE)
            return False

        tls = TlsContext()
        with monkeypatch.context() as patched:
            patched.setattr(CertificateKeeper, "_trust", late)
            await keeper(api, tls).sync()
        assert tls.loaded is None
        await keeper(api, tls).sync()
        assert tls.loaded == other

    run(work)


def test_failures_are_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def work(api: Api, _fake: FakeApi) -> None:
        tls = TlsContext()
        kept = keeper(api, tls)
        failures = [Unanswered("connection refused", sent=False)]
        sync = kept.sync

        async def flaky() -> None:
            if failures:
                raise failures.pop()
            await sync()

        monkeypatch.setattr(kept, "sync", flaky)
        monkeypatch.setattr(cert_rotation, "FIRST_SECONDS", 0.0)
        task = asyncio.create_task(kept.run())
        async with asyncio.timeout(60):
            while tls.loaded is None:  # noqa: ASYNC110 nobody tells
                await asyncio.sleep(0.01)
        task.cancel()

    run(work)
    assert "certificates of the webhook: connection refused" in caplog.text
