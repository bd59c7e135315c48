"""Random histories of nodes whose GPUs fail, are divided and change sides, with workers and pods of whole GPUs.

The reference model knows cards only: how many a node has, how many are healthy, and into what the device plugin divides
them. Everything else is summed up again from the pods after each step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bursar.ledger.claims import Claim
from bursar.policies.gpus.settings import HostBody, Offer
from bursar.policies.nodes.policy import KIND as NODE
from bursar.policies.nodes.rules import NodeBody
from bursar.selectors import NO_NEEDS, NodeNeeds
from tests.amounts import parse_limits
from tests.policies.gpus.world import World, marks

GPU = "nvidia.com/gpu"
CAPACITY = {"n1": (700_000, 70), "n2": (1_400_000, 140)}  # of a card
ORDER = ("requests.tflops", "requests.vram")
nodes = st.sampled_from(sorted(CAPACITY))
numbers = st.integers(0, 99)


@dataclass(frozen=True)
class Cards:
    """The cards of a node: those that the plugin serves, and others."""

    served: int = 4
    failed: int = 0
    outside: int = 0
    fractions: int = -1
    replicas: int = 1
    slices: int = 1  # of each card, by MIG: one or seven

    @property
    def healthy(self) -> int:
        """GPUs or slices that the plugin could hand out."""
        return (self.served - self.failed) * self.slices

    @property
    def gpus(self) -> int:
        return self.healthy + self.outside

    def unit(self, node: str) -> tuple[int, int]:
        """What a unit of the plugin's resource is."""
        parts = self.slices * self.replicas
        tflops, vram = CAPACITY[node]
        return tflops // parts, vram // parts

    def body(self, node: str) -> HostBody:
        part = (1, 1) if self.slices == 1 else (1, self.slices)
        tflops, vram = CAPACITY[node]
        served = self.served * self.slices * self.replicas
        count = self.healthy * self.replicas
        offer = Offer(GPU, count, served, "M", vram // self.slices, (tflops, 0), part, self.replicas)
        return HostBody((offer,), self.fractions, self.served + self.outside if self.outside else 0)


SHAPES = (
    Cards(),
    Cards(fractions=2),
    Cards(fractions=4),
    Cards(served=2, outside=2, fractions=2),
    Cards(fractions=1, replicas=3),
    Cards(fractions=9, slices=7),
    Cards(served=1, fractions=7, slices=7),
)


class FleetMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.cards: dict[str, Cards] = {}
        self.number = 0
        self.lost = False  # a GPU on which a worker counts went away: only the live ledger knows what it had
        for node in CAPACITY:
            self.give(node, Cards(fractions=2))

    def give(self, node: str, cards: Cards) -> None:
        self.cards[node] = cards
        put(self.world, node, cards)
        held = {name for one in self.counted() for name in self.gpus_of(one)}
        known = self.world.gpus.inventory.by_node.values()
        self.lost = self.lost or not held <= {name for gpus in known for name in gpus if not gpus[name].plugin}
        self.lost = self.lost or any(self.world.engine.state.cell("gpus.gone", name) is not None for name in held)

    # What the pods say

    def counted(self) -> list[Claim]:
        return [one for one in self.world.engine.state.claims.values() if one.counts()]

    def gpus_of(self, one: Claim) -> list[str]:
        return [name for name in self.world.on(one.uid) if not name.startswith("plugin/")]

    def units(self, node: str) -> int:
        """Units of the plugin's resource that pods on the node have."""
        return sum(one.spec.requests.amount(GPU) for one in self.counted() if one.place == node)

    def booked(self, node: str) -> int:
        """GPUs of the node that are in use, whole or in parts."""
        parts = {name for one in self.counted() if one.place == node for name in self.gpus_of(one)}
        return -(-self.units(node) // self.cards[node].replicas) + len(parts)

    # Steps

    def start(self, annotations: dict[str, str], units: int, priority: int, bound: str = "") -> None:
        self.number += 1
        uid = f"p{self.number}"
        needs = NodeNeeds({}, node_name=bound) if bound else NO_NEEDS
        requests: dict[str, object] = {GPU: units} if units else {}
        claim = self.world.claim(annotations, uid, priority=priority, requests=requests, needs=needs)
        if bound:
            self.world.engine.submit(claim)
            self.world.engine.place(uid, bound, forced=True)
            return
        before = {node: self.booked(node) for node in CAPACITY}
        decision = self.world.engine.decide(claim)
        if not decision.admitted:
            self.world.engine.release(uid)
            return
        node = decision.place
        assert self.booked(node) <= max(self.cards[node].gpus, before[node]), "a GPU is booked twice"
        account = self.world.engine.state.accounts.get("limits/test-ns")
        if account is not None and not bound:
            assert all(account.used.amount(name) <= account.limits.cap(name) for name in ORDER)
        for victim in decision.victims:
            self.world.engine.release(victim)

    @rule(units=st.sampled_from((1, 1, 2, 3)), priority=st.sampled_from((0, 0, 1)))
    def whole(self, units: int, priority: int) -> None:
        self.start({}, units, priority)

    @rule(vram=st.sampled_from((1, 9, 60)), count=st.sampled_from((1, 1, 2)), units=st.sampled_from((0, 0, 0, 1)))
    def worker(self, vram: int, count: int, units: int) -> None:
        self.start(marks((1, vram), None, count), units, 0)

    @rule(percent=st.sampled_from(("10", "60")))
    def share(self, percent: str) -> None:
        self.start(marks(compute_percent_request=percent, vram_request="1"), 0, 0)

    @rule(node=nodes, units=st.sampled_from((1, 3)))
    def stranger(self, node: str, units: int) -> None:
        self.start({}, units, 0, node)

    @rule(number=numbers)
    def release(self, number: int) -> None:
        uids = sorted(self.world.engine.state.claims)
        if uids:
            self.world.engine.release(uids[number % len(uids)])

    @rule(node=nodes, shape=st.sampled_from(SHAPES))
    def divide(self, node: str, shape: Cards) -> None:
        """A card in use is not cut into slices."""
        if shape.slices == self.cards[node].slices or not self.booked(node):
            self.give(node, shape)

    @rule(node=nodes, failed=st.integers(0, 4))
    def fail(self, node: str, failed: int) -> None:
        """Or be back: with 0 all of them are, and with all of them failed the plugin restarts."""
        self.give(node, replace(self.cards[node], failed=min(failed, self.cards[node].served)))

    @rule(limit=st.sampled_from((None, 2_000_000, 6_000_000)))
    def set_quota(self, limit: int | None) -> None:
        self.world.quota(None if limit is None else {"requests.tflops": limit, "workers": 50})

    # What always holds

    @invariant()
    def no_gpu_holds_more_than_it_has(self) -> None:
        for account in self.world.engine.state.accounts.values():
            if account.name.startswith("gpus/n") and account.limits.listed:
                for name in ("tflops", "vram"):
                    assert account.used.amount(name) <= account.limits.cap(name), account.name

    @invariant()
    def the_fleet_has_no_more_than_the_cards(self) -> None:
        for node, cards in self.cards.items():
            there = list(self.world.gpus.inventory.by_node.get(node, {}).values())
            most = cards.served - cards.failed + cards.outside
            assert sum(gpu.tflops for gpu in there) <= most * CAPACITY[node][0]
            assert sum(gpu.vram for gpu in there) <= most * CAPACITY[node][1]
            assert len([gpu for gpu in there if not gpu.plugin]) <= max(cards.fractions, 0)

    @invariant()
    def empty_gpus_make_up_for_what_the_plugin_takes_too_much(self) -> None:
        for node, cards in self.cards.items():
            there = list(self.world.gpus.inventory.by_node.get(node, {}).values())
            busy = {name for one in self.counted() for name in self.gpus_of(one)}
            set_of_plugin = [gpu for gpu in there if gpu.plugin and gpu.name not in busy]
            free = [gpu for gpu in there if not gpu.plugin and gpu.name not in busy]
            over = max(-(-self.units(node) // cards.replicas) - len(set_of_plugin), 0)
            lent = [gpu for gpu in there if gpu.lent]
            assert len(lent) == min(over, len(free))
            assert all(gpu in free for gpu in lent)

    @invariant()
    def a_quota_counts_whole_gpus_as_what_they_are(self) -> None:
        if self.lost or any(cards.failed == cards.served for cards in self.cards.values()):
            return  # then it is what they were
        account = self.world.engine.state.accounts.get("limits/test-ns")
        governed = bool(self.world.limits.spaces)
        expected = [0, 0]
        for one in self.counted():
            worker = self.world.gpus.workers.of(one.spec)
            parts = [self.world.engine.state.accounts[f"gpus/{name}"] for name in self.gpus_of(one)]
            for account_of_gpu in parts:
                binding = one.binding_of("gpus")
                assert binding is not None
                cost = binding.costs[binding.accounts.index(account_of_gpu)]
                expected[0] += cost.amount("tflops")
                expected[1] += cost.amount("vram")
            units = one.spec.requests.amount(GPU)
            assert worker is None or parts
            if units and governed:
                tflops, vram = self.cards[one.place].unit(one.place)
                expected = [expected[0] + units * tflops, expected[1] + units * vram]
        used = [0, 0] if account is None else [account.used.amount(name) for name in ORDER]
        assert used == expected

    def teardown(self) -> None:
        copy = self.world.replayed()
        assert copy.engine.state.plain() == self.world.engine.state.plain()
        lent = {name for gpus in self.world.gpus.inventory.by_node.values() for name in gpus if gpus[name].lent}
        again = {name for gpus in copy.gpus.inventory.by_node.values() for name in gpus if gpus[name].lent}
        assert again == lent
        if not self.lost and not any(cards.failed == cards.served for cards in self.cards.values()):
            self.compare(self.rebuilt())
        for uid in sorted(self.world.engine.state.claims):
            self.world.engine.release(uid)
        accounts = self.world.engine.state.accounts.values()
        assert not any(a.used.vector() or a.busy.vector() for a in accounts if a.policy != "nodes")

    def rebuilt(self) -> World:
        """A new ledger from what the pods and nodes say."""
        other = World()
        for node, cards in self.cards.items():
            put(other, node, cards)
        for key in self.world.engine.state.cells("limits.quotas"):
            other.quota({"workers": 50}, key=key)
        for one in sorted(self.counted(), key=lambda one: one.uid, reverse=True):
            ids = {"tensor-fusion.ai/gpu-ids": ",".join(self.gpus_of(one))} if self.gpus_of(one) else {}
            pod = dict(one.spec.annotations) | ids
            requests: dict[str, object] = {GPU: one.spec.requests.amount(GPU)}
            claim = other.claim(pod, one.uid, requests=requests, needs=NodeNeeds({}, node_name=one.place))
            other.engine.submit(claim)
            other.engine.place(one.uid, one.place, forced=True)
        return other

    def compare(self, other: World) -> None:
        live, found = self.world.engine.state.accounts, other.engine.state.accounts
        for name in {*live, *found}:
            if not name.startswith("nodes/"):
                mine = live[name].used.vector() if name in live else None
                theirs = found[name].used.vector() if name in found else None
                assert (mine or None) == (theirs or None), name


def put(world: World, node: str, cards: Cards) -> None:
    world.set(NODE, node, NodeBody(parse_limits({GPU: cards.healthy * cards.replicas})))
    world.host(node, cards.body(node))


FleetMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestFleetMachine = FleetMachine.TestCase
