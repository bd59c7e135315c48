"""Objects that nearly every test needs: namespaces and nodes that can take pods at once, a plain pod."""

import itertools
import os
from collections.abc import Mapping, Sequence

from tests.cluster.controlplane.api import Api, ApiError, Object
from tests.cluster.controlplane.identities import ALICE

ALLOCATABLE = {"cpu": "64", "memory": "512Gi", "pods": "110"}

_numbers = itertools.count(1)


def unique(prefix: str) -> str:
    """A name that no other test of this or a parallel session has."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


def create_namespace(api: Api, name: str, labels: Mapping[str, str]) -> None:
    """With its default service account, without which pods are refused, made here instead of waiting for it."""
    api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels)}})
    try:
        api.create(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
    except ApiError as error:
        if error.status != 409:  # the controller manager was faster
            raise


def delete_namespace(api: Api, name: str) -> None:
    """Ask for it, pods first and without grace, so that nothing of it lingers on the nodes."""
    api.delete(f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})
    api.delete(f"/api/v1/namespaces/{name}")


def add_nodes(api: Api, names: Sequence[str], allocatable: Mapping[str, str], labels: Mapping[str, str]) -> None:
    """Nodes that are ready when this returns.

    The API server taints every new node as not ready until the controller manager looks at it; the taint is taken away
    here, so that nobody waits and planes without a controller manager have nodes too.
    """

    def add(name: str) -> None:
        api.create("/api/v1/nodes", node(name, allocatable, labels))
        api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})

    api.in_parallel(add, names)


def node(name: str, allocatable: Mapping[str, str], labels: Mapping[str, str]) -> Object:
    room = {**ALLOCATABLE, **allocatable}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {
            "allocatable": room,
            "capacity": room,
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod(
    name: str,
    requests: Mapping[str, str] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    gates: Sequence[str] = (),
) -> Object:
    """A pod of one container that asks for ``requests`` and has the same limits."""
    room = dict(requests or {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "spec": {
            "containers": [{"name": "main", "image": "none", "resources": {"requests": room, "limits": room}}],
            "schedulingGates": [{"name": gate} for gate in gates],
        },
    }


def grant_edit(api: Api, user: str = ALICE) -> None:
    """The role ``edit`` in all namespaces, as an ordinary user of a team would have it in one."""
    binding = {
        "metadata": {"name": f"{user}-edits"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)


def may(api: Api, user: str, verb: str, resource: str, namespace: str = "") -> bool:
    """Whether the API server would let the user do it; a resource is written ``plural.group/subresource=name``, and no
    namespace is all of them.
    """
    whole, _, name = resource.partition("=")
    named, _, subresource = whole.partition("/")
    plural, _, group = named.partition(".")
    asked = {"verb": verb, "group": group, "resource": plural, "subresource": subresource, "name": name}
    review = {"spec": {"user": user, "resourceAttributes": asked | {"namespace": namespace}}}
    answer = api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
