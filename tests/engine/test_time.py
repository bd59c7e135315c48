"""Time: limits that depend on it change in a transaction of their own, and only when there is something to change."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bursar.audit.auditor import Auditor
from bursar.engine.engine import Engine
from bursar.engine.what_if import Submit
from bursar.ledger.claims import Claim
from bursar.ledger.transaction import Transaction
from tests.engine.hours import CLOSES, HOUR, OPENS, HoursPolicy
from tests.engine.toy_policies import spec


def claim(uid: str) -> Claim:
    return Claim(uid, spec({"cpu": 1}), 0, "red", uid)


def test_an_account_is_opened_at_submit_with_the_limit_of_that_time() -> None:
    engine = Engine([HoursPolicy()])
    engine.submit(claim("a"), OPENS)
    assert engine.state.accounts["hours/red"].limits.cap("pods") == 2


def test_the_limit_follows_the_hour() -> None:
    engine = Engine([HoursPolicy()])
    first, second = claim("a"), claim("b")
    assert engine.decide(first, 0).admitted
    assert engine.decide(second, 0).reason == "hours.limit.pods"
    assert engine.next_due(0) == OPENS
    assert engine.tick(OPENS) == []
    assert engine.decide(second, OPENS).admitted
    assert engine.next_due(OPENS) == CLOSES


def test_time_that_changes_nothing_makes_no_record() -> None:
    engine = Engine([HoursPolicy()])
    engine.decide(claim("a"), 0)
    before = engine.version
    assert not engine.advance(HOUR)
    assert engine.tick(2 * HOUR) == []
    assert engine.version == before


def test_a_change_is_one_record_of_that_time() -> None:
    engine = Engine([HoursPolicy()])
    engine.decide(claim("a"), 0)
    assert engine.advance(OPENS + 5)
    record = engine.journal.records[-1]
    assert (record.at, record.cause, len(record.changes)) == (OPENS + 5, ("advance", "hours"), 1)
    assert not engine.advance(OPENS + 5)


class _Failing(HoursPolicy):
    """Finds out too late that it cannot do it."""

    def advance(self, tx: Transaction, now: int) -> None:
        super().advance(tx, now)
        raise OverflowError("too much")


def test_one_that_fails_leaves_no_trace() -> None:
    engine = Engine([_Failing()])
    engine.decide(claim("a"), 0)
    before = engine.version, engine.digest, engine.state.plain()
    with pytest.raises(OverflowError):
        engine.advance(OPENS)
    assert (engine.version, engine.digest, engine.state.plain()) == before
    assert engine.decide(claim("b"), OPENS).reason == "hours.limit.pods"


@dataclass
class _Noted:
    times: list[int]


class _Watching(HoursPolicy):
    """Notes the time of each transaction that opens an account."""

    def __init__(self) -> None:
        super().__init__()
        self.noted = _Noted([])

    def open_accounts(self, tx: Transaction, claim: Claim) -> None:
        self.noted.times.append(tx.now)
        super().open_accounts(tx, claim)


def test_the_transaction_carries_the_time_of_the_call() -> None:
    policy = _Watching()
    engine = Engine([policy])
    engine.what_if([Submit(claim("w"))], 7)
    engine.submit(claim("a"), 8)
    engine.decide(claim("b"), 9)
    engine.adjust("a", spec({"cpu": 2}), 10)
    assert policy.noted.times == [7, 8, 9, 10]


class _Mute(HoursPolicy):
    """Must not be asked."""

    def advance(self, tx: Transaction, now: int) -> None:
        raise AssertionError("a replay asks no policy")


def test_a_replay_asks_no_policy_and_the_auditor_agrees() -> None:
    engine = Engine([HoursPolicy()])
    engine.decide(claim("a"), 0)
    engine.tick(OPENS)
    engine.decide(claim("b"), OPENS)
    engine.tick(CLOSES)  # lowering a limit evicts nobody
    lines = engine.journal.take()
    copy = Engine([_Mute()])
    copy.replay(lines)
    assert (copy.digest, copy.state.plain()) == (engine.digest, engine.state.plain())
    auditor = Auditor()
    for line in lines:
        auditor.feed(line)
    assert auditor.digest == f"{engine.digest:016x}"
