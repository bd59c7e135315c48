from typing import Any

import pytest

from bursar.ledger.claims import PENDING, ClaimSpec, spec_from_record
from bursar.objects.core import PriorityClass
from bursar.objects.decode import ManifestError
from bursar.objects.pods import Priorities, SpecCache, claim_from_pod
from bursar.selectors import NO_NEEDS, Taint
from tests.builders import container, pod, priority_class, read, read_pod

NO_CLASSES = Priorities()


def spec_of(*classes: dict[str, Any], **fields: Any) -> ClaimSpec:  # noqa: ANN401
    typed = [read(given).typed for given in classes]
    priorities = Priorities(given for given in typed if isinstance(given, PriorityClass))
    return claim_from_pod(read_pod(pod(**fields)), 0, priorities).spec


def refusal(**fields: Any) -> str:  # noqa: ANN401
    with pytest.raises(ManifestError) as caught:
        spec_of(**fields)
    return str(caught.value)


def test_a_pod_becomes_a_pending_claim() -> None:
    claim = claim_from_pod(read_pod(pod("p1", "team-a", {"cpu": "1500m"}, labels={"x": "y"})), 1234, NO_CLASSES)
    assert (claim.uid, claim.key, claim.created, claim.state) == ("team-a/p1", "team-a/p1", 1234, PENDING)
    assert claim.spec.record() == {
        "requests": {"cpu": 1500},
        "containers": [["main", {"cpu": 1500}, {}, "main"]],
        "labels": {"x": "y"},
    }


def test_a_claim_has_the_uid_of_its_pod() -> None:
    manifest = pod("p1", "team-a")
    manifest["metadata"]["uid"] = "u-1"
    assert claim_from_pod(read_pod(manifest), 0, NO_CLASSES).uid == "u-1"


def test_spec_survives_its_record() -> None:
    spec = spec_of(
        requests={"cpu": 1},
        nodeSelector={"a": "b"},
        tolerations=[{"operator": "Exists"}],
        labels={"bursar.dev/group": "g", "bursar.dev/group-size": "2"},
    )
    assert spec_from_record(spec.record()).mark == spec.mark


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (0, True)),
        ({"priority": 7}, (7, True)),
        ({"priorityClassName": "high"}, (100, True)),
        ({"priorityClassName": "batch"}, (5, False)),
        ({"priorityClassName": "batch", "preemptionPolicy": "PreemptLowerPriority"}, (5, True)),
        ({"preemptionPolicy": "Never"}, (0, False)),
        ({"priorityClassName": "high", "priority": 3}, (3, True)),
        ({"priorityClassName": "deleted", "priority": 3}, (3, True)),
        ({"priorityClassName": "system-node-critical"}, (2_000_001_000, True)),
        ({"priorityClassName": "system-cluster-critical"}, (2_000_000_000, True)),
    ],
)
def test_priority(fields: dict[str, Any], expected: tuple[int, bool]) -> None:
    classes = [priority_class("high", 100), priority_class("batch", 5, preemptionPolicy="Never")]
    spec = spec_of(*classes, **fields)
    assert (spec.priority, spec.preempts) == expected


def test_the_lowest_global_default_is_for_pods_without_a_class() -> None:
    classes = [priority_class("a", 50, globalDefault=True), priority_class("b", 20, globalDefault=True)]
    assert spec_of(*classes).priority == 20
    assert spec_of(*classes, priority=0).priority == 0


def test_preemptible_unless_the_label_or_a_dialect_says_no() -> None:
    assert spec_of().preemptible
    assert spec_of(labels={"bursar.dev/preemptible": "true"}).preemptible
    assert not spec_of(labels={"bursar.dev/preemptible": "false"}).preemptible
    marked = read_pod(pod(annotations={"keep": "1"}))
    spec = claim_from_pod(marked, 0, NO_CLASSES, [lambda _, annotations: "keep" in annotations]).spec
    assert not spec.preemptible


