"""An installation without Helm: Namespace, ServiceAccount, Deployment, Services, budget, NetworkPolicy, kustomization.

The chart writes the same objects by its defaults; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from bursar.kube.admission.policy_objects import API, metadata
from bursar.kube.admission.predicate import NAMESPACE_NAME, SERVICE, AdmissionOptions

Manifest = dict[str, Any]

NAME: Final = "bursar"
IMAGE: Final = "bursar"
_LABELS: Final = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME}
_USER: Final = 65532
_HTTP, _WEBHOOK = 8080, 9443
PRIORITY_CLASSES: Final = "bursar-priority-classes"


def workload(options: AdmissionOptions, version: str) -> list[Manifest]:
    """Everything but definitions, roles and admission."""
    namespace = options.namespace
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": restricted}},
        _head("v1", "ServiceAccount", NAME, namespace) | {"automountServiceAccountToken": False},
        _service(SERVICE, namespace, {"name": "webhook", "port": 443}),
        _service(NAME, namespace, {"name": "http", "port": _HTTP}, {"app.kubernetes.io/component": "metrics"}),
        _deployment(options, version),
        _budget(namespace),
        _network_policy(namespace),
    ]


def _head(api: str, kind: str, name: str, namespace: str, labels: Manifest | None = None) -> Manifest:
    meta = {"name": name, "namespace": namespace, "labels": {**_LABELS, **(labels or {})}}
    return {"apiVersion": api, "kind": kind, "metadata": meta}


def _service(name: str, namespace: str, port: Manifest, labels: Manifest | None = None) -> Manifest:
    ports = [{**port, "targetPort": port["name"], "protocol": "TCP"}]
    return _head("v1", "Service", name, namespace, labels) | {"spec": {"selector": dict(_LABELS), "ports": ports}}


def _deployment(options: AdmissionOptions, version: str) -> Manifest:
    meta = {"labels": dict(_LABELS)}
    spec = {
        "replicas": 2,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "selector": {"matchLabels": dict(_LABELS)},
        "template": {"metadata": meta, "spec": _pod(options, version)},
    }
    return _head("apps/v1", "Deployment", NAME, options.namespace) | {"spec": spec}


def _pod(options: AdmissionOptions, version: str) -> Manifest:
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": dict(_LABELS)}}
    preferred = [{"weight": 100, "podAffinityTerm": apart}]
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(options, version)],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
    }


def _container(options: AdmissionOptions, version: str) -> Manifest:
    spared = [f"--spare={name}" for name in options.spared_namespaces]
    lease = ["--lease-duration=15", "--renew-deadline=10", "--retry-period=2"]
    ready = {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 5, "timeoutSeconds": 3}
    alive = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5}
    ports = {"http": _HTTP, "webhook": _WEBHOOK}
    return {
        "name": NAME,
        "image": f"{IMAGE}:{version}",
        "imagePullPolicy": "IfNotPresent",
        "args": ["controller", f"--namespace={options.namespace}", *lease, *spared],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        # The API server calls a webhook until it hears that its pod ends.
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
        "livenessProbe": alive | {"failureThreshold": 6},
        "readinessProbe": ready,
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 in a container of its own
    }


def _budget(namespace: str) -> Manifest:
    """A replica that is not ready may always be evicted: it must not hold up the drain of a node."""
    spec = {
        "minAvailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": dict(_LABELS)},
    }
    return _head("policy/v1", "PodDisruptionBudget", NAME, namespace) | {"spec": spec}


def _network_policy(namespace: str) -> Manifest:
    """In: the webhook and metrics, from anywhere (the API server has no pod). Out: anything."""
    ports = [{"port": port, "protocol": "TCP"} for port in ("http", "webhook")]
    spec = {"podSelector": {"matchLabels": dict(_LABELS)}, "policyTypes": ["Ingress"], "ingress": [{"ports": ports}]}
    return _head("networking.k8s.io/v1", "NetworkPolicy", NAME, namespace) | {"spec": spec}


def kustomization(resources: Iterable[str], version: str) -> Manifest:
    """Names all files of an installation; the image is chosen by it."""
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(resources),
        "images": [{"name": IMAGE, "newName": IMAGE, "newTag": version}],
    }


def priority_classes(options: AdmissionOptions) -> list[Manifest]:
    """A policy by which a ConfigMap says who may use which PriorityClass.

    Its keys are classes, its values namespaces with commas between them. A class that is not listed is everybody's;
    those of the system are nobody's, except in kube-system and in Bursar's namespace.
    """
    name = "object.spec.priorityClassName"
    listed = f"has(params.data) && {name} in params.data"
    among = f"request.namespace in params.data[{name}].split(',').map(one, one.trim())"
    allowed = f"!has({name}) || {name} == '' || ({listed} ? {among} : !{name}.startsWith('system-'))"
    message = f"'PriorityClass ' + {name} + ' is not for namespace ' + request.namespace"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    spec = {
        "failurePolicy": "Fail",
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": allowed, "messageExpression": message, "reason": "Forbidden"}],
    }
    own = {"key": NAMESPACE_NAME, "operator": "NotIn", "values": ["kube-system", options.namespace]}
    binding = {
        "policyName": PRIORITY_CLASSES,
        "validationActions": ["Deny"],
        "paramRef": {
            "name": PRIORITY_CLASSES,
            "namespace": options.namespace,
            "parameterNotFoundAction": "Deny",
        },
        "matchResources": {"namespaceSelector": {"matchExpressions": [own]}},
    }
    kind = "ValidatingAdmissionPolicy"
    return [
        _head("v1", "ConfigMap", PRIORITY_CLASSES, options.namespace) | {"data": {}},
        {"apiVersion": API, "kind": kind, "metadata": metadata(PRIORITY_CLASSES), "spec": spec},
        {"apiVersion": API, "kind": f"{kind}Binding", "metadata": metadata(PRIORITY_CLASSES), "spec": binding},
    ]
