"""A webhook of somebody else, called after all policies: it changes new pods that have its label."""

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bursar.kube.admission.certs import make, trusted
from tests.cluster.admission.users import apply
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import Object

LABEL = "latecomer"
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class _Handler(BaseHTTPRequestHandler):
    patch: list[Object]

    def do_POST(self) -> None:  # the name that the library calls
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        patch = base64.b64encode(json.dumps(self.patch).encode()).decode()
        answer = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
        body = json.dumps({**review, "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the name that the library has
        """Nothing is logged."""


@contextmanager
def latecomer(plane: ControlPlane, folder: Path, patch: list[Object]) -> Iterator[None]:
    """From here on it makes this patch."""
    certificates = make(["127.0.0.1"], datetime.now(UTC))
    pair = folder / "latecomer.pem"
    pair.write_bytes(certificates.key + certificates.certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair)
    handler = type("Handler", (_Handler,), {"patch": patch})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        apply(plane, _configuration(server.server_port, trusted(certificates)))
        try:
            yield
        finally:
            plane.api().delete(f"{_CONFIGURATIONS}/{LABEL}")
            server.shutdown()
            thread.join(10)


def _configuration(port: int, bundle: bytes) -> Object:
    client = {"url": f"https://127.0.0.1:{port}/", "caBundle": base64.b64encode(bundle).decode()}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook = {
        "name": "latecomer.example.com",
        "clientConfig": client,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "objectSelector": {"matchLabels": {LABEL: "here"}},
        "rules": [rule],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": LABEL},
        "webhooks": [hook],
    }
