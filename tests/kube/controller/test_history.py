"""Leaders write one history, and decide whether it can be written or not."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from bursar.cli.main import cli
from bursar.kube.controller.leader_term import TermOptions
from bursar.store.segments import history_of, writer_in
from tests.kube.controller.stage import Stage, stage

pytestmark = pytest.mark.anyio
MOST = 1 << 30


async def decided(cluster: Stage, options: TermOptions, name: str) -> None:
    """A term in which a pod starts."""
    await cluster.lead(options)
    pod = cluster.pod("a", name)
    await cluster.until(lambda: not cluster.gated(pod))
    await cluster.depose()


async def test_terms_of_leaders_are_one_history_that_the_audit_believes(tmp_path: Path) -> None:
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 8)
        options = TermOptions(journal=partial(writer_in, tmp_path, MOST))
        for name in ("p0", "p1", "p2"):
            await decided(cluster, options, name)
        assert [part.header.term for part in history_of(tmp_path)] == [0, 1, 2]
        result = CliRunner().invoke(cli, ["audit", str(tmp_path)])
        assert result.exit_code == 0, result.output
        assert "3 ledgers of leaders" in result.output


async def test_decisions_go_on_where_the_storage_is_not_there(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    folder.write_text("a file where the volume should be")
    async with stage() as cluster:
        cluster.node("n", 8)
        cluster.namespace("a")
        cluster.quota("a", 8)
        await decided(cluster, TermOptions(journal=partial(writer_in, folder, MOST)), "p0")
        folder.unlink()
        await decided(cluster, TermOptions(journal=partial(writer_in, folder, MOST)), "p1")
        assert [part.header.term for part in history_of(folder)] == [1]
