"""Control planes on which the stock scheduler and controllers are measured in turn.

A bare one has nothing of Bursar's, and waiting pods bring the gate with them. A governed one has Bursar's definitions,
roles and admission policies: pods get the gate at creation, and a patch that takes it away is judged by the guards and
the fence, whoever sends it. Writes are counted by the API server itself, in its audit log of the controller's account.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import harmonic_mean, mean
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.work.passing import GATE, READY
from benchmarks.work.scheduling import processor_seconds, resident, time_pods
from bursar.kube.admission.manifests import render
from bursar.kube.admission.policies import gate
from bursar.kube.admission.predicate import AdmissionOptions
from tests.cluster import metrics_text
from tests.cluster.controlplane import ApiError, ControlPlane
from tests.cluster.controlplane.api import Object
from tests.cluster.controlplane.auditing import WRITES, calls, flags
from tests.cluster.controlplane.commands import AS_SHIPPED, FAST
from tests.cluster.controlplane.identities import BURSAR
from tests.cluster.controlplane.objects import pod, unique
from tests.cluster.controlplane.processes import Component
from tests.cluster.installation import LEASE, announce, announced, install
from tests.cluster.waiting import eventually

_GOVERNED = {"bursar.dev/quota": "enforced"}
_QUOTAS = "/apis/n8s.nebuly.ai/v1alpha1/namespaces/{}/elasticquotas"
_QUIET_SECONDS = 3
_SETTLE_SECONDS = 300

Starter = Callable[[ControlPlane, str], Component]
"""Starts a controller that lets go the pods of namespaces whose names begin so, and returns it when it is at work."""


class Size(NamedTuple):
    """One setting: nodes there are, pods to be scheduled, governed pods that wait meanwhile and stay; whether the
    scheduler is as it is shipped, or without its limit of 50 requests a second; and whether the pods mount the token of
    their service account, which is a volume that all pods have who do not decline it.
    """

    nodes: int
    pods: int
    waiting: int
    shipped: bool = False
    tokens: bool = False

    def __str__(self) -> str:
        waiting = f", {self.waiting:,} waiting" if self.waiting else ""
        shipped, tokens = ", as shipped" if self.shipped else "", " with tokens" if self.tokens else ""
        return f"{self.pods:,} pods{tokens}, {self.nodes:,} nodes{waiting}{shipped}"


class Figures(NamedTuple):
    """One run. Processor time is in milliseconds per pod; the controller's own figures are zero where there is none."""

    rate: float
    etcd_cpu: float
    apiserver_cpu: float
    scheduler_cpu: float
    load_cpu: float
    allocated: float  # kilobytes per pod, by the API server
    controller_cpu: float = 0.0
    memory: float = 0.0  # megabytes
    pod_writes: float = 0.0  # per pod
    other_writes: float = 0.0  # per pod: events, statuses, the lease

    @property
    def cpu(self) -> float:
        """Of all processes together: what bounds the rate where all of them share a few cores."""
        return self.etcd_cpu + self.apiserver_cpu + self.scheduler_cpu + self.load_cpu + self.controller_cpu


Run = Callable[[], Figures]


def joined(runs: Sequence[Figures]) -> Figures:
    """Runs of equally many pods, as if they were one: as many pods as there were, in the sum of their times."""
    rates, *others = zip(*runs, strict=True)
    return Figures(harmonic_mean(rates), *map(mean, others))._replace(memory=max(run.memory for run in runs))


