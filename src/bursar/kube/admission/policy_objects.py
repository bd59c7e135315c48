"""The shapes of admission policies and their bindings, as plain objects. Everything fails closed.

Each policy comes with its binding. The API server converts the objects of a call for the conditions of a policy, for
its checks, messages and audit annotations; that costs far more than evaluating them. So there are few policies, no pod
is judged by two that could be one, and each guard has a condition that rejects every call that is in order: such a
call is converted once. Namespace selectors are in the binding, because the API server evaluates those of a policy for
every call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bursar.kube.admission.predicate import MANAGED_BY, Namespaces, Reinvocation

Object = dict[str, Any]

API = "admissionregistration.k8s.io/v1"

_VARIABLE = re.compile(r"variables\.(\w+)")


def metadata(name: str) -> Object:
    return {"name": name, "labels": dict(MANAGED_BY)}


def rule(operations: Iterable[str], *resources: str) -> Object:
    """Calls about pods and what belongs to them."""
    return {"apiGroups": [""], "apiVersions": ["v1"], "operations": list(operations), "resources": list(resources)}


def _constraints(rules: Sequence[Object]) -> Object:
    """Pods are served in one version of one group: there is nothing equivalent that would have to be looked for."""
    return {"matchPolicy": "Exact", "resourceRules": list(rules)}


def _binding(kind: str, name: str, namespaces: Namespaces, **more: object) -> Object:
    """What puts a policy in force, in these namespaces."""
    where: Object = {"matchPolicy": "Exact", "namespaceSelector": namespaces.selector()}
    return _object(f"{kind}Binding", name, {"policyName": name, **more, "matchResources": where})


def conditions(given: Mapping[str, str]) -> list[Object]:
    return [{"name": name, "expression": expression} for name, expression in given.items()]


@dataclass(frozen=True, slots=True)
class PolicyCheck:
    """What must be true, and what is said when it is not. ``details``: CEL that says it with names."""

    expression: str
    message: str
    details: str = ""

    def rendered(self) -> Object:
        found: Object = {"expression": self.expression, "message": self.message, "reason": "Forbidden"}
        if self.details:
            found["messageExpression"] = self.details
        return found


@dataclass(frozen=True, slots=True)
class Guard:
    """A ValidatingAdmissionPolicy."""

    name: str
    namespaces: Namespaces
    rules: tuple[Object, ...]
    checks: tuple[PolicyCheck, ...]
    conditions: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    param_kind: Object | None = None
    param_ref: Object | None = None

    def objects(self) -> list[Object]:
        spec: Object = {"failurePolicy": "Fail"}
        if self.param_kind is not None:
            spec["paramKind"] = self.param_kind
        spec["matchConstraints"] = _constraints(self.rules)
        spec["matchConditions"] = conditions({**self.conditions, "offends": self._offends()})
        if self.variables:
            spec["variables"] = conditions(self.variables)
        spec["validations"] = [check.rendered() for check in self.checks]
        more: Object = {"validationActions": ["Deny"]}
        if self.param_ref is not None:
            more["paramRef"] = self.param_ref
        kind = "ValidatingAdmissionPolicy"
        return [_object(kind, self.name, spec), _binding(kind, self.name, self.namespaces, **more)]

    def _offends(self) -> str:
        """Whether a check fails. Conditions do not know the variables, so these are written out."""
        found = "!(" + " && ".join(f"({check.expression})" for check in self.checks) + ")"
        while _VARIABLE.search(found):
            found = _VARIABLE.sub(lambda match: f"({self.variables[match[1]]})", found)
        return found


def mutating(
    name: str, namespaces: Namespaces, rules: Sequence[Object], wanted: str, patches: str, reinvocation: Reinvocation
) -> list[Object]:
    """A MutatingAdmissionPolicy that makes JSON patches where ``wanted`` holds.

    With ``IfNeeded`` the API server evaluates a policy that patched an object again after any change of it, its own
    included. So ``wanted`` must not hold for a patched object: patching is what costs most.

    ``Never`` is for calls of which nearly all are patched. A match condition would make the API server convert the
    object, and convert it again on reinvocation before it finds that the policy is not to be reinvoked. So there is
    none: the few other objects get an empty patch.
    """
    spec: Object = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": reinvocation,
        "matchConstraints": _constraints(rules),
    }
    if reinvocation == "Never":
        patches = f"{wanted} ? {patches} : []"
    else:
        spec["matchConditions"] = conditions({"governed": wanted})
    spec["mutations"] = [{"patchType": "JSONPatch", "jsonPatch": {"expression": patches}}]
    kind = "MutatingAdmissionPolicy"
    return [_object(kind, name, spec), _binding(kind, name, namespaces)]


def _object(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": API, "kind": kind, "metadata": metadata(name), "spec": spec}
