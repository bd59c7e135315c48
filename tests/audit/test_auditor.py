"""The auditor believes every journal of the engine, and none that was tampered with."""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.audit.auditor import AuditError, Auditor
from bursar.ledger.claims import RUNNING, Claim
from tests.audit.forging import Path, Record, altered, first_lie, numbers, redigested, resealed
from tests.engine.machine import new_engine, room_setting
from tests.engine.pots import spec
from tests.ledger.world import STEPS, Step, World
from tests.store.world import lines_of, lived


def small_history() -> list[bytes]:
    """A victim: 1 and 2 set the room, 3 decides low, 4 sees it run, 5 decides high (held), 6 low left, 7 high ended."""
    engine = new_engine()
    engine.configure([room_setting("teams", "a", 4, 0)], 1)
    engine.configure([room_setting("hosts", "h1", 4, 0)], 2)
    engine.decide(Claim("low", spec({"cpu": 3}, {"teams": "a"}, 1), 3, "ns", "low"), 3)
    engine.observe("low", RUNNING, 4)
    engine.decide(Claim("high", spec({"cpu": 4}, {"teams": "a"}, 2), 5, "ns", "high"), 5)
    engine.release("low", 6)
    engine.release("high", 7)
    return engine.journal.take()


def record(lines: list[bytes], seq: int) -> Record:
    return list(msgspec.json.decode(lines[seq - 1]))


class TestHonestJournals:
    @pytest.mark.parametrize("seed", range(8))
    def test_every_journal_of_the_engine_is_clean(self, seed: int) -> None:
        machine = lived(seed, 150)
        auditor = Auditor()
        for line in machine.engine.journal.take():
            auditor.feed(line)
        assert auditor.seq == machine.engine.version
        assert auditor.digest.text() == f"{machine.engine.digest:016x}"
        assert auditor.head == machine.engine.journal.head
        assert set(auditor.claims) == set(machine.engine.state.claims)
        assert auditor.counts["limits"] > 50
        for name, account in machine.engine.state.accounts.items():
            for sums, tally in (("used", account.used), ("busy", account.busy)):
                assert {w: n for w, n in auditor.accounts[name][sums].items() if n} == dict(tally.vector().pairs())

    @given(st.lists(st.lists(STEPS, max_size=12), max_size=6))
    @settings(max_examples=100)
    def test_its_digest_is_that_of_the_ledger_whatever_happens(self, transactions: list[list[Step]]) -> None:
        world = World()
        for steps in transactions:
            world.ledger.begin()
            world.run(steps)
            world.ledger.commit(0, ("step",))
        books = Auditor()
        for line in world.ledger.journal.take():
            books.last = ""
            found = msgspec.json.decode(line)
            try:
                for effect in found[6]:
                    books._effect(effect)
            except AuditError:
                return  # that world knows no decency: it charges below nothing and drops what is in use
            assert books.digest.text() == found[7]

    def test_small_history(self) -> None:
        lines = small_history()
        auditor = Auditor()
        for line in lines:
            auditor.feed(line)
        assert auditor.counts == {
            "records": 7,
            "claims": 2,
            "accounts": 2,
            "decisions": 4,
            "victims": 1,
            "charges": 9,
            "limits": 4,
        }
        for book in (auditor.claims, auditor.charges, auditor.waiters, auditor.told):
            assert not book


class TestTampering:
    @pytest.mark.parametrize("seed", range(6))
    def test_every_altered_number_is_found_in_its_record(self, seed: int) -> None:
        lines = lines_of(100 + seed, 60)
        rng = Random(seed)
        for _ in range(40):
            at = rng.randrange(len(lines))
            original = record(lines, at + 1)
            path = rng.choice(list(numbers(original)))
            step = rng.choice([1, -1, 2, 1000])
            lie = first_lie(resealed(lines, at, altered(original, path, step)))
            if path == (2,) and (original[5] is None or original[4][0] == "evicted"):
                self.judge_time(lines, at, original[2] + step, lie)
            else:
                assert lie is not None, (at + 1, path, step)
                assert lie.seq == at + 1, (lie, path, step)

    def judge_time(self, lines: list[bytes], at: int, time: int, lie: AuditError | None) -> None:
        """The time of a record without a decision of that time proves nothing, while time does not go back."""
        earlier = record(lines, at)[2] if at else 0
        later = record(lines, at + 2)[2] if at + 1 < len(lines) else time
        assert (lie is None) == (earlier <= time <= later)

    @pytest.mark.parametrize("seed", range(3))
    def test_without_a_new_seal_every_altered_byte_is_found(self, seed: int) -> None:
        lines = lines_of(seed, 30)
        rng = Random(seed)
        for _ in range(60):
            at = rng.randrange(len(lines))
            place = rng.randrange(len(lines[at]))
            forged = bytearray(lines[at])
            forged[place] ^= 1 << rng.randrange(7)
            lie = first_lie([*lines[:at], bytes(forged), *lines[at + 1 :]])
            assert lie is not None
            assert lie.seq == at + 1

    @pytest.mark.parametrize("name", ["dropped", "repeated", "swapped"])
    def test_lines_that_are_missing_or_moved(self, name: str) -> None:
        lines = small_history()
        forged = {
            "dropped": [lines[0], *lines[2:]],
            "repeated": [lines[0], lines[1], lines[1], *lines[2:]],
            "swapped": [lines[0], lines[2], lines[1], *lines[3:]],
        }[name]
        lie = first_lie(forged)
        assert lie is not None
        assert lie.seq == (3 if name == "repeated" else 2)


