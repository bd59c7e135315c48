from typing import Any

import msgspec
import pytest

from bursar.objects.core import LabelSelector, NodeSelector
from bursar.objects.decode import ManifestError
from bursar.objects.validation import node_terms_from, selector_from


def selector(**fields: object) -> LabelSelector:
    return msgspec.convert(fields, LabelSelector)


def terms(*given: dict[str, Any]) -> NodeSelector:
    return msgspec.convert({"nodeSelectorTerms": list(given)}, NodeSelector)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def test_labels_and_expressions_must_all_match() -> None:
    found = selector_from(
        selector(matchLabels={"team": "a"}, matchExpressions=[expression("tier", "NotIn", "test", "dev")]), "s"
    )
    assert found.matches({"team": "a"})
    assert found.matches({"team": "a", "tier": "prod"})
    assert not found.matches({"team": "a", "tier": "dev"})
    assert not found.matches({"tier": "prod"})


def test_an_empty_selector_matches_everything() -> None:
    assert selector_from(selector(), "s").matches({})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"matchExpressions": [expression("a", "In")]}, "s.matchExpressions[0].values: In needs at least one value"),
        ({"matchExpressions": [expression("a", "NotIn")]}, "s.matchExpressions[0].values: NotIn needs at least one"),
        (
            {"matchExpressions": [expression("a", "Exists", "x")]},
            "s.matchExpressions[0].values: Exists takes no values",
        ),
        (
            {"matchExpressions": [expression("a", "Gt", "1")]},
            "s.matchExpressions[0].operator: 'Gt' is none of In, NotIn",
        ),
        ({"matchExpressions": [expression("a b", "Exists")]}, "s.matchExpressions[0].key: 'a b' is not a label key"),
        ({"matchLabels": {"a/b/c": "x"}}, "s.matchLabels.a/b/c: is not a key of the form name or prefix/name"),
        ({"matchLabels": {"a": "x y"}}, "s.matchLabels.a: 'x y' is not a label value"),
    ],
)
def test_bad_selectors_are_named(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        selector_from(selector(**fields), "s")
    assert problem in str(caught.value)


def test_one_term_must_match() -> None:
    found = node_terms_from(
        terms(
            {"matchExpressions": [expression("gpus", "Gt", "4")]},
            {"matchFields": [expression("metadata.name", "In", "n1")]},
        ),
        "t",
    )
    assert [term.matches("n2", {"gpus": "8"}) for term in found] == [True, False]
    assert [term.matches("n1", {"gpus": "4"}) for term in found] == [False, True]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([], "t.nodeSelectorTerms: needs at least one term"),
        (
            [{"matchExpressions": [expression("a", "Gt", "x")]}],
            "matchExpressions[0].values: Gt needs exactly one value",
        ),
        (
            [{"matchExpressions": [expression("a", "Lt", "1", "2")]}],
            "values: Lt needs exactly one value, a whole number",
        ),
        (
            [{}, {"matchFields": [expression("spec.x", "In", "a")]}],
            "t.nodeSelectorTerms[1].matchFields[0].key: 'spec.x'",
        ),
        ([{"matchFields": [expression("metadata.name", "Exists")]}], "operator: 'Exists' is none of In, NotIn"),
        ([{"matchFields": [expression("metadata.name", "In", "a", "b")]}], "values: needs exactly one value"),
    ],
)
def test_bad_node_terms_are_named(given: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        node_terms_from(terms(*given), "t")
    assert problem in str(caught.value)
