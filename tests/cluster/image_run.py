"""The controller, started from its image as a process of this machine, against a control plane."""

import shutil
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bursar.kube.admission.predicate import GATE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.identities import BURSAR
from tests.cluster.controlplane.objects import pod
from tests.cluster.installation import NAMESPACE, install
from tests.cluster.waiting import eventually

QUOTAS = "/apis/n8s.nebuly.ai/v1alpha1/namespaces/{}/elasticquotas"


def admits(plane: ControlPlane, run: Sequence[str], container: str, seconds: float) -> float:
    """Seconds from its start until the controller admitted a pod. ``run``: what runs a command in the container."""
    install(plane)
    namespace = plane.create_namespace(labels={"bursar.dev/quota": "enforced"})
    plane.add_nodes(1, {"nvidia.com/gpu": "8"})
    spec = {"min": {"nvidia.com/gpu": 1}}
    plane.api().create(QUOTAS.format(namespace), {"metadata": {"name": "quota"}, "spec": spec})
    made = plane.api().create(f"/api/v1/namespaces/{namespace}/pods", pod("one", {"nvidia.com/gpu": "1"}))
    assert _gates(made), "the pod waits at the gate"
    config = _readable(plane)
    volume = f"{config.parent}:{config.parent}:ro"
    flags = ["--kubeconfig", str(config), "--namespace", NAMESPACE, "--health-port", "0", "--no-webhook", "-v"]
    began = time.monotonic()
    process = plane.spawn("image", [*run, "-v", volume, container, "--", "bursar", "controller", *flags])
    try:
        eventually(partial(_admitted, plane, namespace), "the pod is admitted", seconds)
    except AssertionError:
        print(process.tail(60))  # noqa: T201 for whoever reads the failure
        raise
    finally:
        process.stop()
    return time.monotonic() - began


def _readable(plane: ControlPlane) -> Path:
    """The account's kubeconfig in a folder that another user may read."""
    folder = plane.folder / "image"
    folder.mkdir()
    for path in (plane.folder, folder):
        path.chmod(0o755)
    config = folder / "kubeconfig"
    shutil.copy(plane.kubeconfig_of(BURSAR), config)
    config.chmod(0o644)
    return config


def _gates(made: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    return any(gate["name"] == GATE for gate in made["spec"].get("schedulingGates", ()))


def _admitted(plane: ControlPlane, namespace: str) -> bool:
    return not _gates(plane.api().get(f"/api/v1/namespaces/{namespace}/pods/one"))
