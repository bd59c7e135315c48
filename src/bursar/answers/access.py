"""Who asks, and what they may see.

The API server authenticates and authorises a request, then passes it on with the caller's name in headers. They are
believed only on a connection whose client certificate is signed by the authority of the API server's proxy and, where
names are listed, has one of them. All of that is in a ConfigMap of the cluster and read again when it changes.

What a caller sees of a namespace depends on the right to get pods there (SubjectAccessReview): asked for all namespaces
first, then for single ones, and kept for ten seconds. A review that fails shows nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec

from bursar.kube.client.api import CONFIG_MAPS, Api, Resource
from bursar.kube.client.errors import KubeError

log = logging.getLogger(__name__)
CONFIG_NAMESPACE = "kube-system"
CONFIG_NAME = "extension-apiserver-authentication"
REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
KEPT = 10.0  # seconds for which a review holds
_AT_ONCE = 8  # reviews
_MOST = 50_000  # reviews that are kept
_EVERYWHERE = ""

Headers = Mapping[str, list[str]]
"""The values of each header, by its name in small letters."""


class NotTrustedError(Exception):
    """A request that did not come through the API server."""


@dataclass(frozen=True, slots=True)
class User:
    """A user of the cluster, as the API server names them."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class ProxyTrust:
    """How to recognise the API server's proxy."""

    authorities: str  # PEM
    allowed_names: tuple[str, ...]  # of its certificate; none: any
    user_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]
    uid_headers: tuple[str, ...]

    @staticmethod
    def read(data: Mapping[str, str]) -> ProxyTrust:
        """From the ConfigMap; ``ValueError`` names the field that is missing or unreadable."""
        authorities = data.get("requestheader-client-ca-file", "")
        if not authorities:
            raise ValueError("requestheader-client-ca-file is missing: the API server has no aggregation layer")
        return ProxyTrust(
            authorities,
            _names(data, "requestheader-allowed-names"),
            _names(data, "requestheader-username-headers"),
            _names(data, "requestheader-group-headers"),
            _names(data, "requestheader-extra-headers-prefix"),
            _names(data, "requestheader-uid-headers"),
        )

    def user(self, common_name: str, headers: Headers) -> User:
        """The caller; raises ``NotTrustedError``."""
        if self.allowed_names and common_name not in self.allowed_names:
            raise NotTrustedError(
                f"the client certificate names {common_name!r:.80}, which is no proxy of this cluster"
            )
        name = next((value for header in self.user_headers for value in headers.get(header.lower(), ()) if value), "")
        if not name:
            raise NotTrustedError("the request names no user")
        groups = [value for header in self.group_headers for value in headers.get(header.lower(), ())]
        uids = [value for header in self.uid_headers for value in headers.get(header.lower(), ())]
        return User(name, tuple(groups), uids[0] if uids else "", tuple(sorted(self._extra(headers))))

    def _extra(self, headers: Headers) -> Iterable[tuple[str, tuple[str, ...]]]:
        for prefix in (prefix.lower() for prefix in self.extra_prefixes):
            for header, values in headers.items():
                if header.startswith(prefix):
                    yield unquote(header.removeprefix(prefix)), tuple(values)


def _names(data: Mapping[str, str], field: str) -> tuple[str, ...]:
    try:
        return tuple(msgspec.json.decode(data.get(field) or "[]", type=list[str]))
    except msgspec.DecodeError as error:
        raise ValueError(f"{field}: {error}") from None


async def read_trust(api: Api) -> ProxyTrust:
    """As the cluster has it now; ``KubeError`` or ``ValueError``."""
    found = await api.get(CONFIG_MAPS, CONFIG_NAME, CONFIG_NAMESPACE)
    return ProxyTrust.read(found.plain().get("data") or {})


class Reviews:
    """Which namespaces a user may see the pods of."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._known: dict[tuple[User, str], tuple[bool, float]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self.asked = 0

    async def hidden(self, user: User, namespaces: Iterable[str]) -> set[str]:
        """Those of the namespaces that the user may not see the pods of."""
        wanted = sorted(set(namespaces))
        if not wanted or await self._may(user, _EVERYWHERE):
            return set()
        allowed = await asyncio.gather(*(self._may(user, namespace) for namespace in wanted))
        return {namespace for namespace, may in zip(wanted, allowed, strict=True) if not may}

    async def _may(self, user: User, namespace: str) -> bool:
        now = self._clock()
        known = self._known.get((user, namespace))
        if known is not None and now < known[1]:
            return known[0]
        try:
            async with self._slots:
                may = await self._review(user, namespace)
        except KubeError as error:
            log.warning("the rights of %s cannot be reviewed: %s", user.name, error)
            return False
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[user, namespace] = may, now + KEPT
        return may

    async def _review(self, user: User, namespace: str) -> bool:
        self.asked += 1
        attributes = {"verb": "get", "resource": "pods", "version": "v1", "group": "", "namespace": namespace}
        spec: dict[str, Any] = {"user": user.name, "groups": list(user.groups), "resourceAttributes": attributes}
        if user.uid:
            spec["uid"] = user.uid
        if user.extra:
            spec["extra"] = {name: list(values) for name, values in user.extra}
        body = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "metadata": {}, "spec": spec}
        found = await self._api.create(REVIEWS, body)
        status = found.plain().get("status") or {}
        return status.get("allowed") is True and not status.get("denied")
