"""The server's log: one line for each message, as text or as JSON, with the request and the actor it belongs to.

``serving`` marks everything that is logged meanwhile with the id of a request, also in worker threads that the request
starts. ``actor`` names who asks, once that is known. Further fields of a message are given as
``extra=fields(operation="apply", status=200)``. A field that is not known is left out. Control characters of a message
are escaped, so one message is always one line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any, Literal

import msgspec

Form = Literal["text", "json"]
LEVELS = ("debug", "info", "warning", "error")
FORMS: tuple[Form, ...] = ("text", "json")
ROOT = "bursar"
_FIELDS = "bursar_fields"  # the attribute of a record that has them


@dataclass(slots=True)
class RequestContext:
    """What a message says of the request that it belongs to."""

    request: str
    actor: str = ""


_CURRENT: ContextVar[RequestContext | None] = ContextVar("bursar_request", default=None)


@contextmanager
def serving(request: str, actor: str = "") -> Iterator[RequestContext]:
    """Everything that is logged meanwhile belongs to that request."""
    context = RequestContext(request, actor)
    token = _CURRENT.set(context)
    try:
        yield context
    finally:
        _CURRENT.reset(token)


def current() -> RequestContext | None:
    """The request that is served here, if there is one."""
    return _CURRENT.get()


def fields(**named: object) -> dict[str, Any]:
    """Fields of a message, for the argument ``extra`` of a logger's methods."""
    return {_FIELDS: named}


class LineFormatter(logging.Formatter):
    """A record as one line."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        found = _said(record)
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        if self._form == "json":
            return msgspec.json.encode(found, enc_hook=str).decode()
        time, level, logger, message = (str(found.pop(name)) for name in ("time", "level", "logger", "message"))
        error = str(found.pop("error", ""))
        named = "".join(f" {name}={_quoted(str(value))}" for name, value in found.items())
        line = f"{time} {level:<7} {logger}: {_escaped(message)}{named}"
        return f"{line}\n{error}" if error else line


def _said(record: logging.LogRecord) -> dict[str, Any]:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    found: dict[str, Any] = {
        "time": moment.replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    context = _CURRENT.get()
    if context is not None:
        known = {"request": context.request, "actor": context.actor}
        found |= {name: value for name, value in known.items() if value}
    given: dict[str, Any] = getattr(record, _FIELDS, {})
    return {**found, **{name: value for name, value in given.items() if name not in found}}


def _quoted(text: str) -> str:
    """A value of a text line, in quotation marks unless it is one plain word."""
    plain = bool(text) and text.isprintable() and not any(mark in text for mark in ' "=')
    return text if plain else msgspec.json.encode(text).decode()


def _escaped(text: str) -> str:
    return text if text.isprintable() else msgspec.json.encode(text).decode()[1:-1]


def configure(level: str = "info", form: Form = "text", stream: IO[str] | None = None) -> None:
    """Log to a stream (stderr) from a level on. Other loggers of this process share it from warnings on."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(LineFormatter(form))
    root = logging.getLogger()
    for known in list(root.handlers):
        if isinstance(known.formatter, LineFormatter):
            root.removeHandler(known)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(ROOT).setLevel(level.upper())
