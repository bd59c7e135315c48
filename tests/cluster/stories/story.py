"""What happens in one test: its own namespaces and nodes, manifests applied with kubectl, and what is seen of pods.

Everything a story makes carries its name or lives in its namespaces, and is taken away at its end: stories share one
cluster, and some quotas (elastic ones) share one pool in all of it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import yaml

from tests.cluster.controlplane import ApiError, ComponentError, ControlPlane
from tests.cluster.controlplane.api import STRATEGIC_PATCH
from tests.cluster.controlplane.identities import ADMIN, ALICE
from tests.cluster.controlplane.objects import unique
from tests.cluster.waiting import SECONDS, eventually

Manifest = dict[str, Any]
Found = TypeVar("Found")
POOL = "stories.test/pool"  # label of nodes and node selector of pods: each story has nodes of its own
GATE = "bursar.dev/quota"
ADMISSION = "bursar.dev/admission"
HOLD = "bursar.dev/hold"


class Story:
    """One test's view of the cluster."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.name = unique("story")
        self._namespaces: list[str] = []
        self._nodes: list[str] = []
        self._applied: list[Manifest] = []

    # Set-up

    def namespace(self, name: str = "team", labels: Mapping[str, str] | None = None) -> str:
        made = self.plane.create_namespace(f"{self.name}-{name}", labels)
        self._namespaces.append(made)
        return made

    def nodes(
        self, count: int, allocatable: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None
    ) -> list[str]:
        marks = {POOL: self.name, **(labels or {})}
        prefix = f"{self.name}-n{len(self._nodes)}"
        made = self.plane.add_nodes(count, allocatable, marks, prefix)
        self._nodes += made
        return made

    def lose_node(self, name: str) -> None:
        self._nodes.remove(name)
        self.plane.remove_nodes([name])

    def apply(self, *manifests: str | Manifest, user: str = ADMIN, namespace: str = "") -> str:
        """Apply objects as people do; they are deleted at the end. Text is YAML."""
        bodies = [one for given in manifests for one in _bodies(given)]
        self._applied += [{**one, "metadata": {**one["metadata"], **_inside(one, namespace)}} for one in bodies]
        where = ("-n", namespace) if namespace else ()
        return self.plane.kubectl("apply", *where, "-f", "-", input=yaml.safe_dump_all(bodies), user=user)

    def priority(self, value: int, **more: str) -> str:
        """A priority class that pods can name at once; its name. ``more``: fields of it."""
        name = f"{self.name}-{value}"
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        self.apply({**head, "value": value, **more})
        self.wait(lambda: self._takes(self.pod("probe", priorityClassName=name)), "the server knows the priority class")
        return name

    def _takes(self, pod: Manifest) -> bool:
        try:
            self.plane.api().create("/api/v1/namespaces/default/pods?dryRun=All", pod)
        except ApiError as error:
            if error.status != 403:
                raise
            return False
        return True

    def refused(self, *manifests: str | Manifest, user: str = ADMIN, namespace: str = "") -> str:
        """Apply objects that the server must refuse; what it says."""
        try:
            self.apply(*manifests, user=user, namespace=namespace)
        except ComponentError as error:
            return str(error)
        raise AssertionError("was not refused")

    def forbidden(self, user: str, namespace: str, name: str, patch: Manifest) -> str:
        """Patch a pod as a user who must not; what the server says."""
        try:
            self.plane.api(user).patch(f"/api/v1/namespaces/{namespace}/pods/{name}", patch)
        except ApiError as error:
            if error.status not in {403, 422}:
                raise
            return error.message
        raise AssertionError("was not forbidden")

    def gpus(self, node: str, count: int, tflops: int = 312, vram: str = "80Gi", pool: str = "") -> list[str]:
        """GPU objects of a node, as the vendor's agent reports them; their names."""
        labels = {"tensor-fusion.ai/gpupool": pool} if pool else {}
        names = [f"{node}-gpu-{number}" for number in range(count)]
        for number, name in enumerate(names):
            self.apply(
                {"apiVersion": "tensor-fusion.ai/v1", "kind": "GPU", "metadata": {"name": name, "labels": labels}}
            )
            status = {
                "phase": "Running",
                "gpuModel": "A100",
                "uuid": name,
                "vendor": "NVIDIA",
                "message": "",
                "available": {"tflops": tflops, "vram": vram},
                "index": number,
                "capacity": {"tflops": tflops, "vram": vram},
                "nodeSelector": {"kubernetes.io/hostname": node},
            }
            self.plane.api().patch(f"/apis/tensor-fusion.ai/v1/gpus/{name}/status", {"status": status})
        return names

    def governed(self, *namespaces: str) -> None:
        """Wait until pods of these namespaces are gated: the controller labels them for their quota."""
        for namespace in namespaces:
            self.wait(partial(self.governs, namespace), f"{namespace} is governed")

    def governs(self, namespace: str) -> bool:
        """Whether a pod that is made there now is gated."""
        try:
            made = self.plane.api().create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", self.pod("probe"))
        except ApiError as error:
            if error.status != 403:  # the label came between the gate and the guards, which say: try again
                raise
            return False
        return _gates(made)

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        where = ("-n", namespace) if namespace else ()
        self.plane.kubectl("delete", kind, name, "--wait=false", *where)

    def end(self) -> None:
        """Take everything away; pods first, so that quotas are not in use when they go."""
        api = self.plane.api()
        for namespace in self._namespaces:
            api.delete(f"/api/v1/namespaces/{namespace}/pods", {"gracePeriodSeconds": 0})
        if self._applied:
            stays = [one for one in self._applied if one["kind"] not in {"Pod", "Namespace"}]
            text = yaml.safe_dump_all(reversed(stays))
            if stays:
                self.plane.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", input=text)
        for namespace in self._namespaces:
            api.delete(f"/api/v1/namespaces/{namespace}")
        self.plane.remove_nodes(self._nodes)

    @contextmanager
    def without_scheduler(self) -> Iterator[None]:
        """For changes that the scheduler must know of when it looks at pods: it begins with lists of everything."""
        self.plane.stop_component("kube-scheduler")
        try:
            yield
        finally:
            self.plane.start_component("kube-scheduler")

    # Pods

    def pod(self, name: str, limits: Mapping[str, str] | None = None, **more: Any) -> Manifest:  # noqa: ANN401
        """A pod for the story's own nodes. ``labels``, ``annotations``; anything else is part of the spec."""
        metadata = {"name": name, "labels": more.pop("labels", {}), "annotations": more.pop("annotations", {})}
        room = dict(limits or {})
        container = {"name": "main", "image": "none", "resources": {"requests": room, "limits": room}}
        spec = {"containers": [container], "nodeSelector": {POOL: self.name}, **more}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def submit(self, namespace: str, *pods: Manifest, user: str = ALICE) -> None:
        """Create pods, as an ordinary user of the namespace."""
        for one in pods:
            self.plane.api(user).create(f"/api/v1/namespaces/{namespace}/pods", one)

    def seen(self, namespace: str, name: str) -> Manifest:
        """The pod; empty when there is none."""
        try:
            return self.plane.api().get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
            return {}

    def running(self, namespace: str, *names: str) -> list[Manifest]:
        """Wait until these pods run; as they are then."""
        try:
            return [self.wait(partial(self._running, namespace, name), f"{name} runs") for name in names]
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.plane.kubectl('describe', 'pods', '-n', namespace)}") from None

    def _running(self, namespace: str, name: str) -> Manifest:
        pod = self.seen(namespace, name)
        return pod if pod and pod["status"].get("phase") == "Running" else {}

    def waits(self, namespace: str, name: str, *reasons: str) -> str:
        """Wait until the pod waits, gated, with all of these in what `kubectl describe pod` says; that text."""
        try:
            text = self.wait(partial(self._says, namespace, name, reasons), f"{name} waits for {', '.join(reasons)}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe(namespace, name)}") from None
        assert self.is_gated(namespace, name), text
        return text

    def _says(self, namespace: str, name: str, reasons: tuple[str, ...]) -> str:
        text = self.describe(namespace, name)
        return text if all(reason in text for reason in reasons) else ""

    def is_gated(self, namespace: str, name: str) -> bool:
        return _gates(self.seen(namespace, name))

    def gone(self, namespace: str, *names: str) -> None:
        """Wait until the pods are gone."""
        for name in names:
            self.wait(partial(self._gone, namespace, name), f"{name} is gone")

    def _gone(self, namespace: str, name: str) -> bool:
        return not self.seen(namespace, name)

    def ends(self, namespace: str, name: str, phase: str) -> None:
        """The pod has done its work, or failed, as its kubelet would say."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        self.plane.api().patch(path, {"status": {"phase": phase}}, STRATEGIC_PATCH)

    def holder(self, namespace: str) -> Manifest:
        """A pod that waits for victims to leave, if there is one."""
        pods = self.plane.api().get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        found = [pod for pod in pods if HOLD in pod["metadata"].get("annotations", {})]
        return found[0] if found else {}

    def leaving(self, namespace: str) -> list[str]:
        """The uids of pods that were told to leave and have not gone."""
        pods = self.plane.api().get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return [pod["metadata"]["uid"] for pod in pods if pod["metadata"].get("deletionTimestamp")]

    def remove_leaving(self, namespace: str) -> None:
        """Those who take their time to leave are gone now."""
        api = self.plane.api()
        for pod in api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]:
            if pod["metadata"].get("deletionTimestamp"):
                name = pod["metadata"]["name"]
                api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0})

    def told(self, namespace: str, name: str, reason: str) -> list[str]:
        """Wait for such events; see ``events``."""
        return self.wait(lambda: self.events(namespace, name, reason), f"{name} is told {reason}")

    def events(self, namespace: str, name: str, reason: str) -> list[str]:
        """What events with that reason say about an object of the namespace, which may be gone by now."""
        chosen = f"regarding.name={name},reason={reason}"
        found = self.plane.api().get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events?fieldSelector={chosen}")
        return [event["note"] for event in found["items"]]

    def describe(self, namespace: str, name: str, kind: str = "pod") -> str:
        return self.plane.kubectl("describe", kind, name, "-n", namespace)

    def node_of(self, namespace: str, name: str) -> str:
        return str(self.seen(namespace, name)["spec"].get("nodeName", ""))

    def record(self, namespace: str, name: str) -> Manifest:
        """The admission record of a pod that was let go."""
        return dict(json.loads(self.seen(namespace, name)["metadata"]["annotations"][ADMISSION]))

    def admitted(self, namespace: str, name: str) -> Manifest:
        """The admission record, once the pod was let go."""
        return {} if self.is_gated(namespace, name) else self.record(namespace, name)

    def owned(self, namespace: str) -> str:
        """The name of the one pod that a controller made there and that is not about to leave."""
        pods = self.plane.api().get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        found = [pod["metadata"] for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        names = [meta["name"] for meta in found if meta.get("ownerReferences")]
        return names[0] if len(names) == 1 else ""

    # Anything else

    def get(self, kind: str, name: str, namespace: str = "") -> Manifest:
        where = ("-n", namespace) if namespace else ()
        return dict(json.loads(self.plane.kubectl("get", kind, name, *where, "-o", "json")))

    def status(self, kind: str, name: str, namespace: str, expected: Manifest) -> None:
        """Wait until the status of an object has all of this."""

        def right() -> bool:
            return _within(expected, self.get(kind, name, namespace).get("status", {}))

        self.wait(right, f"{kind} {name} has {expected}")

    def wait(self, look: Callable[[], Found], what: str, seconds: float = SECONDS) -> Found:
        return eventually(look, what, seconds)


def required_terms(pod: Manifest) -> list[Manifest]:
    """The terms of a pod's required node affinity."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", []))


def pinned_to(pod: Manifest) -> str:
    """The node that every required term names; "" when not all of them name the same one."""
    found = set()
    for term in required_terms(pod):
        fields = [one for one in term.get("matchFields", ()) if one["key"] == "metadata.name"]
        found.add(fields[0]["values"][0] if fields else "")
    return found.pop() if len(found) == 1 else ""


def _gates(pod: Manifest) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates", ()))


def _bodies(given: str | Manifest) -> list[Manifest]:
    return [one for one in yaml.safe_load_all(given) if one] if isinstance(given, str) else [given]


def _inside(body: Manifest, namespace: str) -> dict[str, str]:
    return {"namespace": namespace} if namespace and "namespace" not in body["metadata"] else {}


def _within(expected: Any, found: Any) -> bool:  # noqa: ANN401 JSON
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(_within(value, found.get(name)) for name, value in expected.items())
    return bool(expected == found)
