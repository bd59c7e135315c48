"""Objects of dynamic resource allocation, and pods that claim devices."""

from __future__ import annotations

from typing import Any

from tests.builders import Manifest, node, pod

DRIVER = "gpu.nvidia.com"
API = "resource.k8s.io/v1"
GPU = "nvidia.com/gpu"


def device_class(name: str = DRIVER, *expressions: str, extended: str = "") -> Manifest:
    chosen = expressions or (f"device.driver == '{DRIVER}'",)
    spec: dict[str, Any] = {"selectors": [{"cel": {"expression": one}} for one in chosen]}
    if extended:
        spec["extendedResourceName"] = extended
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def device(name: str, memory: str = "80Gi", **attributes: object) -> dict[str, Any]:
    given = {"type": "gpu", "productName": "NVIDIA H100 80GB HBM3", **attributes}
    found = {key: {"int" if isinstance(value, int) else "string": value} for key, value in given.items()}
    return {"name": name, "attributes": found, "capacity": {"memory": {"value": memory}}}


def resource_slice(
    host: str, *devices: dict[str, Any], driver: str = DRIVER, generation: int = 1, name: str = ""
) -> Manifest:
    spec = {
        "driver": driver,
        "nodeName": host,
        "pool": {"name": host, "generation": generation, "resourceSliceCount": 1},
        "devices": list(devices),
    }
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": name or f"{host}-{driver}"}, "spec": spec}


def gpus(host: str, count: int, memory: str = "80Gi", **attributes: object) -> Manifest:
    return resource_slice(host, *(device(f"gpu-{i}", memory, **attributes) for i in range(count)))


def exactly(count: int = 1, of: str = DRIVER, *expressions: str, name: str = "gpu", **fields: object) -> dict[str, Any]:
    asked: dict[str, Any] = {"deviceClassName": of, **fields}
    if count != 1:
        asked["count"] = count
    if expressions:
        asked["selectors"] = [{"cel": {"expression": one}} for one in expressions]
    return {"name": name, "exactly": asked}


def first_of(*alternatives: dict[str, Any], name: str = "gpu") -> dict[str, Any]:
    found = [{"name": f"choice-{i}", **one["exactly"]} for i, one in enumerate(alternatives)]
    return {"name": name, "firstAvailable": found}


def claim(name: str, *requests: dict[str, Any], allocated: list[dict[str, Any]] | None = None) -> Manifest:
    made: Manifest = {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": list(requests)}},
    }
    if allocated is not None:
        made["status"] = {"allocation": {"devices": {"results": allocated}}}
    return made


def template(name: str, *requests: dict[str, Any]) -> Manifest:
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": list(requests)}}},
    }


def generated(
    name: str, for_pod: str, *requests: dict[str, Any], allocated: list[dict[str, Any]] | None = None
) -> Manifest:
    made = claim(name, *requests, allocated=allocated)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": for_pod, "controller": True}
    marks = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    return made | {"metadata": made["metadata"] | {"annotations": marks, "ownerReferences": [owner]}}


def result(device_name: str, request: str = "gpu", host: str = "n1", **fields: object) -> dict[str, Any]:
    return {"request": request, "driver": DRIVER, "pool": host, "device": device_name, **fields}


def user(name: str, named: str = "", of_template: str = "", **fields: Any) -> Manifest:  # noqa: ANN401 fields of a pod
    """A pod with one claim, which is called ``gpu`` in it."""
    made = pod(name, requests={"cpu": 1}, **fields)
    one = {"resourceClaimName": named} if named else {"resourceClaimTemplateName": of_template}
    made["spec"]["resourceClaims"] = [{"name": "gpu", **one}]
    return made


def elastic_quota(**most: object) -> Manifest:
    return {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "quota", "namespace": "default"},
        "spec": {"min": most, "max": most},
    }


def configuration(**section: object) -> Manifest:
    return {
        "apiVersion": "bursar.dev/v1alpha1",
        "kind": "Configuration",
        "metadata": {"name": "default"},
        "spec": {"devices": section},
    }


def world(*slices: Manifest, gpus_of_quota: int = 4) -> list[Manifest]:
    found = slices or (gpus("n1", 8),)
    return [node("n1", {"cpu": 64}), device_class(), *found, elastic_quota(**{GPU: gpus_of_quota})]
