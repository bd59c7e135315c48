"""Builders for manifests: short to write in a test, and valid unless the test says otherwise.

Each gives the plain manifest, as YAML would. ``read`` and ``read_pod`` make typed objects of them.
"""

from typing import Any, cast

from bursar.objects.core import Pod
from bursar.objects.kinds import CORE_KINDS, KindSet, TypedObject
from bursar.objects.manifests import Document

Manifest = dict[str, Any]


def _object(api_version: str, kind: str, name: str, namespace: str = "", **metadata: object) -> Manifest:
    named: Manifest = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": named | metadata}


def container(
    requests: Manifest | None = None, limits: Manifest | None = None, name: str = "main", **fields: object
) -> Manifest:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {"name": name, "resources": resources, **fields}


def pod(
    name: str = "p",
    namespace: str = "default",
    requests: Manifest | None = None,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: object,
) -> Manifest:
    """A pod of one container with those requests; further keywords go into its spec (``priority=5``)."""
    built = _object("v1", "Pod", name, namespace, labels=labels or {}, annotations=annotations or {})
    return built | {"spec": {"containers": [container(requests)], **spec}}


def node(
    name: str = "n1",
    allocatable: Manifest | None = None,
    *,
    labels: dict[str, str] | None = None,
    taints: list[Manifest] | None = None,
    unschedulable: bool = False,
) -> Manifest:
    spec = {"taints": taints or [], "unschedulable": unschedulable}
    return _object("v1", "Node", name, labels=labels or {}) | {
        "spec": spec,
        "status": {"allocatable": allocatable or {}},
    }


def namespace_named(name: str, labels: dict[str, str] | None = None) -> Manifest:
    return _object("v1", "Namespace", name, labels=labels or {})


def priority_class(name: str, value: int, **fields: object) -> Manifest:
    return _object("scheduling.k8s.io/v1", "PriorityClass", name) | {"value": value} | fields


def disruption_budget(name: str, namespace: str, match_labels: dict[str, str], **bound: object) -> Manifest:
    """``minAvailable=1`` or ``maxUnavailable="50%"``."""
    spec = {"selector": {"matchLabels": match_labels}, **bound}
    return _object("policy/v1", "PodDisruptionBudget", name, namespace) | {"spec": spec}


def read(manifest: Manifest, kinds: KindSet | None = None) -> TypedObject:
    return (kinds or KindSet(CORE_KINDS)).read(Document("", 0, manifest))


def read_pod(manifest: Manifest) -> Pod:
    return cast("Pod", read(manifest).typed)
