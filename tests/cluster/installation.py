"""Bursar on a test's control plane as its users install it, and replicas of its controller.

The files of deploy/ are unchanged but for the port of the webhook. The API server calls it by its service, and so by
the certificate that Bursar makes; the service names this machine, where the controller runs.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from bursar.kube.admission.predicate import GATE, SERVICE, TERM_ANNOTATION
from tests.cluster import metrics_text
from tests.cluster.controlplane import ComponentError, ControlPlane
from tests.cluster.controlplane.api import ApiError
from tests.cluster.controlplane.identities import BURSAR
from tests.cluster.controlplane.objects import may, pod
from tests.cluster.controlplane.processes import Component
from tests.cluster.waiting import SECONDS, eventually

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
CRDS = DEPLOY / "crds"
ADMISSION = DEPLOY / "admission"
EVERYWHERE = ADMISSION / "crossquota"  # the policies that govern all namespaces
POLICIES = ("gate.yaml", "guards.yaml")
NAMESPACE = "bursar-system"
OWN = f"/api/v1/namespaces/{NAMESPACE}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/bursar-controller"
SKEWED = ROOT / "tests" / "cluster" / "robustness" / "skewed_clock.py"
# A leader that nobody disturbs keeps its lease, however slow the machine, and gives it back at its end. Where leaders
# are killed the next one has to wait for the end of it: there it is as brief as the test can bear.
STEADY = ("--lease-duration", "20", "--renew-deadline", "15", "--retry-period", "1")
BRIEF = ("--lease-duration", "8", "--renew-deadline", "7", "--retry-period", "0.5")
BRIEFEST = ("--lease-duration", "5", "--renew-deadline", "4", "--retry-period", "0.5")

Manifest = dict[str, Any]


def install(plane: ControlPlane, webhook_port: int | None = None) -> None:
    """Everything but the controller itself; without a port also without the webhook. The gate is then in force."""
    if f"namespace/{NAMESPACE}" not in plane.kubectl("get", "namespaces", "-o", "name"):
        plane.create_namespace(NAMESPACE)
    _apply(plane, CRDS, DEPLOY / "rbac.yaml")
    await_definitions(plane)
    await_roles(plane)
    if webhook_port is not None:
        _install_webhook(plane, webhook_port)
    govern(plane)


def take_away(plane: ControlPlane) -> None:
    """All admission policies, as an uninstallation does. No gate and no guard is in force then."""
    files = [argument for name in POLICIES for argument in ("-f", str(ADMISSION / name))]
    plane.kubectl("delete", *files)
    namespace = plane.create_namespace(labels={"bursar.dev/quota": "enforced"})
    eventually(lambda: _gates(plane, namespace) is False, "no gate is in force")
    plane.delete_namespace(namespace)


def announce(plane: ControlPlane, term: str | None) -> None:
    """Let through the patches of this term, as its leader would; None: nobody's."""
    plane.api().patch(OWN, {"metadata": {"annotations": {TERM_ANNOTATION: term}}})


def announced(plane: ControlPlane) -> str:
    """The term whose patches get through; "": nobody's."""
    found: str = plane.api().get(OWN)["metadata"].get("annotations", {}).get(TERM_ANNOTATION, "")
    return found


