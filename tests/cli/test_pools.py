"""What people see of quotas over node pools: their runtime, names instead of ids, and how it comes about."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bursar.cli import exit_codes
from bursar.kube.admission.predicate import GATE
from bursar.kube.client.api import NODES, PODS, Resource
from bursar.policies.pools.api import PROFILE, QUOTA
from tests.cli import pools_cluster as world
from tests.cli.conftest import Shell
from tests.cli.test_live_cluster import kubeconfig, run
from tests.kube.controller.stage import Stage, stage
from tests.server.live import ManualClock, live, quota

TREE_IDS = ("13778220790914240367", "13778221890425868578")  # made from the names of the profiles
NAMES = ("vision/vision", "speech/speech", "kube-system/root-a", "kube-system/root-b", "ads/ads", "web/web")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    clock = ManualClock()
    with live(tmp_path / "bursar.db", clock=clock) as bed:
        bed.give(*world.objects())
        clock.now += 60_000
        bed.give(*world.running())
        clock.now += 60_000
        bed.give(*world.waiting())
        yield Shell(bed, tmp_path / "bursar.db", clock)


def rows(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines[1:]]


# Runtime


def test_runtime_is_beside_what_is_used(shell: Shell) -> None:
    lines = shell.lines("get", "quotas")
    assert lines[0].split() == ["KIND", "QUOTA", "RESOURCE", "USED", "RUNTIME", "MIN", "MAX", "BORROWED", "NOTE"]
    assert ["ElasticQuota", "vision/vision", "cpu", "4", "6", "5", "8", "-", "-"] in rows(lines)
    assert ["ElasticQuota", "kube-system/root-a", "cpu", "7", "10", "10", "-", "-", "-"] in rows(lines)


def test_top_shows_what_is_used_of_the_runtime_and_the_max_beside_it(shell: Shell) -> None:
    lines = shell.lines("top", "-r", "cpu")
    assert lines[0].split() == ["QUOTA", "RESOURCE", "USED", "LIMIT", "MAX", "%"]
    assert ["vision/vision", "cpu", "4", "6", "8", "66"] in [row[:6] for row in rows(lines)]
    found = json.loads(shell("top", "-r", "cpu", "-o", "json").output)
    speech = {"name": "speech/speech", "resource": "cpu", "used": "3", "limit": "4", "max": "8", "percent": "75"}
    assert {**speech, "claims": ""} in found


def test_a_quota_without_runtime_that_uses_something_is_the_fullest(shell: Shell) -> None:
    labels = {"pool": "gone"}
    gone = [{**node, "metadata": {**node["metadata"], "labels": labels}} for node in world.nodes()[:1]]
    shell.bed.give(*gone)
    assert rows(shell.lines("top", "-r", "cpu"))[0][:4] == ["kube-system/root-a", "cpu", "7", "0"]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    "command", [("get", "quotas"), ("get", "quotas", "-o", "wide"), ("top",), ("top", "-o", "wide")]
)
def test_names_are_whole_on_narrow_terminals(shell: Shell, command: tuple[str, ...], width: int) -> None:
    lines = shell.lines(*command, width=width)
    assert max(map(len, lines)) <= width
    for name in (*NAMES, "koordinator-default-quota", "koordinator-default-quota:pool-b"):
        assert any(name in line.split() for line in lines), name
    assert "USED" in lines[0]
    assert "RUNTIME" in lines[0] or "LIMIT" in lines[0]


# Names


@pytest.mark.parametrize(
    "command",
    [
        ("get", "pods"), ("get", "queue"), ("get", "quotas"), ("get", "events"), ("get", "changes"), ("top", "quotas"),
        ("explain", "vision/v2"), ("explain", "vision/v1"), ("explain", "ads/big"), ("explain", "quota", "vision"),
        ("explain", "quota", "root-a"), ("explain", "other/o1"), ("describe", "vision/v2"), ("get", "nodes"),
    ],
)  # fmt: skip
def test_nobody_is_shown_the_id_of_a_tree(shell: Shell, command: tuple[str, ...]) -> None:
    """Apart from the objects themselves, whose label it is."""
    output = shell(*command, "-o", "wide").output if command[0] != "describe" else shell(*command).output
    why = output.partition("Why:")[2] if command[0] == "describe" else output
    assert not [tree for tree in TREE_IDS if tree in why.partition("History:")[0]]
    assert "pools/" not in why


def test_refusals_name_quota_and_profile(shell: Shell) -> None:
    (first,) = [line.strip() for line in shell.lines("explain", "vision/v2") if "<- first" in line]
    quota = "ElasticQuota vision/vision of profile kube-system/pool-a"
    assert first == f"FAIL <- first {quota}: needs 4 cpu, 4 of its runtime of 6 in use [pools.runtime.cpu]"


def test_pods_list_their_quotas_as_the_table_of_quotas_calls_them(shell: Shell) -> None:
    (row,) = json.loads(shell("get", "claims", "vision/v2", "-o", "json").output)["items"]
    assert row["quotaNames"] == ["vision/vision", "kube-system/root-a"]
    assert [line.split()[1] for line in shell.lines("get", "pods", "--quota", "root-a")[1:]] == []
    assert [line.split()[1] for line in shell.lines("get", "pods", "--quota", "kube-system/root-a")[1:]] == [
        "s1", "s2", "v1", "v2"
    ]  # fmt: skip


# Explaining a quota

VISION = """\
ElasticQuota vision/vision of profile kube-system/pool-a
  cpu: 4 of its runtime of 6 in use; min 5, max 8
    request: 8 is what its pods ask for
    need: 5 is its request, up to its min of 5
    parent: kube-system/root-a has 10, the needs are 8: each is met, and 2 is left
    round 1: 1 of 2 by weight 8 of 16
    runtime: 6
    sibling speech/speech: request 5, min 3, weight 8, runtime 4, in use 3
  memory: 4Gi of its runtime of 8Gi in use; min 50Gi, max 80Gi
    request: 8Gi is what its pods ask for
    need: 8Gi is its request, up to its min of 50Gi
    parent: kube-system/root-a has 16Gi, the needs are 16Gi: each is met, and 0 is left
    runtime: 8Gi
    sibling speech/speech: request 8Gi, min 30Gi, weight 80Gi, runtime 8Gi, in use 4Gi
  pods: 1 counts, 1 waits: vision/v2
