"""What people do to the pods of one namespace, as the user they are."""

import json
from collections.abc import Callable
from typing import Any

from bursar.kube.admission.predicate import GATE, TERM_ANNOTATION
from tests.cluster.controlplane import ApiError, ControlPlane
from tests.cluster.controlplane.api import JSON_PATCH, MERGE_PATCH, Object
from tests.cluster.controlplane.identities import ADMIN, ALICE
from tests.cluster.controlplane.objects import pod

NODE = "system:node:one"


def apply(plane: ControlPlane, body: Object) -> None:
    plane.kubectl("apply", "-f", "-", input=json.dumps(body))


class Acting:
    """Calls about pods; ``ApiError`` when they are refused."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self.pods = f"/api/v1/namespaces/{namespace}/pods"

    def get(self, name: str) -> Object:
        return self.plane.api().get(f"{self.pods}/{name}")

    def create_pod(
        self,
        name: str,
        *,
        user: str = ALICE,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        gates: tuple[str, ...] = (),
        owner: Object | None = None,
        dry_run: bool = False,
        **spec: Any,  # noqa: ANN401 any field
    ) -> Object:
        body = pod(name, {"cpu": "1"}, labels=labels, annotations=annotations, gates=gates)
        body["spec"] |= spec
        if owner is not None:
            body["metadata"]["ownerReferences"] = [owner]
        return self.plane.api(user).create(self.pods + ("?dryRun=All" if dry_run else ""), body)

    def merge(self, user: str, name: str, body: Object, part: str = "") -> Object:
        return self.plane.api(user).patch(f"{self.pods}/{name}{part}", body, MERGE_PATCH)

    def open_gate(self, user: str, name: str, term: str = "1", *, dry_run: bool = False, **metadata: Any) -> Object:  # noqa: ANN401
        """Take the gate off, keeping any other."""
        gates = self.gates(self.get(name))
        patch: list[Object] = [{"op": "remove", "path": f"/spec/schedulingGates/{gates.index(GATE)}"}]
        marks = {**({"annotations": {TERM_ANNOTATION: term}} if term else {}), **metadata}
        for part, values in marks.items():
            patch.append({"op": "add", "path": f"/metadata/{part}", "value": values})
        query = "?dryRun=All" if dry_run else ""
        return self.plane.api(user).patch(f"{self.pods}/{name}{query}", patch, JSON_PATCH)

    def bind(
        self,
        user: str,
        name: str,
        node: str,
        annotations: dict[str, str] | None = None,
        *,
        legacy: bool = False,
        dry_run: bool = False,
    ) -> Object:
        body: Object = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": self.namespace, "annotations": annotations or {}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{self.namespace}/bindings" if legacy else f"{self.pods}/{name}/binding"
        return self.plane.api(user).create(path + ("?dryRun=All" if dry_run else ""), body)

    def resize(self, user: str, name: str, cpu: str) -> Object:
        room = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
        return self.resize_all(user, name, {"containers": [{"name": "main", "resources": room}]})

    def resize_all(self, user: str, name: str, spec: Object) -> Object:
        body = {"spec": spec}
        return self.plane.api(user).request(
            "PATCH", f"{self.pods}/{name}/resize", body, "application/strategic-merge-patch+json"
        )

    @staticmethod
    def gates(body: Object) -> list[str]:
        return [gate["name"] for gate in body["spec"].get("schedulingGates") or ()]

    @staticmethod
    def allowed(user: str, act: Callable[..., Object], *arguments: Any, **options: Any) -> bool:  # noqa: ANN401
        """Whether a dry run of it is let through."""
        try:
            act(user, *arguments, dry_run=True, **options)
        except ApiError as error:
            if error.status not in {403, 422}:
                raise
            return False
        return True


__all__ = ["ADMIN", "NODE", "Acting", "apply"]
