"""What a pod requires of its node beside node affinity and room: volumes, pod affinity, topology spread.

The scheduler judges these. Bursar needs them for three things: to know that a pod has any (``unjudged``), to tell
classes of pods apart that the scheduler treats alike (``constraints_mark``), and to keep pods off the nodes of others
that repel them (``repelled``: required anti-affinity is symmetric). Users write all of it, so what is read for
decisions is bounded; the scheduler judges the rest.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import structs

from bursar.objects.core import Affinity, LabelSelector, PodAffinityTerm, PodSpec, TopologySpread, Volume
from bursar.objects.validation import selector_from
from bursar.resources import fingerprint_bytes

LOCAL_VOLUMES: Final = frozenset(
    {"name", "emptyDir", "configMap", "secret", "downwardAPI", "projected", "hostPath", "image", "nfs", "gitRepo"}
)
CONSTRAINTS: Final = "constraints"  # in ``ClaimSpec.details``: the mark
REPELS: Final = "repels"  # in ``ClaimSpec.details``: the terms of ``repelled``
EVERYWHERE: Final = "*"  # in place of namespaces
MOST_TERMS: Final = 8
MOST_REQUIREMENTS: Final = 16
MOST_VALUES: Final = 64  # of a requirement, and namespaces of a term

_ANY: Final = PodSpec().affinity
_encode = msgspec.json.Encoder(order="deterministic").encode


def remote_volumes(spec: PodSpec) -> tuple[Volume, ...]:
    """The volumes that may tie the pod to some nodes. Names of others are random, and say nothing."""
    return tuple(volume for volume in spec.volumes if not LOCAL_VOLUMES.issuperset(volume))


def without_preferences(spec: PodSpec) -> PodSpec:
    """The spec without volumes that are everywhere, and without spread and affinity that are only preferred."""
    volumes, spread, affinity = remote_volumes(spec), _hard_spread(spec), _required(spec.affinity)
    same = affinity is spec.affinity and len(volumes) == len(spec.volumes)
    if same and len(spread) == len(spec.topology_spread_constraints):
        return spec
    return structs.replace(spec, volumes=volumes, topology_spread_constraints=spread, affinity=affinity)


def _required(affinity: Affinity) -> Affinity:
    """What has nothing required is the default itself, which is left out when it is written."""
    if affinity is _ANY:
        return _ANY
    on_nodes = affinity.node_affinity if affinity.node_affinity.required else _ANY.node_affinity
    to_pods = affinity.pod_affinity if affinity.pod_affinity.required else _ANY.pod_affinity
    off_pods = affinity.pod_anti_affinity if affinity.pod_anti_affinity.required else _ANY.pod_anti_affinity
    found = Affinity(on_nodes, to_pods, off_pods)
    return _ANY if found == _ANY else found


def unjudged(spec: PodSpec) -> tuple[str, ...]:
    """The node constraints that only the scheduler judges, as words for messages."""
    found: list[str] = []
    if remote_volumes(spec):
        found.append("volumes")
    if _hard_spread(spec):
        found.append("topology spread")
    if spec.affinity.pod_affinity.required or spec.affinity.pod_anti_affinity.required:
        found.append("pod affinity")
    if spec.resource_claims:
        found.append("resource claims")
    return tuple(found)


def _hard_spread(spec: PodSpec) -> tuple[TopologySpread, ...]:
    return tuple(one for one in spec.topology_spread_constraints if one.when_unsatisfiable == "DoNotSchedule")


def constraints_mark(spec: PodSpec) -> str:
    """A short text that is the same for pods with the same of these constraints; "" for a pod with none."""
    affinity = spec.affinity
    parts = (
        remote_volumes(spec),
        affinity.pod_affinity.required,
        affinity.pod_anti_affinity.required,
        _hard_spread(spec),
    )
    return f"{fingerprint_bytes(_encode(parts)) & (2**64 - 1):016x}" if any(parts) else ""


def repelled(spec: PodSpec, namespace: str) -> list[list[object]]:
    """The required anti-affinity terms as plain data: [topology key, namespaces, [[key, operator, values], ...]].

    A term beyond the bounds is left out. A namespace selector counts only if it is empty, which means all namespaces.
    """
    found = [_term(term, namespace) for term in spec.affinity.pod_anti_affinity.required[:MOST_TERMS]]
    return [term for term in found if term is not None]


def _term(term: PodAffinityTerm, namespace: str) -> list[object] | None:
    if term.label_selector is None or not term.topology_key:
        return None
    requirements = selector_from(term.label_selector, "labelSelector").requirements
    spaces = [EVERYWHERE] if term.namespace_selector == LabelSelector() else list(term.namespaces)
    if not spaces and term.namespace_selector is None:
        spaces = [namespace]
    sizes = [len(spaces), *(len(requirement.values) for requirement in requirements)]
    if not spaces or len(requirements) > MOST_REQUIREMENTS or max(sizes) > MOST_VALUES:
        return None
    return [term.topology_key, spaces, [requirement.record() for requirement in requirements]]
