"""Who asks: bearer tokens, and sessions of browsers that gave a token once.

A browser keeps only the number of its session, in a cookie that no script can read and no other site can send. The
token stays in this process and is looked up at each request, so a session ends with its token. A change that comes with
a cookie also carries the session's own word in a header (``X-Bursar-CSRF``), which no other page can read. Requests
that a page of another origin makes are refused with or without tokens.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from bursar.server.access import Access, Identity
from bursar.server.problems import RefusedError

CSRF_HEADER = "x-bursar-csrf"
LIFETIME = 12 * 3600.0
MOST = 1000
_SAFE = ("GET", "HEAD", "OPTIONS")
_OWN_SITES = ("same-origin", "none")  # none: an address that a person typed


@dataclass(frozen=True, slots=True)
class Session:
    authorization: str  # what a program would send with each request
    word: str  # what changes carry
    ends: float


class Sessions:
    """The sessions of one server, the oldest first. They end with the process."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    @property
    def open(self) -> bool:
        """Whether requests need no token."""
        return self._access.open

    def identify(self, request: Request) -> Identity:
        """Who sends a request, by its header or by its cookie; ``RefusedError`` if that is not known."""
        refuse_foreign_page(request)
        authorization = request.headers.get("authorization", "")
        session = None if authorization or self.open else self.session(request)
        if session is None:
            return self._access.identify(authorization)
        word = request.headers.get(CSRF_HEADER, "")
        if request.method not in _SAFE and not hmac.compare_digest(word.encode(), session.word.encode()):
            raise RefusedError(403, f"a change with a cookie needs the header {CSRF_HEADER} of its session")
        return self._access.identify(session.authorization)

    def session(self, request: Request) -> Session | None:
        """The session of a request's cookie."""
        number = request.cookies.get(cookie_name(request), "")
        found = self._sessions.get(number)
        if found is None or found.ends < time.monotonic():
            self._sessions.pop(number, None)
            return None
        return found

    def begin(self, request: Request, token: str, response: Response) -> None:
        """Give the browser a session for a token, or raise ``RefusedError``."""
        refuse_foreign_page(request)
        authorization = f"Bearer {token}"
        self._access.identify(authorization)
        self._sessions.pop(request.cookies.get(cookie_name(request), ""), None)
        number = secrets.token_urlsafe(32)
        self._sessions[number] = Session(authorization, secrets.token_urlsafe(32), time.monotonic() + LIFETIME)
        while len(self._sessions) > MOST:
            self._sessions.popitem(last=False)
        response.set_cookie(
            cookie_name(request),
            number,
            max_age=int(LIFETIME),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )

    def end(self, request: Request, response: Response) -> None:
        refuse_foreign_page(request)
        self._sessions.pop(request.cookies.get(cookie_name(request), ""), None)
        response.delete_cookie(cookie_name(request), httponly=True, samesite="strict")


def cookie_name(request: Request) -> str:
    """Cookies know no ports, and several servers may run on one machine."""
    port = urlsplit(f"//{request.headers.get('host', '')}").port
    return f"bursar_session_{port}" if port else "bursar_session"


def refuse_foreign_page(request: Request) -> None:
    """``RefusedError`` if a browser says that a page of another origin asks."""
    site = request.headers.get("sec-fetch-site", "")
    if request.method == "GET" and request.headers.get("sec-fetch-mode", "") == "navigate":
        foreign = False  # a link that a person follows; its page cannot read the answer
    elif site:
        foreign = site not in _OWN_SITES
    else:
        origin = request.headers.get("origin", "")
        foreign = bool(origin) and urlsplit(origin).netloc != request.headers.get("host", "")
    if foreign:
        raise RefusedError(403, "a page of another origin asks, and this server answers only its own")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
