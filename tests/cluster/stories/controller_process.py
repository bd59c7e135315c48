"""The controller as a process of its own, as it runs in a cluster: `bursar controller` with a kubeconfig."""

import subprocess
import sys
from http.client import HTTPException
from pathlib import Path

from tests.cluster import metrics_text
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.guard import Guard
from tests.cluster.controlplane.identities import BURSAR
from tests.cluster.controlplane.ports import Ports
from tests.cluster.controlplane.processes import Component, ComponentError

LEASE = ("--lease-duration", "10", "--renew-deadline", "8", "--retry-period", "1")  # one story kills its holder
OFTEN = ("--pin-patience", "2", "--compare-every", "2")


class Running:
    """One replica; its log lies beside those of the control plane."""

    def __init__(self, plane: ControlPlane, ports: Ports, name: str = "bursar") -> None:
        self._plane = plane
        self.health_port = ports.take()
        self.webhook_port = ports.take()
        self.log: Path = plane.folder / "logs" / f"{name}.log"
        self.journals: Path = plane.folder / f"{name}-journals"
        self._guard = Guard(plane.folder)
        self._component: Component | None = None
        self._name = name

    def start(self, *options: str) -> None:
        """Start it and wait until it leads and its webhook answers."""
        command = [sys.executable, "-m", "bursar", "controller", "-v", "--host", "127.0.0.1", *LEASE, *OFTEN]
        command += ["--journal", str(self.journals)]
        command += ["--kubeconfig", str(self._plane.kubeconfig_of(BURSAR))]
        command += ["--health-port", str(self.health_port), "--webhook-port", str(self.webhook_port), *options]
        self._component = Component(self._name, command, self.log, self._guard)
        self._component.start()
        try:
            self._component.wait_until(self._leads)
        except ComponentError as error:
            state = f"{self._get('/readyz')}{self._get('/metrics')}" if self._component.running else ""
            raise ComponentError(f"{error}\n{state}") from None

    @property
    def component(self) -> Component:
        assert self._component is not None
        return self._component

    def stop(self) -> None:
        """As Kubernetes would: a signal, and time to give the lease back."""
        if self._component is not None:
            self._component.stop()
            self._component = None

    def close(self) -> None:
        self.stop()
        self._guard.close()

    def audit(self) -> int:
        """Prove the journals of all terms; how many there are."""
        files = sorted(self.journals.glob("*.db"))
        for file in files:
            command = [sys.executable, "-m", "bursar", "audit", str(file)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{file.name}: {done.stdout}{done.stderr}"
        return len(files)

    def metrics(self) -> dict[str, float]:
        """By name and labels as they are printed."""
        return metrics_text.metrics(self.health_port)

    def _leads(self) -> bool:
        try:
            return "bursar_pods_started_total" in self.metrics() and self._get("/readyz") == "ok\n"
        except (HTTPException, OSError):
            return False

    def _get(self, path: str) -> str:
        return metrics_text.get(self.health_port, path)