def test_group_belongs_to_its_namespace() -> None:
    labels = {"bursar.dev/group": "train", "bursar.dev/group-size": "4"}
    spec = spec_of(namespace="team-a", labels=labels)
    assert (spec.group, spec.group_size) == ("team-a/train", 4)


@pytest.mark.parametrize(
    ("reference", "owner"),
    [
        ({"kind": "Job", "name": "j", "uid": "u-9", "controller": True}, "Job/u-9"),
        ({"kind": "Job", "name": "j", "controller": True}, "Job/team-a/j"),
        ({"kind": "Job", "name": "j", "uid": "u-9"}, ""),
    ],
)
def test_owner_is_the_controller(reference: dict[str, Any], owner: str) -> None:
    manifest = pod("p", "team-a")
    manifest["metadata"]["ownerReferences"] = [reference]
    assert claim_from_pod(read_pod(manifest), 0, NO_CLASSES).spec.owner == owner


def test_a_pod_that_needs_nothing_special_says_so() -> None:
    assert spec_of(requests={"cpu": 1}).needs is NO_NEEDS


def test_needs_of_the_node() -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
    needs = spec_of(
        nodeName="n1",
        nodeSelector={"gpu": "a100"},
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    ).needs
    assert needs.selects("n1", {"gpu": "a100", "zone": "a"})
    assert not needs.selects("n1", {"gpu": "a100", "zone": "b"})
    assert not needs.selects("n2", {"gpu": "a100", "zone": "a"})
    assert needs.untolerated((Taint("gpu", "x", "NoSchedule"),)) is None
    assert needs.untolerated((Taint("gpu", "x", "NoExecute"),)) is not None


def test_host_ports_are_of_what_runs_together() -> None:
    def ports(*given: dict[str, Any]) -> dict[str, Any]:
        return container(ports=list(given))

    spec = {
        "containers": [ports({"containerPort": 1, "hostPort": 80}, {"containerPort": 2})],
        "initContainers": [
            ports({"hostPort": 81}),
            ports({"hostPort": 82, "hostIP": "10.0.0.1", "protocol": "UDP"}) | {"restartPolicy": "Always"},
        ],
    }
    assert spec_of(**spec).needs.host_ports == (("TCP", "0.0.0.0", 80), ("UDP", "10.0.0.1", 82))  # noqa: S104
    assert ("TCP", "0.0.0.0", 2) in spec_of(**spec, hostNetwork=True).needs.host_ports  # noqa: S104


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"priorityClassName": "nope"}, "Pod default/p: spec.priorityClassName: there is no PriorityClass 'nope'"),
        ({"preemptionPolicy": "never"}, "spec.preemptionPolicy: 'never' is none of PreemptLowerPriority, Never"),
        ({"priority": 2**31}, "spec.priority: 2147483648 is not a whole number <= 2147483647"),
        (
            {"labels": {"bursar.dev/preemptible": "no"}},
            "Pod default/p: metadata.labels.bursar.dev/preemptible: 'no' is neither 'true' nor 'false'",
        ),
        ({"labels": {"bursar.dev/group": "g"}}, "metadata.labels.bursar.dev/group-size: is required"),
        ({"labels": {"bursar.dev/group-size": "2"}}, "metadata.labels.bursar.dev/group: is required"),
        (
            {"labels": {"bursar.dev/group": "g", "bursar.dev/group-size": "0"}},
            "metadata.labels.bursar.dev/group-size: '0' is not a number of pods",
        ),
        (
            {"labels": {"bursar.dev/group": "g", "bursar.dev/group-size": "two"}},
            "metadata.labels.bursar.dev/group-size: 'two' is not a number of pods",
        ),
        ({"tolerations": [{"key": "a", "operator": "In"}]}, "spec.tolerations[0].operator: 'In' is none of Equal"),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]},
            "spec.tolerations[0].value: Exists takes",
        ),
        ({"tolerations": [{"value": "x"}]}, "spec.tolerations[0].key: is required, unless the operator is Exists"),
        ({"tolerations": [{"key": "a", "effect": "Never"}]}, "spec.tolerations[0].effect: 'Never' is none of"),
        (
            {"containers": [container(ports=[{"hostPort": 70000}])]},
            "spec.containers[0].ports[0].hostPort: 70000 is not a whole number <= 65535",
        ),
        (
            {"containers": [container(ports=[{"hostPort": 1, "protocol": "tcp"}])]},
            "spec.containers[0].ports[0].protocol: 'tcp' is none of TCP, UDP, SCTP",
        ),
    ],
)
def test_bad_pods_are_named(fields: dict[str, Any], problem: str) -> None:
    assert problem in refusal(**fields)


