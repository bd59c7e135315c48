"""From manifests to settings, and every way in which elastic quotas can be wrong. Runs on the embedded cluster."""

from __future__ import annotations

from typing import Any

import pytest

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document, load_text
from bursar.policies.elastic.plugin import PLUGIN
from bursar.policies.elastic.policy import ElasticPolicy
from bursar.policies.elastic.settings import OPTIONS_SETTING
from bursar.policies.nodes.plugin import PLUGIN as NODES
from bursar.policies.plugin import Registry, default_registry
from bursar.policies.results import Setting, SettingError
from bursar.sim.cluster import Cluster
from tests.policies.elastic.world import World, quota_setting

QUOTA = """
apiVersion: n8s.nebuly.ai/v1alpha1
kind: ElasticQuota
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{{spec}}}
"""
COMPOSITE = """
apiVersion: n8s.nebuly.ai/v1alpha1
kind: CompositeElasticQuota
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{{spec}}}
"""
CONFIGURATION = """
apiVersion: bursar.dev/v1alpha1
kind: Configuration
metadata: {{name: default}}
spec: {{elastic: {{{spec}}}}}
"""


def cluster() -> Cluster:
    return Cluster(Registry([PLUGIN, NODES]))


def quota(namespace: str, spec: str = "min: {cpu: 2}", name: str = "quota") -> str:
    return QUOTA.format(name=name, namespace=namespace, spec=spec)


def composite(namespaces: str, spec: str = "min: {cpu: 2}", name: str = "team", namespace: str = "x") -> str:
    return COMPOSITE.format(name=name, namespace=namespace, spec=f"namespaces: [{namespaces}], {spec}")


def apply(target: Cluster, *texts: str) -> None:
    target.apply(load_text("\n---\n".join(texts)))


def policy_of(target: Cluster) -> ElasticPolicy:
    (found,) = [policy for policy in target.engine.policies if isinstance(policy, ElasticPolicy)]
    return found


def find(target: Cluster, reference: str) -> dict[str, Any] | None:
    kind, key = target.kinds.reference(reference)
    return target.find(kind, key)


def test_the_registry_knows_it() -> None:
    assert [policy.name for policy in default_registry().policies() if policy.name == "elastic"] == ["elastic"]


def test_both_kinds_are_read() -> None:
    target = cluster()
    apply(target, quota("a", "min: {cpu: 2, n8s.nebuly.ai/gpu-memory: 16}, max: {cpu: 10}"), composite("b, c"))
    book = policy_of(target).book
    assert [q.body.subject for q in book.live()] == ["CompositeElasticQuota x/team", "ElasticQuota a/quota"]
    assert book.quotas["ElasticQuota/a/quota"].body.max.show() == {"cpu": "10"}


def test_listings_show_used_and_bounds() -> None:
    for kind in PLUGIN.kinds:
        titles = [column.title for column in kind.columns if not column.wide]
        assert titles == ["Used", "Min", "Max"]
        assert kind.short_names in {("eq", "eqs"), ("ceq", "ceqs")}


