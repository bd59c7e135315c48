"""Bursar on a control plane as its users install it: the files of deploy/, unchanged but for the webhook's port.

The API server calls the webhook by its service, and so by the certificate that Bursar makes; the service names this
machine, where the controller runs.
"""

import json
import time
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.controlplane import ApiError, ControlPlane
from tests.cluster.controlplane.identities import ALICE
from tests.cluster.controlplane.objects import pod
from tests.cluster.waiting import eventually

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
SYSTEM = "bursar-system"
GATE = "bursar.dev/quota"
POLICIES = ("gate.yaml", "guards.yaml")
EVERYWHERE = "crossquota"  # the folder of those that govern all namespaces

Manifest = dict[str, Any]


def install(plane: ControlPlane, webhook_port: int) -> None:
    """Everything but the controller itself."""
    plane.create_namespace(SYSTEM)
    plane.kubectl("apply", "--server-side", "-f", str(DEPLOY / "crds"))
    plane.kubectl("apply", "--server-side", "-f", str(DEPLOY / "rbac.yaml"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    plane.kubectl("apply", "-f", "-", input=json.dumps(_service()))
    hooks = [_at_port(one, webhook_port) for one in documents(DEPLOY / "admission" / "quota-webhooks.yaml")]
    plane.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(hooks))
    govern(plane)
    plane.kubectl("apply", "--server-side", "-f", str(DEPLOY / "admission" / "fence.yaml"))


def govern(plane: ControlPlane, *, everywhere: bool = False) -> None:
    """Put the gate and the guards in force: those of quotas, or those that govern all namespaces."""
    chosen, others = DEPLOY / "admission", DEPLOY / "admission" / EVERYWHERE
    if everywhere:
        chosen, others = others, chosen
    plane.kubectl("apply", "--server-side", "--force-conflicts", *_files(chosen))
    stay = {(one["kind"], one["metadata"]["name"]) for name in POLICIES for one in documents(chosen / name)}
    gone = [one for name in POLICIES for one in documents(others / name)]
    gone = [one for one in gone if (one["kind"], one["metadata"]["name"]) not in stay]
    plane.kubectl("delete", "--ignore-not-found", "-f", "-", input=yaml.safe_dump_all(gone))
    namespace = plane.create_namespace(labels={} if everywhere else {"bursar.dev/quota": "enforced"})
    eventually(lambda: _gates(plane, namespace), "the gate is in force")
    plane.delete_namespace(namespace)


def _files(folder: Path) -> list[str]:
    return [argument for name in POLICIES for argument in ("-f", str(folder / name))]


def _gates(plane: ControlPlane, namespace: str) -> bool:
    try:
        made = plane.api(ALICE).create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod("probe"))
    except ApiError as error:
        if error.status != 403:  # the guards are quicker than the gate
            raise
        return False
    return any(gate["name"] == GATE for gate in made["spec"].get("schedulingGates", ()))


def documents(file: Path) -> list[Manifest]:
    return [one for one in yaml.safe_load_all(file.read_text()) if one]


def _service() -> Manifest:
    spec = {"type": "ExternalName", "externalName": "localhost"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "bursar-webhook", "namespace": SYSTEM},
        "spec": spec,
    }


def _at_port(configuration: Manifest, port: int) -> Manifest:
    for hook in configuration["webhooks"]:
        hook["clientConfig"]["service"]["port"] = port
    return configuration


def settle(seconds: float) -> None:
    """For what must not happen: time in which it would have."""
    time.sleep(seconds)
