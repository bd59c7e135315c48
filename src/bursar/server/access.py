"""Who may ask: bearer tokens with a role, read from a file.

A token file has a line for each token: ``ROLE TOKEN [NAME]``, with ROLE ``read`` or ``admin``; empty lines and lines
that begin with # are left out. Tokens are compared by their hash and in constant time. The file is read again when it
changes.
"""

from __future__ import annotations

import hmac
import os
from hashlib import sha256
from pathlib import Path
from threading import Lock

from bursar.server.catalog import ADMIN, READ
from bursar.server.problems import RefusedError

ROLES = (READ, ADMIN)
SHORTEST = 16
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="bursar"'}


class TokenFileError(Exception):
    """A token file that cannot be used: one line that names it."""


class Access:
    """The tokens of a file; without a file everybody may do everything."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = Lock()
        self._stamp = (0, 0)
        self._roles: dict[bytes, str] = {}
        if path is not None:
            self._load(path)

    @property
    def open(self) -> bool:
        return self._path is None

    def check(self, authorization: str, role: str) -> None:
        """``RefusedError`` unless the header carries a token with that role."""
        if self._path is None:
            return
        self._reload(self._path)
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise RefusedError(401, "send the header Authorization: Bearer TOKEN", _CHALLENGE)
        given = self._role(token.strip())
        if given is None:
            raise RefusedError(401, "this token is not known", _CHALLENGE)
        if role == ADMIN and given != ADMIN:
            raise RefusedError(403, f"this needs a token with the role {ADMIN}")

    def _role(self, token: str) -> str | None:
        wanted = sha256(token.encode("utf-8", "surrogateescape")).digest()
        found: str | None = None
        for known, role in self._roles.items():
            if hmac.compare_digest(known, wanted):
                found = role
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
            try:
                status = path.stat()
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise TokenFileError(f"{path}: cannot be read: {error}") from error
            if os.name == "posix" and status.st_mode & 0o077:
                raise TokenFileError(f"{path}: others may read it; run: chmod 600 {path}")
            self._roles = read_tokens(text, path)
            self._stamp = (status.st_mtime_ns, status.st_ino)


def read_tokens(text: str, path: Path) -> dict[bytes, str]:
    found: dict[bytes, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if len(parts) < 2 or parts[0] not in ROLES:
            raise TokenFileError(f"{path}: line {number}: expected: read|admin TOKEN [NAME]")
        if len(parts[1]) < SHORTEST:
            raise TokenFileError(f"{path}: line {number}: a token has at least {SHORTEST} characters")
        found[sha256(parts[1].encode()).digest()] = parts[0]
    if not found:
        raise TokenFileError(f"{path}: holds no token")
    return found
