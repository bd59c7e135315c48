"""Kill or freeze the leader under load, again and again: ``python -m tests.cluster.robustness.failover --rounds 50``.

Two replicas run. Pods with GPUs come and go in two namespaces with elastic quotas, so that quota is borrowed and taken
back by eviction, and in one with a quota tree; many take their time to leave. In turn the leader is killed (kill -9),
or frozen past its lease and woken again; a new one takes over and admits pods. A watcher that knows only pods checks
every single change. At the end all that wait get their turn, no ledger of any leader ever differed from the cluster,
and once all pods have ended nothing counts anywhere.
"""

import argparse
import asyncio
import contextlib
import json
import random
import re
import subprocess
import sys
import time
from typing import Any

from bursar.kube.client.api import PODS, Api
from bursar.kube.client.errors import KubeError
from bursar.kube.client.http import Http
from bursar.kube.client.kubeconfig import load
from bursar.kube.client.reflector import Reflector
from bursar.store.store import Store
from tests.cluster.controlplane import ControlPlane
from tests.cluster.installation import Replica, Replicas, install
from tests.cluster.robustness.pod_watch import GPU, Limits, Observer

NODES, GPUS, CPUS = 3, 8, 6  # processors run out before GPUs where small pods meet
TREE = "quota.bursar.dev/departments"
WAITING = 60  # pods, at most: all of them get their turn at the end
TIMES = ("--lease-duration", "3", "--renew-deadline", "2", "--retry-period", "0.5")
FROZEN = 4.5  # seconds: longer than the lease


