from contextlib import suppress
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, field

from bursar.objects.core import LabelSelector, Lenient, Manifest, Object, ObjectMeta, Part, Pod, Quantities
from bursar.objects.crds import configuration_kind
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import CORE_KINDS, Kind, KindSet, int_or_percent
from bursar.objects.manifests import Document, load_text
from bursar.objects.pods import Priorities, claim_from_pod
from bursar.objects.requests import limits_from
from tests.builders import disruption_budget, namespace_named, node, pod, priority_class, read, read_pod


class QuotaLevel(Part, frozen=True):
    name: str
    share: Annotated[int, Meta(ge=1)] = 1


class QuotaSpec(Part, frozen=True):
    min: Quantities = field(default_factory=dict)
    max_used: Quantities = field(default_factory=dict)
    levels: tuple[QuotaLevel, ...] = ()
    by_team: dict[str, QuotaLevel] = field(default_factory=dict)
    mode: Literal["hard", "soft"] = "hard"
    selector: LabelSelector | None = None


class Quota(Manifest, frozen=True):
    spec: QuotaSpec = QuotaSpec()


class Consumer(Object, frozen=True):
    spec: dict[str, object] = field(default_factory=dict)


class FlatSection(Part, frozen=True):
    weight: int = 10
    gpu_names: str = ""


def check_quota(quota: Quota) -> None:
    limits_from(quota.spec.max_used, "spec.maxUsed")


A_QUOTA = Kind("a.example", "v1", "Quota", "quotas", True, Quota, strict=True, short_names=("qa",), check=check_quota)
B_QUOTA = Kind("b.example", "v2", "Quota", "quotas", True, Quota, strict=True, short_names=("qb",))
TREE = Kind("bursar.dev", "v1alpha1", "QuotaTree", "quotatrees", False, Object, bare=True, any_name=True)
CONSUMER = Kind("", "", "Consumer", "consumers", False, Consumer, name_path=("spec", "id"), any_name=True)
KINDS = KindSet([*CORE_KINDS, A_QUOTA, B_QUOTA, TREE, CONSUMER, configuration_kind({"crossquota": FlatSection})])


def quota(**spec: object) -> dict[str, Any]:
    return {"apiVersion": "a.example/v1", "kind": "Quota", "metadata": {"name": "q", "namespace": "t"}, "spec": spec}


