"""Who may do what: identities with a role, and the tokens that stand for them.

A token file has a line for each token: ``ROLE TOKEN [NAME [NAMESPACES]]``. Empty lines and lines that begin with # are
skipped. Tokens are compared by their hash in constant time. The file is reloaded when it changes.

The agent of a machine has a token with the name of its machine, and may do what agents do for that machine.
A viewer reads, and asks what-if. A submitter also changes what belongs to its namespaces, quotas excepted. A quota
editor also changes quotas, and nothing else. An admin may do everything. Each change carries the name of its actor.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Final, Protocol

from bursar.control.admission import CONFIGURATION
from bursar.objects.kinds import POD, Kind, TypedObject
from bursar.server.operations import ADMIN, AGENT, CHANGE, READ
from bursar.server.problems import RefusedError

VIEWER: Final = "viewer"
SUBMITTER: Final = "submitter"
QUOTA_EDITOR: Final = "quota-editor"
AGENT_ROLE: Final = "agent"
_PEOPLE: Final = frozenset({VIEWER, SUBMITTER, QUOTA_EDITOR, ADMIN})
ROLES: Final = (VIEWER, SUBMITTER, QUOTA_EDITOR, ADMIN, AGENT_ROLE)
EVERYWHERE: Final = "*"
SHORTEST: Final = 16  # characters of a token
_NEEDS: Final = {
    READ: _PEOPLE,
    AGENT: frozenset({AGENT_ROLE, ADMIN}),
    CHANGE: frozenset({SUBMITTER, QUOTA_EDITOR, ADMIN}),
    ADMIN: frozenset({ADMIN}),
}
_OLD_NAMES: Final = {"read": VIEWER}
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="bursar"'}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks. An empty name: this server does not ask for one."""

    name: str
    role: str
    namespaces: frozenset[str] = frozenset()  # of a submitter

    def check(self, needed: str) -> None:
        """``RefusedError`` unless the role may call operations that need this."""
        if self.role not in _NEEDS[needed]:
            allowed = " or ".join(role for role in ROLES if role in _NEEDS[needed])
            raise RefusedError(403, f"{self.name} has the role {self.role}; this needs the role {allowed}")

    @property
    def restricted(self) -> bool:
        """Whether what it may change depends on the object."""
        return self.role != ADMIN

    def check_object(self, kind: Kind, key: str) -> None:
        """``RefusedError`` unless this object may be changed."""
        quota = kind.strict and kind.kind != CONFIGURATION
        if self.role == ADMIN or (self.role == QUOTA_EDITOR and quota):
            return
        namespace = key.partition("/")[0] if kind.namespaced else ""
        if self.role == SUBMITTER and namespace and not kind.strict:
            if not self.namespaces.isdisjoint({namespace, EVERYWHERE}):
                return
            where = ", ".join(sorted(self.namespaces))
            raise RefusedError(403, f"{kind.kind} {key}: {self.name} may change objects of {where} only")
        what = {QUOTA_EDITOR: "quotas", SUBMITTER: "what is in namespaces, except quotas"}.get(self.role, "nothing")
        raise RefusedError(403, f"{kind.kind} {key}: {self.name} has the role {self.role}, which may change {what}")

    def check_objects(self, objects: Iterable[tuple[Kind, str]]) -> None:
        for kind, key in objects:
            self.check_object(kind, key)

    def check_given(self, given: TypedObject, placed: str) -> None:
        """The same for a manifest. ``placed``: the node where that pod is; a pod elsewhere would pass by its quotas."""
        self.check_object(given.kind, given.key)
        if self.role == SUBMITTER and given.kind.name == POD.name:
            node = (given.body.get("spec") or {}).get("nodeName")
            if node and node != placed:
                raise RefusedError(403, f"Pod {given.key}: spec.nodeName: only an admin may choose the node of a pod")


OPEN = Identity("", ADMIN)  # of a server that asks for no token


class TokenFileError(Exception):
    """A file that says who may do what, and cannot be used: one line that names it."""


