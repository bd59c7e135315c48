"""The webhook configurations: quota kinds always, pods only where the server has no MutatingAdmissionPolicy.

Everything fails closed, within five seconds; deletions have thirty, because whether a quota is in use takes a look at
all pods. Bursar's own writes are not sent to itself, and neither is anything of kube-system or of its own namespace, so
that a webhook that is down stops changes of quotas and nothing else. The certificate bundle is not written here: the
leader patches it in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bursar.control.kinds import known_kinds
from bursar.kube.admission.governed import Namespaces, arms
from bursar.kube.admission.options import SERVICE, Options
from bursar.kube.admission.policies import to_be_gated
from bursar.kube.admission.shapes import API, Object, conditions, metadata, rule
from bursar.kube.admission.terms import listed
from bursar.objects.kinds import Kind
from bursar.policies.plugin import Registry

MUTATE_QUOTAS = "/mutate-quotas"
VALIDATE_QUOTAS = "/validate-quotas"
GATE_PODS = "/gate-pods/"  # then the name of an arm of the predicate
QUOTA_HOOKS = "bursar-quotas"
GATE_HOOKS = "bursar-gate"
TIMEOUT_SECONDS = 5
REMOVAL_SECONDS = 30  # the most that the API server grants


def quota_kinds(registry: Registry) -> list[Kind]:
    """The kinds that the webhook judges: those of the policies, and the Configuration, that are read strictly."""
    return sorted((kind for kind in known_kinds(registry) if kind.strict), key=lambda kind: kind.name)


def quota_hooks(options: Options, registry: Registry) -> list[Object]:
    """One configuration that fills in what is missing, one that refuses what is wrong, or what would be amiss."""
    kinds = quota_kinds(registry)
    filled = {name for plugin in registry for name in plugin.admit}
    kept = {name for plugin in registry for name in plugin.check_removal}
    filling = [_rule(kind, ["CREATE", "UPDATE"]) for kind in kinds if kind.name in filled]
    checking = [_rule(kind, ["CREATE", "UPDATE"]) for kind in kinds]
    removing = [_rule(kind, ["DELETE"]) for kind in kinds if kind.name in kept]
    mutate = _hook("mutate.quotas.bursar.dev", MUTATE_QUOTAS, options, filling)
    validate = _hook("validate.quotas.bursar.dev", VALIDATE_QUOTAS, options, checking)
    remove = _hook("remove.quotas.bursar.dev", VALIDATE_QUOTAS, options, removing, REMOVAL_SECONDS)
    return [
        _configuration("MutatingWebhookConfiguration", QUOTA_HOOKS, [mutate]),
        _configuration("ValidatingWebhookConfiguration", QUOTA_HOOKS, [validate, remove]),
    ]


def gate_hooks(options: Options) -> list[Object]:
    """The gate for servers without MutatingAdmissionPolicy: the same arms, judged by the same predicate in Python."""
    found: list[Object] = []
    for arm in arms(options):
        hook = _hook(f"{arm.name}.gate.bursar.dev", GATE_PODS + arm.name, options, [rule(["CREATE"], "pods")])
        hook["namespaceSelector"] = arm.namespaces.selector()
        hook["matchConditions"] = conditions({"governed": to_be_gated(arm)})
        hook["reinvocationPolicy"] = "IfNeeded"
        found.append(hook)
    return [_configuration("MutatingWebhookConfiguration", GATE_HOOKS, found)]


def _rule(kind: Kind, operations: Iterable[str]) -> dict[str, Any]:
    return {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "operations": list(operations),
        "resources": [kind.plural],
        "scope": "Namespaced" if kind.namespaced else "Cluster",
    }


def _hook(name: str, path: str, options: Options, rules: list[Object], within: int = TIMEOUT_SECONDS) -> Object:
    return {
        "name": name,
        "clientConfig": {"service": {"namespace": options.namespace, "name": SERVICE, "path": path, "port": 443}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": within,
        "namespaceSelector": Namespaces(options.never).selector(),
        "matchConditions": conditions(
            {"not-bursar": f"!(request.userInfo.username in {listed(options.accounts)})"},
        ),
        "rules": rules,
    }


def _configuration(kind: str, name: str, hooks: list[Object]) -> Object:
    return {"apiVersion": API, "kind": kind, "metadata": metadata(name), "webhooks": hooks}