def test_pods_that_ask_for_the_same_share_one_spec() -> None:
    cache = SpecCache()
    labels = {"job": "a", "team": "b"}
    first = claim_from_pod(read_pod(pod("p1", requests={"cpu": 1}, labels=labels)), 0, NO_CLASSES, (), cache).spec
    turned = dict(reversed(labels.items()))
    again = claim_from_pod(read_pod(pod("p2", requests={"cpu": 1}, labels=turned)), 0, NO_CLASSES, (), cache).spec
    assert again is first


def test_specs_that_differ_share_what_is_equal() -> None:
    cache = SpecCache()
    needs: dict[str, Any] = {"nodeSelector": {"a": "b"}}
    first = claim_from_pod(read_pod(pod("p1", labels={"i": "1"}, **needs)), 0, NO_CLASSES, (), cache).spec
    other = claim_from_pod(read_pod(pod("p2", labels={"i": "2"}, **needs)), 0, NO_CLASSES, (), cache).spec
    assert first is not other
    assert first.containers is other.containers
    assert first.needs is other.needs
    assert first.annotations is other.annotations


def test_everything_that_makes_a_difference_makes_another_spec() -> None:
    cache = SpecCache()
    variants: list[dict[str, Any]] = [
        {},
        {"requests": {"cpu": 1}},
        {"labels": {"a": "b"}},
        {"annotations": {"a": "b"}},
        {"priority": 1},
        {"preemptionPolicy": "Never"},
        {"nodeName": "n"},
        {"hostNetwork": True},
        {"labels": {"bursar.dev/preemptible": "false"}},
        {"labels": {"bursar.dev/group": "g", "bursar.dev/group-size": "1"}},
        {"namespace": "other", "labels": {"bursar.dev/group": "g", "bursar.dev/group-size": "1"}},
    ]
    specs = [claim_from_pod(read_pod(pod(**fields)), 0, NO_CLASSES, (), cache).spec for fields in variants]
    assert len({id(spec) for spec in specs}) == len(variants)


def test_a_cache_is_bounded_and_forgets_the_least_recently_used() -> None:
    cache = SpecCache()
    cache.get("a", lambda: ["a"])
    cache = SpecCache(most=2 * cache.bytes)
    kept = cache.get("a", lambda: ["a"])
    dropped = cache.get("b", lambda: ["b"])
    cache.get("a", list)
    cache.get("c", lambda: ["c"])
    assert cache.get("a", list) is kept
    assert cache.get("b", lambda: ["b"]) is not dropped


def test_a_cache_is_bounded_by_bytes_not_by_entries() -> None:
    most = 1_000_000
    cache = SpecCache(most)
    for number in range(100):
        one = read_pod(pod(f"p{number}", annotations={"note": f"{number}" + "x" * 100_000}))
        claim_from_pod(one, 0, NO_CLASSES, (), cache)
    assert 100_000 < cache.bytes <= most


def test_one_entry_larger_than_the_cache_is_kept_alone() -> None:
    cache = SpecCache(most=1_000)
    large = cache.get("x" * 10_000, lambda: ["x"])
    assert cache.get("x" * 10_000, list) is large
    cache.get("y", list)
    assert cache.bytes <= 1_000
