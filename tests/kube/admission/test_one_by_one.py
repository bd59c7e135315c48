"""``kubectl`` hands over the objects of a command one after another, and the webhook judges each by itself.

What the embedded cluster accepts as a whole is accepted here, too, when what was refused is applied again; what it
refuses stays refused. The controller writes between two objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bursar.control.admission import known_kinds
from bursar.kube.admission.manifests import MUTATE_QUOTAS, VALIDATE_QUOTAS
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import Kind
from bursar.objects.manifests import Document
from bursar.policies.plugin import default_registry
from bursar.policies.pools.settings import PREFIX, PROFILE_OBJECT, QUOTA_OBJECT
from bursar.sim.cluster import Cluster
from bursar.sim.runner import act
from bursar.sim.scenario import Scenario, Step, load_scenarios
from tests.builders import node
from tests.kube.admission.review_client import Body, Objects, ask, webhook
from tests.kube.controller.plain_kubernetes import PlainKubernetes

FOLDER = Path(__file__).resolve().parents[2] / "scenarios" / "pools"
SCENARIOS = load_scenarios([FOLDER], known_kinds(default_registry()))
JUDGED = (PROFILE_OBJECT, QUOTA_OBJECT)
PASSES = 3  # a pod, its quota and the profile are deleted in this time, whatever their order


class View(Objects):
    """What the webhook sees of a cluster."""

    def __init__(self, kubernetes: PlainKubernetes) -> None:
        super().__init__()
        self.kubernetes = kubernetes

    def list(self, kind: str, namespace: str | None = None) -> Iterable[Mapping[str, Any]]:
        self.bodies = [*self.kubernetes.objects.values(), *self.kubernetes.pods.values()]
        return super().list(kind, namespace)


class Kubectl:
    def __init__(self) -> None:
        self.kubernetes = PlainKubernetes()
        self.kinds = self.kubernetes.mirror.cache.kinds
        self.webhook = webhook(View(self.kubernetes))

    def run(self, step: Step) -> bool:
        """Whether everything in a step was accepted after some passes."""
        if step.action not in ("apply", "delete"):
            act(self.kubernetes, step)
            return True
        left: list[Any] = list(step.documents or step.references)
        for _ in range(PASSES):
            left = [one for one in left if not (self.apply(one) if step.documents else self.delete(*one))]
        return not left

    def apply(self, document: Document) -> bool:
        try:
            read = next(iter(self.kinds.read_all([document])))
        except ManifestError:
            return False
        if read.kind.name not in JUDGED:
            self.kubernetes.apply([document])
            return True
        old = self.kubernetes.objects.get((read.kind.name, read.key))
        body = merged(read.body, old)
        operation = "UPDATE" if old else "CREATE"
        mutated = ask(self.webhook, MUTATE_QUOTAS, body, old, operation)
        body = patched(body, mutated.get("patch", []))
        if not (mutated["allowed"] and ask(self.webhook, VALIDATE_QUOTAS, body, old, operation)["allowed"]):
            return False
        self.kubernetes.apply([Document(document.source, document.number, body)])
        return True

    def delete(self, kind: Kind, key: str) -> bool:
        old = self.kubernetes.objects.get((kind.name, key))
        if kind.name in JUDGED and not ask(self.webhook, VALIDATE_QUOTAS, None, old, "DELETE")["allowed"]:
            return False
        self.kubernetes.delete([(kind, key)])
        return True


def merged(body: Body, old: Body | None) -> Body:
    """What an apply makes of an object that is there: labels and annotations of others stay."""
    metadata = {"uid": "new", **body["metadata"]}
    for part in ("labels", "annotations"):
        before = {} if old is None else old["metadata"].get(part) or {}
        metadata[part] = {**before, **(metadata.get(part) or {})}
    return {**body, "metadata": metadata}


def patched(body: Body, patch: list[Body]) -> Body:
    for operation in patch:
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        inner = body = {**body}
        for part in path:
            inner[part] = inner = {**inner[part]}
        inner[last] = operation.get("value")
    return body


def accepted(cluster: Cluster, step: Step) -> bool:
    try:
        act(cluster, step)
    except ManifestError:
        return False
    return True


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"{Path(s.source).stem}: {s.name}" for s in SCENARIOS])
def test_what_is_accepted_as_a_whole_is_accepted_one_by_one(scenario: Scenario) -> None:
    embedded, kubectl = Cluster(), Kubectl()
    for step in scenario.steps:
        if step.action == "expect":
            continue
        whole = accepted(embedded, step)
        if whole or any(document.body["kind"] != "Pod" for document in step.documents):
            assert kubectl.run(step) == whole, f"step {step.number}"


def given(kind: str, name: str, **spec: Any) -> Body:  # noqa: ANN401 any field
    version = "quota.koordinator.sh/v1alpha1" if kind == "ElasticQuotaProfile" else "scheduling.sigs.k8s.io/v1alpha1"
    metadata = {"name": name, "namespace": "kube-system", "labels": {}, "annotations": {}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def test_a_resource_of_a_profile_can_be_listed_before_its_root_quota_is_written() -> None:
    kubectl = Kubectl()
    selector = {"quotaName": "root-a", "nodeSelector": {"matchLabels": {"pool": "a"}}}
    profile = given("ElasticQuotaProfile", "a", **selector, quotaLabels={f"{PREFIX}is-parent": "true"})
    profile["metadata"]["annotations"] = {f"{PREFIX}resource-keys": '["cpu"]'}
    team = given("ElasticQuota", "team", max={"cpu": 8}, min={"cpu": 4})
    team["metadata"]["labels"] = {f"{PREFIX}parent": "root-a"}
    for body in (node("n1", {"cpu": 8, "nvidia.com/gpu": 8}, labels={"pool": "a"}), profile, team):
        assert kubectl.apply(Document("", 1, body))
    root = QUOTA_OBJECT, "kube-system/root-a"
    before = kubectl.kubernetes.objects[root]
    profile["metadata"]["annotations"] = {f"{PREFIX}resource-keys": '["cpu","nvidia.com/gpu"]'}
    assert kubectl.apply(Document("", 1, profile))
    kubectl.kubernetes.objects[root] = before  # to the webhook
    team["spec"] = {"max": {"cpu": 8, "nvidia.com/gpu": 8}, "min": {"cpu": 4, "nvidia.com/gpu": 9}}
    assert not kubectl.apply(Document("", 1, team))
    team["spec"]["min"]["nvidia.com/gpu"] = 8
    assert kubectl.apply(Document("", 1, team))
