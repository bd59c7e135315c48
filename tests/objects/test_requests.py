from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.objects.core import PodSpec
from bursar.objects.decode import ManifestError
from bursar.objects.requests import PodResources, check_whole, pod_resources
from tests.builders import container
from tests.objects import requests_reference_model


def resources(**spec: object) -> PodResources:
    return pod_resources(msgspec.convert({"containers": [container()], **spec}, PodSpec))


def refusal(**spec: object) -> str:
    with pytest.raises(ManifestError) as caught:
        resources(**spec)
    return str(caught.value)


def test_containers_add_up() -> None:
    found = resources(containers=[container({"cpu": 2, "memory": "1Gi"}), container({"cpu": "500m"}, name="b")])
    assert found.requests.show() == {"cpu": "2500m", "memory": "1Gi"}


def test_the_largest_init_container_counts_where_it_is_more() -> None:
    found = resources(
        initContainers=[container({"cpu": 2, "memory": "1Gi"}), container({"cpu": 2, "memory": "3Gi"})],
        containers=[container({"cpu": 2, "memory": "1Gi"}), container({"cpu": 1, "memory": "1Gi"})],
    )
    assert found.requests.show() == {"cpu": "3", "memory": "3Gi"}


def test_sidecars_run_beside_containers_and_beside_later_init_containers() -> None:
    found = resources(
        initContainers=[
            container({"cpu": 5}, name="early"),
            container({"cpu": 2}, name="side", restartPolicy="Always"),
            container({"cpu": 4}, name="late"),
        ],
        containers=[container({"cpu": 1})],
    )
    assert found.requests.show() == {"cpu": "6"}
    assert [(c.name, c.role) for c in found.containers] == [
        ("early", "init"),
        ("side", "sidecar"),
        ("late", "init"),
        ("main", "main"),
    ]


def test_limits_stand_in_for_missing_requests_one_by_one() -> None:
    found = resources(containers=[container({"cpu": 1}, {"cpu": 2, "nvidia.com/gpu": 2})])
    assert found.requests.show() == {"cpu": "1", "nvidia.com/gpu": "2"}
    assert found.limits.show() == {"cpu": "2", "nvidia.com/gpu": "2"}


def test_an_explicit_zero_request_stays_zero() -> None:
    assert resources(containers=[container({"cpu": 0}, {"cpu": 2})]).requests.show() == {}


def test_a_request_of_the_pod_replaces_the_sum() -> None:
    found = resources(
        containers=[container({"cpu": 1, "nvidia.com/gpu": 1})], resources={"requests": {"cpu": 4}, "limits": {}}
    )
    assert found.requests.show() == {"cpu": "4", "nvidia.com/gpu": "1"}


def test_a_limit_of_the_pod_stands_in_only_where_no_container_asks() -> None:
    found = resources(containers=[container({"cpu": 1})], resources={"limits": {"cpu": 4, "memory": "1Gi"}})
    assert found.requests.show() == {"cpu": "1", "memory": "1Gi"}
    assert found.limits.show() == {"cpu": "4", "memory": "1Gi"}


