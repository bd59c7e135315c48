"""The requests and limits of a pod, by the rule of Kubernetes.

Per resource: the containers and sidecars together, or one ordinary init container with the sidecars declared before it,
whichever is more. A request of the pod itself replaces that, and the overhead is added. A limit replaces a missing
request, container by container and resource by resource. Limits add up in the same way, except that the overhead is
added only to resources that are limited.

Everything is computed on amounts, not on vectors, because an explicit zero differs from nothing: no limit replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bursar.ledger import claims
from bursar.objects import core
from bursar.objects.decode import ManifestError, check_choice, join
from bursar.objects.validation import is_qualified
from bursar.quantity import MAX_AMOUNT, MILLI, UNIT, QuantityError, parse
from bursar.resources import Limits, Vector, dimension, from_amounts

Amounts = dict[str, int]
"""Resource name to amount in the dimension's resolution; unlike a ``Vector`` it keeps zeros."""


def amounts_from(quantities: Mapping[str, object], path: str) -> Amounts:
    """Quantities by resource as amounts in the ledger's units; ``path`` is their field, for errors."""
    amounts: Amounts = {}
    for name, value in quantities.items():
        if not is_qualified(name):
            raise ManifestError("is not the name of a resource", join(path, name))
        try:
            amounts[name] = dimension(name).parse(value)
        except QuantityError as error:
            raise ManifestError(str(error), join(path, name)) from None
    return amounts


def node_amounts(status: core.NodeStatus) -> Amounts:
    """What a Node has: its allocatable amounts, or its capacity where it lists none."""
    if status.allocatable:
        return amounts_from(status.allocatable, "status.allocatable")
    return amounts_from(status.capacity, "status.capacity")


def limits_from(quantities: Mapping[str, object], path: str) -> Limits:
    """Zero stays listed, because it means none."""
    return Limits(amounts_from(quantities, path))


_RESTART_POLICIES = ("", "Always", "OnFailure", "Never")


class PodResources(NamedTuple):
    """The effective amounts of a pod, and those of its containers in the order of the manifest."""

    requests: Vector
    limits: Vector
    containers: tuple[claims.ContainerSpec, ...]


class _Container(NamedTuple):
    name: str
    role: str  # main, init or sidecar
    requests: Amounts
    limits: Amounts


def pod_resources(spec: core.PodSpec) -> PodResources:
    """Raises ``ManifestError`` with the path of whatever cannot be read."""
    containers = _containers(spec)
    requests = _total((container.role, container.requests) for container in containers)
    limits = _total((container.role, container.limits) for container in containers)
    _replace(spec.resources, requests, limits, "spec.resources")
    for name, amount in amounts_from(spec.overhead, "spec.overhead").items():
        requests[name] = requests.get(name, 0) + amount
        if name in limits:
            limits[name] += amount
    _check_range(requests)
    _check_range(limits)
    return PodResources(from_amounts(requests), from_amounts(limits), tuple(_typed(c) for c in containers))


def check_whole(spec: core.PodSpec) -> None:
    """Raises ``ManifestError`` for a part of something that comes whole, as an API server does when a pod is created.

    Apart from ``pod_resources``: a pod that is there already is read as it is, and counts with its parts rounded up.
    """
    for field, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, container in enumerate(containers):
            where = f"spec.{field}[{index}].resources"
            _check_whole(container.resources.requests, f"{where}.requests")
            _check_whole(container.resources.limits, f"{where}.limits")
    _check_whole(spec.overhead, "spec.overhead")


def _check_whole(quantities: Mapping[str, object], path: str) -> None:
    for name, value in quantities.items():
        if not _comes_whole(name):
            continue
        amount = parse(value, UNIT)
        # Of more than that, thousandths cannot be counted.
        if amount <= MAX_AMOUNT // MILLI and parse(value, MILLI) != amount * MILLI:
            raise ManifestError(
                f"{str(value)!r:.40} must be a whole number: there are no parts of {name}", join(path, name)
            )


