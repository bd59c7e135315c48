"""Counters, failures that are told, and how a call of the client becomes a request."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from bursar.engine.decision import ADMITTED, Decision
from bursar.ledger.journal import Record
from bursar.server.background import AuditWatch
from bursar.server.batches import RequestCounters
from bursar.server.openapi import document
from bursar.server.operations import Operations


def test_arguments_by_position_are_body_and_then_the_rest() -> None:
    given, body = Operations.delete.arguments((["Pod/a/p"], True), {})
    assert given == {"dryRun": True}
    assert b"Pod/a/p" in body


def test_every_body_of_a_request_is_required() -> None:
    bodies = [
        one["requestBody"] for path in document()["paths"].values() for one in path.values() if "requestBody" in one
    ]
    assert bodies
    assert all(body["required"] is True for body in bodies)


def test_records_are_counted_by_their_cause() -> None:
    counters = RequestCounters()
    decision = Decision("x", ADMITTED, 0, "n1")
    counters.note([Record(1, 0, "1", ("decide", "x"), decision, (), 0), Record(2, 0, "1", ("tick",), None, (), 0)], [])
    assert counters.records == {"decide": 1, "tick": 1}
    assert sum(counters.decisions.values()) == 1


def test_an_audit_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    watch: Any = SimpleNamespace(_stopping=False, failures=0, problem="")
    with caplog.at_level(logging.ERROR):
        AuditWatch._failed(watch, "record 5 lies")
    assert (watch.failures, watch.problem) == (1, "record 5 lies")
    assert "audit: record 5 lies" in caplog.text
