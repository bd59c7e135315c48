"""Acting on decisions through the ports: starting and evicting pods, writing outputs, reporting events.

The embedded cluster and Kubernetes each implement the ports. Each step returns whether it did anything. No port may
call the controller back: what follows (a pod runs, a pod is gone) is reported later, as an observation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from bursar.control.gangs import Gang
from bursar.control.wakeups import Wakeups
from bursar.engine.decision import HOLDING, Decision
from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim
from bursar.objects.decode import join
from bursar.policies.results import Output, Revocation

NORMAL = "Normal"
WARNING = "Warning"

ADMITTED = "Admitted"
HELD = "Held"
EVICTED = "Evicted"
RESIZE_REFUSED = "ResizeRefused"
DEVICES_ABOVE_QUOTA = "DevicesAboveQuota"
REPAIRED = "Repaired"


def repair_note(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """What was changed about an object that a policy owns; "" if nothing. More than is wanted may be there."""
    paths = _differing(found, wanted, "")
    more = f" and {len(paths) - _SHOWN} more fields" if len(paths) > _SHOWN else ""
    return f"put right: Bursar writes {', '.join(paths[:_SHOWN])}{more}" if paths else ""


_SHOWN = 3


def _differing(found: Mapping[str, Any], wanted: Mapping[str, Any], path: str) -> list[str]:
    differing: list[str] = []
    for name, value in wanted.items():
        where, has = join(path, name), found.get(name)
        if isinstance(value, dict) and value:
            differing += _differing(has if isinstance(has, dict) else {}, value, where)
        elif has != value:
            differing.append(where)
    return differing


class Ports(Protocol):
    """What the control loop needs of its surroundings: a clock, pods that start and leave, objects to write to."""

    def now(self) -> int:
        """Milliseconds. Never goes back."""

    def start(self, claim: Claim) -> None:
        """Let the claim's pod run on ``claim.place``, which is empty if it takes no node."""

    def evict(self, claim: Claim, decision: Decision) -> None:
        """Evict the claim's pod. It may be terminating already."""

    def write(self, output: Output) -> None:
        """Write a policy's output. The object may be gone; that is no failure."""

    def event(self, kind: str, key: str, type: str, reason: str, message: str) -> None:  # noqa: A002 as Kubernetes says
        """Record an event about an object: on edges only."""