def test_overhead_comes_on_top_of_everything_requested_and_of_limits_that_exist() -> None:
    found = resources(
        containers=[container({"cpu": 1, "memory": "1Gi"}, {"memory": "2Gi"})],
        overhead={"cpu": "250m", "memory": "1Gi"},
    )
    assert found.requests.show() == {"cpu": "1250m", "memory": "2Gi"}
    assert found.limits.show() == {"memory": "3Gi"}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"containers": []}, "spec.containers: needs at least one container"),
        (
            {"containers": [container({"cpu": "12x"})]},
            "spec.containers[0].resources.requests.cpu: '12x' is not a quantity: unknown suffix 'x'",
        ),
        (
            {"containers": [container(), container({}, {"memory": -1})]},
            "spec.containers[1].resources.limits.memory: '-1' must not be negative",
        ),
        (
            {"initContainers": [container({"cpu": "1e30"})]},
            "spec.initContainers[0].resources.requests.cpu: '1e30' is out of range",
        ),
        (
            {"containers": [container({"memory": "2Gi"}, {"memory": "1Gi"})]},
            "spec.containers[0].resources.requests.memory: 2Gi is more than the limit of 1Gi",
        ),
        ({"containers": [container({"a b": 1})]}, "spec.containers[0].resources.requests.a b: is not the name of"),
        ({"overhead": {"cpu": "x"}}, "spec.overhead.cpu: 'x' is not a quantity"),
        (
            {"resources": {"requests": {"nvidia.com/gpu": 1}}},
            "spec.resources.requests.nvidia.com/gpu: can be given for containers only",
        ),
        (
            {"containers": [container({"cpu": 2})], "resources": {"requests": {"cpu": 1}}},
            "spec.resources.requests.cpu: 1 is less than the containers' 2",
        ),
        (
            {"resources": {"requests": {"cpu": 3}, "limits": {"cpu": 2}}},
            "spec.resources.requests.cpu: 3 is more than the limit of 2",
        ),
        (
            {"initContainers": [container(restartPolicy="always")]},
            "spec.initContainers[0].restartPolicy: 'always' is none of Always, OnFailure, Never",
        ),
        (
            {"containers": [container({"memory": "4Ei"}), container({"memory": "3Ei"})]},
            "spec.containers[0].resources.requests.memory: '4Ei' is out of range",
        ),
        (
            {"containers": [container({"memory": "3Ei"}), container({"memory": "3Ei"})]},
            "spec: the containers' memory together is out of range",
        ),
    ],
)
def test_bad_resources_are_named(spec: dict[str, Any], problem: str) -> None:
    assert problem in refusal(**spec)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"containers": [container({"nvidia.com/gpu": 1.5})]}, "spec.containers[0].resources.requests.nvidia.com/gpu"),
        ({"containers": [container({}, {"a.dev/x": "1500m"})]}, "spec.containers[0].resources.limits.a.dev/x"),
        ({"initContainers": [container({"pods": "0.5"})]}, "spec.initContainers[0].resources.requests.pods"),
        ({"overhead": {"a.dev/x": "1n"}}, "spec.overhead.a.dev/x"),
    ],
)
def test_a_part_of_what_comes_whole_is_refused(spec: dict[str, Any], path: str) -> None:
    with pytest.raises(ManifestError, match="must be a whole number: there are no parts of") as caught:
        check_whole(msgspec.convert({"containers": [container()], **spec}, PodSpec))
    assert caught.value.path == path


@pytest.mark.parametrize(
    "requests",
    [
        {"nvidia.com/gpu": 2, "a.dev/x": "2000m", "pods": "1.0"},
        {"a.dev/x": "2Ki", "b.dev/x": "0.5Ki", "c.dev/x": "4e18"},
        {"cpu": "1.5", "memory": "0.5", "ephemeral-storage": "1500m", "storage.kubernetes.io/x": "1.5"},
    ],
)
def test_whole_numbers_however_written_and_parts_of_what_is_divisible_are_taken(requests: dict[str, Any]) -> None:
    check_whole(msgspec.convert({"containers": [container(requests)]}, PodSpec))


NAMES = st.sampled_from(["memory", "nvidia.com/gpu", "hugepages-2Mi", "ephemeral-storage"])
LIMITS = st.dictionaries(NAMES, st.integers(50, 99), max_size=3)
RESOURCES = st.fixed_dictionaries(
    {"limits": LIMITS, "requests": st.dictionaries(NAMES, st.integers(0, 50), max_size=3)}
)
CONTAINERS = st.fixed_dictionaries({"resources": RESOURCES})
INITS = st.fixed_dictionaries(
    {"resources": RESOURCES}, optional={"restartPolicy": st.sampled_from(["Always", "Never"])}
)
POD_NAMES = st.sampled_from(["memory", "hugepages-2Mi"])
SPECS = st.fixed_dictionaries({
    "containers": st.lists(CONTAINERS, min_size=1, max_size=3),
    "initContainers": st.lists(INITS, max_size=4),
    "resources": st.fixed_dictionaries({
        # Above whatever the containers add up to, or the pod would be refused.
        "requests": st.dictionaries(POD_NAMES, st.integers(1000, 2000)),
        "limits": st.dictionaries(POD_NAMES, st.integers(2000, 3000)),
    }),
    "overhead": st.dictionaries(NAMES, st.integers(0, 9)),
})  # fmt: skip


@settings(max_examples=200)
@given(SPECS)
def test_amounts_are_those_of_the_reference_model(spec: dict[str, Any]) -> None:
    found = resources(**spec)
    assert dict(found.requests.pairs()) == requests_reference_model.effective(spec, "requests")
    assert dict(found.limits.pairs()) == requests_reference_model.effective(spec, "limits")
