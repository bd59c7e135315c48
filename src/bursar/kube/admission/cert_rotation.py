"""Rotation of the webhook's certificates: the Secret, the CA bundle of the webhook configurations and of the answers
API, the live TLS context.

The leader creates and renews; every replica reads the Secret and serves what it finds. Before a new certificate is
stored, the CA bundle trusts both authorities, so that no replica ever serves an untrusted one. A leader that dies in
between leaves one authority too many, which the next pass removes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from bursar.kube.admission.certs import (
    CertificateError,
    Certificates,
    make,
    read_secret,
    renewal_reason,
    secret_data,
    trusted,
)
from bursar.kube.admission.manifests import GATE_HOOKS, QUOTA_HOOKS
from bursar.kube.admission.predicate import (
    ANSWERS_API,
    ANSWERS_SERVICE,
    CERTIFICATES,
    MANAGED_BY,
    SERVICE,
    AdmissionOptions,
)
from bursar.kube.admission.webhook import TlsContext
from bursar.kube.client.api import (
    API_SERVICES,
    MUTATING_WEBHOOKS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    Api,
    PatchKind,
    Resource,
)
from bursar.kube.client.errors import Conflict, Forbidden, KubeError

PASS_SECONDS = 60.0
FIRST_SECONDS = 2.0  # between passes as long as there is nothing to serve with
SETTLE_SECONDS = 5.0  # for API servers to hear of a new bundle

_HOOKS = ((MUTATING_WEBHOOKS, QUOTA_HOOKS), (VALIDATING_WEBHOOKS, QUOTA_HOOKS), (MUTATING_WEBHOOKS, GATE_HOOKS))
_log = logging.getLogger(__name__)


def service_names(options: AdmissionOptions) -> list[str]:
    """The names under which the API server calls the webhook and the answers API."""
    bases = [f"{service}.{options.namespace}.svc" for service in (SERVICE, ANSWERS_SERVICE)]
    return [name for base in bases for name in (base, f"{base}.cluster.local")]


def now_utc() -> datetime:
    return datetime.now(UTC)


class CertificateKeeper:
    def __init__(
        self,
        api: Api,
        namespace: str,
        names: Sequence[str],
        tls: TlsContext,
        leading: Callable[[], bool],
        *,
        now: Callable[[], datetime] = now_utc,
        settle: float = SETTLE_SECONDS,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._names = list(names)
        self._tls = tls
        self._leading = leading
        self._now = now
        self._settle = settle

    async def run(self) -> None:
        """For ever: a pass, a pause. What fails is logged and tried again."""
        while True:
            try:
                await self.sync()
            except (KubeError, CertificateError, ssl.SSLError) as error:
                _log.warning("certificates of the webhook: %s", error)
            await asyncio.sleep(FIRST_SECONDS if self._tls.loaded is None else PASS_SECONDS)

    async def sync(self) -> None:
        stored = await self._keep() if self._leading() else (await self._stored())[0]
        if stored is not None:
            self._tls.load(stored)

    async def _keep(self) -> Certificates | None:
        """What is in the Secret, made or renewed if that is due, and trusted by the API server."""
        stored, version = await self._stored()
        reason = "there is none" if stored is None else renewal_reason(stored, self._names, self._now())
        if not reason and stored is not None:
            await self._trust(trusted(stored))
            return stored
        _log.info("new certificate for the webhook: %s", reason)
        new = make(self._names, self._now(), stored)
        if await self._trust(new.authorities) and stored is not None:
            await asyncio.sleep(self._settle)
        return await self._store(new, version)

    async def _stored(self) -> tuple[Certificates | None, str]:
        """The certificates, if they are there and complete, and the version of the Secret, if there is one."""
        found = await self._api.find(SECRETS, CERTIFICATES, self._namespace)
        if found is None:
            return None, ""
        data: dict[str, str] = found.plain().get("data") or {}
        try:
            return read_secret(
                {name: base64.b64decode(text) for name, text in data.items()}
            ), found.meta.resource_version
        except (CertificateError, binascii.Error):
            return None, found.meta.resource_version

    async def _store(self, new: Certificates, version: str) -> Certificates | None:
        """Returns None if another replica was faster: the next pass sees what it stored."""
        data = {name: base64.b64encode(content).decode() for name, content in secret_data(new).items()}
        metadata = {"name": CERTIFICATES, "labels": dict(MANAGED_BY)}
        body: dict[str, object]
        try:
            if version:
                body = {"metadata": {"resourceVersion": version}, "data": data}
                await self._api.patch(SECRETS, CERTIFICATES, self._namespace, PatchKind.MERGE, body)
            else:
                body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
                await self._api.create(SECRETS, body, self._namespace)
        except Conflict:
            return None
        return new

    async def _trust(self, bundle: bytes) -> bool:
        """Write the bundle wherever it is not yet; whether anything was written."""
        written = [await self._trust_in(resource, name, bundle) for resource, name in _HOOKS]
        return any([*written, await self._trust_answers(bundle)])

    async def _trust_answers(self, bundle: bytes) -> bool:
        """The same for the answers API, which is there only where it was installed."""
        try:
            found = await self._api.find(API_SERVICES, ANSWERS_API)
        except Forbidden as error:
            _log.warning("the answers API gets no certificate: %s", error)
            return False
        wanted = base64.b64encode(bundle).decode()
        if found is None or (found.plain().get("spec") or {}).get("caBundle") == wanted:
            return False
        await self._api.patch(API_SERVICES, ANSWERS_API, "", PatchKind.MERGE, {"spec": {"caBundle": wanted}})
        return True

    async def _trust_in(self, resource: Resource, name: str, bundle: bytes) -> bool:
        found = await self._api.find(resource, name)
        if found is None:
            return False
        wanted = base64.b64encode(bundle).decode()
        patch: list[dict[str, object]] = []
        for index, hook in enumerate(found.plain().get("webhooks") or ()):
            if hook["clientConfig"].get("caBundle") != wanted:
                at = f"/webhooks/{index}"
                patch.append({"op": "test", "path": f"{at}/name", "value": hook["name"]})
                patch.append({"op": "add", "path": f"{at}/clientConfig/caBundle", "value": wanted})
        if patch:
            await self._api.patch(resource, name, "", PatchKind.JSON, patch)
        return bool(patch)