class Arena:
    def __init__(self, plane: ControlPlane, size: Size, log: Path, governed: bool) -> None:
        self._plane = plane
        self._size = size
        self._log = log
        self._governed = governed
        self._forgets = False

    def forget_managers(self, wanted: bool) -> None:
        """Whether the gate takes the list of who wrote which field from pods."""
        if not self._governed or wanted == self._forgets:
            return
        self._forgets = wanted
        policies = render(gate(AdmissionOptions(forget_managed_fields=wanted)))
        self._plane.kubectl("apply", "-f", "-", input=policies)
        namespace = self._plane.create_namespace(unique("gate"), _GOVERNED)
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"

        def done() -> bool:
            made = self._plane.api().create(path, _small_pod("probe", self._size))
            return ("managedFields" in made["metadata"]) != wanted

        eventually(done, "the gate is as wanted")
        self._plane.delete_namespace(namespace)

    @contextmanager
    def ready(self, start: Starter | None, runs: int) -> Iterator[Run]:
        """For so many runs, by the stock scheduler alone or with a controller that stays; each call is one."""
        prefix = unique("bench") + "-"
        namespaces = [self._namespace(f"{prefix}{run}") for run in range(runs)]
        left = iter(namespaces)
        try:
            if start is None:
                yield lambda: self._timed(next(left))
                return
            controller = start(self._plane, prefix)
            try:
                self._settle()
                account = _Account(controller, self._log)
                yield lambda: self._with_controller(next(left), account)
            finally:
                controller.stop()
        finally:
            for namespace in namespaces:
                self._clear(namespace)

    def _namespace(self, name: str) -> str:
        self._plane.create_namespace(name, _GOVERNED if self._governed else {})
        if self._governed:
            _limit(self._plane, name, "1000000")
        return name

    def _timed(self, namespace: str) -> Figures:
        pids = [self._plane.component(name).pid for name in ("etcd", "kube-apiserver", "kube-scheduler")]
        pids.append(os.getpid())
        bodies = (_small_pod(f"pod-{number}", self._size) for number in range(self._size.pods))
        allocated = self._allocated()
        before = [processor_seconds(pid) for pid in pids]
        rate = asyncio.run(time_pods(self._plane, namespace, bodies, self._size.pods))
        spent = [processor_seconds(pid) - earlier for pid, earlier in zip(pids, before, strict=True)]
        allocated = self._allocated() - allocated
        etcd, apiserver, scheduler, load = (seconds * 1000 / self._size.pods for seconds in spent)
        return Figures(rate, etcd, apiserver, scheduler, load, allocated / 1000 / self._size.pods)

    def _allocated(self) -> float:
        """Bytes, by the API server since it runs."""
        lines = self._plane.api().get("/metrics")["text"].splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("go_memstats_alloc_bytes_total "))

    def _with_controller(self, namespace: str, account: "_Account") -> Figures:
        found = self._timed(namespace)
        cpu, pod_writes, other_writes = (spent / self._size.pods for spent in account.spent())
        return found._replace(
            controller_cpu=cpu * 1000,
            memory=resident(account.controller.pid) / 1e6,
            pod_writes=pod_writes,
            other_writes=other_writes,
        )

    def _settle(self) -> None:
        """Until the controller has said everything about pods that wait; its lease it goes on renewing."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        seen, since = -1, time.monotonic()
        while time.monotonic() - since < _QUIET_SECONDS:
            written = sum(1 for call in calls(self._log) if call.resource != "leases")
            if written != seen:
                seen, since = written, time.monotonic()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the controller still writes after {_SETTLE_SECONDS} s")
            time.sleep(0.5)

    def _clear(self, namespace: str) -> None:
        """Pods first and at once; the next run begins when the last of them is gone."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        while self._plane.api().get(f"{path}?limit=1")["items"]:
            self._plane.api().delete(path, {"gracePeriodSeconds": 0})
        if self._governed:
            self._plane.api().delete(_QUOTAS.format(namespace))
        self._plane.api().delete(f"/api/v1/namespaces/{namespace}")


class _Account:
    """What a controller spends: also between runs, when it tells what it did and others are measured."""

    def __init__(self, controller: Component, log: Path) -> None:
        self.controller = controller
        self._log = log
        self._before = self._total()

    def spent(self) -> tuple[float, ...]:
        """Since it was last asked: seconds of processor time, writes on pods, and on anything else."""
        if not self.controller.running:
            raise RuntimeError(f"{self.controller.name} ended; the end of its log:\n{self.controller.tail()}")
        before, self._before = self._before, self._total()
        return tuple(now - earlier for now, earlier in zip(self._before, before, strict=True))

    def _total(self) -> tuple[float, ...]:
        resources = [call.resource for call in calls(self._log)]
        on_pods = resources.count("pods") + resources.count("pods/status")
        return processor_seconds(self.controller.pid), on_pods, len(resources) - on_pods


