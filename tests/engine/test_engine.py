"""What each call of the engine does to one claim, by example."""

from __future__ import annotations

from threading import Thread

import pytest

from bursar.engine.decision import ADMITTED, EVICTED, HOLDING, NEVER, RELEASED, WAITING, Decision
from bursar.engine.engine import Engine
from bursar.engine.session import CommitListener, EngineError
from bursar.engine.what_if import Adjust, Configure, Release, Submit
from bursar.ledger.claims import BOUND, HELD, PENDING, RESERVED, RUNNING, TERMINATING, Claim, ClaimSpec
from bursar.ledger.journal import Record
from bursar.policies.results import Setting, SettingError
from bursar.resources import from_amounts
from bursar.selectors import NodeNeeds
from tests.engine.toy_policies import Hosts, Pots, Room, spec

TEAM = {"teams": "a"}


def engine_with(*settings: Setting) -> Engine:
    engine = Engine([Pots("teams"), Pots("projects"), Hosts()])
    engine.configure(list(settings))
    return engine


def pot(path: str, **amounts: int) -> Setting:
    return Setting("teams.Pot", path, Room(**amounts))


def host(name: str, **amounts: int) -> Setting:
    return Setting("hosts.Host", name, Room(**amounts))


def ask(uid: str, cpu: int, priority: int = 0, created: int = 0, **options: str | bool) -> Claim:
    preemptible = bool(options.pop("preemptible", True))
    preempts = bool(options.pop("preempts", True))
    owner = str(options.pop("owner", ""))
    group = str(options.pop("group", ""))
    wanted = spec({"cpu": cpu}, TEAM, priority, preemptible=preemptible, preempts=preempts, owner=owner, group=group)
    return Claim(uid, wanted, created, "ns", uid)


def small_cluster() -> Engine:
    return engine_with(pot("a", cpu=10), host("h1", cpu=4), host("h2", cpu=4))


class TestDecide:
    def test_admits_on_the_first_host_with_room(self) -> None:
        engine = small_cluster()
        decision = engine.decide(ask("x", 3))
        assert (decision.outcome, decision.place, decision.seq) == (ADMITTED, "h1", engine.version)
        assert engine.claim("x").state == RESERVED
        assert engine.decide(ask("y", 3)).place == "h2"

    def test_refusal_carries_numbers_and_a_stable_reason(self) -> None:
        engine = engine_with(pot("a", cpu=2), host("h1", cpu=9000))
        decision = engine.decide(ask("x", 3000))
        assert decision.outcome == WAITING
        assert decision.reason == "teams.limit.cpu"
        assert decision.sentence() == "teams/a: needs 3 cpu, 0 of 2m in use"
        assert engine.claim("x").state == PENDING

    def test_all_refusing_policies_are_listed_first_one_first(self) -> None:
        engine = engine_with(pot("a", cpu=2), host("h1", cpu=1), Setting("projects.Pot", "p", Room(cpu=1)))
        claim = Claim("x", spec({"cpu": 3}, {"teams": "a", "projects": "p"}))
        assert [r.reason for r in engine.decide(claim).refusals] == ["teams.limit.cpu", "projects.limit.cpu"]

    def test_never_when_no_release_could_help(self) -> None:
        engine = engine_with(host("h1", cpu=1))
        decision = engine.decide(ask("x", 1))
        assert (decision.outcome, decision.reason) == (NEVER, "teams.unknown")

    def test_a_refused_new_claim_stays_submitted_and_nothing_else_changes(self) -> None:
        engine = small_cluster()
        engine.decide(ask("x", 5))
        assert engine.state.accounts["teams/a"].used.amount("cpu") == 0
        assert engine.claim("x").state == PENDING

    def test_saying_the_same_again_is_no_record(self) -> None:
        engine = small_cluster()
        claim = ask("x", 5)
        first = engine.decide(claim)
        version = engine.version
        assert first.seq == version
        assert engine.decide(claim).seq == first.seq
        assert engine.version == version

    def test_a_uid_is_used_once(self) -> None:
        engine = small_cluster()
        engine.decide(ask("x", 1))
        before = engine.state.plain()
        with pytest.raises(EngineError, match="claim x exists already"):
            engine.decide(ask("x", 1))
        with pytest.raises(EngineError, match="ns/x is reserved already"):
            engine.decide(engine.claim("x"))
        assert engine.state.plain() == before

    def test_an_error_inside_leaves_no_trace_and_no_lock(self) -> None:
        engine = small_cluster()
        engine.decide(ask("x", 1))
        before = (engine.version, engine.digest, engine.state.plain())
        huge = Claim("big", spec({"cpu": 2**62 - 1}, TEAM))
        engine.configure([pot("a", cpu=2**62 - 1), host("h1", cpu=2**62 - 1)])
        engine.configure([pot("a", cpu=10), host("h1", cpu=4)])
        engine.decide(huge)
        engine.release("big")
        assert engine.state.plain() == before[2]


