"""Drives an engine and its reference model through the same random life, and compares after each step.

The steps take plain numbers, so that Hypothesis (short runs, shrinking) and a seeded generator (long runs) can both
feed it. A replica replays the journal as it grows and must have the same state and digest.
"""

from __future__ import annotations

from copy import deepcopy

from bursar.engine.decision import Decision
from bursar.engine.engine import Engine
from bursar.engine.what_if import Configure, Submit
from bursar.ledger.claims import BOUND, HELD, PENDING, RESERVED, RUNNING, STATES, TERMINATING, Claim, ClaimSpec
from bursar.policies.results import Setting
from tests.engine.reference_model import Asker, ReferenceModel
from tests.engine.toy_policies import Hosts, Pots, Room, spec

TEAMS = ["a", "a/x", "a/y", "b"]
PROJECTS = ["p", "q", ""]
HOSTS = ["h1", "h2", "h3"]


def new_engine() -> Engine:
    return Engine([Pots("teams"), Pots("projects"), Hosts()])


class Machine:
    """One engine, one reference model, one replica."""

    def __init__(self) -> None:
        self.engine = new_engine()
        self.replica = new_engine()
        self.reference = ReferenceModel()
        self.now = 0
        self.count = 0
        for path in TEAMS:
            self.set_room("teams", path, 6, 4)
        for path in PROJECTS[:2]:
            self.set_room("projects", path, 5, 3)
        for name in HOSTS:
            self.set_room("hosts", name, 4, 2)

    # Steps

    def set_room(self, policy: str, path: str, cpu: int, gpu: int) -> None:
        self.engine.configure([room_setting(policy, path, cpu, gpu)], self.now)
        self.reference.set_room((policy, path), {"cpu": cpu, "gpu": gpu})

    def decide_new(self, team: int, project: int, cpu: int, gpu: int, priority: int, preemptible: bool) -> None:
        claim, asker = self._ask(team, project, cpu, gpu, priority, preemptible)
        self.reference.askers[claim.uid] = asker
        self._decide(claim)

    def decide_again(self, choice: int) -> None:
        pending = [c for c in self._claims() if c.state == PENDING]
        if pending:
            self._decide(pending[choice % len(pending)])

    def try_only(self, team: int, project: int, cpu: int, gpu: int, priority: int) -> None:
        """A what-if leaves no trace and says what the real decision then says."""
        claim, asker = self._ask(team, project, cpu, gpu, priority, preemptible=True)
        before = (self.engine.version, self.engine.digest, self.engine.state.plain())
        shrink = Configure([room_setting("hosts", "h1", 1, 1)])
        self.engine.what_if([shrink, Submit(claim)], self.now, pending=True)
        guess = self.engine.what_if([Submit(claim)], self.now).of(claim.uid)
        assert before == (self.engine.version, self.engine.digest, self.engine.state.plain())
        self.reference.askers[claim.uid] = asker
        decision = self._decide(claim)
        assert guess is not None
        assert (guess.outcome, guess.place, guess.victims) == (decision.outcome, decision.place, decision.victims)

    def decide_group(self, sizes: list[int], priority: int) -> None:
        pairs = [self._ask(i, 2, size, 0, priority, preemptible=True) for i, size in enumerate(sizes)]
        before = self.engine.state.plain()
        decisions = self.engine.decide_group([claim for claim, _ in pairs], self.now)
        for _, asker in pairs:
            self.reference.askers[asker.uid] = asker
        if not decisions[0].admitted:
            assert not any(d.admitted for d in decisions)
            for claim, _ in pairs:
                self.engine.release(claim.uid, self.now)
                del self.reference.askers[claim.uid]
            assert self.engine.state.plain() == before
            return
        group = {asker.uid for _, asker in pairs}
        for decision in decisions:
            assert decision.admitted
            assert not group & set(decision.victims)
            self._take_over(decision)

    def release(self, choice: int) -> None:
        claims = self._claims()
        if claims:
            uid = claims[choice % len(claims)].uid
            self.engine.release(uid, self.now)
            self.reference.gone(uid)

    def advance(self, choice: int) -> None:
        """A claim goes on in its life, as the outside would see it."""
        movable = [c for c in self._claims() if c.state not in (PENDING, HELD, TERMINATING)]
        if not movable:
            return
        claim = movable[choice % len(movable)]
        state = TERMINATING if claim.leaving else min(claim.state + 1, RUNNING)
        self.engine.observe(claim.uid, max(state, BOUND), self.now)
        self.reference.askers[claim.uid].state = STATES[claim.state]

    def give_up(self, choice: int) -> None:
        unstarted = [c for c in self._claims() if c.state in (HELD, RESERVED)]
        if unstarted:
            uid = unstarted[choice % len(unstarted)].uid
            self.engine.give_up(uid, self.now)
            self.reference.back_to_pending(self.reference.askers[uid])

    def resize(self, choice: int, cpu: int) -> None:
        claims = [c for c in self._claims() if c.counts()]
        if not claims:
            return
        claim = claims[choice % len(claims)]
        asker = self.reference.askers[claim.uid]
        before = self.engine.state.plain()
        decision = self.engine.adjust(claim.uid, with_cpu(claim, cpu), self.now)
        grows = cpu > asker.wants["cpu"]
        rest = deepcopy(self.reference)
        rest.askers[claim.uid].state = "pending"
        alone = deepcopy(asker)
        alone.wants = {"cpu": cpu}
        if grows and not rest.fits(alone, asker.place):
            assert not decision.admitted
            assert self.engine.state.plain() == before
        else:
            assert decision.admitted
            asker.wants["cpu"] = cpu

    # Judging

    def check(self) -> None:
        """Engine and reference model agree on every claim and on every sum."""
        state = self.engine.state
        assert {c.uid: self._seen(c) for c in state.claims.values()} == {
            a.uid: (a.state, a.place, a.leaving, sorted(a.waits)) for a in self.reference.askers.values()
        }
        for room in self.reference.rooms:
            account = state.accounts["/".join(room)]
            for what in ("cpu", "gpu"):
                assert account.used.amount(what) == self.reference.used(room, what), (room, what)
                if room[0] == "hosts":
                    assert account.busy.amount(what) == self.reference.used(room, what, busy=True), (room, what)

    def check_replica(self) -> None:
        self.replica.replay(self.engine.journal.take())
        assert self.replica.digest == self.engine.digest
        assert self.replica.version == self.engine.version
        assert self.replica.state.plain() == self.engine.state.plain()

    def _seen(self, claim: Claim) -> tuple[str, str, bool, list[str]]:
        return (
            STATES[claim.state],
            claim.place if claim.state != PENDING else "",
            claim.leaving,
            sorted(claim.waits_for),
        )

    def _claims(self) -> list[Claim]:
        return [self.engine.state.claims[uid] for uid in sorted(self.engine.state.claims)]

    def _ask(
        self, team: int, project: int, cpu: int, gpu: int, priority: int, preemptible: bool
    ) -> tuple[Claim, Asker]:
        self.count += 1
        self.now += 1
        uid = f"c{self.count:06}"
        labels = {"teams": TEAMS[team % 4]}
        if PROJECTS[project % 3]:
            labels["projects"] = PROJECTS[project % 3]
        wants = {"cpu": cpu} | ({"gpu": gpu} if gpu else {})
        accounts = [
            ("teams", part) for part in (["a", labels["teams"]] if "/" in labels["teams"] else [labels["teams"]])
        ]
        accounts += [("projects", labels["projects"])] if "projects" in labels else []
        claim = Claim(uid, spec(wants, labels, priority, preemptible=preemptible), self.now, "ns", uid)
        return claim, Asker(uid, accounts, wants, priority, preemptible)

    def _decide(self, claim: Claim) -> Decision:
        decision = self.engine.decide(claim, self.now)
        asker = self.reference.askers[claim.uid]
        open_hosts = [host for host in self.reference.hosts() if self.reference.fits(asker, host)]
        if open_hosts:
            assert decision.admitted
            assert decision.place == open_hosts[0]
            assert not decision.victims
        elif decision.admitted:
            self._judge_victims(asker, decision)
        else:
            self._judge_refusal(asker)
        if decision.admitted:
            self._take_over(decision)
        return decision

    def _judge_victims(self, asker: Asker, decision: Decision) -> None:
        assert decision.victims
        rest = deepcopy(self.reference)
        for uid in decision.victims:
            assert rest.may_displace(asker, rest.askers[uid]), (decision, rest.askers[uid])
            rest.remove(uid)
        assert self._fits_without(asker, decision.place, list(decision.victims))
        if not any(self.reference.askers[uid].state == "held" for uid in decision.victims):
            for spared in decision.victims:
                fewer = [uid for uid in decision.victims if uid != spared]
                assert not self._fits_without(asker, decision.place, fewer), f"{spared} was not needed"

    def _judge_refusal(self, asker: Asker) -> None:
        possible = [a.uid for a in self.reference.askers.values() if self.reference.may_displace(asker, a)]
        if any(self.reference.askers[uid].state == "held" for uid in possible):
            return  # displacing a held claim lets others back in, so "all of them" is no upper bound
        for host in self.reference.hosts():
            assert not self._fits_without(asker, host, possible), f"refused, but {host} could be cleared"

    def _fits_without(self, asker: Asker, host: str, victims: list[str]) -> bool:
        rest = deepcopy(self.reference)
        for uid in victims:
            rest.remove(uid)
        return rest.fits(rest.askers[asker.uid], host)

    def _take_over(self, decision: Decision) -> None:
        for uid in decision.victims:
            self.reference.remove(uid)
        self.reference.hold(self.reference.askers[decision.uid], decision.place, list(decision.victims))


def room_setting(policy: str, path: str, cpu: int, gpu: int) -> Setting:
    kind = "hosts.Host" if policy == "hosts" else f"{policy}.Pot"
    return Setting(kind, path, Room(cpu=cpu, gpu=gpu))


def with_cpu(claim: Claim, cpu: int) -> ClaimSpec:
    gpu = claim.spec.requests.amount("gpu")
    wants = {"cpu": cpu} | ({"gpu": gpu} if gpu else {})
    return spec(wants, claim.spec.labels, claim.spec.priority, preemptible=claim.spec.preemptible)
