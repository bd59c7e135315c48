"""Kubeconfig files, read as kubectl reads them.

``KUBECONFIG`` may list several files: of two entries with the same name the first counts, files that do not exist are
passed over, paths inside a file are relative to it. Unsupported fields that would change the
identity or the trusted certificates (``auth-provider``) are refused, never ignored.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from bursar.kube.client.auth import (
    EXEC_VERSIONS,
    ClusterConfig,
    Credentials,
    ExecPlugin,
    Given,
    Secret,
    TokenFile,
    Trust,
    in_cluster,
    read_text,
)
from bursar.kube.client.errors import ConfigError
from bursar.objects import manifests
from bursar.objects.decode import ManifestError


def load(path: str = "", context: str = "", environment: Mapping[str, str] = os.environ) -> ClusterConfig:
    """The cluster of a kubeconfig; ``auth`` says where it is looked for."""
    if path:
        return load_files([Path(path).expanduser()], context, must_exist=True)
    listed = [Path(part).expanduser() for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        return load_files(listed, context)
    if environment.get("KUBERNETES_SERVICE_HOST") and not context:
        return in_cluster(environment)
    default = Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config"
    if not default.exists():
        raise ConfigError(f"no cluster to talk to: KUBECONFIG is not set, {default} does not exist, and this is no pod")
    return load_files([default], context)


def load_files(paths: list[Path], context: str = "", *, must_exist: bool = False) -> ClusterConfig:
    """The context (the current one if none is named) of a list of kubeconfig files."""
    found = [path for path in paths if must_exist or path.exists()]
    if not found:
        raise ConfigError(f"{', '.join(map(str, paths))}: no such file")
    merged = _Merged()
    for path in found:
        merged.add(_Part(str(path), "", _parse(path)))
    return merged.config(context)


def _parse(path: Path) -> dict[str, Any]:
    try:
        contents = [content for _, content in manifests.documents(read_text(path, "kubeconfig")) if content is not None]
    except ManifestError as error:
        raise ConfigError(f"{path}: {error}") from None
    if len(contents) > 1 or not all(isinstance(content, dict) for content in contents):
        raise ConfigError(f"{path}: a kubeconfig is one mapping")
    return contents[0] if contents else {}  # type: ignore[return-value]  # a dict, checked above


@dataclass(frozen=True, slots=True)
class _Part:
    """A mapping inside a file, with its path for messages."""

    file: str
    path: str
    fields: dict[str, Any]

    def error(self, name: str, problem: str) -> ConfigError:
        return ConfigError(f"{self.file}: {self._at(name)}: {problem}")

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path and name else self.path or name

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(name, f"must be text, not {value!r:.40}")
        return value

    def flag(self, name: str) -> bool:
        value = self.fields.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.error(name, f"must be true or false, not {value!r:.40}")
        return bool(value)

    def part(self, name: str) -> _Part:
        value = self.fields.get(name)
        if not isinstance(value, dict | None):
            raise self.error(name, "must be a mapping")
        return _Part(self.file, self._at(name), value or {})

    def parts(self, name: str) -> list[_Part]:
        value = self.fields.get(name)
        if not isinstance(value, list | None) or not all(isinstance(item, dict) for item in value or ()):
            raise self.error(name, "must be a list of mappings")
        return [_Part(self.file, f"{self._at(name)}[{index}]", item) for index, item in enumerate(value or ())]

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.fields.get(name)
        if not isinstance(value, list | None) or not all(isinstance(item, str) for item in value or ()):
            raise self.error(name, "must be a list of texts")
        return tuple(value or ())

    def resolve(self, name: str) -> Path:
        """The file that a field names, relative to this one."""
        return Path(self.file).parent / Path(self.text(name)).expanduser()

    def pem(self, name: str) -> str:
        """A PEM text that stands in ``name-data``, in base64, or in the file that ``name`` names."""
        data = self.text(f"{name}-data")
        if data:
            try:
                return base64.b64decode(data, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                raise self.error(f"{name}-data", "is not a PEM text in base64") from None
        if not self.text(name):
            return ""
        try:
            return read_text(self.resolve(name), name)
        except ConfigError as error:
            raise self.error(name, str(error)) from None


@dataclass(slots=True)
class _Merged:
    """All files together: of each name the first entry, and the first current context."""

    current: str = ""
    entries: dict[tuple[str, str], _Part] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    def add(self, file: _Part) -> None:
        self.files.append(file.file)
        self.current = self.current or file.text("current-context")
        for section, inner in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for entry in file.parts(section):
                name = entry.text("name")
                if not name:
                    raise entry.error("name", "is required")
                self.entries.setdefault((section, name), entry.part(inner))

    def config(self, context: str) -> ClusterConfig:
        files = ", ".join(self.files)
        name = context or self.current
        if not name:
            raise ConfigError(f"{files}: current-context: is not set, and no context was named")
        chosen = self.entries.get(("contexts", name))
        if chosen is None:
            known = ", ".join(sorted(entry for section, entry in self.entries if section == "contexts")) or "none"
            raise ConfigError(f"{files}: contexts: there is no context {name!r}; there are: {known}")
        cluster = self._named(chosen, "clusters", "cluster")
        user = self._named(chosen, "users", "user") if chosen.text("user") else _Part(chosen.file, "users", {})
        return ClusterConfig(
            server=_server(cluster),
            trust=_trust(cluster),
            credentials=_credentials(user, cluster),
            namespace=chosen.text("namespace") or "default",
            proxy=_proxy(cluster),
            headers=_impersonation(user),
            source=f"{chosen.file}, context {name}",
        )

    def _named(self, chosen: _Part, section: str, reference: str) -> _Part:
        name = chosen.text(reference)
        found = self.entries.get((section, name))
        if found is None:
            raise chosen.error(reference, f"there is no entry {name!r} in {section}")
        return found


def _server(cluster: _Part) -> str:
    server = cluster.text("server")
    parts = _address(server)
    if parts is None or parts.query or parts.fragment:
        raise cluster.error("server", f"{server!r} is not the address of a server such as https://host:6443")
    return server.rstrip("/")


def _proxy(cluster: _Part) -> str:
    proxy = cluster.text("proxy-url")
    if proxy and _address(proxy) is None:
        raise cluster.error("proxy-url", f"{proxy!r} is not the address of an HTTP proxy such as http://host:3128")
    return proxy


def _address(text: str) -> SplitResult | None:
    """The parts of an address that HTTP is spoken at; None if it is none."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"https", "http"} and parts.hostname and parts.port != 0  # asking for it checks it
    except ValueError:
        return None
    return parts if usable else None


