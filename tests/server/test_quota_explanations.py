"""Quotas of all dialects, explained in their terms by the API, and what is said where a name means several."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bursar.server.client import RequestFailedError
from bursar.server.types import CheckNode, QuotaExplanations
from tests.cli.conftest import TREE
from tests.server.live import Live, ManualClock, live, node, pod, quota

GPU_QUOTA = {
    "apiVersion": "tensor-fusion.ai/v1",
    "kind": "GPUResourceQuota",
    "metadata": {"namespace": "t", "name": "quota"},
    "spec": {"total": {"requests": {"tflops": "10"}, "maxWorkers": 2}},
}


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "bursar.db", clock=ManualClock()) as bed:
        bed.give(node("n1", 8), quota("a", 2), quota("b", 2, max={"nvidia.com/gpu": 3}), TREE, GPU_QUOTA)
        trees = [pod("z", f"t{number}") for number in (1, 2)]
        for one in trees:
            one["metadata"]["labels"] = {"quota.bursar.dev/org": "x"}
        bed.give(pod("b", "one", 3), *trees)
        bed.give(pod("b", "two", 2))
        yield bed


def outline(found: QuotaExplanations) -> list[str]:
    lines: list[str] = []

    def add(check: CheckNode, indent: str) -> None:
        lines.append(f"{indent}{check.title}: {check.note}")
        for child in check.checks:
            add(child, indent + " ")

    for item in found.items:
        add(item.tree, "")
    return lines


def test_an_elastic_quota_says_what_it_borrows_and_lends(bed: Live) -> None:
    found = bed.client.explain_quota("quota", "b/quota")
    assert outline(found) == [
        "ElasticQuota b/quota: ",
        " nvidia.com/gpu: min 2, max 3, used 3, over-quota 1, guaranteed over-quota 1",
        "  borrows: 1 nvidia.com/gpu from ElasticQuota a/quota",
        " pods: 1 counts, 1 waits: b/two",
        " borrowing: b/one",
    ]
    (item,) = found.items
    assert (item.counts, item.waiting, item.borrowers) == (1, ["b/two"], ["b/one"])
    assert item.quota.resources["nvidia.com/gpu"].borrowed == "1"
    assert "  lends: 1 nvidia.com/gpu to ElasticQuota b/quota" in outline(bed.client.explain_quota("quota", "a/quota"))


def test_a_node_of_a_tree_says_who_sits_above_it(bed: Live) -> None:
    assert outline(bed.client.explain_quota("QuotaTree", "org:x")) == [
        "QuotaTree org:x: soft: it may borrow from above",
        " nvidia.com/gpu: 1 of its quota of 1 in use, and 1 borrowed from above",
        " above org:all: 2 of 4 nvidia.com/gpu in use",
        " borrows: z/t2 has nvidia.com/gpu 1 of org:all",
        " pods: 2 count, 0 wait",
        " borrowing: z/t2",
    ]


def test_a_tree_is_explained_node_by_node(bed: Live) -> None:
    found = bed.client.explain_quota("QuotaTree", "org")
    assert [item.quota.node for item in found.items] == ["all", "x", "y"]
    assert found.items[0].tree.note == "the root"


def test_a_quota_of_limits_shows_what_is_used_of_them(bed: Live) -> None:
    lines = outline(bed.client.explain_quota("GPUResourceQuota.tensor-fusion.ai", "t/quota"))
    assert lines[0] == "GPUResourceQuota t/quota: "
    assert " requests.tflops: 0 of 10 in use" in lines
    assert " workers: 0 of 2 in use" in lines


def test_what_exceeds_a_quota_fails(bed: Live) -> None:
    bed.give(quota("b", 2, max={"nvidia.com/gpu": 2}))
    (item,) = bed.client.explain_quota("quota", "b/quota").items
    assert not item.tree.passed
    assert not item.tree.checks[0].passed


@pytest.mark.parametrize(
    ("kind", "key", "status", "detail"),
    [
        ("quota", "nosuch", 404, "there is no quota 'nosuch': `bursar get quotas` lists them"),
        ("quotatree", "b/quota", 404, "there is no quota 'b/quota': `bursar get quotas` lists them"),
        ("quota", "quota", 400, "the quota 'quota' is ambiguous: type ElasticQuota.n8s.nebuly.ai/a/quota or "),
        ("nosuch", "b/quota", 400, "the kind 'nosuch' is not known; known are "),
    ],
)
def test_names_that_mean_none_or_several(bed: Live, kind: str, key: str, status: int, detail: str) -> None:
    with pytest.raises(RequestFailedError) as caught:
        bed.client.explain_quota(kind, key)
    assert caught.value.status == status
    assert caught.value.problem.detail.startswith(detail)


def test_of_kinds_that_share_a_name_the_one_with_that_quota_is_meant(bed: Live) -> None:
    (item,) = bed.client.explain_quota("ElasticQuota", "b/quota").items
    assert item.quota.kind == "ElasticQuota.n8s.nebuly.ai"


def test_pods_list_their_quotas_by_name(bed: Live) -> None:
    assert bed.client.claim("b", "one").quota_names == ["b/quota"]
    assert bed.client.claim("z", "t1").quota_names == ["org:x", "org:all"]
