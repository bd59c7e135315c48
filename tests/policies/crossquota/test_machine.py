"""Random histories of arguments, nodes and claims, with undo and replay, against the reference model.

Held: usage of a node is the sum over its CPU pods, whatever happened in whatever order; after a decision it is within
the quota; filter, score and reasons are what the reference model works out; undo and replay leave no trace.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from bursar.ledger.claims import Claim
from bursar.policies.crossquota.arguments import PREFIX, read_arguments
from bursar.policies.crossquota.node_quota import CrossQuotaNodeBody
from tests.policies.crossquota.reference_model import ReferenceModel, amount
from tests.policies.crossquota.world import GPU, World, arguments, body, claim
from tests.policies.placement_machine import PlacementMachine

AMD = "amd.com/gpu"
NAMES = ("n1", "n2", "n3")
BODIES = (
    body({"cpu": 8, GPU: 2}),
    body({"cpu": 8, "memory": 100, "pods": 20, GPU: 2}, {"cpu": "3", "memory": "rubbish"}),
    body({"cpu": 4, "memory": 50, AMD: 1}, {"percentage-cpu": "50", "memory": "20"}),
    body({"cpu": 8, "memory": 100}),
    body({"cpu": 8, GPU: 0}),
    body({GPU: 1}),
)
ARGUMENTS: tuple[dict[str, object] | None, ...] = (
    None,
    arguments(GPU),
    arguments(GPU, quota__cpu=2),
    arguments(quota_resources="memory,cpu", quota__cpu=3) | {"quota-percentage.memory": 33.5, "weight.memory": 4},
    arguments(quota_resources="cpu,pods", quota__pods=2, exempt_namespaces=""),
    arguments(quota__cpu=4, label_selector={"matchLabels": {"team": "a"}}),
    arguments(GPU) | {"reserve-per-gpu.cpu": 2},
    arguments(quota_resources="memory", quota__memory=40) | {"reserve-per-gpu.cpu": 1, "reserve-per-gpu.memory": 10},
)
REQUESTS: tuple[dict[str, object], ...] = (
    {},
    {"cpu": 1},
    {"cpu": "1500m", "memory": 20},
    {"memory": 7},
    {GPU: 1, "cpu": 1},
    {AMD: 1, "memory": 30},
)
names = st.sampled_from(NAMES)
ARRIVALS = st.tuples(
    st.sampled_from(REQUESTS), st.sampled_from("aab"), st.sampled_from(["x", "x", "kube-system"]), names, st.booleans()
)
PROBES = [
    claim(f"probe {i} {team}", requests, {"team": team}, namespace=space)
    for i, requests in enumerate(REQUESTS)
    for team, space in (("a", "x"), ("b", "kube-system"))
]


class CrossQuotaMachine(PlacementMachine[World, ReferenceModel]):
    def __init__(self) -> None:
        super().__init__(World(), ReferenceModel())

    @rule(given=st.sampled_from(ARGUMENTS))
    def configure(self, given: dict[str, object] | None) -> None:
        self.world.configure(given)
        self.reference.arguments = read_arguments(given or {})

    @rule(name=names, node=st.sampled_from(BODIES))
    def set_node(self, name: str, node: CrossQuotaNodeBody) -> None:
        self.world.node(name, node)
        self.reference.nodes[name] = node

    @rule(name=names)
    def remove(self, name: str) -> None:
        self.world.node(name, None)
        self.reference.nodes.pop(name, None)

    @initialize(given=st.sampled_from(ARGUMENTS[1:]), nodes=st.tuples(*[st.sampled_from(BODIES[:3])] * len(NAMES)))
    def begin(self, given: dict[str, object], nodes: tuple[CrossQuotaNodeBody, ...]) -> None:
        """Most of a history is about GPU nodes."""
        self.configure(given)
        for name, node in zip(NAMES, nodes, strict=True):
            self.set_node(name, node)

    @rule(arrivals=st.lists(ARRIVALS, min_size=1, max_size=5))
    def arrive(self, arrivals: list[tuple[dict[str, object], str, str, str, bool]]) -> None:
        for requests, team, space, name, forced in arrivals:
            number = len(self.claims)
            one = claim(f"c{number}", requests, {"team": team}, namespace=space, priority=number % 3)
            self.claims.append(one)
            self._place(one, name, forced)

    @rule(number=st.integers(0, 99), name=names, forced=st.booleans())
    def place_again(self, number: int, name: str, forced: bool) -> None:
        one = self.chosen(number, placed=False)
        if one is not None:
            self._place(one, name, forced)

    def _place(self, one: Claim, name: str, forced: bool) -> None:
        if name not in self.reference.nodes:  # the nodes policy lets nobody go to a node that is not there
            return
        expected = "" if forced else self.reference.reason(one, name)
        refusal = self.world.place(one, name, forced)
        assert ("" if refusal is None else refusal.reason) == expected
        if refusal is None:
            self.reference.placed[one.uid] = (one, name, False)
            self._within_quota(one, name, forced)

    def _within_quota(self, one: Claim, name: str, forced: bool) -> None:
        """After a decision, what the claim wants is within its quota."""
        if not forced and self.reference.limited(one) and self.reference.is_gpu_node(name):
            for resource in self.reference.arguments.resources:
                used = self.world.ledger.state.accounts[PREFIX + name].used.amount(resource)
                assert not amount(one, resource) or used <= self.reference.quota(name, resource)

    @rule(number=st.integers(0, 99), requests=st.sampled_from(REQUESTS))
    def resize(self, number: int, requests: dict[str, object]) -> None:
        one = self.chosen(number, placed=True)
        if one is not None:
            self.world.resize(one, requests)  # the reference model reads the claim as it is now, resized or not

    @invariant()
    def usage_is_the_sum_over_cpu_pods(self) -> None:
        accounts = self.world.ledger.state.accounts
        for name in self.reference.nodes:
            account = accounts.get(PREFIX + name)
            assert account is not None or not self.reference.is_gpu_node(name)
            if account is not None:
                for resource in self.reference.arguments.resources:
                    assert account.used.amount(resource) == self.reference.used(name, resource)
                    assert account.busy.amount(resource) == self.reference.physical(name, resource)

    @invariant()
    def answers_agree(self) -> None:
        world, reference = self.world, self.reference
        for probe in PROBES:
            reasons = {name: world.reason(probe, name) for name in reference.nodes}
            assert reasons == {name: reference.reason(probe, name) for name in reference.nodes}
            assert [n for n in world.open_for(probe) if n in reference.nodes] == sorted(
                name for name, reason in reasons.items() if not reason
            )
            for name in reference.nodes:
                assert world.score(probe, name) == reference.score(probe, name)
                avoided = reference.limited(probe) and reference.is_gpu_node(name)
                assert world.rank(probe, name) == int(avoided)


CrossQuotaMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestCrossQuotaMachine = CrossQuotaMachine.TestCase
