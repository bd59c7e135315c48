"""Pages of lists: a token names the moment that the first page was of, and where the next one begins."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from bursar.server.moments import Moment
from bursar.server.problems import RefusedError


class Page(msgspec.Struct, array_like=True, frozen=True):
    seq: int
    version: int
    at: int
    after: str

    @property
    def moment(self) -> Moment:
        return Moment(self.seq, self.version, self.at)

    def token(self) -> str:
        return urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def read_token(token: str) -> Page:
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        page = msgspec.json.decode(urlsafe_b64decode(padded), type=Page)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise RefusedError(400, "the parameter continue is not what a page before gave") from None
    if min(page.seq, page.version, page.at) < 0 or max(page.seq, page.version, page.at) >= 2**62:
        raise RefusedError(400, "the parameter continue is not what a page before gave")
    return page
