"""Where the API server keeps each kind of object: group, version, plural, and whether it lives in namespaces."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from bursar.objects.kinds import Kind


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object as the API server serves it."""

    group: str  # "" for the core group
    version: str
    plural: str
    kind: str
    namespaced: bool

    @staticmethod
    def of(kind: Kind) -> Resource:
        """The resource behind one of Bursar's kinds."""
        return Resource(kind.group, kind.version, kind.plural, kind.kind, kind.namespaced)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of a collection or, with a name, of an object or its subresource."""
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name} needs a namespace")
        if namespace and not self.namespaced:
            raise ValueError(f"a {self.kind} belongs to no namespace, but {namespace!r} was given")
        parts = [self.root]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


PODS = Resource("", "v1", "pods", "Pod", True)
NODES = Resource("", "v1", "nodes", "Node", False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False)
SECRETS = Resource("", "v1", "secrets", "Secret", True)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True)
DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True)
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", True)

_ADMISSION = "admissionregistration.k8s.io"
MUTATING_POLICIES = Resource(_ADMISSION, "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", False)
MUTATING_WEBHOOKS = Resource(_ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False)
VALIDATING_WEBHOOKS = Resource(
    _ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False
)
