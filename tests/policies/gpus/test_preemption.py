"""Who gives way on GPUs where an elastic quota governs the claim: whole GPUs by the quota's rule, parts of a GPU only
where priority allows it too, and the allocator's own rule for everybody whom no such quota governs.
"""

from __future__ import annotations

import pytest

from bursar.engine.decision import Decision
from bursar.engine.engine import Engine
from bursar.ledger.claims import RUNNING, Claim, ClaimSpec
from bursar.policies.elastic.policy import ElasticPolicy
from bursar.policies.gpus.fleet import Gpu
from bursar.policies.gpus.policy import GpusPolicy
from bursar.policies.gpus.settings import GPU, GpuBody
from bursar.policies.namespace.policy import LimitsPolicy
from bursar.policies.nodes.policy import KIND as NODE
from bursar.policies.nodes.policy import NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.results import Setting
from bursar.resources import parse_vector
from tests.amounts import parse_limits
from tests.policies.elastic.world import quota_setting
from tests.policies.gpus.world import GI, marks

GPU_RESOURCE = "nvidia.com/gpu"


class Shared:
    """One node with four GPUs, two of them the plugin's; teams a and b are guaranteed one whole GPU each."""

    def __init__(self) -> None:
        self.engine = Engine([ElasticPolicy(), LimitsPolicy(), NodesPolicy(), GpusPolicy()])
        self.serial = 0
        settings = [quota_setting(team, {GPU_RESOURCE: 1}) for team in ("a", "b")]
        settings.append(Setting(NODE, "n1", NodeBody(parse_limits({GPU_RESOURCE: 4, "cpu": 8}))))
        for index in range(4):
            gpu = Gpu(f"g{index}", "n1", 100_000, 16 * GI, index=index, plugin=index > 1)
            settings.append(Setting(GPU, gpu.name, GpuBody(gpu)))
        self.engine.configure(settings)

    def ask(self, uid: str, namespace: str, spec: ClaimSpec) -> Decision:
        self.serial += 1
        decision = self.engine.decide(Claim(uid, spec, self.serial, namespace, uid), self.serial)
        if decision.admitted and not decision.victims:
            self.engine.observe(uid, RUNNING, self.serial)
        return decision

    def whole(self, uid: str, namespace: str, priority: int = 0) -> Decision:
        return self.ask(uid, namespace, ClaimSpec(parse_vector({GPU_RESOURCE: 1}), priority=priority))

    def part(self, uid: str, namespace: str, priority: int = 0) -> Decision:
        return self.ask(uid, namespace, ClaimSpec(annotations=marks((60, "8Gi")), priority=priority))


def test_a_min_is_reclaimed_in_the_set_of_the_plugin() -> None:
    """The node itself would have room for four pods; the two GPUs of the plugin are what is short."""
    found = Shared()
    assert found.whole("b1", "b", 5).admitted
    assert found.whole("b2", "b", 5).admitted
    assert found.whole("a1", "a").victims == ("b2",)


def test_beyond_its_min_a_claim_takes_nothing_there() -> None:
    found = Shared()
    found.whole("a1", "a")
    found.whole("b1", "b")
    assert not found.whole("a2", "a").admitted


def test_in_its_own_quota_priority_decides() -> None:
    found = Shared()
    found.whole("b1", "b")
    found.whole("b2", "b")
    assert not found.whole("b3", "b").admitted
    assert found.whole("b4", "b", 1).victims == ("b2",)


def test_a_pod_of_no_quota_goes_by_priority() -> None:
    found = Shared()
    found.whole("free1", "free")
    found.whole("free2", "free", 1)
    assert not found.whole("free3", "free").admitted
    assert found.whole("free4", "free", 1).victims == ("free1",)


@pytest.mark.parametrize(("namespace", "priority", "victims"), [("free", 0, ()), ("free", 1, ("w2",))])
def test_a_worker_of_no_quota_goes_by_priority(namespace: str, priority: int, victims: tuple[str, ...]) -> None:
    found = Shared()
    found.part("w1", "free")
    found.part("w2", "free")
    decision = found.part("w3", namespace, priority)
    assert (decision.admitted, decision.victims) == (bool(victims), victims)


@pytest.mark.parametrize(
    ("priority", "holders", "victims"),
    [
        pytest.param(0, ("a", "a"), (), id="own quota, equals"),
        pytest.param(1, ("a", "a"), ("w2",), id="own quota, lower"),
        pytest.param(0, ("b", "b"), (), id="other quota, equals"),
        pytest.param(1, ("b", "b"), (), id="other quota, lower but in-quota"),
        pytest.param(1, ("free", "free"), (), id="of no quota: not the quota's to take"),
    ],
)
def test_parts_of_a_gpu_are_nothing_that_a_quota_reclaims(
    priority: int, holders: tuple[str, str], victims: tuple[str, ...]
) -> None:
    found = Shared()
    for number, namespace in enumerate(holders, 1):
        assert found.part(f"w{number}", namespace).admitted
    decision = found.part("w3", "a", priority)
    assert (decision.admitted, decision.victims) == (bool(victims), victims)


def test_more_than_the_plugin_ever_has_evicts_nobody() -> None:
    found = Shared()
    found.whole("b1", "b")
    found.whole("b2", "b")
    spec = ClaimSpec(parse_vector({GPU_RESOURCE: 3}), priority=9)
    assert not found.ask("a1", "a", spec).admitted
