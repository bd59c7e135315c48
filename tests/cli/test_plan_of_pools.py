"""`bursar plan` says without options whom a change of nodes or profiles costs its place after the revocation delay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bursar.cli import exit_codes
from tests.cli import pools_cluster as world
from tests.cli.conftest import Shell
from tests.cli.test_change import written
from tests.server.live import ManualClock, live

Manifest = dict[str, Any]
CONFIGURATION = {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": {"name": "default"}}


def pool_node(name: str, pool: str) -> Manifest:
    has = {"cpu": "4", "memory": "100Gi"}
    labels = {"pool": pool, "disk": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": has},
    }


def objects(*, revokes: bool) -> list[Manifest]:
    """Team x runs on both nodes of its pool; a pod of team y waits for one of them."""
    waiting = world.pod("y", "waiting", 2)
    waiting["spec"]["nodeSelector"] = {"disk": "a-2"}
    return [
        {**CONFIGURATION, "spec": {"pools": {"revokeOveruse": revokes}}},
        *(pool_node(name, "a") for name in ("a-1", "a-2")),
        world.profile("a"),
        *(world.team(name, "root-a", 2) for name in "xy"),
        *(world.pod("x", f"x{at}", 2, node) for at, node in enumerate(("a-1", "a-2", "a-2"))),
        waiting,
    ]


@pytest.fixture(params=[True, False])
def revoking(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Shell, bool]]:
    clock = ManualClock()
    with live(tmp_path / "bursar.db", clock=clock) as bed:
        bed.give(*objects(revokes=request.param))
        clock.now += 60_000
        yield Shell(bed, tmp_path / "bursar.db", clock), request.param


def changes() -> dict[str, Manifest]:
    """A node without its label, and a selector with a typo."""
    profile = world.profile("a")
    profile["spec"]["nodeSelector"] = {"matchLabels": {"disk": "a-2"}}
    return {"node": pool_node("a-1", ""), "selector": profile}


@pytest.mark.parametrize("what", ["node", "selector"])
def test_plan_shows_whom_the_loss_of_a_node_costs_its_place(
    revoking: tuple[Shell, bool], tmp_path: Path, what: str
) -> None:
    shell, revokes = revoking
    change = written(tmp_path / "change.yaml", changes()[what])
    found = json.loads(shell("plan", "-f", change, "-o", "json").output)
    result = shell("plan", "-f", change, "--fail-on-eviction")
    if not revokes:
        assert found["evicted"] == []
        assert result.exit_code == exit_codes.OK
        return
    assert [(one["pod"], one["reason"]) for one in found["evicted"]] == [
        ("x/x1", "pools.revoked"),
        ("x/x2", "pools.revoked"),
    ]
    assert found["evictionsWithin"] == "2m"
    assert "Evictions because of over-use (2) come within 2m" in " ".join(result.stdout.split())
    assert result.exit_code == exit_codes.FAILED
    shell.bed.give(changes()[what])
    shell.clock.now += 121_000
    shell.bed.give(world.pod("other", "late", 1))
    phases = {row.name: row.phase for row in shell.bed.client.claims().items if row.namespace in "xy"}
    assert phases["x0"] == "Running"
    assert phases["waiting"] == "Running"
    assert "x1" not in phases or phases["x1"] != "Running"


def test_plan_of_a_change_that_costs_nobody_a_place_is_harmless(revoking: tuple[Shell, bool], tmp_path: Path) -> None:
    shell, _ = revoking
    change = written(tmp_path / "change.yaml", pool_node("a-3", "a"))
    result = shell("plan", "-f", change, "--fail-on-eviction")
    assert result.exit_code == exit_codes.OK
    assert "0 would be evicted" in result.stdout
