"""Errors of calls to the API server, as exceptions that say what the caller may do next.

After a failed write, either the server refused it (``ApiError``: nothing happened) or the outcome is unknown
(``Unanswered`` with ``sent``: check before trying again). ``Fenced`` is neither: the write was not sent, because this
process may no longer be the leader.
"""

from __future__ import annotations

import msgspec

from bursar.kube.client.models import ApiStatus, Cause

_LONGEST = 2000
"""Characters of an answer that is no Status, such as a proxy's page, that are shown."""


class KubeError(Exception):
    """Base of everything that a call can raise."""


class ConfigError(KubeError, ValueError):
    """The connection's configuration is wrong. One line: file, field, problem."""


class Fenced(KubeError):
    """A write was not sent, because the lease is not ours or its deadline has passed."""


class Unanswered(KubeError):
    """The server gave no answer: connection refused, cut, or time-out. ``sent``: it may have got the request."""

    def __init__(self, problem: str, *, sent: bool) -> None:
        super().__init__(problem)
        self.sent = sent


class Malformed(KubeError):
    """The server's answer is not what its content type or the API promises."""


class ApiError(KubeError):
    """The server refused. ``code``, ``reason``, ``message`` and ``causes`` are those of its Status."""

    def __init__(self, call: str, code: int, status: ApiStatus, retry_after: float | None = None) -> None:
        super().__init__(f"{call}: {code} {status.reason}: {status.message}".replace("\n", " "))
        self.call = call
        self.code = code
        self.reason = status.reason
        self.message = status.message
        self.causes: tuple[Cause, ...] = status.details.causes
        self.retry_after = retry_after  # seconds, when the server said so


class BadRequest(ApiError):
    """400."""


class Unauthorized(ApiError):
    """401: the credentials were not accepted, also after a refresh."""


class Forbidden(ApiError):
    """403: no right to do this, or an admission plugin or policy that answers so."""


class NotFound(ApiError):
    """404: no such object, or no such resource."""


class Conflict(ApiError):
    """409: the object changed since it was read, or a field belongs to another manager."""


class AlreadyExists(Conflict):
    """409 with the reason AlreadyExists."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(ApiError):
    """422: the object, or the options of the call, failed validation."""


class Throttled(ApiError):
    """429: too many requests, or a disruption budget that refuses an eviction."""


class ServerError(ApiError):
    """5xx. After a write the outcome is unknown."""


_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Throttled,
}
_decode_status = msgspec.json.Decoder(ApiStatus).decode


def status_from(body: bytes, code: int) -> ApiStatus:
    """The Status of an answer; one made from its text where a proxy or filter answered in plain words."""
    try:
        status = _decode_status(body)
    except (ValueError, msgspec.MsgspecError):
        return ApiStatus(code=code, message=body.decode(errors="replace").strip()[:_LONGEST])
    return status if status.code or status.message else ApiStatus(code=code, message=f"HTTP {code}")


def error_for(call: str, code: int, status: ApiStatus, retry_after: float | None = None) -> ApiError:
    if retry_after is None and status.details.retry_after_seconds > 0:
        retry_after = float(status.details.retry_after_seconds)
    if code == 409 and status.reason == "AlreadyExists":
        return AlreadyExists(call, code, status, retry_after)
    fallback = ServerError if code >= 500 else ApiError
    return _BY_CODE.get(code, fallback)(call, code, status, retry_after)
