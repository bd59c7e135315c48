"""What an administrator may choose about admission. The defaults are those of the chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GATE = "bursar.dev/quota"
NAMESPACE_LABEL = "bursar.dev/quota"
ENFORCED = "enforced"
TERM_ANNOTATION = "bursar.dev/term"
RECORD_ANNOTATION = "bursar.dev/admission"
OWN_PREFIX = "bursar.dev/"
LEASE = "bursar-controller"
SERVICE = "bursar-webhook"
CERTIFICATES = "bursar-webhook-tls"
MANAGED_BY = {"app.kubernetes.io/name": "bursar", "app.kubernetes.io/component": "admission"}


Reinvocation = Literal["Never", "IfNeeded"]
"""Whether a policy looks at an object anew after others changed it: the words of Kubernetes."""


@dataclass(frozen=True, slots=True)
class Options:
    """Names of accounts and namespaces, and how far Bursar reaches."""

    namespace: str = "bursar-system"  # Bursar's own: never governed
    accounts: tuple[str, ...] = ("system:serviceaccount:bursar-system:bursar",)
    schedulers: tuple[str, ...] = ("system:kube-scheduler",)  # who may bind governed pods
    daemon_set_accounts: tuple[str, ...] = (
        "system:serviceaccount:kube-system:daemon-set-controller",
        "system:kube-controller-manager",
    )
    scheduler_names: tuple[str, ...] = ("n8s-scheduler", "koord-scheduler", "volcano", "tensor-fusion-scheduler")
    cluster_scheduler: str = "default-scheduler"  # what those become
    everywhere: bool = False  # CrossQuota is in force: all namespaces but the exempt ones are governed
    exempt_namespaces: tuple[str, ...] = ()  # by CrossQuota, beside those that are never governed
    reinvocation: Reinvocation = "Never"  # of the gate, where all pods of a namespace are governed
    keep_managed_fields: bool = False  # of governed pods: who wrote which field
    more_labels: tuple[str, ...] = ()  # that quotas read too, such as those of CrossQuota's label selector

    @property
    def never(self) -> tuple[str, ...]:
        """Namespaces in which no pod is governed."""
        return tuple(dict.fromkeys(("kube-system", self.namespace)))