class Actor:
    """Carries out what the loop decided."""

    def __init__(self, engine: Engine, watch: Wakeups, ports: Ports) -> None:
        self._engine = engine
        self._watch = watch
        self._ports = ports

    def carry_out(self) -> bool:
        """Evict pods that must leave and start pods that may; a pod blocked by terminating usage is kept."""
        watch = self._watch
        if not watch.noted:
            return False
        for claim in watch.terminating.unblocked():
            watch.try_start(claim)
        leaving, withdrawn = _taken(watch.leaving), _taken(watch.withdrawn)
        withdrawn += [claim for claim in _taken(watch.doubtful) if not self._engine.possible(claim.uid)]
        for claim in leaving:
            if isinstance(claim.decision, Decision):
                self._evict(claim, claim.decision)
        self._give_up(withdrawn)
        bound = _taken(watch.bound)
        for claim in bound:
            self._ports.start(claim)
        acted = [self._start([claim]) for claim in _taken(watch.reserved)]
        groups = list(watch.groups)
        watch.groups.clear()
        acted += [self._start_group(name) for name in groups]
        for name in groups:
            self._tell_complete(name)
        return bool(leaving or withdrawn or bound) or any(acted)

    def _tell_complete(self, name: str) -> None:
        """The demand of a gang counts once its members are there."""
        group = self._watch.queue.group(name)
        self._engine.gang(name, group is None or group.whole or not group.pending, self._ports.now())

    def _start_group(self, name: str) -> bool:
        """Start the members of a gang that may start; an incomplete gang gives its places back."""
        group = self._watch.queue.group(name)
        if group is None:
            return False
        if not group.whole:
            return self.give_back(group)
        ready = group.ready()
        started = [self._start(claims) for claims in ([[claim] for claim in ready] if group.started else [ready])]
        return any(started)

    def _start(self, claims: list[Claim]) -> bool:
        """Start all of them, or none while terminating usage blocks one."""
        terminating = self._watch.terminating
        for claim in claims:
            spot = terminating.spot(claim)
            if spot is not None:
                terminating.block(claim, spot)
                return False
        for claim in claims:
            self._watch.queue.started(claim.uid)
            self._ports.start(claim)
        return bool(claims)

    def give_back(self, group: Gang) -> bool:
        """Members that have not started wait again, so that the gang is decided as a whole."""
        placed = list(group.placed.values())
        self._give_up(placed)
        return bool(placed)

    def _give_up(self, claims: list[Claim]) -> None:
        for claim in claims:
            self._engine.give_up(claim.uid, self._ports.now())

    def kept(self, claim: Claim) -> str:
        """Why a claim with a place has not started; empty if it has, or has no place."""
        watch, others = self._watch, list[str]()
        group = watch.queue.group(claim.spec.group)
        together = group is not None and claim.uid in group.placed
        if together or claim.uid in watch.reserved or watch.terminating.blocks(claim.uid):
            others = watch.terminating.blockers(claim)
        if not others and group is not None and together and group.held:
            others = list(group.placed[next(iter(group.held))].waits_for)
        if others:
            return f"starts when {self._names(others)} left"
        return "starts with its group" if together else ""

    def set_limits(self) -> bool:
        """Let policies set the limits that hold now; the commit wakes the pods that wait for them."""
        return self._engine.advance(self._ports.now())

    def revoke(self) -> bool:
        """Evict the claims that policies revoke now."""
        before = self._engine.version
        for decision in self._engine.tick(self._ports.now()):
            self._evict(self._engine.claim(decision.uid), decision)
        return self._engine.version != before

    def revoke_one(self, wanted: Revocation) -> None:
        """Evict a claim for a reason of the control loop, unless a disruption budget forbids it now."""
        decision = self._engine.revoke(wanted, self._ports.now())
        if decision is not None:
            self._evict(self._engine.claim(wanted.uid), decision)

    def _evict(self, claim: Claim, decision: Decision) -> None:
        self.event(claim, WARNING, EVICTED, decision.sentence())
        self._ports.evict(claim, decision)

    def write_outputs(self) -> bool:
        """Write the policies' outputs; some are read back as objects, so another cycle follows."""
        outputs = self._engine.outputs(self._ports.now())
        for output in outputs:
            self._write_one(output)
        return bool(outputs)

    def _write_one(self, output: Output) -> None:
        if output.part == "event":
            value = output.value or {}
            parts = (str(value.get(name, "")) for name in ("type", "reason", "message"))
            self._ports.event(output.kind, output.key, *parts)
        else:
            self._ports.write(output)

    def tell(self, claim: Claim, decision: Decision) -> None:
        """Record an event for a decision that differs from the last one."""
        if decision.outcome == HOLDING:
            self.event(claim, NORMAL, HELD, self.hold(claim))
        elif decision.admitted:
            self.event(claim, NORMAL, ADMITTED, decision.sentence())
        else:
            self.event(claim, WARNING, decision.reason, decision.sentence())

    def hold(self, claim: Claim) -> str:
        """The sentence about a held claim."""
        where = f" on {claim.place}" if claim.place else ""
        return f"held{where} until {self._names(claim.waits_for)} left"

    def _names(self, uids: Iterable[str]) -> str:
        claims = self._engine.state.claims
        return ", ".join(claims[uid].key if uid in claims else uid for uid in uids)

    def event(self, claim: Claim, type_: str, reason: str, message: str) -> None:
        self._ports.event("Pod", claim.key, type_, reason, message)


class RehearsingActor(Actor):
    """Leaves out what policies write: they remember what they wrote, and no rollback restores that."""

    def write_outputs(self) -> bool:
        return False


def _taken(notes: dict[str, Claim]) -> list[Claim]:
    found = list(notes.values())
    notes.clear()
    return found
