"""Random histories of GPUs, quotas and workers against the reference model; replayed and rebuilt at the end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bursar.engine.what_if import Submit
from bursar.selectors import NodeNeeds
from tests.policies.gpus.reference_model import TOTALS, Ask, Card, Held, Quota, ReferenceModel
from tests.policies.gpus.world import World, marks

CARDS = [
    Card(name, node, 100_000, 16, model, index)
    for name, node, model, index in (
        ("g0", "n1", "A", 0),
        ("g1", "n1", "A", 1),
        ("g2", "n1", "B", 2),
        ("g3", "n2", "A", 0),
        ("g4", "n2", "B", 0),
    )
]
CAPACITIES = ((100_000, 16), (200_000, 24), (50_000, 8), (0, 0), (100_500, 7))
ASKS = (
    Ask(30_000, 4),
    Ask(500, 1, count=2),
    Ask(60_000, 9),
    Ask(0, 0),
    Ask(vram=3, percent=33),
    Ask(percent=100, count=2),
    Ask(whole=True),
    Ask(whole=True, count=2, model="A"),
    Ask(10_000, 2, count=3),
    Ask(10_000, 2, model="B"),
    Ask(300_000, 2),
)
QUOTAS: tuple[Quota, ...] = (
    ({"requests.tflops": 150_000, "requests.vram": 20}, {}),
    ({"limits.tflops": 120_000, "workers": 3}, {}),
    ({"limits.vram": 12}, {"requests.tflops": 90_000, "gpus": 2}),
    ({}, {"limits.vram": 8}),
    ({"workers": 0}, {}),
)
KEYS = ("a/q1", "a/q2", "b/q")
asks = st.sampled_from(ASKS)
namespaces = st.sampled_from(("a", "b"))
numbers = st.integers(0, 99)


def pod_marks(ask: Ask, **more: str) -> dict[str, str]:
    found = dict(more)
    if ask.whole:
        found["isolation"] = "shared"
    elif ask.percent is not None:
        found |= {"compute_percent_request": str(ask.percent), "vram_request": str(ask.vram)}
    else:
        found |= {"tflops_request": f"{ask.tflops}m", "vram_request": str(ask.vram)}
    if ask.model:
        found["gpu_model"] = ask.model
    return marks(None, None, ask.count, **found)


class GpusMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.reference = ReferenceModel()
        self.number = 0
        for node in ("n1", "n2"):
            self.world.node(node)
        for card in CARDS:
            self.put(card)

    def put(self, card: Card) -> None:
        tflops, vram = f"{card.tflops}m", card.vram
        self.world.gpu(card.name, card.node, tflops, vram, model=card.model, index=card.index)
        self.reference.cards[card.name] = card

    def chosen(self, number: int) -> str | None:
        uids = sorted(self.reference.held)
        return uids[number % len(uids)] if uids else None

    @rule(namespace=namespaces, ask=asks)
    def decide(self, namespace: str, ask: Ask) -> None:
        self.number += 1
        uid = f"w{self.number}"
        reason, place, gpus = self.reference.decide(namespace, ask)
        decision = self.world.engine.decide(self.world.claim(pod_marks(ask), uid, namespace=namespace))
        assert (decision.reason, decision.place) == (reason, place)
        if reason:
            self.world.engine.release(uid)
        else:
            assert tuple(self.world.on(uid)) == gpus
            self.reference.held[uid] = Held(namespace, ask, place, gpus)

    @rule(namespace=namespaces, ask=asks)
    def try_and_undo(self, namespace: str, ask: Ask) -> None:
        before = self.world.engine.digest
        outlook = self.world.engine.what_if([Submit(self.world.claim(pod_marks(ask), "probe", namespace=namespace))])
        assert outlook.decisions[0].reason == self.reference.decide(namespace, ask)[0]
        assert self.world.engine.digest == before

    @rule(number=numbers)
    def release(self, number: int) -> None:
        uid = self.chosen(number)
        if uid is not None:
            self.world.engine.release(uid)
            del self.reference.held[uid]

    @rule(number=numbers, ask=asks)
    def adjust(self, number: int, ask: Ask) -> None:
        uid = self.chosen(number)
        if uid is None:
            return
        ask = replace(ask, count=self.reference.held[uid].ask.count)
        decision = self.world.adjust(uid, pod_marks(ask))
        assert decision.reason == self.reference.adjust(uid, ask)

    @rule(key=st.sampled_from(KEYS), quota=st.sampled_from((*QUOTAS, None)))
    def set_quota(self, key: str, quota: Quota | None) -> None:
        self.world.quota(*(quota or (None, None)), key=key)
        if quota is None:
            self.reference.quotas.pop(key, None)
        else:
            self.reference.quotas[key] = quota

    @rule(number=numbers, capacity=st.sampled_from(CAPACITIES))
    def change_gpu(self, number: int, capacity: tuple[int, int]) -> None:
        card = CARDS[number % len(CARDS)]
        self.put(replace(card, tflops=capacity[0], vram=capacity[1]))

    @precondition(lambda self: any(not self.users(name) for name in self.reference.cards))
    @rule(number=numbers)
    def remove_idle_gpu(self, number: int) -> None:
        names = sorted(name for name in self.reference.cards if not self.users(name))
        name = names[number % len(names)]
        self.world.no_gpu(name)
        del self.reference.cards[name]

    def users(self, name: str) -> list[str]:
        return [uid for uid, one in self.reference.held.items() if name in one.gpus]

    @invariant()
    def usage_is_the_sum_of_the_claims(self) -> None:
        accounts = self.world.engine.state.accounts
        for namespace in ("a", "b"):
            account = accounts.get(f"limits/{namespace}")
            found = {name: 0 if account is None else account.used.amount(name) for name in TOTALS}
            assert found == self.reference.used(namespace)

    @invariant()
    def gpus_agree(self) -> None:
        accounts = self.world.engine.state.accounts
        assert {n for n in accounts if n.startswith("gpus/g")} == {f"gpus/{name}" for name in self.reference.cards}
        for name, card in self.reference.cards.items():
            used = accounts[f"gpus/{name}"].used
            assert (used.amount("tflops"), used.amount("vram")) == self.reference.taken(name)
            assert accounts[f"gpus/{name}"].limits.cap("tflops") == card.tflops

    def rebuilt(self) -> World:
        """A new ledger from what the pods say: their node and their GPUs."""
        other = World()
        for node in ("n1", "n2"):
            other.node(node)
        for card in self.reference.cards.values():
            other.gpu(card.name, card.node, f"{card.tflops}m", card.vram, model=card.model, index=card.index)
        for uid, one in sorted(self.reference.held.items(), reverse=True):
            pod = pod_marks(one.ask, gpu_ids=",".join(one.gpus))
            needs = NodeNeeds({}, node_name=one.place)
            other.engine.submit(other.claim(pod, uid, namespace=one.namespace, needs=needs))
            other.engine.place(uid, one.place, forced=True)
        return other

    def teardown(self) -> None:
        copy = self.world.replayed()
        assert copy.engine.state.plain() == self.world.engine.state.plain()
        assert copy.engine.digest == self.world.engine.digest
        rebuilt = self.rebuilt().engine.state.accounts
        live = self.world.engine.state.accounts
        for name, account in live.items():
            if not name.startswith("nodes/") and (name in rebuilt or account.used.vector()):
                assert rebuilt[name].used.vector() == account.used.vector(), name
        for uid in self.reference.held:
            self.world.engine.release(uid)
        assert not any(a.used.vector() or a.busy.vector() for a in live.values() if not a.name.startswith("nodes/"))


GpusMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestGpusMachine = GpusMachine.TestCase