"""


@pytest.mark.parametrize(
    "words",
    [
        ("quota", "vision"),
        ("quota", "vision/vision"),
        ("ElasticQuota/vision/vision",),
        ("elasticquota", "vision/vision"),
        ("eq/vision/vision",),
        ("ElasticQuota.scheduling.sigs.k8s.io/vision/vision",),
    ],
)
def test_a_quota_is_explained_by_any_name(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell("explain", *words).output == VISION
    assert shell.file("explain", *words).output == VISION


def test_describe_has_it_too(shell: Shell) -> None:
    text = shell("describe", "ElasticQuota/vision/vision").output
    assert "Why:\n" + "".join(f"  {line}\n" for line in VISION.splitlines()) in text
    assert "kind: ElasticQuotaProfile" in shell("describe", "eqp/kube-system/pool-a").output


def test_the_past_of_a_quota(shell: Shell) -> None:
    before = shell.lines("explain", "quota", "vision", "--at", "-10s")
    assert "    request: 4 is what its pods ask for" in before


def test_a_quota_that_is_not_there(shell: Shell) -> None:
    result = shell("explain", "quota", "nosuch")
    assert result.exit_code == exit_codes.FAILED
    assert result.stderr.startswith("error: there is no quota 'nosuch': `bursar get quotas` lists them\n")


def test_what_runs_outside_of_quotas(shell: Shell) -> None:
    lines = shell.lines("get", "quotas")
    assert ["ElasticQuota", "koordinator-default-quota", "cpu", "1", "-", "-", "-", "-", "-"] in rows(lines)
    assert ["ElasticQuota", "koordinator-default-quota:pool-b", "cpu", "1", "-", "-", "-", "-", "-"] in rows(lines)
    lines = shell.lines("explain", "quota", "koordinator-default-quota")
    assert "  nodes of the default tree: cpu 1, memory 4Gi in use by lost/l1" in lines
    assert "  nodes of profile kube-system/pool-b: cpu 1, memory 4Gi in use by other/o1" in lines
    keys = [line.split()[0] for line in shell.lines("get", "pods", "--quota", "koordinator-default-quota")[1:]]
    assert keys == ["lost", "other"]


def test_clusters_without_pools_list_no_default_quota(tmp_path: Path) -> None:
    with live(tmp_path / "bursar.db", clock=ManualClock()) as bed:
        bed.give(*world.nodes(), world.pod("a", "p", 1))
        assert Shell(bed, tmp_path / "bursar.db", ManualClock())("get", "quotas").output == "no quotas found\n"


def test_an_ambiguous_kind_lists_what_can_be_typed(shell: Shell) -> None:
    assert ["vision", "vision"] in [row[:2] for row in rows(shell.lines("get", "eq"))]  # objects of one of the two
    shell.bed.give(quota("b", 1))
    for name in ("eq", "elasticquota", "ElasticQuota"):
        kinds = "ElasticQuota.n8s.nebuly.ai or ElasticQuota.scheduling.sigs.k8s.io"
        assert shell("get", name).stderr == f"error: the kind {name!r} is ambiguous: type {kinds}\n"


def test_names_that_are_printed_can_be_typed(shell: Shell) -> None:
    assert shell.lines("describe", "ElasticQuota/vision/vision")[0] == "ElasticQuota vision/vision"
    assert " created " in shell.lines("history", "eq/vision/vision")[0]
    in_use = "error: ElasticQuota web/web: is in use by 1 pod: web/w1\n"
    assert shell("plan", "--delete", "elasticquota/web/web").stderr.startswith(in_use)
    assert shell("delete", "eq/web/web").stderr.startswith(in_use)
    missing = shell("describe", "ElasticQuota/vision/nosuch")
    assert "the kind 'ElasticQuota' is ambiguous: type ElasticQuota.n8s.nebuly.ai or " in missing.stderr


# Events


def test_one_eviction_is_one_eviction(shell: Shell) -> None:
    revoke = {"pools": {"revokeOveruse": True, "delayEvictTime": "10s"}}
    configuration = {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": {"name": "default"}}
    without_min = {"max": {"cpu": 8, "memory": "80Gi"}}
    teams = {**world.team("vision", "root-a"), "spec": without_min}, world.team("speech", "root-a", 8)
    shell.bed.give({**configuration, "spec": revoke}, *teams, world.pod("speech", "s3", 3))
    shell.clock.now += 60_000
    shell.bed.give(world.pod("other", "late", 1))
    found = [line.split() for line in shell.lines("get", "events", "--limit", "500") if "vision/v1" in line]
    assert [row[2] for row in found if row[2] in {"evicted", "left"}] == ["left", "evicted"]
    assert sum("pools.revoked" in row for row in found) == 1


# A live cluster

KINDS = (Resource.of(PROFILE), Resource.of(QUOTA))


def fill(cluster: Stage) -> None:
    """The same objects in a Kubernetes cluster."""
    resources = {one.kind: one for one in (*KINDS, NODES, PODS)}
    for one in [*world.objects(), *world.running(), *world.waiting()]:
        body = {part: value for part, value in one.items() if part not in {"apiVersion", "kind"}}
        if one["kind"] == "Pod":
            placed = "nodeName" in body["spec"]
            more = {"priority": 0} if placed else {"priority": 0, "schedulingGates": [{"name": GATE}]}
            body |= {"spec": {**body["spec"], **more}, "status": {"phase": "Running" if placed else "Pending"}}
        cluster.fake.state.create(resources[one["kind"]], one["metadata"].get("namespace", ""), body)


@pytest.mark.anyio
async def test_kubectl_bursar_shows_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    async with stage(more=KINDS) as cluster:
        fill(cluster)
        config = kubeconfig(tmp_path, cluster.fake.url)

        async def said(*words: str) -> str:
            return (await asyncio.to_thread(run, *words, "--kubeconfig", config)).stdout

        assert await said("explain", "quota", "vision") == VISION
        quotas, top = rows((await said("get", "quotas")).splitlines()), rows((await said("top")).splitlines())
        assert ["ElasticQuota", "vision/vision", "cpu", "4", "6", "5", "8", "-", "-"] in quotas
        assert ["vision/vision", "cpu", "4", "6", "8", "66"] in [row[:6] for row in top]
        assert "nodes of profile kube-system/pool-b" in await said("explain", "quota", "koordinator-default-quota")
        assert "profile kube-system/pool-a: needs 4 cpu, 4 of its runtime of 6" in await said("explain", "vision/v2")
