"""Agents on machines of their own, with one server: who runs what where, and what a lost agent leaves booked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.device.check_bed import Bed, until
from tests.device.fake.fake_nvml import h200, machine
from tests.local.bed import alive, local_configuration, quota


@pytest.fixture
def apart() -> Iterator[Bed]:
    bed = Bed(machine(h200(0), h200(1)), None, apart=True)
    try:
        bed.start()
        yield bed
    finally:
        bed.close()


def test_a_lost_agent_keeps_its_jobs_and_the_server_its_books(apart: Bed) -> None:
    go = apart.folder / "go"
    job = apart.client("--gpus", "2", command=["sh", "-c", f"echo on; while [ ! -e {go} ]; do sleep 0.1; done; exit 6"])
    job.says("on")
    apart.end_agent(signal.SIGKILL)
    refused = apart.client("--gpus", "1", command=["true"])
    assert (refused.code(), refused.err.count("\n")) == (3, 1)
    assert [one["phase"] for one in apart.claims()] == ["Running"]
    go.touch()
    assert job.code() == 6
    apart.start()
    until("its end is reported", lambda: not apart.running())
    done = apart.client("--gpus", "2", command=["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"])
    assert (done.code(), done.out.count("GPU-")) == (0, 2)


@pytest.mark.parametrize(("what", "code"), [("no server", 3), ("a wrong token", 1), ("the token of another", 1)])
def test_an_agent_that_cannot_start_says_why_in_one_line(apart: Bed, tmp_path: Path, what: str, code: int) -> None:
    address = "http://127.0.0.1:9" if what == "no server" else apart.environment["BURSAR_SERVER"]
    token = "not-a-token-at-all" if what == "a wrong token" else "agent-of-the-check"
    done = subprocess.run(
        [sys.executable, "-m", "bursar", "agent", "--server", address, "--state", str(tmp_path / "state"),
         "--gpus", "none", "--machine", "bay", "--cgroups", "none", "--socket", str(tmp_path / "sock"),
         "--log-level", "error"],
        env={**apart.environment, "BURSAR_TOKEN": token}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
    assert not (tmp_path / "sock").exists()


def test_machines_share_quotas_and_use_their_own_gpus(apart: Bed) -> None:
    user = {"users": ["root" if os.geteuid() == 0 else str(os.getlogin())]}
    apart.apply(local_configuration(teams={"a": user}), quota("a", 1, 1))
    other = Bed(machine(h200(0, uuid="GPU-99999999-0000-0000-0000-000000000000")), None)
    tokens = apart.folder / "tokens"
    tokens.write_text(f"{tokens.read_text()}agent agent-of-the-bay bay\n")
    (other.folder / "token").write_text("agent-of-the-bay\n")
    log = (other.folder / "agent.log").open("wb")
    agent = subprocess.Popen(
        [sys.executable, "-m", "bursar", "agent", "--server", apart.environment["BURSAR_SERVER"], "--token-file",
         str(other.folder / "token"), "--state", str(other.folder / "agent"), "--gpus", "nvml", "--machine", "bay",
         "--slice", other.slice], env=other.environment, stdout=log, stderr=log,
    )  # fmt: skip
    try:
        until("both are reported", lambda: len(apart.objects("node")) == 2)
        first = apart.client("-n", "a", "--gpus", "1", command=["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 600"])
        first.says("GPU-")
        second = other.client("-n", "a", "--gpus", "1", command=["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"])
        until("the second waits for the quota", lambda: "elastic" in second.err or "a/quota" in second.err)
        for name in apart.running():
            apart.bursar("stop", "--now", f"a/{name}")
        assert (second.code(), second.out) == (0, "GPU-99999999-0000-0000-0000-000000000000\n")
    finally:
        agent.terminate()
        agent.wait(60)
        log.close()
        other.close()
    assert not alive(agent.pid)
