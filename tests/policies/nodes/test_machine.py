"""Random histories of nodes and claims, with undo and replay, against the reference model."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from bursar.policies.nodes.rules import NodeBody
from bursar.selectors import NO_NEEDS, NodeNeeds, NodeTerm, Requirement
from tests.policies.nodes.reference_model import ReferenceModel
from tests.policies.nodes.world import World, body, claim, porting, tolerating
from tests.policies.placement_machine import PlacementMachine

NAMES = ("n1", "n2", "n3")
BODIES = (
    body({"cpu": 4}),
    body({"cpu": 2, "memory": 100, "pods": 2}),
    body({"cpu": 4, "nvidia.com/gpu": 2}, {"zone": "a"}),
    body({"cpu": 8, "nvidia.com/gpu": 4}, {"zone": "b"}, ("gpu:NoSchedule", "slow:PreferNoSchedule")),
    body(labels={"zone": "a"}, unschedulable=True),
    body({"cpu": 0, "memory": 0}, taints=("slow:PreferNoSchedule",)),
)
NEEDS = (
    NO_NEEDS,
    NodeNeeds({"zone": "a"}),
    NodeNeeds({}, (NodeTerm((Requirement("zone", "Exists"),)),)),
    NodeNeeds({}, node_name="n2"),
    tolerating("gpu"),
    tolerating("node.kubernetes.io/unschedulable", "gpu"),
    porting(("TCP", "", 80)),
    porting(("TCP", "", 80), ("UDP", "", 81)),
)
REQUESTS: tuple[dict[str, object], ...] = (
    {},
    {"cpu": 1},
    {"cpu": "2500m", "memory": 40},
    {"nvidia.com/gpu": 1, "cpu": 1},
    {"nvidia.com/gpu": 3},
)
names = st.sampled_from(NAMES)
PROBES = [claim(f"probe {i}", REQUESTS[i % 5], needs, priority=2) for i, needs in enumerate(NEEDS * 2)]


class NodesMachine(PlacementMachine[World, ReferenceModel]):
    def __init__(self) -> None:
        super().__init__(World(), ReferenceModel())

    @rule(name=names, node=st.sampled_from(BODIES))
    def configure(self, name: str, node: NodeBody) -> None:
        self.world.node(name, node)
        self.reference.nodes[name] = node

    @rule(name=names)
    def remove(self, name: str) -> None:
        self.world.node(name, None)
        self.reference.remove(name)

    @rule(requests=st.sampled_from(REQUESTS), needs=st.sampled_from(NEEDS), priority=st.integers(0, 2))
    def submit(self, requests: dict[str, object], needs: NodeNeeds, priority: int) -> None:
        number = len(self.claims)
        self.claims.append(claim(f"c{number}", requests, needs, priority, number % 3, "ab"[number % 2]))

    @rule(number=st.integers(0, 99), name=names, forced=st.booleans())
    def place(self, number: int, name: str, forced: bool) -> None:
        one = self.chosen(number, placed=False)
        if one is None:
            return
        expected = self.reference.reason(one, name)
        refusal = self.world.place(one, name, forced)
        if forced and expected != "nodes.unknown":
            expected = ""
        assert ("" if refusal is None else refusal.reason) == expected
        if refusal is None:
            self.reference.placed[one.uid] = (one, name, False)

    def settle_reference(self) -> None:
        self.reference.settle(list(self.reference.nodes))

    @rule(number=st.integers(0, 99), name=names)
    def ask_for_victims(self, number: int, name: str) -> None:
        one = self.chosen(number, placed=False)
        refusal = None if one is None else self.world.policy.explain_node(one, name)
        if one is None or refusal is None or name not in self.reference.nodes:
            return
        mark = self.world.tx.savepoint()
        found: list[str] = []
        for victim in self.world.policy.victims(self.world.tx, one, self.world.bind(one, name), refusal):
            found.append(victim.uid)
            self.world.leave(victim)
        self.world.tx.rollback_to(mark)
        assert found == self.reference.victims(one, name)

    @invariant()
    def nodes_agree(self) -> None:
        reasons = {(p.uid, n): self.world.reason(p, n) for p in PROBES for n in NAMES}
        assert reasons == {(p.uid, n): self.reference.reason(p, n) for p in PROBES for n in NAMES}
        for probe in PROBES:
            assert self.world.open_for(probe) == [n for n in NAMES if not reasons[probe.uid, n]]
            possible = [n for n in NAMES if n in self.reference.nodes and self.reference.could(probe, n)]
            assert self.world.possible_for(probe) == possible

    @invariant()
    def accounts_agree(self) -> None:
        accounts = self.world.ledger.state.accounts
        assert sorted(accounts) == sorted(f"nodes/{name}" for name in self.reference.nodes)
        for name in self.reference.nodes:
            residents = self.world.policy.index.residents[self.world.nodes.slots[name]]
            assert sorted(residents.claims) == sorted(one.uid for one in self.reference.counted(name))
            assert accounts[f"nodes/{name}"].busy.amount("pods") == len(self.reference.physical(name))


NodesMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestNodesMachine = NodesMachine.TestCase
