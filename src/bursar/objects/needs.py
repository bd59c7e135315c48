"""What a pod requires of its node, beyond room: names, labels, affinity, tolerations and host ports."""

from __future__ import annotations

from bursar.objects import core
from bursar.objects.errors import ManifestError
from bursar.objects.requests import is_sidecar
from bursar.objects.selectors import node_terms_from
from bursar.selectors import NO_NEEDS, NodeNeeds, NodeTerm, Toleration

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - how Kubernetes writes a port on all addresses; nothing is bound here
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_REQUIRED = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def node_needs(spec: core.PodSpec, path: str = "spec") -> NodeNeeds:
    """``NO_NEEDS`` itself when the pod requires nothing."""
    required = spec.affinity.node_affinity.required
    terms: tuple[NodeTerm, ...] | None = None
    if required is not None:
        terms = node_terms_from(required, f"{path}.{_REQUIRED}")
    tolerations = tuple(_toleration(t, f"{path}.tolerations[{i}]") for i, t in enumerate(spec.tolerations))
    ports = _host_ports(spec, path)
    if not (spec.node_name or spec.node_selector or required or tolerations or ports):
        return NO_NEEDS
    return NodeNeeds(spec.node_selector, terms, tolerations, ports, spec.node_name)


def check_effect(effect: str, path: str) -> None:
    if effect not in TAINT_EFFECTS:
        raise ManifestError(f"{effect!r:.40} is none of {', '.join(TAINT_EFFECTS)}", path)


def _toleration(given: core.Toleration, path: str) -> Toleration:
    if given.operator not in {"", "Equal", "Exists"}:
        raise ManifestError(f"{given.operator!r:.40} is none of Equal, Exists", f"{path}.operator")
    if given.operator == "Exists" and given.value:
        raise ManifestError("Exists takes no value", f"{path}.value")
    if not given.key and given.operator != "Exists":
        raise ManifestError("is required, unless the operator is Exists", f"{path}.key")
    if given.effect:
        check_effect(given.effect, f"{path}.effect")
    return Toleration(given.key, given.operator, given.value, given.effect)


def _host_ports(spec: core.PodSpec, path: str) -> tuple[tuple[str, str, int], ...]:
    """Ports on the node's own addresses: of what runs together, so not of ordinary init containers."""
    places = [(f"{path}.containers[{i}]", container) for i, container in enumerate(spec.containers)]
    places += [(f"{path}.initContainers[{i}]", c) for i, c in enumerate(spec.init_containers) if is_sidecar(c)]
    found: set[tuple[str, str, int]] = set()
    for place, container in places:
        for index, port in enumerate(container.ports):
            if port.protocol not in _PROTOCOLS:
                problem = f"{port.protocol!r:.40} is none of {', '.join(_PROTOCOLS)}"
                raise ManifestError(problem, f"{place}.ports[{index}].protocol")
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                found.add((port.protocol, port.host_ip or EVERY_ADDRESS, number))
    return tuple(sorted(found))
