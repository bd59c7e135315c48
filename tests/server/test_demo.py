"""The demo shows what it promises, and `bursar serve` starts and ends as it should."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from bursar.policies.plugin import default_registry
from bursar.server import demo, quotas
from bursar.server.client import Client
from bursar.server.service import Service
from bursar.sim.cluster import Cluster
from tests.server.crash import _env
from tests.server.live import text
from tests.server.test_first_steps import follow


def test_the_same_beats_come_again() -> None:
    first = [[one.body for one in beat] for beat in islice(demo.beats(), 30)]
    assert first == [[one.body for one in beat] for beat in islice(demo.beats(), 30)]


def test_a_few_minutes_show_borrowing_reclaim_and_refusals_of_every_policy() -> None:
    cluster = Cluster()
    cluster.apply(demo.organisation())
    told: Counter[str] = Counter()
    borrowed: set[str] = set()
    for beat in islice(demo.beats(), 90):
        if beat:
            cluster.apply(beat)
        cluster.advance(2000)
        happenings, _ = cluster.take_news()
        told.update(one.what for one in happenings)
        told.update(one.reason.partition(".")[0] for one in happenings if one.what == "waits")
        for quota in quotas.quotas(cluster):
            if any(figures.borrowed for figures in quota.resources.values()):
                borrowed.add(quota.policy)
    assert told["started"] > 50
    assert told["evicted"] > 5
    assert borrowed >= {"elastic", "trees"}
    assert told["elastic"]
    assert told["total"] + told["single"]


def test_every_dialect_has_a_quota_in_the_table() -> None:
    cluster = Cluster()
    cluster.apply(demo.organisation())
    names = {plugin.name for plugin in default_registry()}
    assert {quota.policy for quota in quotas.quotas(cluster)} == names - {"access", "nodes", "gpus", "devices"}


def start(*arguments: str, own_group: bool = False) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bursar", "serve", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=_env(), start_new_session=own_group)


def test_serve_says_where_it_is_and_ends_by_a_signal(tmp_path: Path) -> None:
    process = start("--data", str(tmp_path / "b.db"), "--port", "0", "--demo", "--log-level", "warning")
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(7)]
    address = lines[0].split()[2]
    assert lines[2] == "Three things to try, in another terminal:"
    assert lines[3] == f"export BURSAR_SERVER={address}"
    environment = {**_env(), "BURSAR_SERVER": address, "COLUMNS": "80"}
    for line in lines[4:7]:
        words = line.partition("#")[0].split()
        assert words[:3] == ["python", "-m", "bursar"]
        command = [sys.executable, *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        assert 0 < max(map(len, done.stdout.splitlines())) <= 80
    client = Client(address)
    assert client.info().demo
    assert client.quotas(policy="elastic").items
    follow_the_fix(client)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("signals", [1, 3])
def test_a_signal_for_all_its_processes_ends_it_quietly(tmp_path: Path, number: signal.Signals, signals: int) -> None:
    """As a shell sends it, or systemd; from the moment on at which it says where it is."""
    process = start("--data", str(tmp_path / "b.db"), "--port", "0", "--demo", own_group=True)
    assert process.stdout is not None
    process.stdout.readline()
    for _ in range(signals):
        os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")


def test_the_demo_goes_on_where_it_was_however_full_it_is(tmp_path: Path) -> None:
    service = Service.open(tmp_path / "b.db")
    for _ in range(12):
        demo.Demo(service).stop()
    service.close()


def follow_the_fix(client: Client) -> None:
    """What the greeting ends with: a pod waits, the explanation has a fix, the fix lets it in, whatever others do."""
    namespace, _, name = demo.FIRST_POD.partition("/")
    why = client.explain(namespace, name, fixes=True)
    assert why.claim.reason == "elastic.max.nvidia.com/gpu"
    assert [fix.code for fix in why.fixes] == ["ask-less", "raise-quota"]
    manifest = client.object("Pod", demo.FIRST_POD)
    changed = follow(manifest, why.fixes[0])
    assert [news.what for news in client.apply(text(changed)).pods] == ["started"]
    assert client.claim(namespace, name).phase == "Running"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--host", "0.0.0.0"], 2, "to listen on 0.0.0.0, give a file of tokens: --tokens FILE"),  # noqa: S104 refused
        (["--tokens", "nowhere"], 1, "nowhere: cannot be read"),
        (["--tls-cert", "x"], 2, "TLS needs both a certificate and its key"),
        (["--port", "70000"], 2, "70000 is not in the range"),
    ],
)
def test_serve_refuses_what_cannot_be(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    process = start("--data", str(tmp_path / "b.db"), "--port", "0", *arguments)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == code
    assert message in errors


def test_serve_leaves_a_foreign_file_alone(tmp_path: Path) -> None:
    data = tmp_path / "b.db"
    data.write_bytes(b"something else" * 100)
    data.chmod(0o600)
    process = start("--data", str(data), "--port", "0")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert errors.startswith("error: ")
    assert "no store of Bursar's" in errors
    assert data.read_bytes() == b"something else" * 100