def set_at(seq: int, path: Path, value: object) -> Callable[[list[Record]], None]:
    def change(records: list[Record]) -> None:
        inner: Any = records[seq - 1]
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value

    return change


def insert(seq: int, place: int, *new: Record) -> Callable[[list[Record]], None]:
    return lambda records: records[seq - 1][6].__setitem__(slice(place, place), list(new))


FORGERIES: dict[str, tuple[Callable[[list[Record]], None], int, str]] = {
    "a limit that was too low": (set_at(1, (6, 1, 2, "cpu"), 3), 5, "teams/a then has 4 of cpu; its limit is 3"),
    "a node that was too small": (set_at(2, (6, 2, 2, "cpu"), 2), 3, "hosts/h1 then has 3 of cpu; its limit is 2"),
    "a node without it": (set_at(2, (6, 2, 2), {"gpu": 4}), 3, "hosts/h1 then has 3 of cpu; its limit is 0"),
    "a victim that was protected": (set_at(3, (6, 0, 5, "preemptible"), False), 5, "low of high is not preemptible"),
    "a victim nobody knows": (set_at(5, (5, 5, 0), ["low", "nobody"]), 5, "victim nobody of high was not there"),
    "its own victim": (set_at(5, (5, 5, 0), ["high"]), 5, "victim high of high was not there"),
    "charged twice": (insert(3, 9, ["charge", "low", 0, ["teams/a"], [{"cpu": 3}]]), 3, "then has 6 of cpu"),
    "charged twice, later": (
        insert(4, 9, ["charge", "low", 0, ["teams/a"], [{"cpu": 3}]]),
        4,
        "low counts 2 times in teams/a",
    ),
    "released twice": (
        insert(4, 9, ["charge", "low", 1, ["teams/a", "teams/a"], [{"cpu": 3}]]),
        4,
        "teams/a has -3 of cpu used, 0 busy: less than nothing",
    ),
    "charged twice at two costs": (
        insert(4, 9, ["charge", "low", 0, ["teams/a"], [{"cpu": 1}]]),
        4,
        "charged twice for cpu in teams/a",
    ),
    "released though it still counts": (
        insert(7, 0, ["charge", "high", 0, ["teams/a"], [{"cpu": 1}]]),
        7,
        "high is gone, but still charged",
    ),
    "started before its victim left": (insert(5, 99, ["state", "high", 2]), 5, "high has state 2 and waits for"),
    "a decision that says otherwise": (set_at(3, (5, 1), "waiting"), 3, "low is waiting, but has state 2"),
    "another place": (set_at(3, (5, 3), "h9"), 3, "low is not on 'h9'"),
    "another time": (set_at(6, (5, 2), 4), 6, "says time 4 instead of 5"),
    "waits for nobody": (set_at(5, (5, 5, 1), []), 5, r"high waits for \['low'\]; its decision says \[\]"),
    "the same uid again": (
        lambda records: records[6][6].append(["claim", "low", "ns", "low", 3, {}]),
        7,
        "claim 'low' was there before",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forger_who_makes_digests_and_chain_right_is_still_found(name: str) -> None:
    change, seq, problem = FORGERIES[name]
    try:
        lie = first_lie(redigested(small_history(), change))
    except AuditError as error:  # even the forger's books refuse it
        lie = AuditError(seq, error.problem)
    assert lie is not None
    assert lie.seq == seq, lie
    with pytest.raises(AuditError, match=problem):
        raise lie


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "cannot be understood"),
        (b"rubbish", "cannot be understood"),
        (b"{}", "is no journal record"),
        (b"[1,2,3]", "is no journal record"),
        (b'[2,1,0,"",[],null,[],"",""]', "has format 2; this auditor knows format 1"),
        (b'[1,2,0,"",[],null,[],"",""]', "says that it is record 2"),
        (b'[1,1,0,"",[],null,[],"",""]', "does not continue the chain"),
        (b"[" * 100_000, "cannot be understood"),
    ],
)
def test_what_is_no_record(line: bytes, problem: str) -> None:
    with pytest.raises(AuditError, match=f"^record 1: {problem}"):
        Auditor().feed(line)


@pytest.mark.parametrize(
    "effect",
    [["dance"], ["effect", "u"], [], "text", ["open", "p"], ["charge", "u", 9, [], []], ["claim", "", "", "", 0, {}]],
)
def test_effects_that_make_no_sense(effect: object) -> None:
    first = [1, 1, 0, "", [], None, [["claim", "u", "", "u", 0, {}], effect], "0", ""]
    with pytest.raises(AuditError, match=r"^record 1: "):
        Auditor().feed(resealed([b""], 0, first)[0])


def test_a_server_may_limit_what_is_remembered() -> None:
    auditor = Auditor(uids_kept=3)
    for line in lines_of(1):
        auditor.feed(line)
    assert len(auditor.uids) == 3


def test_a_restored_engine_writes_what_the_auditor_believes() -> None:
    lines = lines_of(2)
    engine = new_engine()
    engine.replay(lines)
    for uid in sorted(engine.state.claims):
        engine.release(uid, 10**6)
    assert first_lie([*lines, *engine.journal.take()]) is None
