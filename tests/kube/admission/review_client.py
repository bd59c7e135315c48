"""Talks to the webhook's application as the API server does, without a network."""

import asyncio
import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from bursar.kube.admission.predicate import AdmissionOptions
from bursar.kube.admission.review import Fetch
from bursar.kube.admission.webhook import Webhook
from bursar.kube.http_server import Message
from bursar.policies.plugin import default_registry

Body = dict[str, Any]


class Objects:
    """A view over a list of manifests. ``late`` ones are only known after it has caught up."""

    def __init__(self, *bodies: Body, late: Iterable[Body] = (), ready: bool = True) -> None:
        self.bodies = list(bodies)
        self.late = list(late)
        self.is_ready = ready
        self.caught_up = 0

    def ready(self) -> bool:
        return self.is_ready

    async def catch_up(self) -> None:
        self.caught_up += 1
        self.bodies += self.late
        self.late = []

    def get(self, kind: str, key: str) -> Mapping[str, Any] | None:
        return next((body for body in self.list(kind) if key_of(body) == key), None)

    def list(self, kind: str, namespace: str | None = None) -> Iterable[Mapping[str, Any]]:
        found = [body for body in self.bodies if kind_of(body) == kind]
        return [body for body in found if namespace in (None, body["metadata"].get("namespace"))]


def kind_of(body: Body) -> str:
    group = str(body["apiVersion"]).rpartition("/")[0]
    return f"{body['kind']}.{group}" if group else str(body["kind"])


def key_of(body: Mapping[str, Any]) -> str:
    metadata = body["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def webhook(
    view: Objects | None = None, options: AdmissionOptions | None = None, fetch: Fetch | None = None
) -> Webhook:
    return Webhook(options or AdmissionOptions(), default_registry(), view or Objects(), fetch)


def review(body: Body | None, old: Body | None = None, operation: str = "CREATE") -> bytes:
    request = {"uid": "u-1", "operation": operation, "object": body, "oldObject": old, "dryRun": True}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def post(
    app: Webhook,
    path: str,
    body: bytes,
    *,
    method: str = "POST",
    content_type: str = "application/json",
    chunk: int = 0,
) -> tuple[int, bytes]:
    """Status and body of the answer."""
    scope: Message = {
        "type": "http",
        "path": path,
        "method": method,
        "headers": [(b"content-type", content_type.encode())],
    }
    size = chunk or len(body) or 1
    parts = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    waiting = [
        {"type": "http.request", "body": part, "more_body": number < len(parts)}
        for number, part in enumerate(parts, start=1)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return int(sent[0]["status"]), bytes(sent[1]["body"])


def ask(app: Webhook, path: str, body: Body | None, old: Body | None = None, operation: str = "CREATE") -> Body:
    """The response of a review."""
    status, answer = post(app, path, review(body, old, operation))
    assert status == 200, answer
    whole = json.loads(answer)
    assert (whole["apiVersion"], whole["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = dict(whole["response"])
    assert response["uid"] == "u-1"
    if "patch" in response:
        assert response["patchType"] == "JSONPatch"
        response["patch"] = json.loads(base64.b64decode(response["patch"]))
    return response
