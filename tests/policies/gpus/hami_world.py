"""Nodes of HAMi, and pods that ask for slices of their GPUs."""

from __future__ import annotations

import json
from typing import Any

from tests.builders import Manifest, container, node, pod

GPU = "nvidia.com/gpu"
REGISTER = "hami.io/node-nvidia-register"
H200 = "NVIDIA-NVIDIA H200"  # 989 tflops
H200_MIB = 143_771
MIB = 1 << 20


def gpu(number: int = 0, memory: int = H200_MIB, **fields: object) -> dict[str, Any]:
    whole = {"id": f"GPU-{number}", "index": number, "count": 10, "devmem": memory, "devcore": 100, "type": H200}
    return {**whole, "numa": 0, "mode": "hami-core", "health": True, **fields}


def hami_node(
    name: str = "n1",
    gpus: list[dict[str, Any]] | None = None,
    *,
    register: str = "",
    labels: dict[str, str] | None = None,
) -> Manifest:
    """A node of eight GPUs, each of which HAMi divides by ten."""
    listed = [gpu(i) for i in range(8)] if gpus is None else gpus
    found = node(name, {"cpu": 64, GPU: len(listed) * 10}, labels=labels)
    found["metadata"]["annotations"] = {REGISTER: register or json.dumps(listed)}
    return found


def slices(
    name: str,
    count: int = 1,
    memory: int = 0,
    percentage: int = 0,
    cores: int = 0,
    **spec: Any,  # noqa: ANN401
) -> Manifest:
    """A pod of namespace ``team``; 0: it does not say."""
    asked = {GPU: count, f"{GPU}mem": memory, f"{GPU}mem-percentage": percentage, f"{GPU}cores": cores}
    limits = {resource: amount for resource, amount in asked.items() if amount}
    return pod(name, "team", containers=[container(limits=limits)], **spec)


def quota(**requests: str) -> Manifest:
    metadata = {"name": "quota", "namespace": "team"}
    spec = {"total": {"requests": requests}}
    return {"apiVersion": "tensor-fusion.ai/v1", "kind": "GPUResourceQuota", "metadata": metadata, "spec": spec}


def configuration(**hami: int) -> Manifest:
    metadata = {"name": "default"}
    return {
        "apiVersion": "bursar.dev/v1alpha1",
        "kind": "Configuration",
        "metadata": metadata,
        "spec": {"gpus": {"hami": hami}},
    }