def _comes_whole(name: str) -> bool:
    """Extended resources, which have a domain that is not one of Kubernetes itself; and pods."""
    return name == "pods" or ("/" in name and "kubernetes.io/" not in name)


def is_sidecar(container: core.PodContainer) -> bool:
    """Of an init container: it keeps running beside the main ones."""
    return container.restart_policy == "Always"


def _typed(container: _Container) -> claims.ContainerSpec:
    requests = from_amounts(container.requests)
    limits = requests if container.limits == container.requests else from_amounts(container.limits)
    return claims.ContainerSpec(container.name, requests, limits, container.role)


def _containers(spec: core.PodSpec) -> list[_Container]:
    if not spec.containers:
        raise ManifestError("needs at least one container", "spec.containers")
    found: list[_Container] = []
    for index, container in enumerate(spec.init_containers):
        role = "sidecar" if is_sidecar(container) else "init"
        found.append(_container(container, role, f"spec.initContainers[{index}]"))
    for index, container in enumerate(spec.containers):
        found.append(_container(container, "main", f"spec.containers[{index}]"))
    return found


def _container(container: core.PodContainer, role: str, path: str) -> _Container:
    check_choice(container.restart_policy, _RESTART_POLICIES, f"{path}.restartPolicy")
    limits = amounts_from(container.resources.limits, f"{path}.resources.limits")
    requests = limits | amounts_from(container.resources.requests, f"{path}.resources.requests")
    _check_within(requests, limits, f"{path}.resources.requests")
    return _Container(container.name, role, requests, limits)


def _check_within(requests: Amounts, limits: Amounts, path: str) -> None:
    for name, limit in limits.items():
        if requests.get(name, 0) > limit:
            show = dimension(name).show
            raise ManifestError(f"{show(requests[name])} is more than the limit of {show(limit)}", f"{path}.{name}")


def _total(containers: Iterable[tuple[str, Amounts]]) -> Amounts:
    """The sum that runs together, or the most that one init container needs beside the sidecars before it."""
    together: Amounts = {}
    sidecars: Amounts = {}
    starting: Amounts = {}
    for role, amounts in containers:
        if role != "init":
            _add(together, amounts)
        if role == "sidecar":
            _add(sidecars, amounts)
        if role == "init":
            _raise_to(starting, _sum(sidecars, amounts))
    _raise_to(together, starting)
    return together


def _add(total: Amounts, amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _sum(left: Amounts, right: Amounts) -> Amounts:
    total = dict(left)
    _add(total, right)
    return total


def _raise_to(total: Amounts, amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = max(total.get(name, 0), amount)


def _replace(level: core.Resources, requests: Amounts, limits: Amounts, path: str) -> None:
    """Put the pod's own requests and limits in place of the sums of its containers."""
    own_limits = amounts_from(level.limits, f"{path}.limits")
    own_requests = amounts_from(level.requests, f"{path}.requests")
    for field, own in (("limits", own_limits), ("requests", own_requests)):
        for name in own:
            if name not in {"cpu", "memory"} and not name.startswith("hugepages-"):
                problem = "can be given for containers only: a pod as a whole has cpu, memory and hugepages"
                raise ManifestError(problem, f"{path}.{field}.{name}")
    for name, amount in own_requests.items():
        if requests.get(name, 0) > amount:
            show = dimension(name).show
            problem = f"{show(amount)} is less than the containers' {show(requests[name])}"
            raise ManifestError(problem, f"{path}.requests.{name}")
    requests |= {name: amount for name, amount in own_limits.items() if name not in requests} | own_requests
    limits |= own_limits
    _check_within(requests, own_limits, f"{path}.requests")


def _check_range(amounts: Amounts) -> None:
    for name, amount in amounts.items():
        if amount > MAX_AMOUNT:
            raise ManifestError(f"the containers' {name} together is out of range", "spec")
