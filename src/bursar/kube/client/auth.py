"""How to reach the API server: address, trust and credentials.

``kubeconfig.load`` looks where controllers look: an explicit kubeconfig, ``KUBECONFIG``, the service account of the
pod, ``~/.kube/config``. A missing file or a wrong field is a ``ConfigError`` that names both.

Credentials are static tokens, token files, and exec plugins that return a token or a certificate. Service account
tokens rotate, so a token file is read again at least once a minute. A plugin runs when its last answer has expired.
After a 401 credentials are fetched once more, at most once per call.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec

from bursar.kube.client.errors import ConfigError

TOKEN_PERIOD = 60.0
EXEC_TIMEOUT = 60.0
EXEC_GROUP = "client.authentication.k8s.io"
EXEC_VERSIONS = (f"{EXEC_GROUP}/v1", f"{EXEC_GROUP}/v1beta1")


@dataclass(frozen=True, slots=True)
class Secret:
    """The credentials of a call. The certificate and its key are PEM texts, for the connection."""

    authorization: str = ""  # of the header with that name
    certificate: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return "Secret(...)"


class Credentials(Protocol):
    async def current(self, *, renew: bool = False) -> Secret:
        """The current credentials; ``renew``: the last ones were refused."""


@dataclass(frozen=True, slots=True)
class Given:
    """Credentials that stand in the configuration and do not change."""

    secret: Secret = Secret()

    async def current(self, *, renew: bool = False) -> Secret:
        return self.secret


class TokenFile:
    """A token in a file that others replace. ``base`` has a client certificate to use with it."""

    def __init__(self, path: Path, period: float = TOKEN_PERIOD, base: Secret | None = None) -> None:
        self._path = path
        self._period = period
        self._base = base or Secret()
        self._read_at = 0.0
        self._secret: Secret | None = None

    async def current(self, *, renew: bool = False) -> Secret:
        return self.read(renew=renew)

    def read(self, *, renew: bool = False) -> Secret:
        now = time.monotonic()
        if self._secret is None or renew or now - self._read_at >= self._period:
            token = read_text(self._path, "token")
            if not token.strip():
                raise ConfigError(f"{self._path}: the token is empty")
            self._secret = Secret(f"Bearer {token.strip()}", self._base.certificate, self._base.key)
            self._read_at = now
        return self._secret


class _ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _ExecStatus | None = None


@dataclass(slots=True)
class ExecPlugin:
    """A command that prints an ExecCredential, as kubeconfig's ``users[].user.exec`` describes it."""

    place: str  # file and field, for messages
    command: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    api_version: str
    cluster: dict[str, Any] | None = None  # passed to the plugin if the kubeconfig says so
    hint: str = ""
    _secret: Secret | None = None
    _expires: datetime | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def current(self, *, renew: bool = False) -> Secret:
        used = self._secret
        async with self._lock:
            replaced = self._secret is not used  # by a call that waited before us
            expired = self._expires is not None and datetime.now(UTC) >= self._expires
            if self._secret is None or expired or (renew and not replaced):
                self._secret, self._expires = await self._fetch()
            return self._secret

    async def _fetch(self) -> tuple[Secret, datetime | None]:
        status = self._read(await self._run())
        if not status.token and not (status.client_certificate_data and status.client_key_data):
            raise ConfigError(f"{self.place}: {self.command} gave neither a token nor a certificate with its key")
        authorization = f"Bearer {status.token}" if status.token else ""
        secret = Secret(authorization, status.client_certificate_data, status.client_key_data)
        return secret, status.expiration_timestamp

    def _read(self, output: bytes) -> _ExecStatus:
        try:
            answer = msgspec.json.decode(output, type=_ExecCredential)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{self.place}: {self.command} printed no ExecCredential: {error}") from None
        if answer.kind != "ExecCredential" or answer.api_version != self.api_version or answer.status is None:
            wanted = f"an ExecCredential of {self.api_version} with a status"
            raise ConfigError(f"{self.place}: {self.command} printed {answer.api_version} {answer.kind}, not {wanted}")
        return answer.status

    async def _run(self) -> bytes:
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        environment = {**os.environ, **self.environment, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                self.command,
                *self.arguments,
                env=environment,
                stdin=null,
                stdout=pipe,
                stderr=pipe,
            )
        except OSError as error:
            advice = f" ({self.hint})" if self.hint else ""
            raise ConfigError(f"{self.place}: {self.command} cannot be run: {error.strerror}{advice}") from None
        try:
            async with asyncio.timeout(EXEC_TIMEOUT):
                output, complaint = await process.communicate()
        except TimeoutError:
            raise ConfigError(f"{self.place}: {self.command} took longer than {EXEC_TIMEOUT:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            words = complaint.decode(errors="replace").strip().replace("\n", " ")[-400:]
            raise ConfigError(f"{self.place}: {self.command} failed with exit code {process.returncode}: {words}")
        return output


def read_text(path: Path, what: str) -> str:
    """A file that a configuration names."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: the {what} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: the {what} is not text") from None


SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Trust:
    """The certificates that prove the server's identity."""

    authorities: str = ""  # PEM; "": the machine's own
    insecure: bool = False
    server_name: str = ""  # "": the host of the address
    place: str = ""  # for messages

    def context(self, secret: Secret) -> ssl.SSLContext:
        """A TLS context that presents the certificate of ``secret``, if it has one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.authorities:
            self._add_authorities(context)
        else:
            context.load_default_certs()
        if secret.certificate:
            self._add_certificate(context, secret)
        return context

    def _add_authorities(self, context: ssl.SSLContext) -> None:
        try:
            context.load_verify_locations(cadata=self.authorities)
        except ssl.SSLError as error:
            raise ConfigError(f"{self.place}: the certificate authority is no PEM certificate: {error}") from None

    def _add_certificate(self, context: ssl.SSLContext, secret: Secret) -> None:
        # The ssl module reads certificates with keys from files only; this one exists for the moment of reading.
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(f"{secret.certificate}\n{secret.key}\n")
            file.flush()
            try:
                context.load_cert_chain(file.name, password=_no_password)
            except (ssl.SSLError, ConfigError) as error:
                raise ConfigError(f"{self.place}: the client certificate and its key do not work: {error}") from None


def _no_password() -> str:
    raise ConfigError("the key is protected by a password")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Everything that a connection needs."""

    server: str  # https://host:port, with a path if the server is behind one
    trust: Trust = Trust()
    credentials: Credentials = field(default_factory=Given)
    namespace: str = "default"
    proxy: str = ""
    headers: Mapping[str, str | tuple[str, ...]] = field(
        default_factory=dict
    )  # on every call, such as Impersonate-User
    source: str = ""  # the file and context it was read from


def in_cluster(environment: Mapping[str, str] = os.environ, account: Path = SERVICE_ACCOUNT) -> ClusterConfig:
    """The configuration of a pod: its service account and the address that every pod is given."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError("not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    token = TokenFile(account / "token")
    token.read()
    authorities = read_text(account / "ca.crt", "certificate authority")
    trust = Trust(authorities, place=str(account / "ca.crt"))
    trust.context(Secret())
    space = account / "namespace"
    namespace = read_text(space, "namespace").strip() if space.exists() else ""
    address = f"[{host}]" if ":" in host else host
    return ClusterConfig(f"https://{address}:{port}", trust, token, namespace or "default", source=str(account))
