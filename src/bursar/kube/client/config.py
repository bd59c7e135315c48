"""How to reach the API server, ready for use: address, trust, credentials.

``kubeconfig.load`` finds it where controllers look: a kubeconfig that is named, then ``KUBECONFIG``, then the service
account of the pod we run in, then ``~/.kube/config``. Nothing is taken on trust: a file that is missing or a field that
is wrong is a ``ConfigError`` that names both.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bursar.kube.client.credentials import Credentials, Given, Secret, TokenFile, read_text
from bursar.kube.client.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom we believe to be the server."""

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
    source: str = ""  # where all this stood


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