def configuration(name: str = "default", **spec: object) -> dict[str, Any]:
    return {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": {"name": name}, "spec": spec}


def refusal(body: dict[str, Any]) -> str:
    with pytest.raises(ManifestError) as caught:
        KINDS.read(Document("q.yaml", 2, body))
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Pod", "Pod"),
        ("pod", "Pod"),
        ("pods", "Pod"),
        ("po", "Pod"),
        ("PriorityClass", "PriorityClass"),
        ("PriorityClass.scheduling.k8s.io", "PriorityClass"),
        ("Quota.a.example", "Quota.a.example"),
        ("quotas.b.example", "Quota.b.example"),
        ("qb", "Quota.b.example"),
        ("Configuration", "Configuration.bursar.dev"),
    ],
)
def test_kinds_are_found_by_the_names_people_use(name: str, kind: str) -> None:
    assert KINDS.find(name).name == kind


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Quota", "the kind 'Quota' is ambiguous: type Quota.a.example or Quota.b.example"),
        ("quotas", "the kind 'quotas' is ambiguous: type Quota.a.example or Quota.b.example"),
        ("pot", "the kind 'pot' is not known; known are Configuration.bursar.dev, Consumer, DeviceClass"),
        ("", "the kind '' is not known"),
    ],
)
def test_a_name_must_mean_exactly_one_kind(name: str, problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        KINDS.find(name)
    assert problem in str(caught.value)


def test_references_name_objects() -> None:
    assert [(kind.name, key) for kind, key in map(KINDS.reference, ["Pod/a/b", "Node/n1", "Quota.a.example/t/q"])] == [
        ("Pod", "a/b"),
        ("Node", "n1"),
        ("Quota.a.example", "t/q"),
    ]


@pytest.mark.parametrize("text", ["Pod/a", "Pod/a/b/c", "Node/a/b", "Pod//b", "Node/", "Node"])
def test_references_have_the_form_of_their_kind(text: str) -> None:
    with pytest.raises(ManifestError, match=r"does not have the form (Pod/namespace/name|Node/name)"):
        KINDS.reference(text)


def test_namespace_is_filled_in() -> None:
    manifest = pod()
    del manifest["metadata"]["namespace"]
    found = read(manifest)
    assert (found.key, found.body["metadata"]["namespace"]) == ("default/p", "default")
    assert read_pod(manifest).metadata.namespace == "default"
    assert "namespace" not in manifest["metadata"]


def test_fields_that_are_null_are_absent() -> None:
    manifest = pod(tolerations=None, affinity={"nodeAffinity": None}, nodeSelector=None)
    manifest["metadata"] |= {"creationTimestamp": None, "labels": None}
    manifest["spec"]["containers"][0]["ports"] = None
    found = read(manifest)
    assert found.body["metadata"].keys() == {"name", "namespace", "annotations"}
    assert found.body["spec"].keys() == {"containers", "affinity"}


def test_unknown_fields_are_ignored_in_lenient_kinds_and_kept_in_the_body() -> None:
    found = read(pod(volumes=[{"name": "v"}]))
    assert found.body["spec"]["volumes"] == [{"name": "v"}]


def test_kinds_without_api_version_and_with_names_of_their_own() -> None:
    tree = KINDS.read(Document("", 1, {"kind": "QuotaTree", "metadata": {"name": "Test Tree"}}))
    assert (tree.kind, tree.key) == (TREE, "Test Tree")
    qualified = KINDS.read(
        Document("", 1, {"apiVersion": "bursar.dev/v1alpha1", "kind": "QuotaTree", "metadata": {"name": "T"}})
    )
    assert qualified.kind is TREE
    body = {"kind": "Consumer", "metadata": {"name": "consumer-data"}, "spec": {"id": "job-1"}}
    assert KINDS.read(Document("", 1, body)).key == "job-1"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "q.yaml: document 2: kind: is required, as text"),
        ({"kind": 5, "metadata": {"name": "x"}}, "q.yaml: document 2: x: kind: is required, as text"),
        ({"kind": "Pod"}, "q.yaml: document 2: Pod: apiVersion: is required, as text"),
        ({"kind": "Pod", "apiVersion": 1}, "Pod: apiVersion: is required, as text"),
        ({"kind": "Pod", "apiVersion": "apps/v1"}, "Pod: apiVersion: Pod is a kind of v1, not of 'apps/v1'"),
        (
            {"kind": "Quota", "apiVersion": "a.example/v9"},
            "Quota: apiVersion: Quota is a kind of a.example/v1 and of b.example/v2, not of 'a.example/v9'",
        ),
        (
            {"kind": "Confguration", "apiVersion": "bursar.dev/v1alpha1", "metadata": {"name": "default"}},
            "kind: 'Confguration' is not a kind of bursar.dev, which has Configuration, QuotaTree",
        ),
        (
            {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "w", "namespace": "s"}},
            "q.yaml: document 2: Deployment s/w: kind: apps/v1 Deployment is not handled; handled are Configuration",
        ),
        ({"kind": "Consumer", "spec": {}}, "Consumer: spec.id: is required"),
        ({"kind": "Consumer", "spec": {"id": "a\nb"}}, "Consumer: spec.id: 'a\\nb' is not a name"),
        ({"kind": "Consumer", "spec": []}, "Consumer: spec: expected a mapping"),
        ({"kind": "QuotaTree"}, "QuotaTree: metadata.name: is required"),
        (pod("A"), "Pod default/A: metadata.name: 'A' is not a name"),
        (pod("a" * 254), "is not a name: up to 253"),
        (pod("-a"), "metadata.name: '-a' is not a name"),
        (pod(namespace="a.b"), "metadata.namespace: 'a.b' is not a namespace"),
        (pod() | {"metadata": {"name": 5}}, "Pod: metadata.name: 5 is not a name"),
        (pod() | {"metadata": {"name": ""}}, "Pod: metadata.name: '' is not a name"),
        (pod() | {"metadata": {"generateName": "x-"}}, "Pod: metadata.name: is required, and a generated one is none"),
        (pod() | {"metadata": []}, "Pod: metadata: expected a mapping"),
        (pod() | {"metadata": {"name": "p", "namespace": []}}, "metadata.namespace: [] is not a namespace"),
        (namespace_named("a") | {"metadata": {"name": "a", "namespace": "b"}}, "a Namespace belongs to no namespace"),
        (pod(labels={"a b": "c"}), "metadata.labels.a b: is not a key of the form name or prefix/name"),
        (pod(labels={"a": "x" * 64}), "metadata.labels.a: 'xxx"),
        (pod(annotations={"/a": "c"}), "metadata.annotations./a: is not a key of the form name or prefix/name"),
        (
            node() | {"metadata": {"name": "n", "labels": {"a": 1}}},
            "metadata.labels.a: expected text, not a whole number;",
        ),
        (node() | {"metadata": {"name": "n", "labels": {"a": None}}}, "metadata.labels.a: expected text, not nothing"),
        (pod(containers={}), "spec.containers: expected a list, not a mapping"),
        (pod(containers=[5]), "spec.containers[0]: expected a mapping, not a whole number"),
        (pod() | {"spec": "x"}, "spec: expected a mapping, not text"),
    ],
)
def test_bad_objects_are_one_line(body: dict[str, Any], problem: str) -> None:
    message = refusal(body)
    assert problem in message
    assert message.startswith("q.yaml: document 2: ")
    assert message.isprintable()


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"mx": {}}, "q.yaml: document 2: Quota t/q: spec.mx: is not a known field; known are byTeam, levels, maxUsed"),
        ({"maxused": {}}, "Quota t/q: spec.maxused: is not a known field; did you mean maxUsed?"),
        ({"max_used": {}}, "Quota t/q: spec.max_used: is not a known field; did you mean maxUsed?"),
        ({"levels": [{"name": "a"}, {}]}, "Quota t/q: spec.levels[1].name: is required"),
        ({"levels": [{"name": "a", "shar": 1}]}, "spec.levels[0].shar: is not a known field; did you mean share?"),
        ({"levels": [{"name": "a", "share": 0}]}, "spec.levels[0].share: 0 is not a whole number >= 1"),
        ({"byTeam": {"x.y/z": {"name": 1}}}, "spec.byTeam.x.y/z.name: expected text, not a whole number; put it in"),
        ({"mode": "Hard"}, "spec.mode: 'Hard' is none of hard, soft"),
        (
            {"selector": {"matchLables": {}}},
            "spec.selector.matchLables: is not a known field; did you mean matchLabels?",
        ),
        ({"min": {"cpu": None}}, "spec.min.cpu: expected a number or text, not nothing"),
        ({"min": {"cpu": True}}, "spec.min.cpu: expected a number or text, not true or false"),
        ({"maxUsed": {"cpu": "12x"}}, "Quota t/q: spec.maxUsed.cpu: '12x' is not a quantity: unknown suffix 'x'"),
    ],
)
def test_strict_kinds_refuse_what_they_do_not_know(spec: dict[str, Any], problem: str) -> None:
    assert problem in refusal(quota(**spec))