class TestAdmitAndPlace:
    def test_admit_reserves_quota_and_place_takes_a_node(self) -> None:
        engine = small_cluster()
        assert engine.admit(ask("x", 3)).outcome == ADMITTED
        assert engine.claim("x").place == ""
        assert engine.state.accounts["hosts/h1"].used.amount("cpu") == 0
        decision = engine.place("x")
        assert decision.place == "h1"
        assert engine.state.accounts["hosts/h1"].used.amount("cpu") == 3
        assert engine.state.accounts["teams/a"].used.amount("cpu") == 3

    def test_a_given_node_is_checked_unless_it_is_a_fact(self) -> None:
        engine = small_cluster()
        engine.decide(ask("x", 3))
        engine.admit(ask("y", 3))
        assert engine.place("y", "h1").reason == "hosts.room.cpu"
        assert engine.claim("y").place == ""
        assert engine.place("y", "h1", forced=True).admitted
        assert engine.state.accounts["hosts/h1"].used.amount("cpu") == 6

    def test_a_provisional_place_moves(self) -> None:
        engine = small_cluster()
        engine.decide(ask("x", 3))
        engine.place("x", "h2")
        assert engine.state.accounts["hosts/h1"].used.amount("cpu") == 0
        assert engine.state.accounts["hosts/h2"].used.amount("cpu") == 3

    def test_place_wants_an_admitted_claim(self) -> None:
        engine = small_cluster()
        engine.submit(ask("x", 1))
        with pytest.raises(EngineError, match="ns/x is not admitted yet"):
            engine.place("x")


