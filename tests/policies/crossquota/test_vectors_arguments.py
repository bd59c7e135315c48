"""Vectors 4.1, 4.4 (arguments), 4.5, 4.6, 4.10, 4.11 and 4.13 of the notes: what is configured.

Where a row differs from the original, the rulings say so: a bad argument is refused by its key instead of being
dropped, amounts are bytes and units instead of thousandths, weights are whole and not negative.
"""

from __future__ import annotations

import pytest

from bursar.objects.decode import ManifestError
from bursar.policies.crossquota.arguments import PercentError, arguments_of, parse_percent, percent_of, read_arguments
from bursar.policies.crossquota.gpu_patterns import Patterns
from bursar.policies.crossquota.policy import CrossQuotaPolicy
from bursar.quantity import QuantityError
from bursar.resources import dimension
from tests.policies.crossquota.world import GI, GPU, World, arguments, body, claim

TWO_NAMES = "nvidia.com/gpu,amd.com/gpu"


@pytest.mark.parametrize(
    ("names", "resources", "patterns", "expected"),
    [
        pytest.param(TWO_NAMES, "cpu,memory,ephemeral-storage", 2, 3, id="4.1-two-and-three"),
        pytest.param("nvidia.com/gpu", None, 1, 1, id="4.1-default-resources"),
        pytest.param(None, "cpu,memory", 0, 2, id="4.1-no-names"),
        pytest.param(None, None, 0, 1, id="4.1-nothing"),
        pytest.param("", "cpu,memory", 0, 2, id="4.1-blank-names"),
        pytest.param("nvidia.com/gpu", "", 1, 1, id="4.1-blank-resources"),
        pytest.param("  nvidia.com/gpu , amd.com/gpu  ", "cpu,memory", 2, 2, id="4.1-names-trimmed"),
        pytest.param("nvidia.com/gpu", "  cpu , memory  ", 1, 2, id="4.1-resources-trimmed"),
    ],
)
def test_lists_are_split_and_trimmed(names: str | None, resources: str | None, patterns: int, expected: int) -> None:
    given = {"gpu-resource-names": names, "quota-resources": resources}
    read = read_arguments({key: value for key, value in given.items() if value is not None})
    assert (len(Patterns(read.gpu_names)), len(read.resources)) == (patterns, expected)


def test_vector_4_1_construction() -> None:
    given: dict[str, object] = {
        "gpu-resource-names": TWO_NAMES,
        "quota-resources": "cpu,memory,ephemeral-storage",
        "quota.cpu": "4",
        "quota.memory": "8Gi",
        "quota-percentage.ephemeral-storage": "50",
    }
    read = read_arguments(given)
    assert CrossQuotaPolicy().name == "crossquota"
    assert (len(read.gpu_names), len(read.resources)) == (2, 3)
    assert read.quotas == {"cpu": 4000, "memory": 8 * GI}
    assert read.percentages == {"ephemeral-storage": (50, 1)}