def test_status_of_a_strict_kind_may_be_anything() -> None:
    assert KINDS.read(Document("", 1, quota() | {"status": {"whatever": 1}})).key == "t/q"


def test_a_field_of_a_strict_kind_at_the_top_is_checked_too() -> None:
    assert "Quota t/q: sepc: is not a known field; did you mean spec?" in refusal(quota() | {"sepc": {}})


def test_items_of_a_list_are_placed() -> None:
    text = "kind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: n}}\n- {apiVersion: v1, kind: Node}\n"
    with pytest.raises(ManifestError, match=r"f\.yaml: document 1: Node: items\[1\]\.metadata\.name: is required"):
        KINDS.read_all(load_text(text, "f.yaml"))


def test_an_object_is_given_once() -> None:
    documents = [Document("a.yaml", 1, pod()), Document("b.yaml", 1, node()), Document("b.yaml", 2, pod())]
    assert [found.key for found in KINDS.read_all(documents[:2])] == ["default/p", "n1"]
    with pytest.raises(ManifestError) as caught:
        KINDS.read_all(documents)
    assert str(caught.value) == "b.yaml: document 2: Pod default/p: is given twice, first in document 1 of a.yaml"


def test_a_kind_is_registered_once() -> None:
    with pytest.raises(ValueError, match=r"the kind Quota\.a\.example is registered already"):
        KindSet([A_QUOTA, A_QUOTA])


