"""The resources of the answers API, in one table: paths, verbs, discovery, roles and the client follow from it.

Each resource stands for an operation of the server's API and has its parameters and its answer. Paths have the
namespace of the caller's question, because the API server authorises it before it passes a request on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from bursar.server.operations import OPERATIONS, Operation

GROUP = "answers.bursar.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
ROOT = f"/apis/{GROUP}/{VERSION}"
_BY_NAME = {operation.name: operation for operation in OPERATIONS}


@dataclass(frozen=True, slots=True)
class AnswerResource:
    """One resource, and the operations behind its verbs."""

    name: str  # as paths and roles have it
    kind: str
    about: str
    get: str = ""  # the operation that answers about one object, named in the path
    list: str = ""
    create: str = ""  # the operation that answers to a body
    namespaced: bool = True

    @property
    def verbs(self) -> tuple[str, ...]:
        return tuple(verb for verb in ("create", "get", "list") if getattr(self, verb))

    def operation(self, verb: str) -> Operation[Any]:
        return _BY_NAME[getattr(self, verb)]


RESOURCES = (
    AnswerResource("explanations", "Explanation", "Why a pod is where it is; its name is the pod's.", get="explain"),
    AnswerResource("claims", "Claim", "Pods as the ledger has them.", get="claim", list="claims"),
    AnswerResource("queue", "QueueEntry", "Pods that wait, the most urgent first.", list="queue"),
    AnswerResource("quotas", "Quota", "The quotas of all dialects.", list="quotas"),
    AnswerResource("quotaexplanations", "QuotaExplanation", "Why a quota has what it has.", list="explain_quota"),
    AnswerResource("whatifs", "WhatIf", "What would become of pods that are sent.", create="what_if"),
    AnswerResource("plans", "Plan", "What manifests that are sent would do.", create="plan"),
    AnswerResource("nodes", "Node", "Nodes and what is used of them.", list="nodes", namespaced=False),
    AnswerResource("gpus", "GPU", "GPUs that are handed out in parts.", list="gpus", namespaced=False),
)
_RESOURCES = {resource.name: resource for resource in RESOURCES}


class NoSuchPathError(Exception):
    """A path that the answers API does not have, or a method that it does not take there."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


@dataclass(frozen=True, slots=True)
class AnswerPath:
    """A path as it was asked for."""

    resource: AnswerResource
    verb: str
    namespace: str = ""
    name: str = ""

    def asked(self) -> Operation[Any]:
        """The operation that answers."""
        return self.resource.operation(self.verb)

    def values(self) -> dict[str, str]:
        """The parameters of the operation that stand in the path."""
        known = {parameter.name for parameter in self.asked().parameters}
        found = {"namespace": self.namespace} if self.namespace and "namespace" in known else {}
        return found | ({"name": self.name} if self.name else {})


def read_path(method: str, path: str) -> AnswerPath:
    """The resource and verb of a request; raises ``NoSuchPathError``."""
    parts = [unquote(part) for part in path.removeprefix(ROOT).strip("/").split("/")]
    namespace = ""
    if len(parts) >= 3 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    resource = _RESOURCES.get(parts[0])
    if resource is None or len(parts) > 2 or bool(namespace) > resource.namespaced:
        raise NoSuchPathError(404, f"there is no {path:.200}; {ROOT} lists what there is")
    name = parts[1] if len(parts) == 2 else ""
    verb = {"GET": "get" if name else "list", "POST": "create"}.get(method, "")
    if verb not in resource.verbs or (verb == "create" and name):
        raise NoSuchPathError(405, f"{resource.name} can only be asked for ({', '.join(resource.verbs)})")
    if verb == "get" and not namespace:
        raise NoSuchPathError(404, f"{resource.name} are in namespaces: {ROOT}/namespaces/NAMESPACE/{resource.name}")
    return AnswerPath(resource, verb, namespace, name)


def path_of(operation: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Where an operation is asked for, and the parameters that are left for the query; ``KeyError`` for none."""
    resource, verb = _ASKED[operation]
    left = dict(values)
    namespace = str(left.pop("namespace", "")) if resource.namespaced else ""
    name = str(left.pop("name", "")) if verb == "get" else ""
    path = ROOT + (f"/namespaces/{quote(namespace, safe='')}" if namespace else "") + f"/{resource.name}"
    return path + (f"/{quote(name, safe='')}" if name else ""), left


_ASKED = {
    getattr(resource, verb): (resource, verb) for resource in RESOURCES for verb in resource.verbs
}  # by operation
