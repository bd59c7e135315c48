"""RBAC: one table of the calls that Bursar makes, and the roles generated from it.

There are no wildcards. Rights are granted by name where possible, and in Bursar's own namespace where possible. Roles
for people: viewers of a namespace see its quotas; editors may edit workloads but not quotas, as for ResourceQuota.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from bursar.control.admission import known_kinds
from bursar.kube.admission.manifests import GATE_HOOKS, QUOTA_HOOKS
from bursar.kube.admission.predicate import ANSWERS_API, ANSWERS_SERVICE, CERTIFICATES, LEASE
from bursar.objects.devices import GROUP as DEVICE_GROUP
from bursar.objects.kinds import DEVICE_KINDS, Kind
from bursar.policies.plugin import Registry

Manifest = dict[str, Any]

NAME = "bursar"
API_GROUP = "rbac.authorization.k8s.io"
READ = ("get", "list", "watch")
_FOLLOW = ("list", "watch")  # what a reflector does: it never asks for one object
_WRITE = ("create", "delete", "patch", "update")
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
_HOOKS = (QUOTA_HOOKS, GATE_HOOKS)


@dataclass(frozen=True, slots=True)
class RbacRule:
    """Verbs on resources of one group, and what they are for."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    names: tuple[str, ...] = ()

    def rule(self) -> Manifest:
        found: Manifest = {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs)}
        return found | ({"resourceNames": list(self.names)} if self.names else {})


IN_CLUSTER = (
    RbacRule("", ("pods",), (*_FOLLOW, "patch"), "claims; remove the gate, write annotations and labels"),
    RbacRule("", ("pods/status",), ("patch",), "nominate a node for a pod whose victims leave"),
    RbacRule("", ("pods/eviction",), ("create",), "evict victims"),
    RbacRule("", ("nodes",), (*_FOLLOW, "patch"), "what there is; label nodes that have GPUs"),
    RbacRule("", ("namespaces",), (*READ, "patch"), "label those that a quota names; whose term it is, on its own"),
    RbacRule("batch", ("jobs",), ("get",), "whether an eviction counts against the Job of a pod without a place"),
    RbacRule("scheduling.k8s.io", ("priorityclasses",), _FOLLOW, "who comes first"),
    RbacRule("policy", ("poddisruptionbudgets",), _FOLLOW, "budgets that limit evictions"),
    RbacRule(
        DEVICE_GROUP,
        tuple(sorted(kind.plural for kind in DEVICE_KINDS)),
        _FOLLOW,
        "devices that drivers publish, and pods' claims of them",
    ),
    RbacRule("events.k8s.io", ("events",), ("create", "list", "patch"), "tell people what they were not told yet"),
    RbacRule(
        "admissionregistration.k8s.io",
        ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
        ("get", "patch"),
        "the authority of the webhook's certificate",
        _HOOKS,
    ),
    RbacRule(
        "apiregistration.k8s.io",
        ("apiservices",),
        ("get", "patch"),
        "the authority of the certificate of the answers API",
        (ANSWERS_API,),
    ),
)
ANSWERS = (RbacRule("authorization.k8s.io", ("subjectaccessreviews",), ("create",), "what callers may see"),)
ANSWERS_IN_OWN_NAMESPACE = (
    RbacRule("", ("secrets",), ("get",), "serve with the certificate that the controller keeps", (CERTIFICATES,)),
)
ANSWERS_GROUP = "answers.bursar.dev"
ASKING = (
    RbacRule(
        ANSWERS_GROUP,
        ("claims", "explanations", "gpus", "nodes", "queue", "quotaexplanations", "quotas"),
        ("get", "list"),
        "what there is, and why",
    ),
    RbacRule(ANSWERS_GROUP, ("plans", "whatifs"), ("create",), "questions with a body; nothing is created"),
)
IN_OWN_NAMESPACE = (
    RbacRule("coordination.k8s.io", ("leases",), ("create",), "elect a leader"),
    RbacRule("coordination.k8s.io", ("leases",), ("get", "patch"), "elect a leader", (LEASE,)),
    RbacRule("", ("secrets",), ("create",), "keep the webhook's certificate"),
    RbacRule("", ("secrets",), ("get", "patch"), "keep the webhook's certificate", (CERTIFICATES,)),
)


def own_kinds(registry: Registry) -> list[Kind]:
    """The kinds that are defined by Bursar, by name."""
    found = [kind for kind in known_kinds(registry) if kind.group and kind.qualified]
    return sorted(found, key=lambda kind: (kind.group, kind.plural))


def cluster_access(registry: Registry) -> list[RbacRule]:
    """Everything the controller does cluster-wide."""
    found = list(IN_CLUSTER)
    kinds = own_kinds(registry)
    for group in sorted({kind.group for kind in kinds}):
        plurals = tuple(kind.plural for kind in kinds if kind.group == group)
        found.append(RbacRule(group, plurals, _FOLLOW, "quotas and what they are about"))
        statuses = tuple(f"{kind.plural}/status" for kind in kinds if kind.group == group and kind.has_status)
        found.append(RbacRule(group, statuses, ("patch",), "say how they fare"))
    writes = {name: verbs for plugin in registry for name, verbs in plugin.writes.items()}
    return found + [
        RbacRule(kind.group, (kind.plural,), writes[kind.name], "objects that policies keep")
        for kind in kinds
        if kind.name in writes
    ]


