"""The control loop: objects and sightings in; decisions made and acted upon until nothing changes.

The controller is told what was *seen* (an object was applied or deleted, a pod runs, is about to leave, is gone) and
acts through its ports. It keeps no state of its own beyond the queue and the map from pods to claims: everything that
decides stands in the engine's ledger.

Changes that come together are checked together: either all of them are taken, or none. ``settle`` runs until nobody is
ready to be decided and no policy wants anything written or taken back; it never waits and never advances time.

Which pod is which claim, and what a pod asks for. A pod's priority is settled by admission, before it comes here.

Whether a cluster comes to rest.

Everything that goes on for ever moves claims or writes for ever, while time stands still. So rounds are counted, as
long as no time passes: there may be many more of them than claims, but not without end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from bursar.control import actions as outside
from bursar.control.actions import Actor, Ports
from bursar.control.admission import ObjectChange, control_section, settings_of
from bursar.control.gangs import urgency
from bursar.control.queue import Queue
from bursar.control.wakeups import Likeness, Wakeups
from bursar.engine.decision import NEVER, Decision
from bursar.engine.engine import Engine
from bursar.engine.what_if import Adjust, Configure, Outlook, Submit
from bursar.ledger.claims import BOUND, PENDING, RESERVED, RUNNING, STATES, TERMINATING, Claim, ClaimSpec
from bursar.ledger.state import State
from bursar.objects.core import Pod
from bursar.objects.decode import ManifestError
from bursar.objects.pods import Priorities, SpecCache, claim_from_pod
from bursar.policies.plugin import Registry
from bursar.policies.results import Check, SettingError

_PRIORITIES = Priorities()
_ENDED = ("Succeeded", "Failed")


class PodBook:
    """The claims of the pods that are there, by the pod's namespace/name."""

    def __init__(self, registry: Registry) -> None:
        self._unpreemptible = [plugin.unpreemptible for plugin in registry if plugin.unpreemptible is not None]
        self._cache = SpecCache()
        self._claims: dict[str, Claim] = {}
        self._keys: dict[str, str] = {}

    def read(self, change: ObjectChange) -> tuple[Claim | None, str]:
        """The claim that the pod makes, new and in no ledger, and its key; None when it is gone or has ended."""
        pod = cast("Pod | None", change.typed)
        if pod is None or pod.status.phase in _ENDED:
            return None, change.key
        claim = claim_from_pod(pod, change.created, _PRIORITIES, self._unpreemptible, self._cache)
        return claim, change.key

    def add(self, key: str, claim: Claim) -> None:
        self._claims[key] = claim
        self._keys[claim.uid] = key

    def remove(self, uid: str) -> None:
        key = self._keys.pop(uid, None)
        if key is not None:
            del self._claims[key]

    def claim(self, key: str) -> Claim | None:
        return self._claims.get(key)


MAX_ROUNDS = 100_000
_FOR_EACH_CLAIM = 100
_NAMED = 5


class SettlingError(RuntimeError):
    """The cluster does not come to rest although no time passes: a defect of a policy, never of the input."""


class LivelockGuard:
    """How many rounds of deciding and acting there were at one moment."""

    def __init__(self, state: State, watch: Wakeups, most: int) -> None:
        """``most``: so many are always allowed, and some more for each claim."""
        self._state = state
        self._watch = watch
        self._most = most
        self._moment = 0
        self._done = 0

    def count(self, now: int) -> None:
        """One more round; raises ``SettlingError``, naming those who move, when there were too many."""
        if now != self._moment:
            self._moment = now
            self._done = 0
            self._watch.moves.clear()
        self._done += 1
        if self._done > self._most + _FOR_EACH_CLAIM * len(self._state.claims):
            raise SettlingError(f"no rest after {self._done} rounds at {now} ms{self._moving()}")

    def _moving(self) -> str:
        moves = sorted(self._watch.moves.items(), key=lambda item: (-item[1], item[0]))
        named = ", ".join(f"{self._name(uid)} ({count} times)" for uid, count in moves[:_NAMED])
        return f"; it moves: {named}" if named else ""

    def _name(self, uid: str) -> str:
        claim = self._state.claims.get(uid)
        return uid if claim is None else claim.key


GROUP_INCOMPLETE = "control.group-incomplete"
LEAVING = "control.leaving"