class Storm:
    """One run on one control plane."""

    def __init__(self, plane: ControlPlane, seed: int, prefix: str = "storm") -> None:
        self._plane = plane
        self._random = random.Random(seed)
        self._names = [f"{prefix}-{seed}-{part}" for part in ("a", "b", "t")]
        self._made = 0
        limits = Limits(
            {self._names[0]: 8, self._names[1]: 8}, 10, {"research": 3, "product": 4}, TREE, {GPU: GPUS, "cpu": CPUS}
        )
        self.observer = Observer(limits)
        self.journals = plane.folder / f"journals-{seed}"
        flags = ("--no-webhook", *TIMES, "--compare-every", "2", "--journal", str(self.journals))
        self.replicas = Replicas(plane, flags)
        self.refused = 0  # creations that the API server refused
        self._nodes: list[str] = []

    def prepare(self) -> None:
        self._nodes = self._plane.add_nodes(NODES, {GPU: str(GPUS), "cpu": str(CPUS), "memory": "64Gi", "pods": "200"})
        for name in self._names:
            self._plane.create_namespace(name, {"bursar.dev/quota": "enforced"})
        documents = [_elastic(name, 5, 8) for name in self._names[:2]]
        documents.append(_tree(self._names[2]))
        for document in documents:
            self._plane.kubectl("apply", "-f", "-", input=json.dumps(document))

    async def run(self, rounds: int, admitted: int = 0) -> None:
        """All rounds, and on until so many pods were admitted and places taken back; raises when something is wrong.

        The machine may be slow: then leaders also lose their lease by themselves, and everything takes longer.
        """
        async with Http(load(str(self._plane.kubeconfig))) as http:
            api = Api(http)
            reflector: Reflector[dict[str, Any]] = Reflector(api, PODS, self.observer.decode, self.observer)
            watching = asyncio.create_task(reflector.run())
            await reflector.wait_synced()
            for _ in range(2):
                self.replicas.start()
            loading = asyncio.create_task(self._load(api))
            try:
                await asyncio.to_thread(self.replicas.leader)
                for number in range(rounds):
                    await self._round(number)
                await self._until(
                    lambda: self.observer.held and len(self.observer.admitted) >= admitted, "enough happened", 300
                )
                loading.cancel()
                await self._calm(api)
            except BaseException:
                self.say(self.replicas.logs())
                raise
            finally:
                for task in (watching, loading):
                    task.cancel()
                await asyncio.gather(watching, loading, return_exceptions=True)
                await asyncio.to_thread(self.replicas.stop)

    async def _round(self, number: int) -> None:
        leader, term = await asyncio.to_thread(self.replicas.leading)
        await asyncio.sleep(self._random.uniform(1.0, 3.0))
        kill = number % 2 == 0
        if kill:
            leader.process.kill()
            self.replicas.remove(leader)
            self.replicas.start()
        else:
            leader.process.freeze()
        before = len(self.observer.admitted)
        began = time.monotonic()
        await asyncio.to_thread(self.replicas.leader, term)
        if not kill:
            await asyncio.sleep(max(FROZEN - (time.monotonic() - began), 0))
            leader.process.thaw()
        took = time.monotonic() - began
        await self._until(lambda: len(self.observer.admitted) > before, "pods are admitted again")
        what = "killed" if kill else "frozen"
        self.say(f"round {number}: {what} in term {term}; took over in {took:.1f} s; {self._summary()}")
        self.check()

    async def _load(self, api: Api) -> None:
        """Pods come all the time, a little more than there is room for; some are deleted by their owner."""
        while True:
            with contextlib.suppress(KubeError):
                if sum(not pod.record for pod in self.observer.pods.values()) < WAITING:
                    await self._create(api)
                if self._random.random() < 0.15:
                    await self._delete_one(api)
            await asyncio.sleep(self._random.uniform(0.05, 0.25))

    async def _create(self, api: Api) -> None:
        self._made += 1
        namespace = self._random.choice(self._names)
        labels = {TREE: self._random.choice(["research", "product"])} if namespace == self._names[2] else {}
        leaves = self._random.choice([0, 0, 1, 4])
        pod = _pod(f"p{self._made}", self._random.choice([1, 1, 1, 2]), labels, self._random.uniform(2, 8), leaves)
        try:
            await api.create(PODS, pod, namespace)
        except KubeError:
            self.refused += 1
            raise

    async def _delete_one(self, api: Api) -> None:
        listing = await api.list(PODS, self._random.choice(self._names))
        if listing.items:
            victim = self._random.choice(listing.items)
            await api.delete(PODS, victim.meta.name, victim.meta.namespace, uid=victim.meta.uid)

    async def _calm(self, api: Api) -> None:
        """Nobody is forgotten: once no more pods come, all that wait get their turn, and the ledger is right."""
        await self._until(
            lambda: not any(not pod.record for pod in self.observer.pods.values()), "all pods had their turn", 300
        )
        self.check()
        await asyncio.sleep(3)  # the leader compares once more
        wrong = re.findall(r".*ledger-differs.*|.*built anew.*", self.replicas.all_logs())
        assert not wrong, wrong[:5]
        await self._until(lambda: not any(pod.counts for pod in self.observer.pods.values()), "all pods ended")
        leader = await asyncio.to_thread(self.replicas.leader)
        await self._until(lambda: not _counted(leader), "nothing counts any more")

    async def _until(self, true: Any, what: str, seconds: float = 120.0) -> None:  # noqa: ANN401 any condition
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                waiting = [pod for pod in self.observer.pods.values() if not pod.record]
                raise AssertionError(f"not in {seconds:.0f} s: {what}; {len(waiting)} wait; {self._summary()}")
            await asyncio.sleep(0.1)

    def audit(self) -> int:
        """Prove the journal of every term, also of those whose leader was killed; how many records there are."""
        total = 0
        for file in sorted(self.journals.glob("*.db")):
            with Store.open(file, read_only=True) as store:
                total += store.last_seq
                if not store.last_seq:
                    continue  # the term was over before anything happened
            command = [sys.executable, "-m", "bursar", "audit", str(file)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{file.name}: {done.stdout}{done.stderr}"
        return total

    def say(self, line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def check(self) -> None:
        assert not self.observer.faults, self.observer.faults[:10]

    def _summary(self) -> str:
        seen = self.observer
        pods = f"{len(seen.admitted)} admitted, {len(seen.held)} held, {len(seen.pods)} there"
        return f"{pods}, at most {seen.most} GPUs, {seen.changes} changes"

    def clean(self) -> None:
        for name in self._names:
            self._plane.delete_namespace(name)
        self._plane.kubectl("delete", "quotatree", "departments", "--ignore-not-found")
        self._plane.remove_nodes(self._nodes)


def _counted(leader: Replica) -> list[str]:
    """The quotas in which something counts, and what does on nodes, by the leader's own ledger."""
    used = ("bursar_account_used", "bursar_nodes_used")
    return [name for name, amount in leader.metrics().items() if name.startswith(used) and amount]


def _pod(name: str, gpus: int, labels: dict[str, str], runs: float, leaves: int) -> dict[str, Any]:
    resources = {"requests": {GPU: str(gpus), "cpu": "1"}, "limits": {GPU: str(gpus)}}
    marks = {"sim.bursar.dev/runs-for": f"{runs:.1f}s", "sim.bursar.dev/leaves-after": f"{leaves}s"}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}], "restartPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": marks},
        "spec": spec,
    }


def _elastic(namespace: str, least: int, most: int) -> dict[str, Any]:
    return {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "quota", "namespace": namespace},
        "spec": {"min": {GPU: least}, "max": {GPU: most}},
    }


def _tree(namespace: str) -> dict[str, Any]:
    def node(parent: str, quota: int) -> dict[str, Any]:
        return {"parent": parent, "quota": {GPU: str(quota)}, "hard": "true"}

    nodes = {"root": {**node("nil", 6), "namespaces": [namespace]}}
    nodes |= {"research": node("root", 3), "product": node("root", 4)}
    spec = {"resourceNames": [GPU], "nodes": nodes}
    return {
        "apiVersion": "bursar.dev/v1alpha1",
        "kind": "QuotaTree",
        "metadata": {"name": "departments"},
        "spec": spec,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with ControlPlane.start() as plane:
        install(plane)
        storm = Storm(plane, given.seed)
        storm.prepare()
        asyncio.run(storm.run(given.rounds))
        storm.say(f"{given.rounds} rounds: {storm._summary()}; no fault; {storm.audit()} journal records proved")
    return 0


if __name__ == "__main__":
    sys.exit(main())
