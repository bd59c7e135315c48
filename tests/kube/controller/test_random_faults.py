"""Traffic and faults, drawn at random from a seed: what the API server holds is right at every change, and at the end
everybody who fits is admitted and the ledger is what one built from the cluster would be.

Quotas do not count who was told to leave for others (the claimant holds that place), but nodes do until it is gone.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from bursar.kube.client.api import NODES as NODE_KIND
from bursar.kube.client.api import PODS
from bursar.kube.controller import drift, eviction, pod_writer, work_queue
from bursar.kube.controller.mirror import Mirror
from tests.kube.controller.stage import Body, Stage, gpus_of, has_ended, is_admitted, is_gated, stage
from tests.kube.fakeapi.state import Change

NODES, GPUS = 2, 6
MOST, LEAST = 8, 5  # of each namespace; together they lend and take back
NAMESPACES = ("a", "b")
STEPS = 60
MOST_PODS = 40
ANY_POD = r"/api/v1/namespaces/\w+/pods/[\w-]+"
FAULTS = (
    {"code": 403},
    {"code": 403, "carried_out": True},  # by something between us and the server
    {"code": 409},
    {"code": 429, "retry_after": 1},
    {"code": 500},
    {"code": 500, "carried_out": True},
    {"code": 503},
    {"cut": True},
    {"cut": True, "carried_out": True},
    {"hang": 0.3},
    {"hang": 0.3, "carried_out": True},
    {"hang": 1.0, "carried_out": True},  # longer than the client waits
)


class Storm:
    """One run."""

    def __init__(self, cluster: Stage, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.made = self.groups = 0
        self.seen = 0  # changes of the server that were checked
        self.starts: dict[str, int] = {}  # by uid
        self.faults: list[str] = []

    def prepare(self) -> None:
        for number in range(NODES):
            self.cluster.node(f"n{number}", GPUS)
        for name in NAMESPACES:
            self.cluster.namespace(name)
            self.cluster.quota(name, MOST, LEAST)

    async def run(self) -> None:
        await self.cluster.lead()
        for _ in range(STEPS):
            self.step()
            await asyncio.sleep(self.random.choice([0, 0, 0.01, 0.05]))
            self.check_changes()
            if self.random.random() < 0.04:
                await self.cluster.depose()
                await self.cluster.lead()
        self.cluster.fake.faults.clear()
        if (NODE_KIND, "", "n1") not in self.cluster.fake.state.objects:
            self.lose_or_find_node()
        await self.rest()

    def step(self) -> None:
        actions = {
            self.create: 30,
            self.create_group: 4,
            self.cluster.schedule: 25,
            self.end: 10,
            self.anew: 5,
            self.order_fault: 12,
            self.cut: 6,
            self.lose_or_find_node: 4,
        }
        (action,) = self.random.choices(list(actions), list(actions.values()))
        action()

    def order_fault(self) -> None:
        how: dict[str, Any] = self.random.choice(FAULTS)
        self.cluster.fake.fail(f"(PATCH|POST) {ANY_POD}", times=self.random.randint(1, 6), **how)

    def cut(self) -> None:
        if self.random.random() < 0.5:
            self.cluster.fake.compact()
        self.cluster.fake.cut_watches()

    def lose_or_find_node(self) -> None:
        """A node that comes back has its name, and the pods that were bound to it."""
        if (NODE_KIND, "", "n1") in self.cluster.fake.state.objects:
            self.cluster.fake.state.delete(NODE_KIND, "", "n1")
        else:
            self.cluster.node("n1", GPUS)

    def create_group(self) -> None:
        self.groups += 1
        size = self.random.choice([2, 3])
        labels = {"bursar.dev/group": f"g{self.groups}", "bursar.dev/group-size": str(size)}
        namespace = self.random.choice(NAMESPACES)
        for number in range(size):
            self.cluster.pod(namespace, f"g{self.groups}-{number}", 1, labels=labels)

    def create(self, name: str = "", namespace: str = "") -> None:
        if not name and len(self.cluster.pods()) >= MOST_PODS:
            return
        self.made += 1
        finalizers = ["example.org/stays"] if self.random.random() < 0.1 else []
        self.cluster.pod(
            namespace or self.random.choice(NAMESPACES),
            name or f"p{self.made}",
            self.random.choice([1, 1, 2, 3]),
            finalizers=finalizers,
        )

    def end(self) -> None:
        """By its owner, or because its work is done."""
        pod = self.some_pod()
        if pod is None:
            return
        if self.random.random() < 0.5 or not pod["spec"].get("nodeName"):
            self.cluster.delete(pod)
        else:
            self.cluster.change(pod, lambda body: body.update(status={"phase": "Succeeded"}))

    def anew(self) -> None:
        pod = self.some_pod()
        if pod is not None and not pod["metadata"].get("finalizers"):
            self.cluster.delete(pod)
            self.create(pod["metadata"]["name"], pod["metadata"]["namespace"])

    def some_pod(self) -> Body | None:
        pods = self.cluster.pods()
        return self.random.choice(pods) if pods else None

    # What must hold

    def check_changes(self) -> None:
        """Every change since the last look, one after the other, as any watcher would see them."""
        history = self.cluster.fake.state.history
        for position in range(self.seen, len(history)):
            change = history[position]
            if change.resource == PODS and change.type == "MODIFIED":
                self.check(change, position)
        self.seen = len(history)
        assert not self.faults, self.faults

    def check(self, change: Change, position: int) -> None:
        before, after = change.before, change.after
        if before is None or not is_gated(before) or is_gated(after):
            return
        uid = after["metadata"]["uid"]
        self.starts[uid] = self.starts.get(uid, 0) + 1
        if self.starts[uid] > 1:
            self.faults.append(f"{uid} was let go twice")
        taken = [pod for pod in self.as_of(position) if _takes_room(pod)]
        if sum(map(gpus_of, taken)) > NODES * GPUS:
            self.faults.append(f"{sum(map(gpus_of, taken))} GPUs are promised, and there are {NODES * GPUS}")
        counting = [pod for pod in taken if pod["metadata"]["uid"] not in self.cluster.leavers]
        for namespace in NAMESPACES:
            used = sum(gpus_of(pod) for pod in counting if pod["metadata"]["namespace"] == namespace)
            if used > MOST:
                self.faults.append(f"{namespace} uses {used} of {MOST}")

    def as_of(self, position: int) -> list[Body]:
        """The pods that were there right after a change."""
        found: dict[str, Body] = {}
        for change in self.cluster.fake.state.history[: position + 1]:
            if change.resource == PODS:
                uid = change.after["metadata"]["uid"]
                if change.type == "DELETED":
                    found.pop(uid, None)
                else:
                    found[uid] = change.after
        return list(found.values())

    async def rest(self) -> None:
        """Faults are over, and finalizers too: whoever fits is admitted, and nothing else is left to do."""
        async with asyncio.timeout(60):
            while True:
                self.finalize()
                self.cluster.schedule()
                await asyncio.sleep(0.1)
                self.check_changes()
                self.cluster.check_running()
                if self.calm() and not self.left_to_do():
                    break
        term = self.cluster.term
        assert term is not None
        assert term.differences == 0
        assert _charges(term.mirror) == _charges(self.cluster.rebuilt())

    def finalize(self) -> None:
        for pod in self.cluster.pods():
            metadata = pod["metadata"]
            if metadata.get("deletionTimestamp"):
                self.cluster.fake.state._drop((PODS, metadata["namespace"], metadata["name"]), pod)

    def calm(self) -> bool:
        term = self.cluster.term
        assert term is not None
        bound = all(is_gated(pod) or pod["spec"].get("nodeName") or has_ended(pod) for pod in self.cluster.pods())
        known = not drift.differences(term.mirror.controller, term.mirror.pods)
        assert list(drift.wrong_sums(term.mirror.engine.state)) == []
        there = {pod["metadata"]["uid"] for pod in self.cluster.pods() if not has_ended(pod)}
        return bound and known and there == term.mirror.pods.by_uid.keys() and not any(map(len, term._queues()))

    def left_to_do(self) -> list[str]:
        """Whom a new leader would start at once: it must be nobody.

        It may take a place from somebody, where the last one remembers that those two are even.
        """
        mirror = self.cluster.rebuilt()
        mirror.controller.settle()
        return [claim.key for claim in mirror.notes.starts.values()]


def _takes_room(pod: Body) -> bool:
    if has_ended(pod):
        return False
    if pod["spec"].get("nodeName"):
        return True
    return is_admitted(pod) and not pod["metadata"].get("deletionTimestamp")  # that is never bound


def _charges(mirror: Mirror) -> dict[tuple[str, str], dict[str, int]]:
    found: dict[tuple[str, str], dict[str, int]] = {}
    for claim in mirror.engine.state.claims.values():
        for binding in claim.bindings if claim.counts() else ():
            if binding is not None and binding.costs:
                found[claim.key, binding.policy] = dict(binding.costs[0].pairs())
    return found


@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(8))
async def test_whatever_happens_the_cluster_is_right(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_queue, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(work_queue, "_LONGEST_PAUSE", 0.5)
    monkeypatch.setattr(work_queue, "_REFUSED_PAUSE", 0.05)
    for module, name, milliseconds in (
        (pod_writer, "BACK_OFF_FOR", 600),
        (eviction, "AMBIGUOUS_FOR", 600),
    ):
        monkeypatch.setattr(module, name, milliseconds)
    async with stage(patience=0.6) as cluster:
        storm = Storm(cluster, seed)
        storm.prepare()
        await storm.run()
        assert storm.starts