class TestVictims:
    def full(self) -> Engine:
        engine = engine_with(pot("a", cpu=100), host("h1", cpu=4))
        for uid, priority, created in [("old", 1, 1), ("new", 1, 2), ("low", 0, 0)]:
            engine.decide(ask(uid, 1, priority, created))
            engine.observe(uid, RUNNING)
        return engine

    def test_the_least_important_leave_and_the_claim_waits_for_them(self) -> None:
        engine = self.full()
        decision = engine.decide(ask("x", 3, priority=5))
        assert (decision.outcome, decision.victims) == (HOLDING, ("low", "new"))
        assert engine.claim("x").state == HELD
        assert engine.claim("low").leaving
        account = engine.state.accounts["hosts/h1"]
        assert (account.used.amount("cpu"), account.busy.amount("cpu")) == (4, 6)

    def test_it_may_start_when_the_last_victim_is_gone(self) -> None:
        engine = self.full()
        engine.decide(ask("x", 3, priority=5))
        assert engine.release("low").outcome == EVICTED
        assert engine.claim("x").state == HELD
        engine.release("new")
        assert engine.claim("x").state == RESERVED

    def test_no_more_than_needed(self) -> None:
        engine = engine_with(pot("a", cpu=100), host("h1", cpu=4))
        engine.decide(ask("small", 1, 0, 2))
        engine.decide(ask("large", 3, 0, 1))
        assert engine.decide(ask("x", 3, priority=1)).victims == ("large",)

    @pytest.mark.parametrize(
        "claim",
        [ask("x", 3, priority=0), ask("x", 3, priority=5, preempts=False)],
        ids=["equal priority", "preempts nobody"],
    )
    def test_who_may_not_displace_waits(self, claim: Claim) -> None:
        engine = self.full()
        before = engine.state.accounts["hosts/h1"].used.amount("cpu")
        assert engine.decide(claim).outcome == WAITING
        assert engine.state.accounts["hosts/h1"].used.amount("cpu") == before

    def test_the_unpreemptible_stay(self) -> None:
        engine = engine_with(pot("a", cpu=100), host("h1", cpu=4))
        engine.decide(ask("rock", 4, 0, preemptible=False))
        assert engine.decide(ask("x", 1, priority=9)).outcome == WAITING

    def test_the_node_with_the_least_harm_wins(self) -> None:
        engine = engine_with(pot("a", cpu=100), host("h1", cpu=2), host("h2", cpu=2))
        engine.decide(ask("high", 2, 3))
        engine.decide(ask("low", 2, 1))
        decision = engine.decide(ask("x", 2, priority=9))
        assert (decision.place, decision.victims) == ("h2", ("low",))

    def test_the_same_victims_pay_for_quota_and_node(self) -> None:
        engine = engine_with(pot("a", cpu=4), host("h1", cpu=2), host("h2", cpu=2))
        engine.decide(ask("one", 2, 0, created=1))
        engine.decide(ask("two", 2, 0, created=2))
        decision = engine.decide(ask("x", 2, priority=1))
        assert len(decision.victims) == 1
        assert engine.claim(decision.victims[0]).place == decision.place

    def test_a_held_claim_that_gives_up_lets_its_victims_stay(self) -> None:
        engine = self.full()
        engine.decide(ask("x", 3, priority=5))
        before = engine.state.accounts["hosts/h1"].busy.amount("cpu")
        engine.observe("low", TERMINATING)
        engine.give_up("x")
        assert engine.claim("x").state == PENDING
        assert not engine.claim("new").leaving
        assert engine.claim("low").leaving
        assert [one[0] for one in engine.preemption_history("x")[1]] == ["low"], "new is not displaced after all"
        assert engine.state.accounts["hosts/h1"].busy.amount("cpu") == before - 3

    def test_a_victim_that_gives_up_has_left(self) -> None:
        """It was never told to start: whoever got its place need not wait for it."""
        engine = engine_with(pot("a", cpu=2), host("h1", cpu=2))
        engine.decide(ask("low", 2))
        engine.decide(ask("x", 2, priority=5))
        assert engine.claim("x").state == HELD
        engine.give_up("low")
        low = engine.claim("low")
        assert (low.state, low.leaving, low.place) == (PENDING, False, "")
        assert engine.claim("x").state == RESERVED
        assert engine.state.accounts["hosts/h1"].busy.amount("cpu") == 2

    def test_nobody_gives_up_who_runs(self) -> None:
        engine = self.full()
        engine.observe("low", RUNNING)
        with pytest.raises(EngineError, match="is running, neither held nor reserved"):
            engine.give_up("low")

    def test_a_claim_that_is_spared_is_nobodys_victim_until_it_is_not(self) -> None:
        engine = self.full()
        engine.spare("new", True)
        engine.spare("low", True)
        waiting = ask("x", 3, priority=5)
        assert engine.decide(waiting).outcome == WAITING
        engine.spare("new", False)
        engine.spare("low", False)
        assert engine.decide(waiting).admitted

    def test_a_claim_that_never_started_waits_again(self) -> None:
        engine = self.full()
        engine.decide(ask("x", 3, priority=5))
        decision = engine.decide(ask("king", 3, priority=9))
        assert decision.admitted
        held = engine.claim("x")
        assert held.state == PENDING
        assert held.decision is not None
        assert "ns/king took the place" in engine.explain("x").note
        assert held.bindings == ()