def test_a_strict_kind_must_be_strict_all_the_way_down() -> None:
    class Loose(Lenient, frozen=True):
        x: int = 0

    class Tight(Part, frozen=True):
        inner: dict[str, tuple[Loose, ...]] = field(default_factory=dict)
        meta: ObjectMeta | None = None

    class Leaky(Manifest, frozen=True):
        spec: Tight = Tight()

    with pytest.raises(TypeError, match="Loose, inside the strict Leaky, does not forbid unknown fields"):
        KindSet([Kind("a.example", "v1", "Leaky", "leakies", True, Leaky, strict=True)])


def test_configuration_has_the_sections_it_was_given() -> None:
    typed: Any = KINDS.read(Document("", 1, configuration(crossquota={"weight": 3}))).typed
    assert typed.spec.crossquota == FlatSection(weight=3)
    empty: Any = KINDS.read(Document("", 1, configuration())).typed
    assert empty.spec.crossquota is None


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (
            configuration("mine"),
            "Configuration mine: metadata.name: there is one Configuration, and its name is 'default'",
        ),
        (configuration(elastc={}), "Configuration default: spec.elastc: is not a known field; known are crossquota"),
        (
            configuration(crossquota={"wieght": 1}),
            "Configuration default: spec.crossquota.wieght: is not a known field; did you mean weight?",
        ),
        (configuration(crossquota={"weight": "1"}), "spec.crossquota.weight: expected a whole number, not text"),
    ],
)
def test_bad_configuration(body: dict[str, Any], problem: str) -> None:
    assert problem in refusal(body)


