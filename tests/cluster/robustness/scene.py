"""What a bad day needs: a namespace with a quota of GPUs, nodes, pods, and words for what becomes of them."""

import json
from functools import partial
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.api import ApiError
from tests.cluster.waiting import SECONDS, eventually

GPU = "nvidia.com/gpu"
GATE = "bursar.dev/quota"
Body = dict[str, Any]


class Scene:
    """A governed namespace of its own, and nodes of its own."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.namespace = plane.create_namespace(labels={"bursar.dev/quota": "enforced"})
        self._nodes: list[str] = []
        self._pool = {"pool": self.namespace}
        self._made = 0

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def nodes(self, count: int, gpus: int = 8) -> list[str]:
        made = self.plane.add_nodes(count, {GPU: str(gpus)}, self._pool)
        self._nodes += made
        return made

    def lose_node(self, name: str) -> None:
        self._nodes.remove(name)
        self.plane.remove_nodes([name])

    def quota(self, most: int, least: int | None = None) -> None:
        body = {
            "apiVersion": "n8s.nebuly.ai/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": "quota", "namespace": self.namespace},
            "spec": {"min": {GPU: most if least is None else least}, "max": {GPU: most}},
        }
        self.plane.kubectl("apply", "-f", "-", input=json.dumps(body))

    def used(self) -> Body:
        """What counts in the quota, as its status says; empty before it says anything."""
        path = f"/apis/n8s.nebuly.ai/v1alpha1/namespaces/{self.namespace}/elasticquotas/quota"
        return dict(self.plane.api().get(path).get("status", {}).get("used", {}))

    def delete_quota(self) -> None:
        self.plane.kubectl("delete", "elasticquotas.n8s.nebuly.ai", "quota", "-n", self.namespace)

    def pod(self, name: str, gpus: int = 1, *, namespace: str = "", **more: Any) -> str:  # noqa: ANN401 fields of a pod
        """Create a pod; ``labels`` and ``annotations`` are known, the rest goes into its spec."""
        where = f"/api/v1/namespaces/{namespace}/pods" if namespace else self.pods
        self.plane.api().create(where, self._body(name, gpus, **more))
        return name

    def takes(self, **more: Any) -> bool:  # noqa: ANN401 fields of a pod
        """Whether the server would take such a pod now."""
        try:
            self.plane.api().create(f"{self.pods}?dryRun=All", self._body("probe", 1, **more))
        except ApiError as error:
            if error.status != 403:
                raise
            return False
        return True

    def _body(self, name: str, gpus: int, **more: Any) -> Body:  # noqa: ANN401 fields of a pod
        resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
        metadata = {"name": name, "labels": more.pop("labels", {}), "annotations": more.pop("annotations", {})}
        spec = {
            "containers": [{"name": "c", "image": "i", "resources": resources}],
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": self._pool,
            **more,
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def get(self, name: str) -> Body | None:
        try:
            return self.plane.api().get(f"{self.pods}/{name}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def uid(self, name: str) -> str:
        pod = self.get(name)
        assert pod is not None, f"there is no pod {name}"
        return str(pod["metadata"]["uid"])

    def annotation(self, name: str, mark: str) -> str:
        pod = self.get(name)
        assert pod is not None, f"there is no pod {name}"
        return str(pod["metadata"]["annotations"][mark])

    def delete(self, name: str) -> None:
        self.plane.api().delete(f"{self.pods}/{name}")

    def gated(self, name: str) -> bool:
        pod = self.get(name)
        return pod is not None and any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())

    def leaves(self, name: str) -> bool:
        pod = self.get(name)
        return pod is None or "deletionTimestamp" in pod["metadata"]

    def runs(self, name: str) -> bool:
        pod = self.get(name)
        return pod is not None and pod["status"].get("phase") == "Running"

    def wait_running(self, *names: str, seconds: float = SECONDS) -> None:
        for name in names:
            eventually(partial(self.runs, name), f"{name} runs", seconds)

    def wait_told(self, name: str, reason: str, seconds: float = SECONDS) -> str:
        """Until people are told that about the pod; what is said."""
        return eventually(lambda: self._told(name, reason), f"{name} is told {reason}", seconds)

    def _told(self, name: str, reason: str) -> str:
        events = self.plane.api().get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")["items"]
        notes = [one["note"] for one in events if one["regarding"]["name"] == name and one["reason"].startswith(reason)]
        return notes[-1] if notes else ""

    def end(self) -> None:
        self.plane.api().delete(self.pods, {"gracePeriodSeconds": 0})
        eventually(lambda: not self.plane.api().get(self.pods)["items"], "all pods are gone")
        self.plane.kubectl("delete", "elasticquotas.n8s.nebuly.ai", "--all", "-n", self.namespace)
        self.plane.delete_namespace(self.namespace)
        self.plane.remove_nodes(self._nodes)