def followed(registry: Registry) -> list[RbacRule]:
    """Everything the controller does cluster-wide in shadow mode: it looks on, and cannot do more."""
    return [replace(one, verbs=_FOLLOW) for one in cluster_access(registry) if set(_FOLLOW) <= set(one.verbs)]


def rules(accesses: Iterable[RbacRule]) -> list[Manifest]:
    return [access.rule() for access in accesses]


def people_roles(registry: Registry) -> list[Manifest]:
    """Roles to bind people to; two of them are part of Kubernetes' own roles at once."""
    kinds = own_kinds(registry)
    quotas = [kind for kind in kinds if kind.strict]
    workloads = [kind for kind in kinds if not kind.strict and kind.namespaced]
    inventory = [kind for kind in kinds if not kind.strict and not kind.namespaced]
    return [
        _people_role("viewer", kinds, READ, "view"),
        _people_role("workload-editor", workloads, (*READ, *_WRITE), "edit"),
        _people_role("quota-editor", quotas, (*READ, *_WRITE), ""),
        _people_role("inventory-editor", inventory, (*READ, *_WRITE), ""),
        _role("ClusterRole", f"{NAME}-asker", "", rules(ASKING), {f"{_AGGREGATE}view": "true"}),
    ]


def _people_role(name: str, kinds: list[Kind], verbs: tuple[str, ...], part_of: str) -> Manifest:
    groups = sorted({kind.group for kind in kinds})
    accesses = [
        RbacRule(group, tuple(kind.plural for kind in kinds if kind.group == group), verbs, "") for group in groups
    ]
    labels = {f"{_AGGREGATE}{part_of}": "true"} if part_of else {}
    return _role("ClusterRole", f"{NAME}-{name}", "", rules(accesses), labels)


def manifests(registry: Registry, namespace: str) -> list[Manifest]:
    return [*controller_roles(registry, namespace), *answers_roles(registry, namespace), *people_roles(registry)]


def controller_roles(registry: Registry, namespace: str, *, shadow: bool = False) -> list[Manifest]:
    """The roles of the controller, bound to its service account; in its own namespace none where it looks on."""
    controller = f"{NAME}-controller"
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}]
    everywhere = followed(registry) if shadow else cluster_access(registry)
    found = [
        _role("ClusterRole", controller, "", rules(everywhere)),
        _binding("ClusterRoleBinding", controller, "", "ClusterRole", subjects),
    ]
    if not shadow:
        found.append(_role("Role", controller, namespace, rules(IN_OWN_NAMESPACE)))
        found.append(_binding("RoleBinding", controller, namespace, "Role", subjects))
    return found


def answers_roles(registry: Registry, namespace: str) -> list[Manifest]:
    """The roles of the replicas that answer: they look on, and ask what their callers may see."""
    name = ANSWERS_SERVICE
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
    return [
        _role("ClusterRole", name, "", rules([*followed(registry), *ANSWERS])),
        _binding("ClusterRoleBinding", name, "", "ClusterRole", subjects),
        _role("Role", name, namespace, rules(ANSWERS_IN_OWN_NAMESPACE)),
        _binding("RoleBinding", name, namespace, "Role", subjects),
        _binding("RoleBinding", name, "kube-system", "Role", subjects, "extension-apiserver-authentication-reader"),
    ]


def ignoring_budgets(namespace: str) -> list[Manifest]:
    """What ``control.budgets: ignore-for-over-quota`` takes: pods are deleted, not evicted."""
    name = f"{NAME}-ignore-budgets"
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}]
    delete = RbacRule("", ("pods",), ("delete",), "evict pods that use what is borrowed, whatever their budgets say")
    return [
        _role("ClusterRole", name, "", rules([delete])),
        _binding("ClusterRoleBinding", name, "", "ClusterRole", subjects),
    ]


def _role(
    kind: str, name: str, namespace: str, given: list[Manifest], labels: dict[str, str] | None = None
) -> Manifest:
    return _head(kind, name, namespace, labels) | {"rules": given}


def _binding(
    kind: str, name: str, namespace: str, role: str, subjects: list[dict[str, str]], called: str = ""
) -> Manifest:
    """``called``: the name of the role, if it is another one."""
    reference = {"apiGroup": API_GROUP, "kind": role, "name": called or name}
    return _head(kind, name, namespace) | {"roleRef": reference, "subjects": subjects}


def _head(kind: str, name: str, namespace: str, labels: dict[str, str] | None = None) -> Manifest:
    metadata: Manifest = {"name": name} | ({"namespace": namespace} if namespace else {})
    metadata["labels"] = {"app.kubernetes.io/name": NAME} | (labels or {})
    return {"apiVersion": f"{API_GROUP}/v1", "kind": kind, "metadata": metadata}
