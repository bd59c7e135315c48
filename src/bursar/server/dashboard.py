"""The dashboard: its files, and how a browser signs in.

The files (``web/``, built from ``web/`` of the repository) are read once, at the start. They say nothing about the
cluster, so they need no token. Nothing else may be loaded or run by a page: the content security policy names this
origin only, and no inline script or style.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bursar.server.problems import RefusedError, problem_of
from bursar.server.requests import response as problem_response
from bursar.server.sessions import Sessions

FILES = Path(__file__).with_name("web")
VIEWS = ("quotas", "queue", "claims", "nodes", "history", "plan", "reports")
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_LONGEST_LOGIN = 4096


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file as it is sent: plain, compressed, and the tag that says whether a browser has it already."""

    plain: bytes
    compressed: bytes
    tag: str
    content_type: str

    @classmethod
    def read(cls, path: Path) -> StaticFile:
        plain = path.read_bytes()
        tag = f'"{sha256(plain).hexdigest()[:20]}"'
        return cls(plain, gzip.compress(plain, 9, mtime=0), tag, _TYPES[path.suffix])

    def response(self, request: Request) -> Response:
        headers = {
            "Cache-Control": "no-cache",
            "Content-Security-Policy": PAGE_POLICY,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "ETag": self.tag,
            "Referrer-Policy": "no-referrer",
            "Vary": "Accept-Encoding",
            "X-Content-Type-Options": "nosniff",
        }
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        headers["Content-Type"] = self.content_type
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.compressed, headers={**headers, "Content-Encoding": "gzip"})
        return Response(self.plain, headers=headers)


class Login(msgspec.Struct, frozen=True):
    """What a browser sends to sign in."""

    token: str


class SessionInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What a page knows about who looks at it."""

    needs_token: bool
    name: str
    role: str  # empty: nobody signed in
    csrf: str  # what changes of this session carry


class Dashboard:
    """The routes of the dashboard."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._files = {path.name: StaticFile.read(path) for path in sorted(FILES.iterdir()) if path.suffix in _TYPES}

    def routes(self) -> list[Route]:
        pages = [Route(f"/{view}", self._page, methods=["GET"]) for view in ("", *VIEWS)]
        files = [Route(f"/{name}", self._file, methods=["GET"]) for name in self._files if name != "index.html"]
        return [
            *pages,
            *files,
            Route("/session", self._session, methods=["GET"]),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
        ]

    async def _page(self, request: Request) -> Response:
        return self._files["index.html"].response(request)

    async def _file(self, request: Request) -> Response:
        return self._files[request.url.path.removeprefix("/")].response(request)

    async def _session(self, request: Request) -> Response:
        session = self._sessions.session(request)
        needs, word = not self._sessions.open, "" if session is None else session.word
        try:
            identity = self._sessions.identify(request)
        except RefusedError:
            return _sent(SessionInfo(needs, "", "", ""))
        return _sent(SessionInfo(needs, identity.name, identity.role, word))

    async def _login(self, request: Request) -> Response:
        made = Response(status_code=204)
        try:
            body = await _small_body(request)
            self._sessions.begin(request, msgspec.json.decode(body, type=Login).token.strip(), made)
        except msgspec.DecodeError:
            return _refused(RefusedError(400, 'send {"token": "..."}'))
        except RefusedError as error:
            return _refused(error)
        return made

    async def _logout(self, request: Request) -> Response:
        made = Response(status_code=204)
        try:
            self._sessions.end(request, made)
        except RefusedError as error:
            return _refused(error)
        return made


def _sent(answer: object) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json", headers={"Cache-Control": "no-store"})


def _refused(error: RefusedError) -> Response:
    found = problem_of(error)
    assert found is not None  # noqa: S101 a refusal is always a problem
    return problem_response(found)


async def _small_body(request: Request) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError(415, "the content type is application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST_LOGIN:
            raise RefusedError(413, f"the body is larger than {_LONGEST_LOGIN} bytes")
    return body
