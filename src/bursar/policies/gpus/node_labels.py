"""What a Node says of its GPUs: the resources of device plugins and the labels that describe them, as a ``HostBody``.

NVIDIA's GPU feature discovery describes a GPU (product, memory, count) and how its device plugin divides it:

* replicas: time-slicing and MPS offer a GPU several times, as ``nvidia.com/gpu`` or as ``nvidia.com/gpu.shared``;
* MIG with the strategy ``single``: ``nvidia.com/gpu`` are slices, and product, memory and count describe these;
* MIG with the strategy ``mixed``: each profile is a resource ``nvidia.com/mig-<profile>``.

On a node of HAMi its annotation describes the GPUs, and labels do not count.

Nothing here refuses a Node: an unreadable label is a problem that an event reports, and counts as if it were missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from bursar.objects.core import Node
from bursar.objects.gpu_models import GPU_RESOURCES, GpuResource, compute_slices, model_capacity
from bursar.objects.hami_register import GPU_RESOURCE, MIB, REGISTER, read_register, sliced
from bursar.objects.requests import Amounts, amounts_from, node_amounts
from bursar.policies.gpus.settings import EVERY, FRACTIONS_LABEL, PLUGIN_RESOURCES, HostBody, Offer

NVIDIA: Final = GPU_RESOURCES[0]
_COUNT: Final = "nvidia.com/gpu.count"
_REPLICAS: Final = "nvidia.com/gpu.replicas"
_STRATEGY: Final = "nvidia.com/mig.strategy"
_MIG: Final = "nvidia.com/mig-"
_SHARED: Final = "-SHARED"  # ends the product of a GPU that is divided into replicas
_PROFILE: Final = re.compile(r"(?:^|[-.])(\d)g\.(\d{1,4})gb(?:$|[-.+])", re.IGNORECASE)
_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,6}")
_GB: Final = 10**9


def host_body(node: Node) -> HostBody:
    """All that the gpus policy reads of a node."""
    labels = node.metadata.labels
    healthy = node_amounts(node.status)
    listed = amounts_from(node.status.capacity, "status.capacity") or healthy
    fractions, problem = _fractions(labels.get(FRACTIONS_LABEL))
    register = node.metadata.annotations.get(REGISTER, "").strip()
    if register:
        return _of_hami(register, fractions, problem, healthy, listed)
    offers = tuple(_offers(labels, healthy, listed))
    single = any(offer.part[1] > 1 for offer in offers if offer.resource in PLUGIN_RESOURCES)
    mixed = labels.get(_STRATEGY) == "mixed"
    physical = 0 if single or mixed else _number(labels.get(_COUNT))
    return HostBody(offers, fractions, physical, listed.get("memory", 0), listed.get("ephemeral-storage", 0), problem)


def _of_hami(register: str, fractions: int, problem: str, healthy: Amounts, listed: Amounts) -> HostBody:
    """A node of HAMi. With an unreadable annotation it has no GPUs: its device plugin offers slices, no whole ones."""
    gpus, unreadable = read_register(register)
    slicing = sliced(gpus)
    largest = max([(gpu.devmem, gpu.model()) for gpu in gpus], default=(0, ""))
    count, served = _of(GPU_RESOURCE, healthy, listed)
    offers = (_offer(GPU_RESOURCE, count, served, largest[1], largest[0] * MIB),) if served else ()
    if unreadable:
        problem = f"annotation {REGISTER} {unreadable}: no GPU of the node is used"
    elif fractions > 0:
        problem = f"label {FRACTIONS_LABEL} is not used: HAMi hands out the GPUs of the node"
    return HostBody(offers, -1, 0, listed.get("memory", 0), listed.get("ephemeral-storage", 0), problem, slicing)


def _fractions(text: str | None) -> tuple[int, str]:
    """(GPUs for fractions, -1 if the node does not say; what is wrong with the label)."""
    if text is None:
        return -1, ""
    if text == "all":
        return EVERY, ""
    if _WHOLE_NUMBER.fullmatch(text) is None:
        problem = f"label {FRACTIONS_LABEL}: {text!r:.40} is neither 'all' nor a number of GPUs: it is not used"
        return -1, problem
    return int(text), ""


def _number(text: str | None) -> int:
    return int(text) if text is not None and _WHOLE_NUMBER.fullmatch(text) else 0


def _offers(labels: Mapping[str, str], healthy: Amounts, listed: Amounts) -> list[Offer]:
    names = (*PLUGIN_RESOURCES, *sorted(name for name in listed if name.startswith(_MIG)))
    ours = [(name, *_of(name, healthy, listed)) for name in names]
    found = [_nvidia(name, labels, count, served) for name, count, served in ours if served]
    for kind in GPU_RESOURCES[1:]:
        count, served = _of(kind.name, healthy, listed)
        if served:
            found.append(_offer(kind.name, count, served, kind.product_of(labels), kind.memory_of(labels)))
    return found


def _of(resource: str, healthy: Amounts, listed: Amounts) -> tuple[int, int]:
    """(healthy units, units); a node that does not list its capacity has no failed ones."""
    count = healthy.get(resource, 0)
    return count, max(listed.get(resource, 0), count)


def _offer(resource: str, count: int, served: int, product: str, memory: int) -> Offer:
    known = model_capacity(product)
    return Offer(resource, count, served, product, memory, (known.tflops, known.vram))


def _nvidia(resource: str, labels: Mapping[str, str], count: int, served: int) -> Offer:
    """An offer of NVIDIA's device plugin. For a MIG profile the labels of the profile come first."""
    replicas = max(_number(labels.get(_REPLICAS)), 1)
    product = NVIDIA.product_of(labels)
    memory = NVIDIA.memory_of(labels)
    profile = _PROFILE.search(product) if labels.get(_STRATEGY) == "single" else None
    if resource.startswith(_MIG):
        profile = _PROFILE.search(resource)
        own = GpuResource(resource, NVIDIA.vendor, f"{resource}.product", f"{resource}.memory")
        replicas = max(_number(labels.get(f"{resource}.replicas")), 1)
        product = own.product_of(labels) or product
        memory = own.memory_of(labels)
    model = _card(product)
    offer = _offer(resource, count, served, model, memory)
    if profile is None:
        return Offer(resource, count, served, model, memory, offer.usual, (1, 1), replicas)
    parts = compute_slices(model)
    taken = min(int(profile[1]), parts)
    return Offer(resource, count, served, model, memory or int(profile[2]) * _GB, offer.usual, (taken, parts), replicas)


def _card(product: str) -> str:
    """The product without what the device plugin adds to it."""
    return re.sub(r"-MIG-.*", "", product.removesuffix(_SHARED))
