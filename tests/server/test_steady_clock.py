"""Time that follows the clock of the machine, whatever becomes of that clock."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bursar.objects.validation import time_ms
from bursar.server.client import Client
from bursar.server.serve import ServeOptions
from bursar.server.service import Service
from bursar.server.steady_clock import SteadyClock
from tests.server.crash import _env
from tests.server.live import ManualClock, live, node, pod, text, wait_for

YEAR = 365 * 24 * 3600 * 1000
NOW = 1_800_000_000_000


class Machine:
    """A machine whose clock can be set; the other one cannot."""

    def __init__(self) -> None:
        self.wall, self.ticks = ManualClock(NOW), ManualClock(5_000)

    def passes(self, ms: int) -> None:
        self.wall.now += ms
        self.ticks.now += ms

    def clock(self) -> SteadyClock:
        return SteadyClock(self.wall, self.ticks)


def test_time_follows_a_clock_that_is_right() -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(5):
        machine.passes(700)
        assert clock() == machine.wall.now
    assert clock.ahead == 0


def test_time_goes_on_slower_after_the_clock_was_set_back_until_that_caught_up() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall.now -= 60_000
    before, seen = clock(), []
    assert (before, clock.ahead) == (NOW, 60_000)
    while clock.ahead:
        machine.passes(1_000)
        seen.append(clock())
    assert [later - earlier for earlier, later in zip([before, *seen], seen, strict=False)] == [900] * 600
    assert seen[-1] == machine.wall.now
    machine.passes(1_000)
    assert clock() == machine.wall.now


def test_time_jumps_with_a_clock_that_is_set_forward(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.passes(1_000)
    machine.wall.now += YEAR
    assert clock() == NOW + 1_000 + YEAR
    assert "was set forward by 365d" in caplog.text or "was set forward by 8760h" in caplog.text


def test_the_offset_is_said_once_a_minute_and_when_it_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bursar.server")
    machine = Machine()
    clock = machine.clock()
    clock.say_offset()
    assert not caplog.records
    machine.wall.now -= 10_000
    said = []
    for _ in range(130):
        clock.say_offset()
        said.append(len(caplog.records))
        machine.passes(1_000)
    assert caplog.records[0].message.startswith("time is 10s ahead of this machine's clock")
    assert (said[0], said[59], said[60]) == (1, 1, 2)
    assert caplog.records[-1].message == "time is that of the machine's clock again"


def test_a_server_whose_clock_was_a_year_ahead_goes_on(tmp_path: Path) -> None:
    """Pods end, the offset is in metrics and the health check, and moments ago can be asked for."""
    data, machine = tmp_path / "b.db", Machine()
    machine.wall.now += YEAR
    with live(data, clock=machine.clock()) as bed:
        bed.give(node("n1"), pod("a", "long", runs_for="20s"))
    machine.wall.now -= YEAR
    with live(data, clock=machine.clock()) as bed:
        assert bed.raw("GET", "/readyz")[2].startswith(b"ready\ntime is ")
        assert b"bursar_clock_ahead_seconds 3.1536e+07" in bed.raw("GET", "/metrics")[2]
        assert bed.client.claim("a", "long").phase == "Running"
        machine.passes(23_000)
        wait_for("the pod ends", lambda: bed.client.object("Pod", "a/long")["status"]["phase"] == "Succeeded")
        assert [row.name for row in bed.client.claims(at="-10s").items] == ["long"]


def test_a_clock_that_is_plain_has_no_offset(tmp_path: Path) -> None:
    service = Service.open(tmp_path / "b.db", clock=ManualClock())
    assert service.ahead == 0
    service.close()
    assert isinstance(ServeOptions(tmp_path / "b.db").clock, SteadyClock)


JUMPY = """
import sys, time
from pathlib import Path
true, offset = time.time_ns, Path(sys.argv.pop(1))
time.time_ns = lambda: true() + int(offset.read_text()) * 1_000_000
from bursar.cli.main import main
main()
"""


def start(offset: Path, data: Path) -> tuple[subprocess.Popen[str], Client]:
    command = [sys.executable, "-c", JUMPY, str(offset), "serve", "--data", str(data), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_env())
    assert process.stdout is not None
    return process, Client(process.stdout.readline().split()[2])


def test_a_clock_that_jumps_under_a_server_process(tmp_path: Path) -> None:
    """Forward a year, back while it runs, and right after a restart: time never goes back, and pods end."""
    offset, data = tmp_path / "offset", tmp_path / "b.db"
    offset.write_text(str(YEAR))
    process, client = start(offset, data)
    client.apply(text(node("n1"), pod("a", "one", runs_for="2s"), pod("a", "two", runs_for="6s")))
    first = client.info().moment.time
    offset.write_text("0")
    begun = time.monotonic()
    wait_for("the first pod ends", lambda: client.claim("a", "one").phase != "Running")
    assert time.monotonic() - begun > 1
    assert client.info().moment.time > first
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "ahead of this machine's clock" in errors
    process, client = start(offset, data)
    try:
        wait_for("the second pod ends", lambda: client.object("Pod", "a/two")["status"]["phase"] == "Succeeded")
        assert time_ms(client.info().moment.time) >= time_ms(first) + 6_000
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