class TestNoThrash:
    def test_a_displaced_claim_does_not_displace_back(self) -> None:
        engine = engine_with(pot("a", cpu=100), host("h1", cpu=2))
        engine.decide(ask("first", 2, 1, owner="job-1"))
        engine.decide(ask("second", 2, 2, owner="job-2"))
        engine.release("first")
        again = ask("first-again", 2, 9, owner="job-1")
        assert engine.decide(again).outcome == WAITING
        engine.release("second")
        assert engine.decide(again).outcome == ADMITTED

    def test_neither_through_others(self) -> None:
        engine = engine_with(pot("a", cpu=100), host("h1", cpu=2))
        engine.decide(ask("c1", 2, 1, owner="one"))
        engine.decide(ask("c2", 2, 2, owner="two"))
        engine.release("c1")
        engine.decide(ask("c3", 2, 3, owner="three"))
        engine.release("c2")
        assert engine.decide(ask("c1b", 2, 9, owner="one")).outcome == WAITING

    def test_strangers_are_free(self) -> None:
        engine = engine_with(pot("a", cpu=100), host("h1", cpu=2))
        engine.decide(ask("first", 2, 1, owner="job-1"))
        engine.decide(ask("second", 2, 2, owner="job-2"))
        engine.release("first")
        assert engine.decide(ask("other", 2, 9, owner="job-3")).victims == ("second",)

    def test_the_record_ends_with_its_claims(self) -> None:
        engine = engine_with(pot("a", cpu=100), host("h1", cpu=2))
        engine.decide(ask("first", 2, 1))
        engine.decide(ask("second", 2, 2))
        engine.release("first")
        engine.release("second")
        tables = engine.state.plain()["tables"]
        assert tables == {"hosts": {"h1": True}}


class TestGroups:
    def test_all_or_none(self) -> None:
        engine = small_cluster()
        decisions = engine.decide_group([ask("g1", 4), ask("g2", 4), ask("g3", 1)])
        assert [d.outcome for d in decisions] == [WAITING] * 3
        assert decisions[0].reason == "engine.group"
        assert "ns/g3" in decisions[0].sentence()
        assert engine.state.accounts["teams/a"].used.amount("cpu") == 0

    def test_one_record_for_all(self) -> None:
        engine = small_cluster()
        version = engine.version
        decisions = engine.decide_group([ask("g1", 4), ask("g2", 4)])
        assert [d.place for d in decisions] == ["h1", "h2"]
        assert engine.version == version + 1
        assert [d.seq for d in decisions] == [engine.version] * 2

    def test_never_each_others_victims(self) -> None:
        engine = engine_with(pot("a", cpu=100), host("h1", cpu=2))
        low, high = ask("g1", 2, 0, group="g"), ask("g2", 2, 5, group="g")
        assert not engine.decide_group([low, high])[0].admitted


