"""Pods through a real control plane: created as fast as it takes them, timed until the last one is bound.

The load is the same for everyone who is measured: so many pods in a namespace of their own, by 32 requests at once,
while whoever gates and the scheduler work on those that came before. Bound pods are counted by a watch that carries
metadata only. Nobody plays the kubelet. Writes are counted by the API server itself, in an audit log of one user.
"""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import aiohttp

from benchmarks.work.kubeapi import PARTIAL, follow, session
from benchmarks.work.passing import GATE, READY
from tests.cluster.controlplane import ApiError, ControlPlane
from tests.cluster.controlplane.auditing import WRITES, calls, flags
from tests.cluster.controlplane.identities import BURSAR
from tests.cluster.controlplane.objects import pod, unique

_CREATES = 32  # in flight
_SECONDS = 300  # a run that takes longer has failed
_GATED = {"bench": "gated"}
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Size(NamedTuple):
    """One setting: nodes there are, pods to be scheduled, gated pods that wait meanwhile and stay."""

    nodes: int
    pods: int
    waiting: int

    def __str__(self) -> str:
        waiting = f", {self.waiting:,} waiting" if self.waiting else ""
        return f"{self.pods:,} pods, {self.nodes:,} nodes{waiting}"


class Figures(NamedTuple):
    """One run: pods a second, then per pod; the controller's own figures are zero where there is none."""

    rate: float
    apiserver_cpu: float
    scheduler_cpu: float
    writes: float = 0.0
    cpu: float = 0.0
    memory: float = 0.0


class Arena:
    """A control plane with nodes and waiting pods, on which runs follow one another."""

    def __init__(self, plane: ControlPlane, size: Size, audit: Path) -> None:
        self.plane = plane
        self.size = size
        self._audit = audit

    def run(self, command: list[str] | None) -> Figures:
        """One run: with no controller and no gates, or with the controller of that command line."""
        namespace = self.plane.create_namespace(unique("bench"), _GATED if command else {})
        try:
            if command is None:
                return self._timed(namespace)
            with _running(command) as process:
                return self._with_controller(namespace, process.pid)
        finally:
            self._clear(namespace)

    def _timed(self, namespace: str) -> Figures:
        pids = [self.plane.component(name).pid for name in ("kube-apiserver", "kube-scheduler")]
        before = [processor_seconds(pid) for pid in pids]
        rate = asyncio.run(_time_pods(self.plane, namespace, self.size.pods))
        spent = [processor_seconds(pid) - earlier for pid, earlier in zip(pids, before, strict=True)]
        return Figures(rate, *(seconds * 1000 / self.size.pods for seconds in spent))

    def _with_controller(self, namespace: str, pid: int) -> Figures:
        before = processor_seconds(pid)
        writes = self._writes()
        found = self._timed(namespace)
        pods = self.size.pods
        cpu = (processor_seconds(pid) - before) * 1000 / pods
        return found._replace(writes=(self._writes() - writes) / pods, cpu=cpu, memory=resident(pid) / 1e6)

    def _writes(self) -> int:
        return sum(1 for _ in calls(self._audit))

    def _clear(self, namespace: str) -> None:
        """Pods first and at once; the next run begins when the last of them is gone."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        while self.plane.api().get(f"{path}?limit=1")["items"]:
            self.plane.api().delete(path, {"gracePeriodSeconds": 0})


@contextmanager
def arena(size: Size) -> Iterator[Arena]:
    """A fresh control plane of that size: etcd, API server, scheduler as they come, nobody else."""
    with TemporaryDirectory(prefix="bursar-bench-") as folder:
        log = Path(folder) / "writes.log"
        audit = flags(Path(folder) / "audit.json", log, BURSAR, WRITES)
        with ControlPlane.start(controller_manager=False, kwok=False, apiserver_flags=audit) as plane:
            _furnish(plane, size)
            yield Arena(plane, size, log)


def _furnish(plane: ControlPlane, size: Size) -> None:
    _let_the_controller_work(plane)
    plane.add_nodes(size.nodes, prefix="node")
    if size.waiting:
        path = f"/api/v1/namespaces/{plane.create_namespace('waiting')}/pods"
        body = [pod(f"waiting-{number}", {"cpu": "100m"}, gates=["bench/never"]) for number in range(size.waiting)]
        plane.api().in_parallel(lambda each: plane.api().create(path, each), body)
    _gate(plane)


def _let_the_controller_work(plane: ControlPlane) -> None:
    binding = {
        "metadata": {"name": "bench"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": BURSAR}],
    }
    plane.api().create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)


def _gate(plane: ControlPlane) -> None:
    """The gate by a MutatingAdmissionPolicy, as Bursar has it; returns when it is in force."""
    kinds = "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    expression = f'Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: "{GATE}"}}]}}}}'
    policy = {
        "metadata": {"name": "bench-gate"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": {"matchLabels": _GATED}},
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        },
    }
    plane.api().create(f"{kinds}/mutatingadmissionpolicies", policy)
    binding = {"metadata": {"name": "bench-gate"}, "spec": {"policyName": "bench-gate"}}
    plane.api().create(f"{kinds}/mutatingadmissionpolicybindings", binding)
    path = f"/api/v1/namespaces/{plane.create_namespace('probe', _GATED)}/pods?dryRun=All"
    _until(lambda: "schedulingGates" in plane.api().create(path, pod("probe"))["spec"], "the gate is in force")


def _until(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            if look():
                return
        except ApiError:
            pass  # a policy that is being compiled refuses what it matches
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in a minute: {what}")
        time.sleep(0.1)


@contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The controller as a child, from the moment it says that it watches until it is stopped."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != READY:
                raise RuntimeError(f"the controller did not start: {' '.join(command[:3])}")
            yield process
            if process.poll() is not None:
                raise RuntimeError(f"the controller ended with exit code {process.returncode}")
        finally:
            process.terminate()


async def _time_pods(plane: ControlPlane, namespace: str, count: int) -> float:
    """Pods a second of wall-clock time, from the first request until the last pod is bound."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    async with session(plane.url, plane.ca_path, plane.token()) as http, asyncio.timeout(_SECONDS):
        watching = asyncio.Event()
        bound = asyncio.create_task(_count_bound(http, path, count, watching))
        await watching.wait()
        numbers = iter(range(count))
        started = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_CREATES):
                tasks.create_task(_create(http, path, numbers))
        await bound
        return count / (time.perf_counter() - started)


async def _create(http: aiohttp.ClientSession, path: str, numbers: Iterator[int]) -> None:
    for number in numbers:
        async with http.post(path, json=pod(f"pod-{number}", {"cpu": "100m", "memory": "64Mi"})) as answer:
            if answer.status >= 400:
                raise RuntimeError(f"creating a pod: {answer.status} {await answer.text()}")
            await answer.read()


async def _count_bound(http: aiohttp.ClientSession, path: str, count: int, watching: asyncio.Event) -> None:
    seen: set[str] = set()
    async for lines in follow(http, path, "spec.nodeName!=", PARTIAL.format(""), watching.set):
        seen.update(json.loads(line)["object"]["metadata"]["name"] for line in lines)
        if len(seen) == count:
            return


def processor_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident(pid: int) -> int:
    """Bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
