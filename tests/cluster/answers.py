"""The answers API on a test's control plane: certificates of the API server's proxy, a replica that answers."""

import json
import sys
from pathlib import Path

import yaml

from bursar.kube.admission.predicate import ANSWERS_API, ANSWERS_SERVICE
from tests.cluster import metrics_text
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import ApiError
from tests.cluster.controlplane.identities import User
from tests.cluster.controlplane.processes import Component
from tests.cluster.installation import DEPLOY, NAMESPACE, documents
from tests.cluster.waiting import SECONDS, eventually
from tests.kube.client.certificates import authority, issued_by

ANSWERS_USER = f"system:serviceaccount:{NAMESPACE}:{ANSWERS_SERVICE}"
PROXY = "front-proxy-client"
SERVICE_ACCOUNT = User(ANSWERS_USER, ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"))
ROOT = "/apis/answers.bursar.dev/v1alpha1"


def proxy_flags(folder: Path) -> list[str]:
    """Flags of an API server with an aggregation layer, and its files in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    root = authority("front-proxy-ca")
    client = issued_by(root, PROXY)
    files = {"proxy-ca.crt": root.pem, "proxy.crt": client.pem, "proxy.key": client.key}
    for name, text in files.items():
        (folder / name).write_text(text)
    return [
        f"--requestheader-client-ca-file={folder / 'proxy-ca.crt'}",
        f"--requestheader-allowed-names={PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={folder / 'proxy.crt'}",
        f"--proxy-client-key-file={folder / 'proxy.key'}",
    ]


def register(plane: ControlPlane, port: int) -> None:
    """As deploy/answers.yaml does, but that its service is a port of this machine."""
    spec = {"type": "ExternalName", "externalName": "localhost"}
    metadata = {"name": ANSWERS_SERVICE, "namespace": NAMESPACE}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    plane.kubectl("apply", "-f", "-", input=json.dumps(service))
    (registration,) = documents(DEPLOY / "answers.yaml")
    registration["spec"]["service"]["port"] = port
    plane.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump(registration))


class AnswersReplica:
    """One process that answers."""

    def __init__(self, plane: ControlPlane, port: int) -> None:
        self.port = port
        command = [sys.executable, "-m", "bursar", "answers", "--kubeconfig", str(plane.kubeconfig_of(ANSWERS_USER))]
        command += ["--host", "127.0.0.1", "--port", str(port), "--health-port", "0", "-v"]
        self.process = Component("answers", command, plane.folder / "logs" / "answers.log", plane._guard)
        self.process.start()

    def metrics(self) -> dict[str, float]:
        return metrics_text.metrics(metrics_text.announced_port(self.process.log))


def await_answers(plane: ControlPlane) -> None:
    """Until the API server finds the API available and a question is answered."""
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{ANSWERS_API}"

    def answered() -> bool:
        conditions = plane.api().get(path).get("status", {}).get("conditions", [])
        if not any(one["type"] == "Available" and one["status"] == "True" for one in conditions):
            return False
        try:
            return "items" in plane.api().get(f"{ROOT}/queue")
        except ApiError:
            return False

    eventually(answered, "the answers API is available", 2 * SECONDS)
