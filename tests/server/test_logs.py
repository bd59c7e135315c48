"""The log of the server: lines as text and as JSON, and the request that they belong to."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from bursar.server.logs import Form, configure, current, fields, serving
from bursar.server.requests import in_thread

LOG = logging.getLogger("bursar.server")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """The configuration of the process comes back."""
    root, own = logging.getLogger(), logging.getLogger("bursar")
    handlers, levels = list(root.handlers), (root.level, own.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])


def logged(form: Form, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure(level, form, stream)
    return stream


def test_a_line_of_json_has_level_request_actor_and_fields() -> None:
    stream = logged("json")
    with serving("r-1", "platform"):
        LOG.info("answered", extra=fields(operation="apply", status=200))
    line = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "info", "logger": "bursar.server", "message": "answered",
        "request": "r-1", "actor": "platform", "operation": "apply", "status": 200,
    }  # fmt: skip


def test_a_line_of_text_quotes_what_is_no_plain_word() -> None:
    stream = logged("text")
    with serving("r-1"):
        LOG.warning("slow", extra=fields(path="/a b", note=""))
    assert stream.getvalue().partition(" ")[2] == 'warning bursar.server: slow request=r-1 path="/a b" note=""\n'


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_message_cannot_forge_a_line(form: Form) -> None:
    stream = logged(form)
    LOG.info("there is nothing at /x\n2026 error forged", extra=fields(agent="a\nb"))
    assert stream.getvalue().count("\n") == 1


def test_a_field_does_not_replace_what_the_server_says() -> None:
    stream = logged("json")
    with serving("r-1", "platform"):
        LOG.info("answered", extra=fields(actor="forged", level="debug"))
    line = json.loads(stream.getvalue())
    assert (line["actor"], line["level"]) == ("platform", "info")


def test_an_error_is_logged_with_its_trace() -> None:
    stream = logged("json")
    try:
        raise ValueError("no such thing")
    except ValueError:
        LOG.exception("failed")
    assert json.loads(stream.getvalue())["error"].endswith("ValueError: no such thing")


def test_messages_below_the_level_are_left_out() -> None:
    stream = logged("text", "warning")
    LOG.info("quiet")
    logging.getLogger("uvicorn").info("quiet")
    assert not stream.getvalue()


def test_a_worker_thread_logs_for_its_request_and_another_request_for_itself() -> None:
    stream = logged("json")

    async def ask(request: str) -> None:
        with serving(request) as context:
            context.actor = f"actor of {request}"
            await in_thread(LOG.info, "in a thread")

    async def both() -> None:
        await asyncio.gather(ask("r-1"), ask("r-2"))

    asyncio.run(both())
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {(line["request"], line["actor"]) for line in lines} == {
        ("r-1", "actor of r-1"),
        ("r-2", "actor of r-2"),
    }
    assert current() is None