@contextmanager
def arena(size: Size, governed: bool) -> Iterator[Arena]:
    """A fresh control plane of that size: etcd, API server, scheduler, nobody else."""
    limits = AS_SHIPPED if size.shipped else FAST
    with TemporaryDirectory(prefix="bursar-bench-") as folder:
        log = Path(folder) / "writes.log"
        audit = flags(Path(folder) / "audit.json", log, BURSAR, WRITES)
        with ControlPlane.start(
            controller_manager=False, kwok=False, apiserver_flags=audit, scheduler_limits=limits
        ) as plane:
            if governed:
                install(plane)
            plane.add_nodes(size.nodes, prefix="node")
            _fill_queue(plane, size, governed)
            yield Arena(plane, size, log, governed)


def _fill_queue(plane: ControlPlane, size: Size, governed: bool) -> None:
    """Gated pods that nobody lets go: on a governed plane, because there is no quota for them."""
    if not size.waiting:
        return
    namespace = plane.create_namespace("waiting", _GOVERNED if governed else {})
    if governed:
        _limit(plane, namespace, "0")
    path = f"/api/v1/namespaces/{namespace}/pods"
    bodies = (_small_pod(f"waiting-{number}", size, gated=not governed) for number in range(size.waiting))
    plane.api().in_parallel(lambda body: plane.api().create(path, body), bodies)


def _small_pod(name: str, size: Size, *, gated: bool = False) -> Object:
    body = pod(name, {"cpu": "100m", "memory": "64Mi"}, gates=[GATE] if gated else [])
    body["spec"]["automountServiceAccountToken"] = size.tokens
    return body


def _limit(plane: ControlPlane, namespace: str, cpu: str) -> None:
    quota = {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "quota"},
        "spec": {"min": {"cpu": cpu}, "max": {"cpu": cpu}},
    }
    plane.api().create(_QUOTAS.format(namespace), quota)


def passing(*wishes: str) -> Starter:
    """The controller that decides nothing."""

    def start(plane: ControlPlane, namespaces: str) -> Component:
        command = [sys.executable, "-m", "benchmarks.work.passing", plane.url, str(plane.ca_path), plane.token(BURSAR)]
        controller = plane.spawn(unique("passing"), [*command, _term(plane), namespaces, *wishes])
        controller.wait_until(lambda: READY in controller.tail())
        return controller

    return start


def bursar(*options: str) -> Starter:
    """Bursar's controller as one replica, with the lease times it has by default."""

    def start(plane: ControlPlane, _namespaces: str) -> Component:
        name = unique("bursar")
        command = [sys.executable, "-m", "bursar", "controller", "--kubeconfig", str(plane.kubeconfig_of(BURSAR))]
        command += ["--identity", name, "--host", "127.0.0.1", "--health-port", "0", "--no-webhook", *options]
        controller = plane.spawn(name, command)
        controller.wait_until(lambda: _lease(plane).get("holderIdentity") == name)
        controller.wait_until(lambda: _has_decided(controller), 120)
        return controller

    return start


def _has_decided(controller: Component) -> bool:
    """Over every pod that was there when it came."""
    try:
        metrics = metrics_text.get(metrics_text.announced_port(controller.log), "/metrics")
    except OSError:
        return False  # it is busy
    return "bursar_pods_started_total" in metrics and 'reason="undecided"' not in metrics


def _lease(plane: ControlPlane) -> dict[str, object]:
    try:
        return dict(plane.api().get(LEASE)["spec"])
    except ApiError as error:
        if error.status != 404:
            raise
        return {}


def _term(plane: ControlPlane) -> str:
    """The term that the fence asks for; the first one who needs it begins one."""
    if not announced(plane):
        announce(plane, "0")
        time.sleep(1)  # until the fence has seen it
    return announced(plane)