def _trust(cluster: _Part) -> Trust:
    insecure = cluster.flag("insecure-skip-tls-verify")
    authorities = cluster.pem("certificate-authority")
    if insecure and authorities:
        raise cluster.error("insecure-skip-tls-verify", "cannot be given together with a certificate authority")
    place = f"{cluster.file}: {cluster.path}.certificate-authority"
    trust = Trust(authorities, insecure, cluster.text("tls-server-name"), place)
    trust.context(Secret())
    return trust


def _credentials(user: _Part, cluster: _Part) -> Credentials:
    if user.fields.get("auth-provider") is not None:
        raise user.error("auth-provider", "is not supported, as kubectl itself dropped it; use exec")
    if user.fields.get("exec") is not None:
        return _plugin(user.part("exec"), cluster)
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if bool(certificate) != bool(key):
        raise user.error("client-key" if certificate else "client-certificate", "is required beside its counterpart")
    base = Secret("", certificate, key)
    if certificate:
        Trust(place=f"{user.file}: {user.path}.client-certificate").context(base)
    if user.text("token"):  # kubectl lets it win over the file
        return Given(Secret(f"Bearer {user.text('token')}", certificate, key))
    if user.text("tokenFile"):
        tokens = TokenFile(user.resolve("tokenFile"), base=base)
        tokens.read()
        return tokens
    if user.text("username"):
        pair = f"{user.text('username')}:{user.text('password')}".encode()
        return Given(Secret(f"Basic {base64.b64encode(pair).decode()}", certificate, key))
    return Given(base)


def _plugin(part: _Part, cluster: _Part) -> ExecPlugin:
    version, command = part.text("apiVersion"), part.text("command")
    if version not in EXEC_VERSIONS:
        raise part.error("apiVersion", f"{version!r} is not one of {', '.join(EXEC_VERSIONS)}")
    if not command:
        raise part.error("command", "is required")
    if part.text("interactiveMode") == "Always":
        raise part.error("interactiveMode", "Always needs a terminal, and there is none")
    if os.sep in command:
        command = str(part.resolve("command"))
    return ExecPlugin(
        place=f"{part.file}: {part.path}",
        command=command,
        arguments=part.texts("args"),
        environment={entry.text("name"): entry.text("value") for entry in part.parts("env")},
        api_version=version,
        cluster=_cluster_info(cluster) if part.flag("provideClusterInfo") else None,
        hint=part.text("installHint"),
    )


def _cluster_info(cluster: _Part) -> dict[str, Any]:
    found: dict[str, Any] = {"server": cluster.text("server")}
    authorities = cluster.pem("certificate-authority")
    if authorities:
        found["certificate-authority-data"] = base64.b64encode(authorities.encode()).decode()
    found |= {name: cluster.text(name) for name in ("tls-server-name", "proxy-url") if cluster.text(name)}
    if cluster.flag("insecure-skip-tls-verify"):
        found["insecure-skip-tls-verify"] = True
    return found


def _impersonation(user: _Part) -> dict[str, str | tuple[str, ...]]:
    headers: dict[str, str | tuple[str, ...]] = {}
    if user.text("as"):
        headers["Impersonate-User"] = user.text("as")
    if user.text("as-uid"):
        headers["Impersonate-Uid"] = user.text("as-uid")
    if user.texts("as-groups"):
        headers["Impersonate-Group"] = user.texts("as-groups")
    extra = user.part("as-user-extra")
    for name in extra.fields:
        headers[f"Impersonate-Extra-{name}"] = extra.texts(name)
    if headers and "Impersonate-User" not in headers:
        raise user.error("as", "is required where as-groups, as-uid or as-user-extra are given")
    return headers
