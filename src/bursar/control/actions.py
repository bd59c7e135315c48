"""Acting upon decisions: who starts and who leaves, what policies want taken back or written, and what people are told.

Everything goes out through the ports. Each function says whether it did anything: the loop goes on until none did.

What the control loop needs of the world outside: a clock, pods that start and leave, objects to write to.

The embedded cluster and Kubernetes each stand behind these ports. None of the calls may call the controller back: what
follows from them (a pod runs, a pod is gone) is told to the controller later, as something that was seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from bursar.control.gangs import Gang
from bursar.control.wakeups import Wakeups
from bursar.engine.decision import HOLDING, Decision
from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim
from bursar.policies.results import Output

NORMAL = "Normal"
WARNING = "Warning"

ADMITTED = "Admitted"
HELD = "Held"
EVICTED = "Evicted"
RESIZE_REFUSED = "ResizeRefused"


class Ports(Protocol):
    """One way of running pods."""

    def now(self) -> int:
        """Milliseconds. Never goes back."""

    def start(self, claim: Claim) -> None:
        """Let the claim's pod run; where, stands in ``claim.place`` ("" if it takes no node)."""

    def evict(self, claim: Claim, decision: Decision) -> None:
        """Make the claim's pod leave. May be called again for one that is leaving already."""

    def write(self, output: Output) -> None:
        """Write what a policy wants written; whoever does it must not fail when the object is gone."""

    def event(self, kind: str, key: str, type: str, reason: str, message: str) -> None:  # noqa: A002 as Kubernetes says
        """Tell people what happened to an object: on edges only."""


class Actor:
    """The hands of the loop."""

    def __init__(self, engine: Engine, watch: Wakeups, ports: Ports) -> None:
        self._engine = engine
        self._watch = watch
        self._ports = ports

    def act(self) -> bool:
        """Let those leave who must, and those start who may; whoever others are in the way of is kept."""
        watch = self._watch
        for claim in watch.crowd.freed():
            watch.look_again(claim)
        leaving, withdrawn = _taken(watch.leaving), _taken(watch.withdrawn)
        withdrawn += [claim for claim in _taken(watch.doubtful) if not self._engine.possible(claim.uid)]
        for claim in leaving:
            if isinstance(claim.decision, Decision):
                self._evict(claim, claim.decision)
        self._give_up(withdrawn)
        facts = _taken(watch.facts)
        for claim in facts:
            self._ports.start(claim)
        acted = [self._start([claim]) for claim in _taken(watch.reserved)]
        groups = list(watch.groups)
        watch.groups.clear()
        acted += [self._start_group(name) for name in groups]
        return bool(leaving or withdrawn or facts) or any(acted)

    def _start_group(self, name: str) -> bool:
        """The members of a group that may start; those of one that is not whole any more lose their places."""
        group = self._watch.queue.group(name)
        if group is None:
            return False
        if not group.whole:
            return self.give_back(group)
        ready = group.ready()
        started = [self._start(claims) for claims in ([[claim] for claim in ready] if group.started else [ready])]
        return any(started)

    def _start(self, claims: list[Claim]) -> bool:
        """All of them, or none: who is in the way of one is in the way of all."""
        crowd = self._watch.crowd
        for claim in claims:
            spot = crowd.spot(claim)
            if spot is not None:
                crowd.keep(claim, spot)
                return False
        for claim in claims:
            self._watch.queue.started(claim.uid)
            self._ports.start(claim)
        return bool(claims)

    def give_back(self, group: Gang) -> bool:
        """Members that have not started wait again, so that the group is decided as a whole."""
        placed = list(group.placed.values())
        self._give_up(placed)
        return bool(placed)

    def _give_up(self, claims: list[Claim]) -> None:
        for claim in claims:
            self._engine.give_up(claim.uid, self._ports.now())

    def kept(self, claim: Claim) -> str:
        """Why a claim that has its place was not told to start yet; empty: it was, or has none."""
        watch, others = self._watch, list[str]()
        group = watch.queue.group(claim.spec.group)
        together = group is not None and claim.uid in group.placed
        if together or claim.uid in watch.reserved or watch.crowd.keeps(claim.uid):
            others = watch.crowd.in_the_way(claim)
        if not others and group is not None and together and group.held:
            others = list(group.placed[next(iter(group.held))].waits_for)
        if others:
            return f"starts when {self._names(others)} left"
        return "starts with its group" if together else ""

    def advance(self) -> bool:
        """Let policies set the limits that hold now; the commit wakes the claims that wait for them."""
        return self._engine.advance(self._ports.now())

    def revoke(self) -> bool:
        """Evict the claims that policies revoke now."""
        before = self._engine.version
        for decision in self._engine.tick(self._ports.now()):
            self._evict(self._engine.claim(decision.uid), decision)
        return self._engine.version != before

    def _evict(self, claim: Claim, decision: Decision) -> None:
        self.event(claim, WARNING, EVICTED, decision.sentence())
        self._ports.evict(claim, decision)

    def write(self) -> bool:
        """Write what the policies want written; that may be read back as an object, so it is another round."""
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
        """Tell people of a decision that says something new."""
        if decision.outcome == HOLDING:
            where = f" on {claim.place}" if claim.place else ""
            self.event(claim, NORMAL, HELD, f"held{where} until {self._names(claim.waits_for)} left")
        elif decision.admitted:
            self.event(claim, NORMAL, ADMITTED, decision.sentence())
        else:
            self.event(claim, WARNING, decision.reason, decision.sentence())

    def _names(self, uids: Iterable[str]) -> str:
        claims = self._engine.state.claims
        return ", ".join(claims[uid].key if uid in claims else uid for uid in uids)

    def event(self, claim: Claim, type_: str, reason: str, message: str) -> None:
        self._ports.event("Pod", claim.key, type_, reason, message)


def _taken(notes: dict[str, Claim]) -> list[Claim]:
    found = list(notes.values())
    notes.clear()
    return found