class TokenVerifier(Protocol):
    """Knows tokens that are in no file."""

    def identity(self, token: str) -> Identity | None:
        """None: not a token of that sort. ``RefusedError``: it is one, and is not accepted."""


class Access:
    """Finds who asks. Without tokens every request is allowed."""

    def __init__(self, path: Path | None, verifier: TokenVerifier | None = None) -> None:
        self._path = path
        self._verifier = verifier
        self._lock = Lock()
        self._stamp = (0, 0)
        self._known: dict[bytes, Identity] = {}
        if path is not None:
            self._load(path)

    @property
    def open(self) -> bool:
        return self._path is None and self._verifier is None

    def identify(self, authorization: str) -> Identity:
        """Who sends this header; ``RefusedError`` without a token that is known."""
        if self.open:
            return OPEN
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise RefusedError(401, "send the header Authorization: Bearer TOKEN", _CHALLENGE)
        found = self._find(token)
        if found is None and self._verifier is not None:
            found = self._verifier.identity(token)
        if found is None:
            raise RefusedError(401, "this token is not known", _CHALLENGE)
        return found

    def _find(self, token: str) -> Identity | None:
        if self._path is None:
            return None
        self._reload(self._path)
        wanted = sha256(token.encode("utf-8", "surrogateescape")).digest()
        found: Identity | None = None
        for known, identity in self._known.items():
            if hmac.compare_digest(known, wanted):
                found = identity
        return found

    def _reload(self, path: Path) -> None:
        """A file that can no longer be used leaves the tokens as they were."""
        try:
            status = path.stat()
            if (status.st_mtime_ns, status.st_ino) != self._stamp:
                self._load(path)
        except (OSError, TokenFileError):
            return

    def _load(self, path: Path) -> None:
        with self._lock:
            status, text = read_private(path)
            self._known = read_tokens(text, path)
            self._stamp = (status.st_mtime_ns, status.st_ino)


def read_private(path: Path) -> tuple[os.stat_result, str]:
    """A file that only its owner may read; ``TokenFileError`` otherwise."""
    try:
        status = path.stat()
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenFileError(f"{path}: cannot be read: {error}") from error
    if os.name == "posix" and status.st_mode & 0o077:
        raise TokenFileError(f"{path}: others may read it; run: chmod 600 {path}")
    return status, text


def read_tokens(text: str, path: Path) -> dict[bytes, Identity]:
    """The identities by the hashes of their tokens."""
    found: dict[bytes, Identity] = {}
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        role = _OLD_NAMES.get(parts[0], parts[0])
        if not 2 <= len(parts) <= 4 or role not in ROLES:
            form = f"{'|'.join(ROLES)} TOKEN [NAME [NAMESPACES]]"
            raise TokenFileError(f"{path}: line {number}: expected: {form}")
        if len(parts[1]) < SHORTEST:
            raise TokenFileError(f"{path}: line {number}: a token has at least {SHORTEST} characters")
        namespaces = frozenset(parts[3].split(",")) - {""} if len(parts) == 4 else frozenset()
        try:
            identity = checked_identity(parts[2] if len(parts) > 2 else role, role, namespaces)
        except ValueError as error:
            raise TokenFileError(f"{path}: line {number}: {error}") from None
        if found.setdefault(sha256(parts[1].encode()).digest(), identity) is not identity:
            raise TokenFileError(f"{path}: line {number}: this token has a line already")
    if not found:
        raise TokenFileError(f"{path}: holds no token")
    return found


def checked_identity(name: str, role: str, namespaces: frozenset[str]) -> Identity:
    """An identity; ``ValueError`` if its role and namespaces do not fit."""
    if role == AGENT_ROLE and name == AGENT_ROLE:
        raise ValueError("the token of an agent needs the name of its machine")
    if role == SUBMITTER and not namespaces:
        raise ValueError(f"a {SUBMITTER} needs namespaces: a,b or {EVERYWHERE} for all")
    if role != SUBMITTER and namespaces:
        raise ValueError(f"only a {SUBMITTER} has namespaces, not a {role}")
    return Identity(name, role, namespaces)
