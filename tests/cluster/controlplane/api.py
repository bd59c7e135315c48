"""A plain, blocking client of the API server for test set-up: JSON in, JSON out, usable from many threads.

Not Bursar's own client on purpose: what tests look at must not depend on what they test.
"""

import json
import ssl
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

Object = dict[str, Any]
Item = TypeVar("Item")

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class ApiError(Exception):
    """The API server said no: its status code, reason and message."""

    def __init__(self, status: int, body: bytes) -> None:
        try:
            answer = json.loads(body)
        except ValueError:
            answer = {}
        self.status = status
        self.reason = str(answer.get("reason", ""))
        self.message = str(answer.get("message", body.decode(errors="replace")))
        super().__init__(f"{status} {self.reason}: {self.message}")


class Api:
    """Requests as one user."""

    def __init__(self, url: str, ca_path: Path, token: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._address = (parts.hostname, parts.port)
        self._tls = ssl.create_default_context(cafile=str(ca_path))
        self._token = token
        self._idle: list[HTTPSConnection] = []

    def close(self) -> None:
        """Close the connections that were kept for the next call."""
        while self._idle:
            self._idle.pop().close()

    def get(self, path: str) -> Object:
        return self.request("GET", path)

    def create(self, path: str, body: Object) -> Object:
        return self.request("POST", path, body)

    def delete(self, path: str, body: Object | None = None) -> Object:
        return self.request("DELETE", path, body)

    def patch(self, path: str, body: Object | list[Object], content_type: str = MERGE_PATCH) -> Object:
        return self.request("PATCH", path, body, content_type)

    def request(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Object:  # noqa: ANN401 JSON
        """One call; everything from 400 up is an ``ApiError``."""
        payload = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Accept": JSON, "Content-Type": content_type}
        status, answer = self._send(method, path, payload, headers)
        if status >= 400:
            raise ApiError(status, answer)
        return dict(json.loads(answer)) if answer.startswith(b"{") else {"text": answer.decode()}

    def in_parallel(self, call: Callable[[Item], object], items: Iterable[Item], threads: int = 16) -> None:
        """The call for every item, from several threads; the first error is raised."""
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(call, items):
                pass

    def _send(self, method: str, path: str, payload: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        while (kept := self._take_idle()) is not None:
            try:
                return self._send_on(kept, method, path, payload, headers)
            except (HTTPException, ConnectionError, ssl.SSLError):
                continue  # it ended while it lay idle, as all do when the server restarts; what a fresh one says stands
        fresh = HTTPSConnection(*self._address, context=self._tls, timeout=60)
        return self._send_on(fresh, method, path, payload, headers)

    def _take_idle(self) -> HTTPSConnection | None:
        try:
            return self._idle.pop()  # one step, so that two threads never take the same
        except IndexError:
            return None

    def _send_on(
        self, connection: HTTPSConnection, method: str, path: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        try:
            connection.request(method, path, payload, headers)
            response = connection.getresponse()
            answer = response.status, response.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return answer