class TestAdjustAndRelease:
    def test_growth_is_checked_shrinking_is_not(self) -> None:
        engine = small_cluster()
        engine.decide(ask("x", 3))
        engine.configure([pot("a", cpu=2)])
        before = engine.state.plain()
        assert engine.adjust("x", spec({"cpu": 4}, TEAM)).reason == "teams.limit.cpu"
        assert engine.state.plain() == before
        assert engine.adjust("x", spec({"cpu": 2}, TEAM)).admitted
        assert engine.state.accounts["teams/a"].used.amount("cpu") == 2

    def test_node_requirements_are_fixed_while_it_holds_a_place(self) -> None:
        engine = small_cluster()
        engine.decide(ask("x", 3))
        engine.submit(ask("y", 3))
        moved = ClaimSpec(from_amounts({"cpu": 3}), labels=TEAM, needs=NodeNeeds({"zone": "b"}))
        assert engine.adjust("x", moved).reason == "engine.fixed-needs"
        assert not engine.adjust("y", moved).refusals
        assert engine.adjust("x", spec({"cpu": 3}, TEAM, 7)).reason == "engine.fixed-priority"

    def test_release_gives_everything_back(self) -> None:
        engine = small_cluster()
        empty = engine.state.plain()
        engine.decide(ask("x", 3))
        assert engine.release("x").outcome == RELEASED
        assert engine.state.plain() == empty

    def test_unknown_uids_are_errors(self) -> None:
        engine = small_cluster()
        for call in (engine.release, engine.place, engine.explain, engine.give_up):
            with pytest.raises(EngineError, match="no claim ghost"):
                call("ghost")


class TestSettings:
    def test_all_or_none(self) -> None:
        engine = small_cluster()
        before = engine.state.plain()
        with pytest.raises(SettingError, match=r"nobody\.Kind k: no policy takes"):
            engine.configure([pot("b", cpu=1), Setting("nobody.Kind", "k", None)])
        assert engine.state.plain() == before

    def test_lowering_evicts_nobody(self) -> None:
        engine = small_cluster()
        engine.decide(ask("x", 3))
        engine.configure([pot("a", cpu=1)])
        assert engine.claim("x").state == RESERVED
        assert engine.decide(ask("y", 1)).reason == "teams.limit.cpu"


class TestWhatIf:
    def test_says_what_would_happen_and_changes_nothing(self) -> None:
        engine = small_cluster()
        engine.decide(ask("x", 4))
        engine.decide(ask("y", 4))
        engine.decide(ask("z", 4))
        before = (engine.version, engine.digest, engine.state.plain(), engine.claim("z").decision)
        outlook = engine.what_if([Release("x"), Configure([pot("a", cpu=5)])], pending=True)
        assert outlook.of("z") is not None
        assert outlook.of("z").reason == "teams.limit.cpu"  # type: ignore[union-attr]
        assert engine.what_if([Release("x")], pending=True).of("z").admitted  # type: ignore[union-attr]
        assert engine.what_if([Adjust("x", spec({"cpu": 9}, TEAM))]).of("x").outcome == WAITING  # type: ignore[union-attr]
        assert engine.what_if([Submit(ask("n", 4, 7))]).evicted == ["x"]
        assert before == (engine.version, engine.digest, engine.state.plain(), engine.claim("z").decision)


class TestExplain:
    def test_a_waiting_claim_shows_all_checks_and_marks_the_binding_one(self) -> None:
        engine = engine_with(pot("a", cpu=2), host("h1", cpu=1))
        engine.decide(ask("x", 3))
        tree = engine.explain("x")
        assert tree.title == "ns/x is pending"
        assert [(c.title, c.passed) for c in tree.children] == [("teams", False), ("hosts", False)]
        assert tree.children[0].children[0].binding
        assert not tree.children[1].children[0].binding
        assert tree.children[1].children[0].reason == "hosts.room.cpu"

    def test_an_admitted_claim_shows_what_it_holds(self) -> None:
        engine = small_cluster()
        engine.decide(ask("x", 3))
        tree = engine.explain("x")
        assert tree.passed
        assert [c.title for c in tree.children] == ["teams", "hosts"]

    def test_an_evicted_claim_says_who_took_its_place_even_when_gone(self) -> None:
        engine = engine_with(pot("a", cpu=100), host("h1", cpu=2))
        engine.decide(ask("low", 2))
        engine.decide(ask("high", 2, 5))
        assert engine.explain("low").note == "gave its place to ns/high"
        engine.release("low")
        tree = engine.explain("low")
        assert (tree.title, tree.note) == ("ns/low is gone", "gave its place to ns/high")

    def test_it_changes_nothing(self) -> None:
        engine = engine_with(pot("a", cpu=2), host("h1", cpu=1))
        engine.decide(ask("x", 3))
        before = (engine.version, engine.digest, engine.state.plain())
        engine.explain("x")
        assert before == (engine.version, engine.digest, engine.state.plain())


