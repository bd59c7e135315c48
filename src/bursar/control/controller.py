"""The control loop: objects and observed pods in; decisions made and carried out until nothing changes.

``cycle`` is the loop's body, in numbered steps. The controller hears what was observed (an object was applied or
deleted, a pod runs, terminates, is gone) and acts through its ports. Beyond the queue and the map from pods to claims
it keeps no state: everything that decides is in the engine's ledger.

Changes that come together are checked together: all of them are taken, or none. ``settle`` never waits and never
advances time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from bursar.control import actions as outside
from bursar.control.actions import Actor, Ports, RehearsingActor
from bursar.control.admission import ControlSection, ObjectChange, PodBook, control_section, settings_of
from bursar.control.device_charging import DeviceCharging
from bursar.control.gangs import forked
from bursar.control.pacing import MAX_ROUNDS, LivelockGuard, PutOff, topic_of
from bursar.control.queue import Queue
from bursar.control.wakeups import Wakeups
from bursar.engine.decision import NEVER, Decision
from bursar.engine.engine import Engine
from bursar.engine.what_if import Adjust, Configure
from bursar.ledger.claims import (
    BOUND,
    HELD,
    PENDING,
    RESERVED,
    RUNNING,
    STATES,
    TERMINATING,
    Claim,
    ClaimSpec,
    spec_from_record,
)
from bursar.ledger.preemption_history import Displacement, displaced_by
from bursar.objects.decode import ManifestError
from bursar.objects.pods import SpecCache
from bursar.policies.plugin import Registry
from bursar.policies.results import Check, SettingError

GROUP_INCOMPLETE = "control.group-incomplete"
LEAVING = "control.leaving"


class Controller:
    """Drives one engine for one cluster."""

    def __init__(self, engine: Engine, registry: Registry, ports: Ports, *, max_rounds: int = MAX_ROUNDS) -> None:
        self.engine = engine
        self.queue = Queue(lambda claim: displaced_by(engine.state, claim.uid))
        self.options = ControlSection()
        self.leaves_nodes = False  # whether a scheduler chooses the nodes of pods that quota alone admits
        self._registry = registry
        self._ports = ports
        self._watch = Wakeups(self.queue, engine.policies, lambda claim: engine.standing_refusal(claim) is not None)
        self._actor = Actor(engine, self._watch, ports)
        self.specs = SpecCache()
        self._pods = PodBook(registry, self.specs)
        self._devices = DeviceCharging(engine, self._actor)
        self._rounds = LivelockGuard(engine.state, self._watch, max_rounds)
        self.decided = 0  # queue entries that were decided so far
        self._put_off = PutOff(ports.now)
        engine.set_time_box(self._put_off.box)
        engine.listener = self._watch

    # What was observed

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
        self._configured(changes)
        self._devices.apply(changes, now)
        for claim, key in pods:
            self._cap(claim)
            self._pod_seen(claim, key, now)
        for claim, _ in pods:
            missing = None if claim is None else self.queue.missing(claim.uid)
            if claim is not None and missing is not None:
                self._actor.event(claim, outside.WARNING, GROUP_INCOMPLETE, _group_sentence(claim, missing))

    def _configured(self, changes: Sequence[ObjectChange]) -> None:
        section = control_section(changes)
        if section is not None:
            self.options = section
            self.queue.strict = section.strict

    def check(self, changes: Sequence[ObjectChange]) -> None:
        """Raises if changed pods would not fit where they run, given all of these changes; changes nothing.

        For callers that can still refuse the changes; ``apply`` only reports what has already happened.
        """
        settings = settings_of(self._registry, changes)
        resized = [self._resize(change) for change in changes if change.is_pod]
        asked = {claim.uid: claim.spec for claim in resized if claim is not None}
        adjustments = [Adjust(claim.uid, claim.spec) for claim in resized if claim is not None]
        if not adjustments:
            return  # ``apply`` takes all settings or none by itself
        try:
            outlook = self.engine.what_if([Configure(settings), *adjustments], self._ports.now())
        except SettingError as error:
            raise _refused(error) from None
        for decision in outlook.decisions:
            if decision.refusals:
                path = _changed_field(self.engine.claim(decision.uid).spec, asked[decision.uid])
                raise ManifestError(decision.sentence(), path, subject=f"Pod {self.name(decision.uid)}")

    def _resize(self, change: ObjectChange) -> Claim | None:
        """The claim of a pod that holds a place and changed its spec; else None."""
        known = self._pods.claim(change.key)
        if known is None or known.state == PENDING:
            return None
        claim, _ = self._pods.read(change)
        if claim is None or claim.uid != known.uid:
            return None
        self._cap(claim)
        self._devices.equip(claim, known)
        return None if _same(known.spec, claim.spec) else claim

    def _cap(self, claim: Claim | None) -> None:
        """A pod that preempts nobody counts at most as the highest priority of its quotas, and may leave its node to
        the scheduler.
        """
        if claim is None:
            return
        spec, rules = claim.spec, self.engine.owner_rules
        changed: dict[str, object] = {}
        most = None if spec.preempts else rules.most_priority(claim)
        if most is not None and spec.priority > most:
            changed["priority"] = most
        if self.leaves_nodes and (spec.priority <= 0 or not spec.preempts) and self._left_to_scheduler(claim):
            changed["placeable"] = False
        if changed:
            key = ("changed", spec.mark, *changed.values())
            claim.spec = self.specs.get(key, lambda: spec_from_record({**spec.record(), **changed}))

    def _left_to_scheduler(self, claim: Claim) -> bool:
        """Whether quota alone is to admit the claim, and no policy binds it to a node or keeps it off some."""
        spec = claim.spec
        if not self.engine.owner_rules.by_scheduler(claim):
            return False
        if any(plugin.needs_node(spec.labels, spec.annotations) for plugin in self._registry if plugin.needs_node):
            return False
        pairs = self._registry.paired(self.engine.policies)
        rules = [plugin.placement(policy) for plugin, policy in pairs if plugin.placement is not None]
        return not any(rule.keeps_off(claim) or rule.pins(claim) for rule in rules)

    def _pod_seen(self, claim: Claim | None, key: str, now: int) -> None:
        """A pod as it is now; None if it is gone. Another uid under the same key is another pod."""
        known = self._pods.claim(key)
        if known is not None and (claim is None or claim.uid != known.uid):
            self.gone(known.uid)
            known = None
        if claim is None:
            return
        self._devices.equip(claim, known)
        if known is None:
            self._enter(claim, key, now)
        elif not _same(known.spec, claim.spec):
            self._resized(known, claim.spec, now)
        self._devices.entered(known or claim, now)

    def _resized(self, claim: Claim, spec: ClaimSpec, now: int) -> None:
        """A pod on a node has grown whether it fits there or not, and counts as such."""
        decision = self.engine.adjust(claim.uid, spec, now)
        if decision.refusals:
            self._actor.event(claim, outside.WARNING, outside.RESIZE_REFUSED, decision.sentence())
            if claim.state >= BOUND:
                self.engine.adjust(claim.uid, spec, now, forced=True)

    def enter(self, claim: Claim) -> None:
        """A new pod, as the claim that ``read`` made of one like it: for callers with many equal pods."""
        now = self._ports.now()
        self._devices.equip(claim, None)
        self._enter(claim, claim.key, now)
        self._devices.entered(claim, now)

    def _enter(self, claim: Claim, key: str, now: int) -> None:
        self._pods.add(key, claim)
        self.engine.submit(claim, now)
        node = claim.spec.needs.node_name
        if not node:
            self._watch.take(claim)
            return
        self.engine.place(claim.uid, node, now, forced=True)
        self._watch.found(claim)

    def bound(self, uid: str, node: str) -> None:
        """The pod is bound to a node, the decided one or another."""
        claim = self.engine.state.claims.get(uid)
        if claim is None:
            return
        if claim.place != node or claim.state < RESERVED:
            self.engine.place(uid, node, self._ports.now(), forced=True)
        self._seen(uid, BOUND)

    def unplace(self, uid: str) -> None:
        """The pod is started, and its scheduler has not found a node: it counts in its quotas, and on no node."""
        claim = self.engine.state.claims.get(uid)
        if claim is None or claim.leaving or claim.state not in {PENDING, RESERVED}:
            return
        self.engine.unplace(uid, self._ports.now())
        self._watch.found(claim)

    def counts_on(self, uid: str, node: str) -> None:
        """The node is known now: a pod that was placed there before counts on it."""
        claim = self.engine.state.claims.get(uid)
        if claim is not None and claim.place == node and claim.state >= RESERVED:
            self.engine.place(uid, node, self._ports.now(), forced=True)

    def running(self, uid: str) -> None:
        """The pod runs."""
        self._seen(uid, RUNNING)

    def terminating(self, uid: str) -> None:
        """The pod is being deleted and still exists."""
        self._seen(uid, TERMINATING)

    def _seen(self, uid: str, state: int) -> None:
        claim = self.engine.state.claims.get(uid)
        if claim is not None and claim.state >= RESERVED:
            self.engine.observe(uid, state, self._ports.now())

    def gone(self, uid: str) -> None:
        """The pod succeeded, failed or was deleted: it counts no longer."""
        self._pods.remove(uid)
        self._devices.left(uid)
        self._put_off.decided(uid)
        if uid in self.engine.state.claims:
            self.engine.release(uid, self._ports.now())

    # Deciding and acting

    def settle(self, enough: Callable[[], bool] | None = None) -> bool:
        """Run cycles until nothing changes, or until it is ``enough``; returns whether nothing changes any more.

        What was decided is carried out and written in any case.
        """
        while self.cycle():
            self._rounds.count(self._ports.now())
            if enough is not None and enough():
                self._actor.carry_out()
                self._actor.write_outputs()
                return False
        return True

    def cycle(self) -> bool:
        """One cycle of the control loop. Returns whether it did anything; each step that did ends the cycle."""
        # 1. Set the limits that hold now.
        if self._actor.set_limits():
            return True

        # 2. Charge shared claims of devices to a pod that still has them.
        if self._devices.pass_charges(self._watch.take_claiming(), self._ports.now()):
            return True

        # 3. Carry out what was decided: evict, withdraw, start.
        if self._actor.carry_out():
            return True

        # 4. Take the most urgent entry of the queue: a pod, or the waiting pods of a gang.
        self._put_off.wake(self.queue)
        claims = self.queue.next()
        if claims is not None:
            # 5. Decide it, all of its pods or none.
            if not self._decide(claims):
                # 6. A refused gang that has not started gives its places back.
                self._give_places_back(claims[0].spec.group)
            return True

        # 7. Evict the pods that policies revoke now.
        if self._actor.revoke():
            return True

        # 8. Write statuses, labels and events that changed.
        return self._actor.write_outputs()

    def _decide(self, claims: list[Claim]) -> bool:
        """Decide the pods of a queue entry; whether they are admitted. A refused entry waits for a change."""
        now, first = self._ports.now(), claims[0]
        if not self._put_off.begin(first):
            self.queue.wait(first, [topic_of(first.uid)], never=False)
            return False
        self.decided += 1
        before = [claim.decision for claim in claims]
        alone = len(claims) == 1
        decisions = [self.engine.decide(claims[0], now)] if alone else self.engine.decide_group(claims, now)
        admitted = decisions[0].admitted
        if not admitted:
            topics = [topic for decision in decisions for refusal in decision.refusals for topic in refusal.topics]
            never = any(decision.outcome == NEVER for decision in decisions)
            self.queue.wait(first, self._put_off.topics(first, now, topics), never=never)
        for claim, decision, last in zip(claims, decisions, before, strict=True):
            if not decision.same_as(last):
                self._actor.tell(claim, decision)
        return admitted

    def _give_places_back(self, name: str) -> None:
        """Members of a gang that was refused wait again, unless some of it has started."""
        group = self.queue.group(name) if name else None
        if group is not None and not group.started:
            self._actor.give_back(group)

    # Rehearsing, and going on after a restart

    @contextmanager
    def rehearsal(self, ports: Ports) -> Iterator[Controller]:
        """A copy of this controller that goes on from here through other ports; in the end its work is undone.

        What policies write is left out: it follows later.
        """
        watch = self._watch.fork()
        actor = RehearsingActor(self.engine, watch, ports)
        found = forked(
            self,
            queue=watch.queue,
            _ports=ports,
            _watch=watch,
            _actor=actor,
            _pods=self._pods.fork(),
            _devices=self._devices.fork(actor),
            _rounds=LivelockGuard(self.engine.state, watch, MAX_ROUNDS),
            _put_off=self._put_off.fork(ports.now),
        )
        self.engine.begin_rehearsal(watch, ports.now())
        try:
            yield found
        finally:
            self.engine.end_rehearsal()

    def recall_history(self, uid: str, lineage: str, displacements: Iterable[Displacement]) -> None:
        """The pod's preemption history, as it stands on the pod."""
        self.engine.recall_history(uid, lineage, list(displacements), self._ports.now())

    def held_before(self, uid: str, node: str, victims: Sequence[str]) -> bool:
        """The pod had a hold until these have left; returns whether it still gets the place."""
        return self.engine.resume_hold(uid, node, list(victims), self._ports.now()).admitted

    def resume(self, changes: Sequence[ObjectChange], pods: Iterable[tuple[str, str]]) -> None:
        """The engine was restored to a past state, in which these objects and pods (key, uid) existed.

        All pending pods are decided again: what each of them waited for is not restored.
        """
        self._configured(changes)
        self._watch.revoked.update(self.engine.state.cells("revoked"))
        self._devices.resume(changes)
        for key, uid in pods:
            claim = self.engine.state.claims.get(uid)
            if claim is not None:
                self._pods.add(key, claim)
                self._watch.take(claim)
                self._devices.entered(claim, self._ports.now())

    # Answers

    def claim(self, key: str) -> Claim | None:
        """The claim of the pod of that name, while it is in the ledger."""
        return self._pods.claim(key)

    def read(self, change: ObjectChange) -> Claim | None:
        """The claim that a pod would make, new and in no ledger; None if it has ended."""
        claim = self._pods.read(change)[0]
        if claim is not None:
            self._cap(claim)
            self._devices.equip(claim, None)
        return claim

    def name(self, uid: str) -> str:
        """The pod's namespace/name."""
        claim = self.engine.state.claims.get(uid)
        return uid if claim is None else claim.key

    def held(self) -> list[Claim]:
        """The claims that have a place and have not started: others have to leave first."""
        claims = self.engine.state.claims
        found = {uid: claims[uid] for uid in self._watch.terminating.held()}
        kept = (*self._watch.terminating.blocked(), *self.queue.placed())
        return list((found | {claim.uid: claim for claim in kept}).values())

    def reason(self, uid: str) -> tuple[str, str]:
        """(stable code, sentence) of why the claim waits; empty when it does not."""
        claim = self.engine.state.claims.get(uid)
        if claim is not None and claim.state == HELD:
            return "", self._actor.hold(claim)
        if claim is None or claim.state >= RESERVED:
            kept = "" if claim is None or claim.leaving else self._actor.kept(claim)
            return (LEAVING, kept) if kept else ("", "")
        missing = self.queue.missing(uid)
        if missing is not None:
            return GROUP_INCOMPLETE, _group_sentence(claim, missing)
        decision = claim.decision
        if not isinstance(decision, Decision):
            return "", "not decided yet"
        standing = self.engine.standing_refusal(claim) if len(decision.refusals) == 1 else None
        return decision.reason, (standing or decision).sentence()

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


def _changed_field(before: ClaimSpec, after: ClaimSpec) -> str:
    """The field of a pod by which it asks for something else."""
    if before.requests != after.requests:
        return "spec.containers"
    return "metadata.labels" if before.annotations == after.annotations else "metadata.annotations"


def _group_sentence(claim: Claim, missing: tuple[int, int]) -> str:
    here, size = missing
    return f"{here} of {size} members of {claim.spec.group} are here"