def test_sections_are_read() -> None:
    target = cluster()
    spec = "nvidiaGPUResourceMemoryGB: 32, slices: {amd.com/gpu: 64}, borrowing: capacity, order: creation"
    apply(target, quota("a"), CONFIGURATION.format(spec=spec))
    options = policy_of(target).book.options
    assert options.cell() == (32, (("amd.com/gpu", 64),), "capacity", "creation")
    apply(target, CONFIGURATION.format(spec=""))
    assert policy_of(target).book.options.cell() == (16, (), "min", "priority")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (quota("a", "min: {cpu: 4}, max: {cpu: 2}"), "ElasticQuota a/quota: spec.max.cpu: 2 is less than the min of 4"),
        (quota("a", "min: {cpu: -1}"), "ElasticQuota a/quota: spec.min.cpu: "),
        (quota("a", "max: {memory: -1Gi}"), "ElasticQuota a/quota: spec.max.memory: "),
        (quota("a", "min: {cpu: many}"), "ElasticQuota a/quota: spec.min.cpu: "),
        (quota("a", "min: {cpu: }"), "ElasticQuota a/quota: spec.min.cpu"),
        (quota("a", "minimum: {cpu: 1}"), "ElasticQuota a/quota: spec.minimum"),
        (quota("a", "min: {'not a name': 1}"), "spec.min.not a name: is not the name of a resource"),
        (composite(""), "CompositeElasticQuota x/team: spec.namespaces: must name at least one namespace"),
        (composite("a, a"), "CompositeElasticQuota x/team: spec.namespaces[1]: a is named twice"),
        (composite("A_b"), "CompositeElasticQuota x/team: spec.namespaces[0]: 'A_b' is not a namespace"),
        (composite("a", "min: {cpu: 4}, max: {cpu: 2}"), "spec.max.cpu: 2 is less than the min of 4"),
        (COMPOSITE.format(name="t", namespace="x", spec="min: {}"), "CompositeElasticQuota x/t: spec.namespaces"),
        (CONFIGURATION.format(spec="nvidiaGpuResourceMemoryGB: 8"), "spec.elastic.nvidiaGpuResourceMemoryGB"),
        (CONFIGURATION.format(spec="nvidiaGPUResourceMemoryGB: -1"), "spec.elastic.nvidiaGPUResourceMemoryGB: -1 is"),
        (CONFIGURATION.format(spec="slices: {amd.com/gpu: -1}"), "spec.elastic.slices.amd.com/gpu: -1 is not"),
        (CONFIGURATION.format(spec="borrowing: everything"), "spec.elastic.borrowing"),
        (CONFIGURATION.format(spec="order: size"), "spec.elastic.order"),
    ],
)
def test_what_is_wrong_with_one_object(text: str, message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        apply(cluster(), text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "manifest", [quota("a", "min: {cpu: 4}, max: {cpu: 2}"), composite("a", "min: {cpu: 4}, max: {cpu: 2}")]
)
def test_bounds_are_checked_when_a_manifest_is_read_by_itself(manifest: str) -> None:
    """As the webhook does, which knows of no engine."""
    with pytest.raises(ManifestError, match=r"spec\.max\.cpu: 2 is less than the min of 4"):
        cluster().kinds.read_all(load_text(manifest))


def test_options_without_a_body_are_the_defaults() -> None:
    world = World(gpu_gb=8)
    world.engine.configure([Setting(OPTIONS_SETTING, "default", None)])
    assert world.policy.book.options.cell() == (16, (), "min", "priority")


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            quota("a"),
            quota("a", name="other"),
            "ElasticQuota a/other: metadata.namespace: namespace a is governed by ElasticQuota a/quota already",
        ),
        (
            composite("a, b"),
            quota("b"),
            "ElasticQuota b/quota: metadata.namespace: namespace b is governed by CompositeElasticQuota x/team already",
        ),
        (
            composite("a, b"),
            composite("c, b", name="other"),
            "CompositeElasticQuota x/other: spec.namespaces[1]: namespace b is governed by Composite",
        ),
        (
            quota("b"),
            composite("a, b"),
            "namespace b is governed by ElasticQuota b/quota already; takeover: true would replace it",
        ),
    ],
    ids=["issue-518", "quota-in-composite", "composites-overlap", "CEQ4-without-takeover"],
)
@pytest.mark.parametrize("together", [False, True])
def test_conflicts_name_the_other_object(first: str, second: str, message: str, together: bool) -> None:
    target = cluster()
    if not together:
        apply(target, first)
    with pytest.raises(ManifestError) as caught:
        apply(target, *([first, second] if together else [second]))
    assert message in str(caught.value)
    assert len(policy_of(target).book.live()) == (0 if together else 1)


def test_an_update_is_checked_like_a_new_object() -> None:
    target = cluster()
    apply(target, quota("a"), composite("b"))
    for text in (quota("a", "min: {cpu: 4}, max: {cpu: 2}"), composite("b, a")):
        with pytest.raises(ManifestError):
            apply(target, text)
    assert sorted(policy_of(target).book.by_namespace) == ["a", "b"]
    apply(target, composite("b, c"))


def test_the_policy_itself_refuses_conflicts() -> None:
    """Two objects that were admitted at the same time: the second one is refused all the same."""
    world = World()
    world.quota("a", {"cpu": 1})
    before = world.engine.state.plain()
    for setting in (
        quota_setting("a", {"cpu": 2}, name="other"),
        quota_setting("x", {}, namespaces=("a",)),
        quota_setting("b", {"cpu": 2}, {"cpu": 1}),
    ):
        with pytest.raises(SettingError):
            world.engine.configure([setting])
        assert world.engine.state.plain() == before