def test_quantities_become_limits() -> None:
    assert limits_from({"cpu": 0}, "p").show() == {"cpu": "0"}


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
FIELDS = [
    "spec", "status", "metadata", "name", "namespace", "labels", "annotations", "containers", "initContainers",
    "resources", "requests", "limits", "cpu", "overhead", "affinity", "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms", "matchFields", "tolerations", "key",
    "operator", "values", "taints", "allocatable", "priority", "selector", "matchLabels", "minAvailable", "min",
    "levels", "maxUsed", "byTeam", "mode", "value", "items", "crossquota", "ownerReferences", "bursar.dev/group",
    "bursar.dev/group-size",
]  # fmt: skip
KEYS = st.sampled_from(FIELDS) | st.text(max_size=4)
TREES = st.recursive(
    SCALARS | st.sampled_from(["1", "default", "Exists", "In", "Always", "1Gi"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
HEADS = st.sampled_from([
    pod(requests={"cpu": 1}), node(allocatable={"cpu": 1}), namespace_named("a"), quota(), configuration(),
    {"kind": "QuotaTree"}, {"kind": "Consumer", "spec": {"id": "x"}}, {},
])  # fmt: skip


def put(tree: object, path: list[str], value: object) -> object:
    """The tree with ``value`` at ``path``, making way as needed."""
    if not path:
        return value
    inner = tree if isinstance(tree, dict) else {}
    return {**inner, path[0]: put(inner.get(path[0]), path[1:], value)}


@settings(max_examples=500)
@given(HEADS, st.lists(KEYS, min_size=1, max_size=4), TREES)
def test_no_structure_raises_anything_else(head: dict[str, Any], path: list[str], value: object) -> None:
    body = put(head, path, value)
    assert isinstance(body, dict)
    with suppress(ManifestError):
        typed = KINDS.read(Document("f.yaml", 1, body)).typed
        if isinstance(typed, Pod):
            claim_from_pod(typed, 0, Priorities())


# Core kinds


VALID: list[dict[str, Any]] = [
    pod(requests={"cpu": 1}),
    node(allocatable={"cpu": 8, "nvidia.com/gpu": "4"}, taints=[{"key": "gpu", "effect": "NoSchedule"}]),
    namespace_named("team-a", {"bursar.dev/quota": "enforced"}),
    priority_class("high", 1_000_000_000),
    priority_class("system-node-critical", 2_000_001_000),
    disruption_budget("b", "team-a", {"app": "x"}, minAvailable=1),
    disruption_budget("b", "team-a", {"app": "x"}, maxUnavailable="50%"),
    disruption_budget("b", "team-a", {}),
]


@pytest.mark.parametrize("manifest", VALID, ids=[f"{m['kind']}-{i}" for i, m in enumerate(VALID)])
def test_valid_objects_are_read(manifest: dict[str, Any]) -> None:
    found = read(manifest)
    assert found.kind.kind == manifest["kind"]
    assert found.name == manifest["metadata"]["name"]


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (node(allocatable={"cpu": "12x"}), "Node n1: status.allocatable.cpu: '12x' is not a quantity"),
        (node() | {"status": {"capacity": {"cpu": -1}}}, "Node n1: status.capacity.cpu: '-1' must not be negative"),
        (node(taints=[{"key": "a"}]), "Node n1: spec.taints[0].effect: is required"),
        (node(taints=[{"key": "", "effect": "NoExecute"}]), "Node n1: spec.taints[0].key: must not be empty"),
        (node(taints=[{"key": "a", "effect": "No"}]), "Node n1: spec.taints[0].effect: 'No' is none of NoSchedule"),
        (namespace_named("a.b"), "Namespace a.b: metadata.name: 'a.b' is not a namespace"),
        (priority_class("p", 1_000_000_001), "PriorityClass p: value: 1000000001 is more than 1000000000"),
        (priority_class("system-x", 1), "PriorityClass system-x: metadata.name: names that start with system-"),
        (priority_class("p", 1, preemptionPolicy="x"), "PriorityClass p: preemptionPolicy: 'x' is none of"),
        (
            {k: v for k, v in priority_class("p", 1).items() if k != "value"},
            "PriorityClass p: value: is required",
        ),
        (
            disruption_budget("b", "a", {}, minAvailable=1, maxUnavailable=1),
            "PodDisruptionBudget a/b: spec.maxUnavailable: cannot be given together with minAvailable",
        ),
        (
            disruption_budget("b", "a", {}, minAvailable="half"),
            "PodDisruptionBudget a/b: spec.minAvailable: 'half' is neither a number of pods nor a percentage",
        ),
        (
            disruption_budget("b", "a", {}, maxUnavailable=1.5),
            "PodDisruptionBudget a/b: spec.maxUnavailable: expected a whole number or text, not a number",
        ),
        (
            disruption_budget("b", "a", {"x": "y z"}, maxUnavailable=1),
            "PodDisruptionBudget a/b: spec.selector.matchLabels.x: 'y z' is not a label value",
        ),
        (
            disruption_budget("b", "a", {}) | {"spec": {"selector": {"matchLables": {}}}},
            "PodDisruptionBudget a/b: spec.selector.matchLables: is not a known field; did you mean matchLabels?",
        ),
    ],
)
def test_bad_objects_are_named(manifest: dict[str, Any], problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read(manifest)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("value", "expected"), [(0, (0, False)), (7, (7, False)), ("50%", (50, True)), ("0%", (0, True))]
)
def test_bound_of_a_budget(value: int | str, expected: tuple[int, bool]) -> None:
    assert int_or_percent(value, "p") == expected


@pytest.mark.parametrize("value", [-1, 2**31, "5", "101%", "5.5%", "%", "\u0665%"])
def test_no_bound_of_a_budget(value: int | str) -> None:
    with pytest.raises(ManifestError):
        int_or_percent(value, "p")
