"""Tokens of an OIDC provider: signed JWTs, whose groups say who may do what.

A file names the issuer, the audience, and a role for each group. A thread fetches the provider's keys at the start,
once an hour, and when a token names a key that is not known, at most every ten seconds. So no request waits for the
provider; while its keys are missing, its tokens get 503. Signatures are verified by PyJWT, with asymmetric algorithms
only. A verified token is remembered for a minute at most.
"""

from __future__ import annotations

import json
import logging
import ssl
import time
import urllib.request
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final
from urllib.parse import urlsplit

import jwt
import msgspec
import yaml

from bursar.server.access import ROLES, Identity, TokenFileError, checked_identity
from bursar.server.problems import RefusedError

LOG = logging.getLogger("bursar.server")
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_LEEWAY: Final = 30  # seconds that clocks may differ
_FRESH: Final = 3600.0  # seconds until keys are fetched again
_PAUSE: Final = 10.0  # seconds between two attempts
_REMEMBERED, _SECONDS_REMEMBERED = 1_000, 60.0
_LARGEST: Final = 1024 * 1024  # bytes of an answer of the provider
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="bursar", error="invalid_token"'}


class GroupRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the members of a group may do."""

    group: str
    role: str
    namespaces: list[str] = []


class OidcOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The file. The first entry of ``roles`` whose group a user has decides."""

    issuer: str
    audience: str
    roles: list[GroupRole]
    username_claim: str = "sub"
    groups_claim: str = "groups"
    keys_url: str = ""  # asked of the issuer if not given
    ca_file: str = ""


def read_options(path: Path) -> OidcOptions:
    """The options of a file; ``TokenFileError`` names what is wrong with it."""
    try:
        found = msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), OidcOptions)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise TokenFileError(f"{path}: {str(error).splitlines()[0]}") from error
    for field, address in (("issuer", found.issuer), ("keysUrl", found.keys_url)):
        if (address or field == "issuer") and not _is_safe(address):
            raise TokenFileError(f"{path}: {field}: {address!r:.200} is no https address")
    for number, one in enumerate(found.roles):
        if one.role not in ROLES:
            raise TokenFileError(f"{path}: roles[{number}].role: {one.role!r:.60} is none of {', '.join(ROLES)}")
        try:
            checked_identity(one.group, one.role, frozenset(one.namespaces))
        except ValueError as error:
            raise TokenFileError(f"{path}: roles[{number}]: {error}") from None
    return found


def _is_safe(address: str) -> bool:
    """Whether what comes from there cannot be altered on its way."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    try:
        here = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        here = False
    return parts.scheme == "https" or (parts.scheme == "http" and here)


class KeyRing:
    """The keys of the provider, by their ids."""

    def __init__(self, options: OidcOptions) -> None:
        self._options = options
        self._lock = Lock()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._tried = -_FRESH
        self._fetching = False
        self.begin()

    def find(self, name: str) -> jwt.PyJWK | None:
        """The key, if it is known; if it is not, or the keys are old, they are fetched meanwhile."""
        found = self._keys.get(name)
        if found is None or time.monotonic() - self._tried > _FRESH:
            self.begin()
        return found

    @property
    def fetching(self) -> bool:
        return self._fetching or not self._keys

    def begin(self) -> None:
        """Fetch the keys in a thread, unless that was tried a moment ago."""
        with self._lock:
            now = time.monotonic()
            if self._fetching or now - self._tried < _PAUSE:
                return
            self._tried, self._fetching = now, True
        Thread(target=self._fetch, name="bursar-oidc", daemon=True).start()

    def _fetch(self) -> None:
        try:
            address = self._options.keys_url
            if not address:
                about = self._get(f"{self._options.issuer.rstrip('/')}/.well-known/openid-configuration")
                address = str(about["jwks_uri"])
                if not _is_safe(address):
                    raise ValueError(f"its keys are at {address!r:.200}, which is no https address")
            found = jwt.PyJWKSet.from_dict(self._get(address))
            self._keys = {key.key_id: key for key in found.keys if key.key_id}
        except (OSError, ValueError, LookupError, TypeError, jwt.PyJWTError) as error:
            LOG.warning("the keys of %s cannot be fetched: %s", self._options.issuer, error)
        finally:
            self._fetching = False

    def _get(self, address: str) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=self._options.ca_file or None)
        with urllib.request.urlopen(address, timeout=10, context=context) as response:  # noqa: S310 checked to be https
            text = response.read(_LARGEST)
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError(f"{address} answered something else")  # noqa: TRY004 not a defect of ours
        return found


class OidcVerifier:
    """Finds who a token of the provider stands for."""

    def __init__(self, options: OidcOptions, now: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._keys = KeyRing(options)
        self._now = now
        self._known: OrderedDict[bytes, tuple[float, Identity]] = OrderedDict()

    def identity(self, token: str) -> Identity | None:
        """None for what is no JWT; ``RefusedError`` for one that is not accepted."""
        if token.count(".") != 2:
            return None
        mark = sha256(token.encode("utf-8", "surrogateescape")).digest()
        until, known = self._known.get(mark, (0.0, None))
        if known is not None and self._now() < until:
            return known
        claims = self._verified(token)
        identity = self._identity(claims)
        left = float(claims["exp"]) - time.time()
        self._known[mark] = (self._now() + max(0.0, min(_SECONDS_REMEMBERED, left)), identity)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return identity

    def _verified(self, token: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            key = self._keys.find(str(header.get("kid", "")))
            if key is None:
                if self._keys.fetching:
                    raise RefusedError(503, "the keys of the identity provider are being fetched", {"Retry-After": "2"})
                raise jwt.InvalidKeyError("its key is not one of the identity provider's")
            found: dict[str, Any] = jwt.decode(
                token, key, algorithms=list(ALGORITHMS), audience=self._options.audience, issuer=self._options.issuer,
                leeway=_LEEWAY, options={"require": ["exp", "iss", "aud"]},
            )  # fmt: skip
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise RefusedError(401, f"this token is not accepted: {error}", _CHALLENGE) from None
        return found

    def _identity(self, claims: dict[str, Any]) -> Identity:
        options = self._options
        name = claims.get(options.username_claim)
        if not isinstance(name, str) or not name or not name.isprintable():
            raise RefusedError(401, f"this token has no claim {options.username_claim} with a name", _CHALLENGE)
        given = claims.get(options.groups_claim, [])
        groups = {given} if isinstance(given, str) else set(map(str, given)) if isinstance(given, list) else set()
        for one in options.roles:
            if one.group in groups:
                return Identity(name, one.role, frozenset(one.namespaces))
        raise RefusedError(403, f"{name} is in no group that has a role here")
