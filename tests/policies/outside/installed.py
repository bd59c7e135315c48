"""The example of the page "Write a policy", as an installed package; ``test_outside`` runs these tests where it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from bursar_hours import CLOSES, DAY, KIND
from click.testing import CliRunner

from bursar.cli.main import cli
from bursar.kube.admission.manifests import quota_kinds
from bursar.kube.client.api import Resource
from bursar.kube.controller import leader_term, mirror
from bursar.kube.controller.patches import ENFORCED, GOVERNED_LABEL
from bursar.kube.rbac import manifests
from bursar.objects.crds import definitions
from bursar.policies.plugin import default_registry
from tests.kube.controller.stage import GPU, stage
from tests.policies.outside.page import block
from tests.server.live import Live, ManualClock, live, node, pod

QUOTA = {
    "apiVersion": "hours.example.com/v1",
    "kind": "HourlyQuota",
    "metadata": {"namespace": "lab", "name": "gpus"},
    "spec": {"day": {GPU: "1"}, "night": {GPU: "4"}},
}
NOON = 20_000 * DAY + DAY // 2
EVENING = 20_000 * DAY + CLOSES


def bursar(*arguments: object, server: str = "") -> str:
    env = {"BURSAR_SERVER": server, "NO_COLOR": "1", "COLUMNS": "200"}
    result = CliRunner().invoke(cli, [*map(str, arguments)], prog_name="bursar", env=env)
    assert result.exit_code == 0, result.output
    return result.output


def test_it_is_installed_and_in_its_order() -> None:
    assert metadata.version("bursar-hours") == "1.0"
    orders = {plugin.name: plugin.order for plugin in default_registry()}
    assert list(orders) == [
        "trees",
        "pools",
        "elastic",
        "limits",
        "hours",
        "nodes",
        "crossquota",
        "gpus",
        "devices",
        "access",
    ]


def test_its_pod_is_admitted_at_the_hour_in_a_scenario(tmp_path: Path) -> None:
    file = tmp_path / "hours.yaml"
    file.write_text(block("yaml"))
    assert "1 scenario passed" in bursar("test", file)


def test_its_reasons_are_listed() -> None:
    assert bursar("reasons", "hours.limit.nvidia.com/gpu").startswith("hours.limit.<resource>\n  The quota is used up")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def bed(tmp_path: Path, clock: ManualClock) -> Iterator[Live]:
    with live(tmp_path / "bursar.db", clock=clock) as found:
        found.give(node("n1", 8), QUOTA)
        found.give(pod("lab", "first"))
        found.give(pod("lab", "second"))
        yield found


def test_its_quotas_are_listed(bed: Live) -> None:
    (row,) = bed.client.quotas().items
    assert (row.policy, row.kind, row.namespace, row.name) == ("hours", "HourlyQuota.hours.example.com", "lab", "gpus")
    assert (row.resources[GPU].used, row.resources[GPU].max) == ("1", "1")
    assert "lab/gpus" in bursar("get", "quotas", server=bed.address)
    assert "lab/gpus" in bursar("top", server=bed.address)
    assert [claim.name for claim in bed.client.claims(quota="lab/gpus").items] == ["first", "second"]


def test_it_is_explained_and_the_fix_names_the_field(bed: Live) -> None:
    shown = bursar("explain", "lab/second", server=bed.address)
    assert "hours.limit.nvidia.com/gpu" in shown
    assert "raise spec.day.nvidia.com/gpu of HourlyQuota lab/gpus from 1 to 2" in shown
    assert "spec.night" not in shown


def test_its_pod_is_admitted_at_the_hour_and_the_journal_is_true(bed: Live, clock: ManualClock, tmp_path: Path) -> None:
    clock.now = EVENING
    bed.service.tick()
    assert {claim.name: claim.phase for claim in bed.client.claims().items} == {"first": "Running", "second": "Running"}
    assert bed.client.quotas().items[0].resources[GPU].max == "4"
    assert bursar("audit", tmp_path / "bursar.db").startswith("GOOD")


def test_a_deleted_quota_governs_nothing(bed: Live) -> None:
    bed.client.delete([f"{KIND.name}/lab/gpus"])
    assert {claim.phase for claim in bed.client.claims().items} == {"Running"}
    assert bed.client.quotas().items == []


def test_it_brings_what_kubernetes_needs() -> None:
    (crd,) = definitions([KIND])
    assert crd["metadata"]["name"] == "hourlyquotas.hours.example.com"
    assert KIND in quota_kinds(default_registry())
    rules = [rule for one in manifests(default_registry(), "bursar-system") for rule in one.get("rules", ())]
    assert any("hourlyquotas" in rule["resources"] for rule in rules)


@pytest.mark.anyio
async def test_its_pod_is_ungated_at_the_hour_on_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    monkeypatch.setattr(leader_term, "TICK", 3600.0)  # only a policy that is due ends the wait
    monkeypatch.setattr(mirror, "_clock", lambda: lambda: EVENING - 4_000 + int((time.monotonic() - began) * 1000))
    async with stage(more=(Resource.of(KIND),)) as cluster:
        cluster.node("n", 8)
        cluster.namespace("lab")
        cluster.fake.state.create(Resource.of(KIND), "lab", {"metadata": {"name": "gpus"}, "spec": QUOTA["spec"]})
        pods = [cluster.pod("lab", "first"), cluster.pod("lab", "second")]
        term = await cluster.lead()
        await cluster.until(lambda: any(map(cluster.started, pods)))
        if term.mirror.notes.now() < EVENING:
            assert sum(map(cluster.started, pods)) == 1
        await cluster.until(lambda: all(map(cluster.started, pods)))
        assert term.mirror.notes.now() >= EVENING
        labels = next(one["metadata"]["labels"] for one in cluster.namespaces() if one["metadata"]["name"] == "lab")
        assert labels[GOVERNED_LABEL] == ENFORCED
