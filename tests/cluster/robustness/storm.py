"""All troubles together, for so many minutes: ``make storm``.

To the kills and freezes of leaders (``failover``) come, in random order: restarts of the API server and of etcd (after
which watches expire), throttling, lost nodes, edited quotas, and the pods of two people with ordinary rights. Those
attack with thousands of terms, large annotations, other scheduling gates, priorities of the system, groups of others
and budgets, and make pods that no scheduler can place. The observer sees every change of every pod.

The run ends only when every pod has run or waits for a reason that was stated in an event. The ledger of no leader may
have differed, no pod may have been admitted twice, and the memory of the last leader must be flat: below a bound that
does not grow with the length of the run.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from bursar.kube.client.api import Api
from bursar.kube.client.errors import KubeError
from tests.cluster.controlplane import ApiError, ControlPlane
from tests.cluster.controlplane.identities import ALICE, BOB
from tests.cluster.installation import install
from tests.cluster.robustness.failover import CPUS, GPUS, TREE, Storm, _elastic
from tests.cluster.robustness.pod_watch import GPU
from tests.cluster.robustness.throttling import throttled
from tests.cluster.waiting import eventually

MEMORY = 600_000_000  # bytes, of a leader, whatever happened before
NOTE = 200_000
TERMS = 12_000


class GreatStorm(Storm):
    """One run with all troubles."""

    def __init__(self, plane: ControlPlane, seed: int, minutes: float) -> None:
        super().__init__(plane, seed, "great")
        self._minutes = minutes
        self._odd = 0
        self.happened: Counter[str] = Counter()
        self.memory: list[float] = []
        self._troubles: dict[str, Callable[[], Awaitable[None]]] = {
            "API server restarted": lambda: self._restart("kube-apiserver"),
            "etcd restarted": lambda: self._restart("etcd"),
            "throttled": self._throttle,
            "node lost": self._lose_node,
            "quota edited": self._edit_quota,
            "attack": self._attack,
        }

    async def _round(self, number: int) -> None:
        """One round of the base is all of them: until the time is over."""
        end = time.monotonic() + 60 * self._minutes
        turn = 0
        while time.monotonic() < end:
            await self._trouble(turn)
            turn += 1

    async def _trouble(self, number: int) -> None:
        """One trouble, then a leader is killed or frozen."""
        names = list(self._troubles)
        name = names[number] if number < len(names) else self._random.choice(names)
        await self._troubles[name]()
        self.happened[name] += 1
        await super()._round(number)
        self.memory.append(await asyncio.to_thread(self._memory))
        self.say(f"   {name}; {self.memory[-1] / 1e6:.0f} MB")

    def _memory(self) -> float:
        def found() -> float:
            with contextlib.suppress(OSError):
                return self.replicas.leader().metrics().get("bursar_resident_bytes", 0)
            return 0

        return eventually(found, "a leader says what it takes")

    async def _restart(self, component: str) -> None:
        await asyncio.to_thread(self._plane.restart_component, component)

    async def _throttle(self) -> None:
        def for_a_while() -> None:
            with throttled(self._plane):
                time.sleep(5)

        await asyncio.to_thread(for_a_while)

    async def _lose_node(self) -> None:
        """One node goes with its pods, and another comes."""
        lost = self._nodes.pop(self._random.randrange(len(self._nodes)))
        await asyncio.to_thread(self._plane.remove_nodes, [lost])
        room = {GPU: str(GPUS), "cpu": str(CPUS), "memory": "64Gi", "pods": "200"}
        self._nodes += await asyncio.to_thread(self._plane.add_nodes, 1, room)

    async def _edit_quota(self) -> None:
        """Less, and then as before: the observer's limits hold at every moment."""
        name = self._names[0]
        path = f"/apis/n8s.nebuly.ai/v1alpha1/namespaces/{name}/elasticquotas/quota"
        for most in (6, 8):
            body = {"spec": _elastic(name, 5, most)["spec"]}
            await asyncio.to_thread(self._plane.api().patch, path, body)
            await asyncio.sleep(2)

    # Attacks

    async def _attack(self) -> None:
        """Each trouble-maker makes some of each; the oldest go when there are too many."""
        for user in (ALICE, BOB):
            for make in (self._terms, self._note, self._gate, self._critical, self._group, self._volume):
                self._odd += 1
                body = _pod_of(f"odd-{self._odd}")
                namespace = make(body)
                with contextlib.suppress(ApiError):
                    path = f"/api/v1/namespaces/{namespace}/pods"
                    await asyncio.to_thread(self._plane.api(user).create, path, body)
        with contextlib.suppress(ApiError):
            budget = {
                "metadata": {"name": "shield"},
                "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"o": "o"}}},
            }
            path = f"/apis/policy/v1/namespaces/{self._names[0]}/poddisruptionbudgets"
            await asyncio.to_thread(self._plane.api(ALICE).create, path, budget)

    def _terms(self, body: dict[str, Any]) -> str:
        key = "kubernetes.io/hostname"
        terms = [
            {"matchExpressions": [{"key": key, "operator": "In", "values": [f"{self._odd}-{number}"]}]}
            for number in range(TERMS)
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        body["spec"]["affinity"] = {"nodeAffinity": required}
        return self._names[0]

    def _note(self, body: dict[str, Any]) -> str:
        body["metadata"]["annotations"]["note"] = f"{self._odd}" + "x" * NOTE
        return self._names[1]

    def _gate(self, body: dict[str, Any]) -> str:
        body["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        return self._names[1]

    def _critical(self, body: dict[str, Any]) -> str:
        body["spec"]["priorityClassName"] = "system-node-critical"
        return self._names[0]

    def _group(self, body: dict[str, Any]) -> str:
        """A group that only the namespace of the tree may use."""
        body["metadata"]["labels"][TREE] = "research"
        return self._names[0]

    def _volume(self, body: dict[str, Any]) -> str:
        """Admitted, and never bound: it keeps its quota until it is deleted."""
        claim = {"name": "v", "persistentVolumeClaim": {"claimName": "is-not-there"}}
        body["spec"]["volumes"] = [claim]
        return self._names[1]

    # The end

    async def _calm(self, api: Api) -> None:
        """Odd pods wait for a stated reason; then they go, and all others have their turn."""
        await self._until(lambda: self.observer.held, "pods were held", 300)
        unexplained: list[str] = []

        async def all_explained() -> bool:
            unexplained[:] = await asyncio.to_thread(self._unexplained)
            return not unexplained

        deadline = time.monotonic() + 300
        while not await all_explained():
            assert time.monotonic() < deadline, f"wait without a reason: {unexplained[:5]}"
            await asyncio.sleep(1)
        for namespace in self._names:
            for pod in await asyncio.to_thread(self._pods, namespace):
                if pod["metadata"]["name"].startswith("odd-"):
                    with contextlib.suppress(ApiError, KubeError):
                        path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
                        await asyncio.to_thread(self._plane.api().delete, path, {"gracePeriodSeconds": 0})
        await super()._calm(api)
        assert max(self.memory) < MEMORY, [round(one / 1e6) for one in self.memory]

    def _pods(self, namespace: str) -> list[dict[str, Any]]:
        return list(self._plane.api().get(f"/api/v1/namespaces/{namespace}/pods")["items"])

    def _unexplained(self) -> list[str]:
        """Pods that wait, gated or not bound, and of which no event says why."""
        found: list[str] = []
        for namespace in self._names:
            events = self._plane.api().get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
            told = {one["regarding"].get("uid") for one in events}
            for pod in self._pods(namespace):
                over = pod["status"].get("phase") in {"Succeeded", "Failed"} or pod["metadata"].get("deletionTimestamp")
                waits = not pod["spec"].get("nodeName") and not over
                if waits and pod["metadata"]["uid"] not in told:
                    found.append(f"{namespace}/{pod['metadata']['name']}")
        return found


def _pod_of(name: str) -> dict[str, Any]:
    resources = {"requests": {GPU: "1", "cpu": "100m"}, "limits": {GPU: "1"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}], "restartPolicy": "Never"}
    marks = {"sim.bursar.dev/runs-for": "2s", "sim.bursar.dev/leaves-after": "0s"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": marks, "labels": {}},
        "spec": spec,
    }


def _allow(plane: ControlPlane, namespace: str) -> None:
    """BOB is the admin of the namespace."""
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": BOB}
    role = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "admin"}
    body = {"metadata": {"name": "bob"}, "roleRef": role, "subjects": [subject]}
    plane.api().create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", body)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    given = parser.parse_args()
    with ControlPlane.start() as plane:
        install(plane)
        storm = GreatStorm(plane, given.seed, given.minutes)
        storm.say(f"seed {given.seed}")
        storm.prepare()
        for namespace in storm._names:
            _allow(plane, namespace)
        asyncio.run(storm.run(1))
        happened = ", ".join(f"{name} {count}" for name, count in sorted(storm.happened.items()))
        memory = " ".join(f"{one / 1e6:.0f}" for one in storm.memory)
        storm.say(f"{given.minutes:g} minutes: {storm._summary()}; {happened}; no fault")
        storm.say(f"memory of leaders in MB: {memory}; {storm.audit()} journal records proved")
    return 0


if __name__ == "__main__":
    sys.exit(main())