class TestReplay:
    def test_decisions_are_restored_too(self) -> None:
        engine = engine_with(pot("a", cpu=100), host("h1", cpu=2))
        engine.decide(ask("low", 2))
        engine.decide(ask("high", 2, 5))
        engine.decide(ask("wait", 2))
        engine.decide_group([ask("g1", 1), ask("g2", 2)])
        engine.release("low")
        copy = Engine([Pots("teams"), Pots("projects"), Hosts()])
        assert copy.replay(engine.journal.take()) == engine.version
        assert (copy.digest, copy.state.plain()) == (engine.digest, engine.state.plain())
        for uid in ("low", "high", "wait", "g1", "g2"):
            assert copy.explain(uid).record() == engine.explain(uid).record(), uid

    def test_why_a_claim_waits_survives_that_it_asks_for_something_else(self) -> None:
        engine = engine_with(pot("a", cpu=2), host("h1", cpu=9))
        claim = ask("x", 3)
        refused = engine.decide(claim)
        engine.adjust("x", ask("x", 4).spec)
        assert claim.decision is refused, "as a replay sees it, until the claim is decided again"
        again = engine.decide(claim)
        assert again.seq == engine.version, "it is refused like before, for another amount: that has a record"
        copy = Engine([Pots("teams"), Pots("projects"), Hosts()])
        copy.replay(engine.journal.take())
        known = copy.claim("x").decision
        assert isinstance(known, Decision)
        assert known.record() == again.record()
        assert "needs 4m cpu" in known.sentence()

    def test_a_record_of_a_change_that_was_not_decided_yet_hides_no_reason(self) -> None:
        engine = engine_with(pot("a", cpu=2), host("h1", cpu=9))
        refused = engine.decide(ask("x", 3))
        engine.adjust("x", ask("x", 4).spec)
        copy = Engine([Pots("teams"), Pots("projects"), Hosts()])
        copy.replay(engine.journal.take())
        known = copy.claim("x").decision
        assert isinstance(known, Decision)
        assert known.record() == refused.record()


class TestLifeAndThreads:
    def test_a_pending_claim_cannot_be_seen_running(self) -> None:
        engine = small_cluster()
        engine.submit(ask("x", 1))
        with pytest.raises(EngineError, match="ns/x is pending: it cannot be seen running"):
            engine.observe("x", RUNNING)

    def test_states_only_go_forward(self) -> None:
        engine = small_cluster()
        engine.decide(ask("x", 1))
        engine.observe("x", RUNNING)
        engine.observe("x", BOUND)
        assert engine.claim("x").state == RUNNING

    def test_many_threads_never_over_allocate(self) -> None:
        engine = engine_with(pot("a", cpu=50), host("h1", cpu=1000))

        def worker(number: int) -> None:
            for i in range(40):
                claim = ask(f"{number}-{i}", 1)
                if engine.decide(claim).admitted and i % 2:
                    engine.release(claim.uid)

        threads = [Thread(target=worker, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        admitted = [c for c in engine.state.claims.values() if c.counts()]
        assert len(admitted) == engine.state.accounts["teams/a"].used.amount("cpu") <= 50

    def test_the_listener_hears_of_each_commit(self) -> None:
        class Heard(CommitListener):
            def __init__(self) -> None:
                self.topics: list[list[str]] = []

            def committed(self, record: Record) -> None:
                self.topics.append(sorted({account.topic for account in record.touched()}))

        engine = small_cluster()
        heard = Heard()
        engine.listener = heard
        engine.decide(ask("x", 1))
        assert heard.topics == [["hosts", "teams/a"]]
