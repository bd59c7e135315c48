"""Bursar on a test's control plane: definitions, admission policies, roles; and replicas of its controller."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from bursar.kube.rbac import manifests
from bursar.policies.plugin import default_registry
from tests.cluster import scraping
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import ApiError
from tests.cluster.controlplane.identities import BURSAR
from tests.cluster.controlplane.processes import Component
from tests.cluster.waiting import eventually

ROOT = Path(__file__).resolve().parent.parent.parent
NAMESPACE = "bursar-system"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/bursar-controller"
POLICIES = ("gate.yaml", "guards.yaml", "fence.yaml")
SKEWED = ROOT / "tests" / "cluster" / "robustness" / "skewed.py"
TIMES = ("--lease-duration", "3", "--renew-deadline", "2", "--retry-period", "0.5")


def install(plane: ControlPlane, policies: tuple[str, ...] = POLICIES) -> None:
    """Everything but the controller itself, as the chart does it; returns when the gate is in force."""
    if f"namespace/{NAMESPACE}" not in plane.kubectl("get", "namespaces", "-o", "name"):
        plane.create_namespace(NAMESPACE)
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "deploy" / "crds"))
    files = [part for name in policies for part in ("-f", str(ROOT / "deploy" / "admission" / name))]
    plane.kubectl("apply", "--server-side", "--force-conflicts", *files)
    roles = yaml.safe_dump_all(manifests(default_registry(), NAMESPACE))
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=roles)
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    _wait_for_gate(plane)


def _wait_for_gate(plane: ControlPlane) -> None:
    namespace = plane.create_namespace(labels={"bursar.dev/quota": "enforced"})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }

    def gated() -> bool:
        try:
            made = plane.api().create(f"{pods}?dryRun=All", body)
        except ApiError:
            return False  # the guard is in force, and the gate not yet
        return bool(made["spec"].get("schedulingGates"))

    eventually(gated, "the gate is in force")
    plane.delete_namespace(namespace)


class Replica:
    """One process of the controller. ``skew``: by how many seconds its wall clock is ahead."""

    def __init__(self, plane: ControlPlane, name: str, flags: tuple[str, ...], skew: int = 0) -> None:
        self.name = name
        program = [str(SKEWED), str(skew)] if skew else ["-m", "bursar"]
        command = [sys.executable, *program, "controller", "--kubeconfig", str(plane.kubeconfig_of(BURSAR))]
        command += ["--identity", name, "--host", "127.0.0.1", "--health-port", "0", "-v", *flags]
        self.process = Component(name, command, plane.folder / "logs" / f"{name}.log", plane._guard)
        self.process.start()

    def metrics(self) -> dict[str, float]:
        return scraping.metrics(scraping.announced_port(self.process.log))


class Replicas:
    """The replicas on one control plane; each process has a name of its own, never used again."""

    def __init__(self, plane: ControlPlane, flags: tuple[str, ...] = ("--no-webhook", *TIMES)) -> None:
        self._plane = plane
        self._flags = flags
        self._made = 0
        self._prefix = f"replica-{time.time_ns() % 1_000_000_000}"
        self.running: dict[str, Replica] = {}

    def start(self, skew: int = 0) -> Replica:
        self._made += 1
        replica = Replica(self._plane, f"{self._prefix}-{self._made}", self._flags, skew)
        self.running[replica.name] = replica
        return replica

    def lease(self) -> tuple[str, int]:
        """(holder, term); ("", -1) when there is no lease."""
        try:
            spec = self._plane.api().get(LEASE)["spec"]
        except ApiError as error:
            if error.status == 404:
                return "", -1
            raise
        return spec.get("holderIdentity") or "", spec.get("leaseTransitions") or 0

    def leader(self, after: int = -1, seconds: float = 30.0) -> Replica:
        """The replica that leads, in a term after that one."""

        def found() -> Replica | None:
            holder, term = self.lease()
            return self.running.get(holder) if term > after else None

        replica = eventually(found, f"a leader of a term after {after}", seconds)
        assert replica is not None
        return replica

    def remove(self, replica: Replica) -> None:
        self.running.pop(replica.name, None)

    def stop(self) -> None:
        for replica in list(self.running.values()):
            replica.process.stop()
            self.remove(replica)

    def logs(self) -> str:
        return "\n".join(f"== {one.name}\n{one.process.tail(60)}" for one in self.running.values())


@contextmanager
def replicas(plane: ControlPlane, count: int = 1, *flags: str) -> Iterator[Replicas]:
    """So many replicas of the controller, one of them leading."""
    found = Replicas(plane, ("--no-webhook", *TIMES, *flags))
    try:
        before = found.lease()[1]
        for _ in range(count):
            found.start()
        found.leader(before)
        yield found
    except BaseException:
        print(found.logs())  # noqa: T201 for whoever reads the failure
        raise
    finally:
        found.stop()