def test_ceq4_takeover() -> None:
    """eq-1 and eq-2 are replaced and deleted, eq-3 stays; what ran keeps counting, now in the composite."""
    target = cluster()
    apply(target, quota("ns1", "min: {cpu: 100}"), quota("ns2", "min: {cpu: 200}"), quota("ns3", "min: {cpu: 200}"))
    apply(target, composite("ns1, ns2", "min: {cpu: 100}, takeover: true"))
    assert [q.id for q in policy_of(target).book.live()] == [
        "CompositeElasticQuota/x/team",
        "ElasticQuota/ns3/quota",
    ]
    assert find(target, "ElasticQuota/ns1/quota") is None
    assert find(target, "ElasticQuota/ns2/quota") is None
    assert find(target, "ElasticQuota/ns3/quota") is not None
    assert "elastic/ElasticQuota/ns1/quota" not in target.engine.state.accounts


def test_a_refused_takeover_deletes_nothing() -> None:
    target = cluster()
    apply(target, quota("ns1"), composite("ns2"))
    with pytest.raises(ManifestError):
        apply(target, composite("ns1, ns2", "min: {cpu: 1}, takeover: true", name="greedy"))
    assert find(target, "ElasticQuota/ns1/quota") is not None


def test_the_label_of_a_pod_is_repaired() -> None:
    target = cluster()
    pod = (
        "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: a, labels: {%s}}, spec: {containers: [{name: c}]}}"
    )
    node = "{apiVersion: v1, kind: Node, metadata: {name: n1}}"
    apply(target, node, quota("a"), pod % "")
    edited = pod % "n8s.nebuly.ai/capacity: over-quota"
    apply(target, edited)
    view = target.pod("a/p")
    assert view is not None
    assert view.labels["n8s.nebuly.ai/capacity"] == "in-quota"


def pod_of(name: str, containers: list[dict[str, object]], init: list[dict[str, object]] | None = None) -> Document:
    """A pod of the namespace a with containers of these limits."""
    spec = {
        "containers": [{"name": f"c{i}", "resources": {"limits": limits}} for i, limits in enumerate(containers)],
        "initContainers": [{"name": f"i{i}", "resources": {"limits": limits}} for i, limits in enumerate(init or [])],
    }
    metadata = {"name": name, "namespace": "a"}
    return Document("", 0, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


@pytest.mark.parametrize(
    ("spec", "pods", "used"),
    [
        pytest.param(
            "min: {cpu: 4, n8s.nebuly.ai/gpu-memory: 64}, max: {cpu: 6, n8s.nebuly.ai/gpu-memory: 80}",
            [
                pod_of(
                    "p",
                    [
                        {"cpu": "500m", "nvidia.com/gpu": 1},
                        {"cpu": "500m", "nvidia.com/gpu": 2, "nvidia.com/mig-1g.1gb": 1},
                    ],
                )
            ],
            {"cpu": "1", "n8s.nebuly.ai/gpu-memory": "49"},
            id="EQ1",
        ),
        pytest.param(
            "min: {cpu: 50, memory: 15}",
            [
                pod_of("p1", [{"cpu": 1, "memory": 2}, {"cpu": 1, "memory": 2}]),
                pod_of("p2", [{"cpu": 2, "memory": 1}, {"cpu": 1, "memory": 1}], [{"cpu": 2, "memory": 3}]),
            ],
            {"cpu": "5", "memory": "7"},
            id="5C-controller-b",
        ),
        pytest.param(
            "min: {cpu: 50, memory: 15Gi}",
            [
                pod_of(
                    "p",
                    [{"cpu": 2, "memory": "1Gi"}, {"cpu": 1, "memory": "1Gi"}],
                    [{"cpu": 2, "memory": "1Gi"}, {"cpu": 2, "memory": "3Gi"}],
                )
            ],
            {"cpu": "3", "memory": "3Gi"},
            id="init-containers",
        ),
        pytest.param(
            "min: {n8s.nebuly.ai/gpu-memory: 64}",
            [pod_of("p", [{"nvidia.com/mig-1g.10gb": 1, "nvidia.com/gpu": 2}])],
            {"n8s.nebuly.ai/gpu-memory": "42"},
            id="seed-pod",
        ),
    ],
)
def test_used_counts_what_pods_request(spec: str, pods: list[Document], used: dict[str, str]) -> None:
    target = cluster()
    stock = "cpu: 99, memory: 99Gi, nvidia.com/gpu: 9, nvidia.com/mig-1g.1gb: 9, nvidia.com/mig-1g.10gb: 9"
    node = "{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {%s}}}"
    apply(target, quota("a", spec), node % stock)
    target.apply(pods)
    found = find(target, "ElasticQuota/a/quota")
    assert found is not None
    assert found["status"]["used"] == used


def test_a_composite_whose_max_is_below_its_min_is_refused() -> None:
    with pytest.raises(ManifestError, match=r"spec\.max"):
        apply(cluster(), composite("a, b", "min: {cpu: 2}, max: {cpu: 1}"))