REFUSED: list[tuple[str, dict[str, object], str]] = [
    ("4.1-bad-name", {"gpu-resource-names": "[invalid"}, "gpu-resource-names: '[invalid' is not a regular"),
    ("4.4-bad-quota", {"quota.cpu": "invalid"}, "quota.cpu: 'invalid' is not a quantity"),
    (
        "4.4-150-percent",
        {"quota-resources": "memory", "quota-percentage.memory": "150"},
        "quota-percentage.memory: '150' is not above 0 and up to 100",
    ),
    ("4.10-text-weight", {"weight.cpu": "invalid"}, "weight.cpu: 'invalid' is not a weight"),
    ("4.10-map-weight", {"weight.memory": {}}, "weight.memory: this is not a weight"),
    ("4.17-nan", {"quota-percentage.cpu": "NaN"}, "quota-percentage.cpu: 'NaN' is not a percentage"),
    ("4.17-negative-weight", {"weight.cpu": -1}, "weight.cpu: -1 is not a weight"),
    ("4.17-only-commas", {"quota-resources": ","}, "quota-resources: ',' names nothing"),
    ("names-only-commas", {"gpu-resource-names": " , "}, "gpu-resource-names: ',' names nothing"),
    ("zero-percent", {"quota-percentage.cpu": 0}, "quota-percentage.cpu: '0' is not above 0"),
    ("negative-percent", {"quota-percentage.cpu": -10}, "quota-percentage.cpu: '-10' is not a percentage"),
    ("percent-sign", {"quota-percentage.cpu": "50%"}, "up to 100, written without a sign"),
    ("infinite-percent", {"quota-percentage.cpu": "Inf"}, "quota-percentage.cpu: 'Inf' is not a percentage"),
    ("hexadecimal-percent", {"quota-percentage.cpu": "0x1p5"}, "quota-percentage.cpu: '0x1p5' is not a percentage"),
    ("boolean-percent", {"quota-percentage.cpu": True}, "quota-percentage.cpu: is not a percentage"),
    ("negative-quota", {"quota.cpu": "-1"}, "quota.cpu: '-1' must not be negative"),
    ("null-quota", {"quota.cpu": None}, "quota.cpu: 'null' is not a quantity"),
    ("blank-quota", {"quota.cpu": " "}, "quota.cpu: ' ' is not a quantity"),
    ("spaced-quota", {"quota.cpu": " 4"}, "quota.cpu: ' 4' is not a quantity"),
    ("fractional-weight", {"crossQuotaWeight": 0.9}, "crossQuotaWeight: 0.9 is not a weight"),
    ("boolean-weight", {"crossQuotaWeight": True}, "crossQuotaWeight: True is not a weight"),
    ("heavy-weight", {"weight.cpu": 10**9}, "weight.cpu: 1000000000 is not a weight"),
    ("names-not-text", {"gpu-resource-names": 7}, "gpu-resource-names: 7 is not text"),
    ("listed-twice", {"quota-resources": "cpu,cpu"}, "quota-resources: 'cpu' is listed twice"),
    ("no-resource", {"quota-resources": "cpu,a/b/c"}, "quota-resources: 'a/b/c' is not the name"),
    ("no-effect", {"quota.memory": "4Gi"}, "quota.memory: memory is not one of quota-resources"),
    ("unknown-key", {"quotas.cpu": "4"}, "quotas.cpu: is not a known argument; did you mean quota.?"),
    ("odd-key", {"x": 1}, "x: is not a known argument; known are gpu-resource-names"),
    ("no-name-in-key", {"weight.": 1}, "weight.: '' is not the name of a resource"),
    (
        "two-spellings",
        {"quota-resources": "a.dev/x", "quota.a.dev/x": 1, "quota.a.dev__x": 2},
        "quota.a.dev__x: a.dev/x is given twice",
    ),
    ("odd-flag", {"prefer-non-gpu-nodes": "maybe"}, "prefer-non-gpu-nodes: 'maybe' is neither true nor false"),
    ("text-selector", {"label-selector": "a=b"}, "label-selector: expected a mapping"),
    ("misspelt-selector", {"label-selector": {"matchLables": {}}}, "label-selector.matchLables: is not a known field"),
    (
        "empty-in",
        {"label-selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        "label-selector.matchExpressions[0].values: In needs at least one value",
    ),
    (
        "odd-operator",
        {"label-selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
        "label-selector.matchExpressions[0].operator: 'Near' is none of",
    ),
]


@pytest.mark.parametrize(("given", "problem"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_bad_argument_is_refused_by_its_key(given: dict[str, object], problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read_arguments(given, "spec.crossquota")
    assert str(caught.value).startswith("spec.crossquota.")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        pytest.param("cpu", "2", 2000, id="4.5-cpu"),
        pytest.param("memory", "4Gi", 4294967296, id="4.5-memory"),
        pytest.param("ephemeral-storage", "10Gi", 10737418240, id="4.5-bytes-not-thousandths"),
        pytest.param("pods", "100", 100, id="4.5-pods"),
        pytest.param("memory", "1500m", 2, id="4.17-rounded-up"),
        pytest.param("cpu", 32, 32000, id="4.17-a-number"),
        pytest.param("hugepages-1Gi", "2", 2, id="hugepages-are-bytes"),
    ],
)
def test_an_absolute_quota(resource: str, text: object, amount: int) -> None:
    assert read_arguments({"quota-resources": resource, f"quota.{resource}": text}).quotas == {resource: amount}


def test_vector_4_5_bad_amount() -> None:
    with pytest.raises(QuantityError):
        dimension("cpu").parse("invalid")


@pytest.mark.parametrize(
    ("percent", "base", "share"),
    [
        pytest.param("75", 1000, 750, id="4.6-75"),
        pytest.param("50.5", 2000, 1010, id="4.6-50.5"),
        pytest.param(50.5, 2000, 1010, id="a-number"),
        pytest.param("33.333", 1000, 333, id="floored"),
        pytest.param("5e1", 1000, 500, id="exponent"),
        pytest.param(1e-05, 10**7, 1, id="small"),
        pytest.param("100", 7, 7, id="all"),
        pytest.param("50", 2**63 - 1, 2**63 - 1, id="of-no-limit"),
    ],
)
def test_a_percentage_is_exact(percent: object, base: int, share: int) -> None:
    assert percent_of(parse_percent(percent), base) == share


@pytest.mark.parametrize("text", ["0", "-10", "150", "invalid", "", "100.0001", "NaN", "1e99", "0.0", "+5"])
def test_vector_4_6_bad_percentages(text: str) -> None:
    with pytest.raises(PercentError):
        parse_percent(text)


@pytest.mark.parametrize(
    ("given", "weight", "weights"),
    [
        pytest.param({"crossQuotaWeight": 10, "weight.cpu": 15, "weight.memory": 5}, 10, (15, 5), id="4.10-integers"),
        pytest.param(
            {"crossQuotaWeight": 20.0, "weight.cpu": 12.0, "weight.memory": 3.0}, 20, (12, 3), id="4.10-floats"
        ),
        pytest.param({"crossQuotaWeight": 10, "weight.cpu": "8", "weight.memory": "2"}, 10, (8, 2), id="4.10-texts"),
        pytest.param({}, 10, (10, 1), id="4.10-defaults"),
        pytest.param({"crossQuotaWeight": 25}, 25, (10, 1), id="4.10-only-the-plugin"),
        pytest.param(
            {"weight.cpu": 15, "weight.memory": 5, "weight.ephemeral-storage": 3, "weight.hugepages-1Gi": 2},
            10,
            (15, 5, 3, 2),
            id="4.10-four",
        ),
        pytest.param(
            {
                "gpu-resource-names": TWO_NAMES,
                "quota-resources": "cpu,memory",
                "quota.cpu": "4",
                "quota-percentage.memory": "50",
                "weight.cpu": 8,
                "weight.memory": 2,
            },
            10,
            (8, 2),
            id="4.10-among-others",
        ),
    ],
)
def test_weights(given: dict[str, object], weight: int, weights: tuple[int, ...]) -> None:
    read = read_arguments(given)
    names = ("cpu", "memory", "ephemeral-storage", "hugepages-1Gi")[: len(weights)]
    assert read.weight == weight
    assert tuple(read.weight_of(name) for name in names) == weights
    assert read.weight_of("example.com/other") == 1


@pytest.mark.parametrize(
    ("strategy", "least"),
    [
        pytest.param("most-allocated", False, id="4.11-most"),
        pytest.param("least-allocated", True, id="4.11-least"),
        pytest.param(None, False, id="4.11-none"),
        pytest.param("invalid-strategy", False, id="4.11-invalid"),
        pytest.param("", False, id="4.11-empty"),
        pytest.param("Most-Allocated", False, id="4.11-case"),
        pytest.param("Least-Allocated", False, id="4.11-case-of-least"),
    ],
)
def test_the_strategy_comes_from_the_pod(strategy: str | None, least: bool) -> None:
    marks = {} if strategy is None else {"volcano.sh/crossquota-scoring-strategy": strategy}
    world = World(arguments(quota__cpu="10"))
    world.node("g", body({"cpu": 10, GPU: 1}))
    assert world.score(claim("c", {"cpu": 1}, annotations=marks), "g") == (9_000_000 if least else 1_000_000)


def _expression(key: str, operator: str, *values: str) -> dict[str, object]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


ENVIRONMENTS = _expression("environment", "In", "production", "staging")


@pytest.mark.parametrize(
    ("selector", "matching", "other"),
    [
        pytest.param({}, {"any": "thing"}, None, id="4.13-everything"),
        pytest.param(
            {"matchLabels": {"env": "production", "team": "backend"}},
            {"env": "production", "team": "backend", "more": "x"},
            {"env": "development"},
            id="4.13-labels",
        ),
        pytest.param(
            {"matchExpressions": [ENVIRONMENTS]},
            {"environment": "production"},
            {"environment": "development"},
            id="4.13-in",
        ),
        pytest.param(
            {"matchLabels": {"team": "backend"}, "matchExpressions": [ENVIRONMENTS]},
            {"team": "backend", "environment": "production"},
            {"team": "backend", "environment": "development"},
            id="4.13-both",
        ),
        pytest.param(
            {"matchExpressions": [_expression("priority", "NotIn", "high", "critical")]},
            {"priority": "low"},
            {"priority": "high"},
            id="4.13-not-in",
        ),
        pytest.param(
            {"matchExpressions": [_expression("priority", "NotIn", "high")]}, {}, {"priority": "high"}, id="4.13-no-key"
        ),
        pytest.param(
            {"matchExpressions": [_expression("quota-enabled", "Exists")]},
            {"quota-enabled": "true"},
            {"other-label": "x"},
            id="4.13-exists",
        ),
        pytest.param(
            {"matchExpressions": [_expression("quota-exempt", "DoesNotExist")]},
            {"env": "production"},
            {"quota-exempt": "true"},
            id="4.13-does-not-exist",
        ),
        pytest.param({"matchLabels": {"env": "production"}}, {"env": "production"}, {}, id="4.13-no-labels"),
        pytest.param(
            {"matchLabels": {"env": "production", "team": "backend"}},
            {"env": "production", "team": "backend"},
            {"env": "production"},
            id="4.13-only-one",
        ),
    ],
)
def test_the_label_selector(
    selector: dict[str, object], matching: dict[str, str], other: dict[str, str] | None
) -> None:
    world = World(arguments(label_selector=selector))
    assert world.limited(claim("a", labels=matching))
    assert other is None or not world.limited(claim("b", labels=other))


def test_arguments_come_back_from_their_cell() -> None:
    given = arguments(
        quota_resources="memory,cpu,a.dev/x",
        quota__cpu=4,
        label_selector={"matchExpressions": [ENVIRONMENTS]},
        prefer_non_gpu_nodes=False,
        exempt_namespaces="a,b",
        exempt_daemonsets="false",
    ) | {"quota-percentage.a.dev__x": 12.5, "reserve-per-gpu.cpu": 2, "weight.cpu": 3, "crossQuotaWeight": 7}
    read = read_arguments(given)
    assert arguments_of(read.cell()).cell() == read.cell()
    assert read.percentages == {"a.dev/x": (25, 2)}
    assert (read.exempt_namespaces, read.exempt_daemon_sets, read.exempt_mirrors) == (("a", "b"), False, True)
