"""The auditor believes every journal of the engine, and none that was tampered with."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.audit.auditor import AuditError, Auditor
from bursar.ledger.claims import RUNNING, Claim
from tests.audit.forgery import Path, Record, first_lie, redigested, resealed
from tests.audit.test_scenarios import SCENARIOS, played
from tests.engine.machine import new_engine, room_setting
from tests.engine.toy_policies import spec
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
        assert auditor.digest == f"{machine.engine.digest:016x}"
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
            found = msgspec.json.decode(line)
            try:
                books.apply(found[6])
            except AuditError:
                return  # that world knows no decency: it charges below nothing and drops what is in use
            assert books.digest == found[7]

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
        for book in (auditor.claims, auditor.waiters, auditor.told):
            assert not book


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
    "charged twice": (
        insert(3, 9, ["charge", "low", 0, ["teams/a"], [{"cpu": 3}]]),
        3,
        "low counts 2 and is 0 times in teams/a for cpu",
    ),
    "charged twice, later": (
        insert(4, 9, ["charge", "low", 0, ["teams/a"], [{"cpu": 3}]]),
        4,
        "low counts 2 and is 0 times in teams/a",
    ),
    "released twice": (
        insert(4, 9, ["charge", "low", 1, ["teams/a", "teams/a"], [{"cpu": 3}]]),
        4,
        "low counts -1 and is 0 times in teams/a for cpu",
    ),
    "charged twice at two costs": (
        insert(4, 9, ["charge", "low", 0, ["teams/a"], [{"cpu": 1}]]),
        4,
        "low is charged 1 of cpu in teams/a, and 3 already",
    ),
    "released though it still counts": (
        insert(7, 0, ["charge", "high", 0, ["teams/a"], [{"cpu": 1}]]),
        7,
        "high is charged 1 of cpu in teams/a, and 4 already",
    ),
    "gone, but still charged": (
        lambda records: records[6].__setitem__(6, records[6][6][-1:]),
        7,
        "high is gone, but still charged",
    ),
    "a victim that is told to leave after its place is given": (
        lambda records: records[4][6].append(["field", "low", *records[4][6].pop(3)[2:]]),
        5,
        "high got its place before its victim low left it",
    ),
    "started before its victim left": (insert(5, 99, ["state", "high", 2]), 5, "high has state 2 and waits for"),
    "a decision that says otherwise": (set_at(3, (5, 1), "waiting"), 3, "low is waiting, but has state 2"),
    "another place": (set_at(3, (5, 3), "h9"), 3, "low is on 'h1', not on 'h9'"),
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


def grown_history(*, forced: bool) -> list[bytes]:
    """1 and 2 set the room, 3 admits one, 4 places it (or finds it there), 5 lets it grow, 6 lowers, 7 shrinks it."""
    engine = new_engine()
    engine.configure([room_setting("teams", "a", 4, 0)], 1)
    engine.configure([room_setting("hosts", "h1", 4, 0)], 2)
    claim = Claim("one", spec({"cpu": 2}, {"teams": "a"}), 3, "ns", "one")
    engine.admit(claim, 3)
    engine.place("one", "h1", 4, forced=forced)
    engine.adjust("one", spec({"cpu": 4}, {"teams": "a"}), 5)
    engine.configure([room_setting("teams", "a", 1, 0)], 6)
    engine.adjust("one", spec({"cpu": 3}, {"teams": "a"}), 7)
    return engine.journal.take()


class TestWhatGrows:
    @pytest.mark.parametrize("forced", [True, False])
    def test_shrinking_is_always_right(self, forced: bool) -> None:
        lines = grown_history(forced=forced)
        assert record(lines, 4)[4] == ["found" if forced else "place", "one"]
        assert first_lie(lines) is None

    @pytest.mark.parametrize(
        ("forced", "room", "seq"),
        [(False, 1, 4), (True, 1, 5), (False, 3, 5), (True, 3, 5), (True, 4, None)],
    )
    def test_what_grows_must_fit_unless_it_is_a_fact(self, forced: bool, room: int, seq: int | None) -> None:
        lie = first_lie(redigested(grown_history(forced=forced), set_at(2, (6, 2, 2, "cpu"), room)))
        assert (lie.seq if lie else None) == seq
        assert lie is None or f"its limit is {room}" in lie.problem


def found_to_have_grown(*, forced: bool = True) -> list[bytes]:
    """1 and 2 set the room, 3 decides one, 4 finds that it has grown beyond its quota."""
    engine = new_engine()
    engine.configure([room_setting("teams", "a", 4, 0)], 1)
    engine.configure([room_setting("hosts", "h1", 8, 0)], 2)
    engine.decide(Claim("one", spec({"cpu": 4}, {"teams": "a"}), 3, "ns", "one"), 3)
    engine.adjust("one", spec({"cpu": 6}, {"teams": "a"}), 4, forced=forced)
    return engine.journal.take()


class TestWhatIsFoundToHaveGrown:
    def test_is_believed(self) -> None:
        lines = found_to_have_grown()
        assert record(lines, 4)[4] == ["grew", "one"]
        assert first_lie(lines) is None

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (set_at(4, (4, 0), "adjust"), "teams/a then has 6 of cpu; its limit is 4"),
            (set_at(4, (6, 0), ["field", "one", 1, "h1"]), "has not grown where it has its place"),
            (lambda records: records[2][4].__setitem__(0, "grew"), "has not grown where it has its place"),
        ],
        ids=["not if it asked", "not without asking for more", "not when it comes"],
    )
    def test_is_not_everything(self, change: Callable[[list[Record]], None], problem: str) -> None:
        with pytest.raises(AuditError, match=problem):
            raise first_lie(redigested(found_to_have_grown(), change)) or AssertionError("it was believed")

    def test_a_refused_growth_leaves_no_record(self) -> None:
        assert len(found_to_have_grown(forced=False)) == 3


def reserved_history() -> list[bytes]:
    """A victim on a GPU node that keeps a reserve for idle GPUs: record 3 evicts it, 4 says that it is gone."""
    scenario = next(one for one in SCENARIOS if one.name == "a preemption on a node with a reserve for idle GPUs")
    return played(scenario).journal.take()


def evicting(records: list[Record]) -> Record:
    """The record that evicts the victim."""
    return next(one for one in records if one[4][0] == "decide" and one[5][5][0])


class TestVictimsInAReserve:
    def test_are_believed(self) -> None:
        lines = reserved_history()
        assert first_lie(lines) is None
        text = b"".join(lines)
        assert b"crossquota/g/reserve" in text

    def test_must_leave(self) -> None:
        def stays(records: list[Record]) -> None:
            effects = evicting(records)[6]
            effects[:] = [effect for effect in effects if effect[0] != "field" or effect[2] != 2]

        with pytest.raises(AuditError, match="charged by mode 2; is it evicted or not"):
            raise first_lie(redigested(reserved_history(), stays)) or AssertionError("it was believed")

    def test_are_not_counted_twice(self) -> None:
        def twice(records: list[Record]) -> None:
            effects = evicting(records)[6]
            at = next(place for place, effect in enumerate(effects) if effect[0] == "bound" and effect[2] == 2)
            effects.insert(at, list(effects[at]))

        with pytest.raises(AuditError, match="counts -1"):
            raise first_lie(redigested(reserved_history(), twice)) or AssertionError("it was believed")

    def test_count_again_when_they_stay(self) -> None:
        """A claim whose eviction ends without its being charged again runs and counts nowhere."""

        def forgets(records: list[Record]) -> None:
            uid = evicting(records)[5][5][0][0]
            evicting(records)[6].append(["field", uid, 2, False])

        with pytest.raises(AuditError, match="stays, and does not count in"):
            raise first_lie(redigested(reserved_history(), forgets)) or AssertionError("it was believed")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "cannot be understood"),
        (b"rubbish", "cannot be understood"),
        (b"{}", "is no journal record"),
        (b"[1,2,3]", "is no journal record"),
        (b'[3,1,0,"",[],null,[],"",""]', "has format 3; this auditor knows format 2"),
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


def test_a_claim_that_only_waited_may_return_under_its_uid() -> None:
    """As a pod does whose quota was not in force for a while."""
    engine = new_engine()
    engine.configure([room_setting("teams", "a", 4, 0)], 1)
    for at in (2, 4):
        engine.submit(Claim("waits", spec({"cpu": 1}, {"teams": "a"})), at)
        engine.release("waits", at + 1)
    assert first_lie(engine.journal.take()) is None


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