class Controller:
    """Drives one engine for one cluster."""

    def __init__(self, engine: Engine, registry: Registry, ports: Ports, *, max_rounds: int = MAX_ROUNDS) -> None:
        self.engine = engine
        self.queue = Queue()
        self._registry = registry
        self._ports = ports
        self._watch = Wakeups(self.queue)
        self._actor = Actor(engine, self._watch, ports)
        self._like = Likeness(engine.state, self.queue, self._watch)
        self._pods = PodBook(registry)
        self._rounds = LivelockGuard(engine.state, self._watch, max_rounds)
        engine.listener = self._watch

    # What was seen

    def apply(self, changes: Sequence[ObjectChange]) -> None:
        """All of these changes, or none: ``ManifestError`` says what is wrong with the first bad one."""
        settings = settings_of(self._registry, changes)
        pods = [self._pods.read(change) for change in changes if change.is_pod]
        now = self._ports.now()
        if settings:
            try:
                self.engine.configure(settings, now)
            except SettingError as error:
                raise _refused(error) from None
        section = control_section(changes)
        if section is not None:
            self.queue.strict = section.strict
        for claim, key in pods:
            self._pod_seen(claim, key, now)
        for claim, _ in pods:
            missing = None if claim is None else self.queue.missing(claim.uid)
            if claim is not None and missing is not None:
                self._actor.event(claim, outside.WARNING, GROUP_INCOMPLETE, _group_sentence(claim, missing))

    def check(self, changes: Sequence[ObjectChange]) -> None:
        """Raises if pods that change would not fit where they are, given all of these changes; changes nothing.

        For whoever can still refuse the changes: what has happened already is only reported by ``apply``.
        """
        settings = settings_of(self._registry, changes)
        resized = [self._resize(change) for change in changes if change.is_pod]
        adjustments = [Adjust(claim.uid, claim.spec) for claim in resized if claim is not None]
        if not adjustments:
            return  # ``apply`` takes all settings or none by itself
        try:
            outlook = self.engine.what_if([Configure(settings), *adjustments], self._ports.now())
        except SettingError as error:
            raise _refused(error) from None
        for decision in outlook.decisions:
            if decision.refusals:
                raise ManifestError(decision.sentence(), "spec.containers", subject=f"Pod {self.name(decision.uid)}")

    def _resize(self, change: ObjectChange) -> Claim | None:
        """The claim that a pod would make now, if it holds a place and asks for something else than before."""
        known = self._pods.claim(change.key)
        if known is None or known.state == PENDING:
            return None
        claim, _ = self._pods.read(change)
        return None if claim is None or claim.uid != known.uid or _same(known.spec, claim.spec) else claim

    def _pod_seen(self, claim: Claim | None, key: str, now: int) -> None:
        """A pod as it is now; None: it is gone. Another uid under the same key is another pod."""
        known = self._pods.claim(key)
        if known is not None and (claim is None or claim.uid != known.uid):
            self.gone(known.uid)
            known = None
        if claim is None:
            return
        if known is None:
            self._enter(claim, key, now)
        elif not _same(known.spec, claim.spec):
            self._resized(known, claim.spec, now)

    def _resized(self, claim: Claim, spec: ClaimSpec, now: int) -> None:
        """One that is on a node has grown whether it fits there or not, and counts for that."""
        decision = self.engine.adjust(claim.uid, spec, now)
        if decision.refusals:
            self._actor.event(claim, outside.WARNING, outside.RESIZE_REFUSED, decision.sentence())
            if claim.state >= BOUND:
                self.engine.adjust(claim.uid, spec, now, forced=True)

    def _enter(self, claim: Claim, key: str, now: int) -> None:
        self._pods.add(key, claim)
        self.engine.submit(claim, now)
        node = claim.spec.needs.node_name
        if not node:
            self.queue.add(claim)
            return
        self.engine.place(claim.uid, node, now, forced=True)
        self._watch.found(claim)

    def bound(self, uid: str, node: str) -> None:
        """The pod was seen on a node: a fact, whether it is the one that was decided or another."""
        claim = self.engine.state.claims.get(uid)
        if claim is None:
            return
        if claim.place != node or claim.state < RESERVED:
            self.engine.place(uid, node, self._ports.now(), forced=True)
        self._seen(uid, BOUND)

    def counts_on(self, uid: str, node: str) -> None:
        """The node is known now: a pod whose place it is already counts there."""
        claim = self.engine.state.claims.get(uid)
        if claim is not None and claim.place == node and claim.state >= RESERVED:
            self.engine.place(uid, node, self._ports.now(), forced=True)

    def running(self, uid: str) -> None:
        """The pod runs."""
        self._seen(uid, RUNNING)

    def terminating(self, uid: str) -> None:
        """The pod was told to leave and is still there."""
        self._seen(uid, TERMINATING)

    def _seen(self, uid: str, state: int) -> None:
        claim = self.engine.state.claims.get(uid)
        if claim is not None and claim.state >= RESERVED:
            self.engine.observe(uid, state, self._ports.now())

    def gone(self, uid: str) -> None:
        """The pod ended, successfully or not, or is gone altogether: it counts no longer."""
        self._pods.remove(uid)
        if uid in self.engine.state.claims:
            self.engine.release(uid, self._ports.now())

    # Deciding and acting

    def settle(self, rounds: int | None = None) -> bool:
        """Decide and act until nothing changes; whether that was within so many rounds.

        What was decided when the rounds are over is acted upon and written all the same.
        """
        while self._round():
            self._rounds.count(self._ports.now())
            if rounds is not None:
                rounds -= 1
                if rounds <= 0:
                    self._actor.act()
                    self._actor.write()
                    return False
        return True

    def _round(self) -> bool:
        actor = self._actor
        return actor.advance() or actor.act() or self._decide_next() or actor.revoke() or actor.write()

    def _decide_next(self) -> bool:
        claims = self.queue.next()
        if claims is None:
            return False
        alone = len(claims) == 1
        if alone and self._like.refused(claims[0]):
            self._start_over(claims[0])
            return True
        now = self._ports.now()
        before = [claim.decision for claim in claims]
        decisions = [self.engine.decide(claims[0], now)] if alone else self.engine.decide_group(claims, now)
        if not decisions[0].admitted:
            topics = [topic for decision in decisions for refusal in decision.refusals for topic in refusal.topics]
            never = any(decision.outcome == NEVER for decision in decisions)
            self.queue.wait(claims[0], topics, never=never)
            if alone:
                self._like.note(claims[0], topics, never)
        for claim, decision, last in zip(claims, decisions, before, strict=True):
            if not decision.same_as(last):
                self._actor.tell(claim, decision)
        if not decisions[0].admitted:
            self._start_over(claims[0])
        return True

    def _start_over(self, refused: Claim) -> None:
        """The rest of a group was refused: unless some of it has started, nobody of it keeps a place."""
        group = self.queue.group(refused.spec.group) if refused.spec.group else None
        if group is not None and not group.started:
            self._actor.give_back(group)

    # Trying, and going on after a restart

    def trial(self, changes: Sequence[ObjectChange]) -> tuple[list[Claim], Outlook]:
        """What would become of new pods if they came now, the most urgent first; changes nothing.

        Members of a group are tried together; those of one that is not complete are not tried.
        """
        claims = sorted((claim for claim, _ in map(self._pods.read, changes) if claim is not None), key=urgency)
        units: dict[str, list[Claim]] = {}
        for claim in claims:
            units.setdefault(claim.spec.group or f"claim {claim.uid}", []).append(claim)
        tried = [Submit(*unit) for unit in units.values() if len(unit) >= unit[0].spec.group_size]
        return claims, self.engine.what_if(list(tried), self._ports.now())

    def displaced_before(self, uid: str, victims: Sequence[tuple[str, str]]) -> None:
        """The pod once took the place of these ((uid, owner) of each), as whoever decided then wrote down."""
        self.engine.recall_displaced(uid, list(victims), self._ports.now())

    def held_before(self, uid: str, node: str, victims: Sequence[str]) -> bool:
        """The pod was promised a place once these have left; whether it still gets it."""
        return self.engine.resume_hold(uid, node, list(victims), self._ports.now()).admitted

    def resume(self, changes: Sequence[ObjectChange], pods: Iterable[tuple[str, str]]) -> None:
        """The engine was brought to a state of the past, and these objects and pods (key, uid) were there.

        Whoever waits is ready to be decided once more: what each of them waited for is not remembered.
        """
        section = control_section(changes)
        if section is not None:
            self.queue.strict = section.strict
        self._watch.revoked.update(self.engine.state.cells("revoked"))
        for key, uid in pods:
            claim = self.engine.state.claims.get(uid)
            if claim is not None:
                self._pods.add(key, claim)
                self._watch.take(claim)

    # Answers

    def claim(self, key: str) -> Claim | None:
        """The claim of the pod of that name, while it is in the ledger."""
        return self._pods.claim(key)

    def read(self, change: ObjectChange) -> Claim | None:
        """The claim that a pod would make, new and in no ledger; None: it has ended."""
        return self._pods.read(change)[0]

    def name(self, uid: str) -> str:
        """What people call the claim."""
        claim = self.engine.state.claims.get(uid)
        return uid if claim is None else claim.key

    def reason(self, uid: str) -> tuple[str, str]:
        """(stable code, sentence) of why the claim waits; empty when it does not."""
        claim = self.engine.state.claims.get(uid)
        if claim is None or claim.state >= RESERVED:
            kept = "" if claim is None or claim.leaving else self._actor.kept(claim)
            return (LEAVING, kept) if kept else ("", "")
        missing = self.queue.missing(uid)
        if missing is not None:
            return GROUP_INCOMPLETE, _group_sentence(claim, missing)
        decision = claim.decision
        if not isinstance(decision, Decision):
            return "", "not decided yet"
        return decision.reason, decision.sentence()

    def explain(self, uid: str) -> Check:
        """The engine's tree of checks; for a claim that waits for its group, how many of it are here."""
        missing = self.queue.missing(uid)
        if missing is None:
            return self.engine.explain(uid)
        claim = self.engine.claim(uid)
        group = Check("group", False, _group_sentence(claim, missing), (), GROUP_INCOMPLETE, True)
        return Check(f"{claim.key} is {STATES[PENDING]}", False, _group_sentence(claim, missing), (group,))


def _same(known: ClaimSpec, given: ClaimSpec) -> bool:
    """Whether they ask for the same; after a restart equal specs are not the same object."""
    return known is given or known.mark == given.mark


def _refused(error: SettingError) -> ManifestError:
    return ManifestError(error.problem, error.field, subject=error.subject)


def _group_sentence(claim: Claim, missing: tuple[int, int]) -> str:
    here, size = missing
    return f"{here} of {size} members of {claim.spec.group} are here"
