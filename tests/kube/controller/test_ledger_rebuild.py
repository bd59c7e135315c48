"""A ledger built from the cluster charges what the one charged that it takes over from: after every step of every
scenario. Where claims stand inside a tree is not compared (see the design), nor what was only told to leave, nor
victims that still terminate after their preemptor gave up: they count for the next leader, which cannot know of it.
"""

from pathlib import Path

import msgspec
import pytest

from bursar.control.controller import LEAVING
from bursar.kube.controller.drift import wrong_sums
from bursar.kube.controller.mirror import Mirror, MirrorOptions
from bursar.kube.controller.pod_model import read_pod
from bursar.objects.decode import ManifestError
from bursar.policies.plugin import default_registry
from bursar.sim.cluster import Cluster
from bursar.sim.runner import act
from bursar.sim.scenario import Scenario
from tests.kube.controller.plain_kubernetes import PlainKubernetes
from tests.kube.controller.test_lockstep import SCENARIOS

Charges = dict[tuple[str, str], dict[str, int]]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"{Path(s.source).stem}: {s.name}" for s in SCENARIOS])
def test_the_next_leader_charges_the_same(scenario: Scenario) -> None:
    embedded, kubernetes = Cluster(), PlainKubernetes()
    for step in scenario.steps:
        if step.action == "expect":
            continue
        try:
            act(embedded, step)
        except ManifestError:
            continue
        act(kubernetes, step)
        assert list(wrong_sums(kubernetes.mirror.engine.state)) == []
        rebuilt = _rebuilt(kubernetes)
        forsaken = _forsaken(kubernetes.mirror)
        found = {key: costs for key, costs in _charges(rebuilt).items() if key[0] not in forsaken}
        assert found == _charges(kubernetes.mirror), f"step {step.number}: {step.action}"
        assert _barred(rebuilt) == _barred(kubernetes.mirror), f"step {step.number}: {step.action}"


def _rebuilt(kubernetes: PlainKubernetes) -> Mirror:
    mirror = Mirror(default_registry(), MirrorOptions())
    mirror.notes._clock = lambda: kubernetes.now
    objects = [
        (mirror.cache.kinds.find(kind), msgspec.json.encode(body)) for (kind, _), body in kubernetes.objects.items()
    ]
    pods = [msgspec.json.encode(pod) for pod in kubernetes.pods.values()]
    list(mirror.building(objects, [read_pod(raw) for raw in pods]))
    return mirror


def _barred(mirror: Mirror) -> set[tuple[str, str]]:
    """Pods that may not displace another one, which displaced them before."""
    claims = mirror.engine.state.claims.values()
    history = mirror.engine._core.history
    return {(one.key, other.key) for one in claims for other in claims if history.barred(one.uid, other.uid)}


def test_the_next_leader_knows_the_heirs_of_both_sides() -> None:
    """The middle one displaced a pod and was displaced: the record of the last one keeps both."""
    scenario = next(s for s in SCENARIOS if s.name == "who displaced whom is inherited from pod to pod")
    kubernetes = PlainKubernetes()
    for step in scenario.steps:
        if step.action != "expect":
            act(kubernetes, step)
    assert len(_barred(kubernetes.mirror)) == 3
    assert _barred(_rebuilt(kubernetes)) == _barred(kubernetes.mirror)


def _forsaken(mirror: Mirror) -> set[str]:
    """Evicted pods that no other one waits for any more."""
    claims = mirror.engine.state.claims.values()
    awaited = {uid for claim in claims for uid in claim.waits_for}
    return {claim.key for claim in claims if claim.leaving and claim.uid not in awaited}


def _charges(mirror: Mirror) -> Charges:
    """What each claim that counts is charged, by policy."""
    found: Charges = {}
    for claim in mirror.engine.state.claims.values():
        if not claim.counts() or mirror.controller.reason(claim.uid)[0] == LEAVING:
            continue  # one that was admitted and not let go yet is decided anew by the next leader
        for binding in claim.bindings:
            if binding is None or (binding.policy == "nodes" and mirror.cache.find("Node", claim.place) is None):
                continue  # a node that is gone is nobody's to share out
            total: dict[str, int] = {}
            for cost in binding.costs[:1]:
                total.update(cost.pairs())
            found[claim.key, binding.policy] = total
    return found
