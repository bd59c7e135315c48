"""A policy that never comes to rest is found out and named, instead of hanging the loop."""

import pytest

from bursar.control.controller import Controller
from bursar.control.pacing import LivelockGuard, SettlingError
from bursar.control.queue import Queue
from bursar.control.wakeups import Wakeups
from bursar.engine.decision import Decision
from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim
from bursar.ledger.state import State
from bursar.policies.plugin import Plugin, Registry
from bursar.policies.policy import Policy
from bursar.policies.results import Output
from tests.builders import pod
from tests.sim.steps import TestBed


class Chatter(Policy):
    """Has something new to write each time it is asked."""

    def outputs(self, now: int) -> list[Output]:
        return [Output("Pod", "a/p", "annotations", {"x": "y"})]


class SilentPorts:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.time = 0
        self.written: list[Output] = []
        self.told: list[tuple[str, ...]] = []

    def now(self) -> int:
        return self.time

    def start(self, claim: Claim) -> None:
        self.told.append(("start", claim.uid))

    def evict(self, claim: Claim, decision: Decision) -> None:
        self.told.append(("evict", claim.uid, decision.reason))

    def write(self, output: Output) -> None:
        self.written.append(output)

    def event(self, kind: str, key: str, type: str, reason: str, message: str) -> None:  # noqa: A002 as Kubernetes says
        self.told.append((kind, key, type, reason, message))


def restless() -> Registry:
    return Registry([Plugin("chatter", 1, lambda: Chatter("chatter"))])


def test_a_loop_that_never_rests_ends_with_an_error() -> None:
    registry = restless()
    ports = SilentPorts()
    controller = Controller(Engine(registry.policies()), registry, ports, max_rounds=50)
    with pytest.raises(SettlingError, match="no rest after 51 rounds at 0 ms"):
        controller.settle()
    assert len(ports.written) == 51


def test_the_claims_that_move_are_named() -> None:
    bed = TestBed(pod("p", "a"), registry=Registry())
    watch = bed.controller._watch
    watch.moves["a/p#1"] = 7
    rounds = LivelockGuard(bed.engine.state, watch, 20)
    for _ in range(20 + 100):  # so many always, so many for the one claim
        rounds.count(0)
    with pytest.raises(SettlingError, match=r"no rest after 121 rounds at 0 ms; it moves: a/p \(7 times\)"):
        rounds.count(0)


def test_time_that_passes_is_progress() -> None:
    watch = Wakeups(Queue(), [])
    watch.moves["a/p#1"] = 7
    rounds = LivelockGuard(State(), watch, 50)
    for now in range(1, 4):
        for _ in range(50):
            rounds.count(now)
        assert watch.moves == {}
    with pytest.raises(SettlingError, match=r"no rest after 51 rounds at 3 ms$"):
        rounds.count(3)


def test_events_of_policies_go_to_the_port_for_events() -> None:
    registry = Registry()
    ports = SilentPorts()
    controller = Controller(Engine([]), registry, ports)
    controller._actor._write_one(Output("Node", "n1", "event", {"type": "Warning", "reason": "Odd", "message": "look"}))
    assert ports.told == [("Node", "n1", "Warning", "Odd", "look")]
    assert ports.written == []
