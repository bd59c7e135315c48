"""Least privilege, from both sides: nothing that Bursar asks for is refused, and it asks for all that it may.

The API server's own audit log is what is compared with the table of ``bursar.kube.rbac``.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bursar.kube import rbac
from bursar.kube.admission.predicate import ANSWERS_API
from bursar.policies.plugin import default_registry
from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.auditing import calls, events, flags
from tests.cluster.controlplane.identities import BURSAR
from tests.cluster.controlplane.ports import Ports
from tests.cluster.installation import install
from tests.cluster.stories.controller_process import Running
from tests.cluster.stories.story import Manifest, Story
from tests.cluster.waiting import eventually

GPU = "nvidia.com/gpu"
ANSWERS = Path(__file__).parent.parent.parent / "deploy" / "answers.yaml"
SLOWLY = {"sim.bursar.dev/leaves-after": "2s"}
Verb = tuple[str, str, str]


def granted() -> set[Verb]:
    """(verb, group, resource) of the table."""
    table = [*rbac.cluster_access(default_registry()), *rbac.IN_OWN_NAMESPACE]
    return {
        (verb, access.group, resource) for access in table for resource in access.resources for verb in access.verbs
    }


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def plane(log: Path) -> Iterator[ControlPlane]:
    with ControlPlane.start(apiserver_flags=flags(log.with_suffix(".json"), log, BURSAR)) as plane:
        yield plane


@pytest.fixture
def story(plane: ControlPlane) -> Iterator[Story]:
    ports = Ports()
    running = Running(plane, ports)
    try:
        install(plane, running.webhook_port)
        plane.kubectl("apply", "-f", str(ANSWERS))
        running.start()
        bundle = "-o=jsonpath={.spec.caBundle}"
        eventually(lambda: plane.kubectl("get", "apiservice", ANSWERS_API, bundle), "the answers API is trusted")
        plane.kubectl("delete", "-f", str(ANSWERS))  # nothing answers there, and then no namespace can be deleted
        yield Story(plane)
    finally:
        running.close()
        ports.close()


def quota(namespace: str, least: int) -> Manifest:
    return {
        "apiVersion": "n8s.nebuly.ai/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "quota", "namespace": namespace},
        "spec": {"min": {GPU: least}},
    }


OTHERS = """
apiVersion: bursar.dev/v1alpha1
kind: QuotaTree
metadata: {name: org}
spec: {nodes: {root: {quota: {cpu: 10}}}}
---
apiVersion: tensor-fusion.ai/v1
kind: GPUPool
metadata: {name: shared}
spec: {}
---
apiVersion: quota.koordinator.sh/v1alpha1
kind: ElasticQuotaProfile
metadata: {name: pool, namespace: default}
spec: {quotaName: pool-root, nodeSelector: {}}
---
apiVersion: tensor-fusion.ai/v1
kind: GPUResourceQuota
metadata: {name: quota, namespace: default}
spec: {total: {maxWorkers: 3}}
---
apiVersion: bursar.dev/v1alpha1
kind: Configuration
metadata: {name: default}
spec: {crossquota: {gpu-resource-names: nvidia.com/gpu, quota.cpu: "32"}}
"""


def borrow_and_reclaim(story: Story) -> tuple[str, str]:
    """Starts, holds, evictions and labels; two namespaces with quotas."""
    a, b = story.namespace("a"), story.namespace("b")
    story.nodes(1, {GPU: "2"})
    (other,) = story.nodes(1)
    story.gpus(other, 1)
    story.apply(quota(a, 1), quota(b, 1))
    story.governed(a, b)
    story.submit(b, *(story.pod(f"b{number}", {GPU: "1"}, annotations=SLOWLY) for number in range(2)))
    story.running(b, "b0", "b1")
    story.submit(a, story.pod("a0", {GPU: "1"}))
    story.running(a, "a0")
    return a, b


def test_a_hold_stands_before_anybody_is_told_to_leave(story: Story, log: Path) -> None:
    a, b = borrow_and_reclaim(story)
    made = [event for event in events(log) if event.get("objectRef", {}).get("namespace") in {a, b}]
    held = [one["stageTimestamp"] for one in made if _is_about(one, "patch", "pods", "", "a0")]
    evicted = [one["requestReceivedTimestamp"] for one in made if _is_about(one, "create", "pods", "eviction")]
    assert len(evicted) == 1
    assert min(held) <= min(evicted), "the answer to the first came before the second was asked"
    story.end()


def _is_about(event: Manifest, verb: str, resource: str, subresource: str, name: str = "") -> bool:
    what = event["objectRef"]
    found = event["verb"], what["resource"], what.get("subresource", "")
    return found == (verb, resource, subresource) and name in {"", what["name"]}


def test_what_is_granted_is_what_is_used(story: Story, log: Path) -> None:
    a, b = borrow_and_reclaim(story)
    story.apply(OTHERS)
    composite = quota(story.namespace("c"), 2) | {"kind": "CompositeElasticQuota"}
    composite["spec"] |= {"namespaces": [a, b], "takeover": True}
    story.apply(composite)
    root = "elasticquotas.scheduling.sigs.k8s.io"
    status = '-o=jsonpath={.items[?(@.metadata.name=="pool-root")].status}'
    eventually(lambda: story.plane.kubectl("get", root, "-A", status), "the root quota to be made, with its status")
    story.delete("elasticquotaprofiles", "pool", "default")
    eventually(lambda: "pool-root" not in story.plane.kubectl("get", root, "-A"), "the root quota to be gone")
    try:
        eventually(lambda: not never_used(log), "all that is granted to be used")
    except AssertionError as error:
        raise AssertionError(f"{error}: {sorted(never_used(log))}") from None
    assert [call for call in calls(log) if call.status == 403] == []
    assert {call for call in used(log) if call[2]} <= granted()
    story.end()


RARE: set[Verb] = {
    ("get", "batch", "jobs"),  # before the pod of a Job is evicted because the scheduler does not bind it
    ("patch", "events.k8s.io", "events"),  # an event that is told again
    ("patch", "", "secrets"),  # a certificate that is renewed
    ("create", "scheduling.sigs.k8s.io", "elasticquotas"),  # logged as patch: an apply that makes an object needs both
    ("patch", "quota.koordinator.sh", "elasticquotaprofiles"),  # a profile from before the webhook
    ("patch", "bursar.dev", "configurations/status"),  # one that is wrong, from before the webhook
}


def never_used(log: Path) -> set[Verb]:
    """Watches are logged when they end, and lists are streams by watch: who may watch and list, does."""
    table = granted()
    followed = {(verb, *what) for watch, *what in table if watch == "watch" for verb in ("list", "watch")}
    return table - followed - used(log) - RARE


def used(log: Path) -> set[Verb]:
    return {(call.verb, call.group, call.resource) for call in calls(log)}