def install_original(plane: ControlPlane, name: str) -> None:
    """The definition of a kind as one finds it where an original was installed: without schema and columns."""
    (theirs,) = documents(CRDS / f"{name}.yaml")
    version = theirs["spec"]["versions"][0]
    version["schema"]["openAPIV3Schema"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    del version["additionalPrinterColumns"]
    plane.kubectl("create", "-f", "-", input=yaml.safe_dump(theirs))
    await_definitions(plane)


def install_tensor_fusion(plane: ControlPlane) -> None:
    """TensorFusion's own definitions of GPUs and pools in place of Bursar's: they demand more of a status."""
    plane.kubectl("replace", "-f", str(ROOT / "tests" / "cluster" / "tensor_fusion.yaml"))
    await_definitions(plane)


def await_definitions(plane: ControlPlane) -> None:
    """Until the server serves every kind that is defined, and kubectl finds it."""
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    names = [name.partition("/")[2] for name in plane.kubectl("get", "crd", "-o", "name").split()]
    eventually(lambda: _found(plane, ",".join(names)), "all kinds are found")


def _found(plane: ControlPlane, kinds: str) -> bool:
    try:
        plane.kubectl("get", kinds, "-A", "-o", "name")
    except ComponentError:
        return False
    return True


def await_roles(plane: ControlPlane) -> None:
    """Until the server knows what Bursar may do, in all namespaces and in its own."""
    eventually(lambda: may(plane.api(), BURSAR, "watch", "pods"), "the roles are known")
    lease = "leases.coordination.k8s.io=bursar-controller"
    eventually(lambda: may(plane.api(), BURSAR, "get", lease, NAMESPACE), "the role of its own namespace is known")


def govern(plane: ControlPlane, *, everywhere: bool = False) -> None:
    """Put the gate and the guards in force: those of quotas, or those that govern all namespaces."""
    chosen, others = (EVERYWHERE, ADMISSION) if everywhere else (ADMISSION, EVERYWHERE)
    _apply(plane, *(chosen / name for name in POLICIES))
    stay = {(one["kind"], one["metadata"]["name"]) for name in POLICIES for one in documents(chosen / name)}
    gone = [one for name in POLICIES for one in documents(others / name)]
    gone = [one for one in gone if (one["kind"], one["metadata"]["name"]) not in stay]
    plane.kubectl("delete", "--ignore-not-found", "-f", "-", input=yaml.safe_dump_all(gone))
    enforced, ordinary = plane.create_namespace(labels={"bursar.dev/quota": "enforced"}), plane.create_namespace()
    eventually(lambda: _gates(plane, enforced), "the gate is in force")
    eventually(lambda: _gates(plane, ordinary) is everywhere, "it is in force everywhere, or not any more")
    for namespace in (enforced, ordinary):
        plane.delete_namespace(namespace)


def documents(file: Path) -> list[Manifest]:
    return [one for one in yaml.safe_load_all(file.read_text()) if one]


def _apply(plane: ControlPlane, *files: Path) -> None:
    arguments = [argument for file in files for argument in ("-f", str(file))]
    plane.kubectl("apply", "--server-side", "--force-conflicts", *arguments)


def _gates(plane: ControlPlane, namespace: str) -> bool | None:
    """Whether pods there get the gate; None when they are refused, because guards and gate do not agree yet."""
    try:
        made = plane.api().create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod("probe"))
    except ApiError as error:
        if error.status != 403:
            raise
        return None
    return any(gate["name"] == GATE for gate in made["spec"].get("schedulingGates", ()))


def _install_webhook(plane: ControlPlane, port: int) -> None:
    spec = {"type": "ExternalName", "externalName": "localhost"}
    metadata = {"name": SERVICE, "namespace": NAMESPACE}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    plane.kubectl("apply", "-f", "-", input=json.dumps(service))
    configurations = documents(ADMISSION / "quota-webhooks.yaml")
    for configuration in configurations:
        for hook in configuration["webhooks"]:
            hook["clientConfig"]["service"]["port"] = port
    plane.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(configurations))


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
        return metrics_text.metrics(metrics_text.announced_port(self.process.log))


class Replicas:
    """The replicas on one control plane; each process has a name of its own, never used again."""

    def __init__(self, plane: ControlPlane, flags: tuple[str, ...]) -> None:
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

    def leader(self, after: int = -1) -> Replica:
        """The replica that leads, in a term after that one."""
        return self.leading(after)[0]

    def leading(self, after: int = -1) -> tuple[Replica, int]:
        """The replica that leads, in a term after that one, and the term."""

        def found() -> tuple[Replica, int] | None:
            holder, term = self.lease()
            replica = self.running.get(holder) if term > after else None
            return None if replica is None else (replica, term)

        leading = eventually(found, f"a leader of a term after {after}", 2 * SECONDS)
        assert leading is not None
        return leading

    def remove(self, replica: Replica) -> None:
        self.running.pop(replica.name, None)

    def stop(self) -> None:
        for replica in list(self.running.values()):
            replica.process.stop()
            self.remove(replica)

    def all_logs(self) -> str:
        """Of those that were killed, too."""
        files = sorted((self._plane.folder / "logs").glob(f"{self._prefix}-*.log"))
        return "\n".join(file.read_text() for file in files)

    def logs(self) -> str:
        return "\n".join(f"== {one.name}\n{one.process.tail(60)}" for one in self.running.values())


@contextmanager
def replicas(plane: ControlPlane, count: int = 1, *flags: str) -> Iterator[Replicas]:
    """So many replicas of the controller, one of them leading. Of flags that are given twice the last one counts."""
    found = Replicas(plane, ("--no-webhook", *STEADY, *flags))
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
