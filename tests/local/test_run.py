"""Jobs that run: what the command gets, what comes back, and how it is ended. Each with and without cgroups."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.local.bed import BURSAR, LocalBed, alive, ended, quota, teams, wait_for


def test_the_exit_code_and_both_outputs_are_passed_through(each_bed: LocalBed) -> None:
    done = each_bed.run("-n", "root", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert done.stderr.splitlines()[-1] == "err"


def test_a_command_that_a_signal_ends_is_128_and_its_number(bed: LocalBed) -> None:
    assert bed.run("--", "sh", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL


def test_a_job_has_the_callers_folder_environment_and_input(bed: LocalBed, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("one\ntwo\n")
    with (tmp_path / "input").open() as given:
        client = bed.client("--", "sh", "-c", "pwd; read line; echo $line $COLOUR $BURSAR_TEAM", stdin=given)
        code, out, _ = ended(client)
        assert given.read() == "" or code == 0
    assert (code, out.splitlines()[0]) == (0, str(tmp_path))


def test_gpus_are_named_by_uuid_and_none_is_given_twice(bed: LocalBed) -> None:
    done = bed.run("--gpus", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert sorted(done.stdout.strip().split(",")) == ["GPU-0", "GPU-1"]
    assert bed.devices.given_twice == []
    wait_for("they are given back", lambda: len(bed.devices.released) == 1)
    assert bed.devices.released == bed.devices.prepared


def test_a_job_without_gpus_sees_none(bed: LocalBed) -> None:
    assert bed.run("--", "sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]").stdout == "[]\n"


def test_a_job_waits_for_the_gpu_of_another(bed: LocalBed) -> None:
    first = bed.detach("--gpus", "2", "--name", "first", "--", "sleep", "300")
    bed.until(first, "Running")
    second = bed.client("--gpus", "1", "--name", "second", "--", "echo", "done")
    team = first.partition("/")[0]
    bed.until(f"{team}/second", "Pending")
    assert second.stderr is not None
    assert b": 1 of 1 in the queue; every node that could take it is full" in second.stderr.readline()
    assert bed.bursar("stop", "--now", first).returncode == 0
    assert ended(second)[:2] == (0, "done\n")


def test_a_signal_to_the_client_reaches_the_job(each_bed: LocalBed) -> None:
    client = each_bed.client(
        "--", "sh", "-c", "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.1; done"
    )
    assert client.stdout is not None
    assert client.stdout.readline() == b"ready\n"
    client.send_signal(signal.SIGINT)
    code, out, _ = ended(client)
    assert (code, out) == (3, "caught\n")


def test_ctrl_c_while_waiting_leaves_the_queue(bed: LocalBed) -> None:
    first = bed.detach("--gpus", "2", "--", "sleep", "300")
    client = bed.client("--gpus", "1", "--name", "waits", "--", "true")
    pod = f"{first.partition('/')[0]}/waits"
    bed.until(pod, "Pending")
    wait_for("the client waits", lambda: client.poll() is None)
    client.send_signal(signal.SIGINT)
    assert ended(client)[0] == 128 + signal.SIGINT
    bed.until(pod, "")


def test_a_waiting_client_that_is_killed_leaves_the_queue(bed: LocalBed) -> None:
    first = bed.detach("--gpus", "2", "--", "sleep", "300")
    client = bed.client("--gpus", "1", "--name", "waits", "--", "true")
    pod = f"{first.partition('/')[0]}/waits"
    bed.until(pod, "Pending")
    client.kill()
    bed.until(pod, "")


def test_a_job_outlives_its_client_and_is_seen_again_by_logs_and_attach(bed: LocalBed, tmp_path: Path) -> None:
    wait = tmp_path / "go"
    client = bed.client(
        "--name", "long", "--", "sh", "-c", f"while [ ! -e {wait} ]; do echo goes on; sleep 0.1; done; exit 5"
    )
    assert client.stdout is not None
    assert client.stdout.readline() == b"goes on\n"
    client.kill()
    pod = bed.pods("Running")[0]
    assert bed.bursar("logs", pod).stdout.startswith("goes on\n")
    attached = subprocess.Popen(
        [*BURSAR, "attach", pod], env=bed.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert attached.stdout is not None
    assert attached.stdout.readline() == b"goes on\n"
    wait.touch()
    attached.stdout.read()
    assert attached.wait(timeout=300) == 5
    attached.stdout.close()
    bed.until(pod, "Failed")


def test_stop_ends_the_whole_family_of_a_job(each_bed: LocalBed, tmp_path: Path) -> None:
    marks = tmp_path / "pids"
    stubborn = f"trap '' TERM; echo $$ >> {marks}; while :; do sleep 0.1; done"
    script = f'setsid sh -c "{stubborn.replace("$", chr(92) + "$")}" & {stubborn}'
    pod = each_bed.detach("--grace", "100ms", "--", "sh", "-c", script)
    wait_for("both have begun", lambda: marks.exists() and len(marks.read_text().split()) == 2)
    assert each_bed.bursar("stop", pod).returncode == 0
    each_bed.until(pod, "Failed")
    assert [pid for pid in map(int, marks.read_text().split()) if alive(pid)] == []
    wait_for("the record is gone", lambda: each_bed.records() == [])
    assert each_bed.pod(pod).reason == "Stopped"


def test_processes_that_a_command_leaves_behind_are_ended(each_bed: LocalBed, tmp_path: Path) -> None:
    marks = tmp_path / "pids"
    each_bed.run("--name", "leaver", "--", "sh", "-c", f"sleep 1000 & echo $! > {marks}")
    wait_for("the job is gone", lambda: not each_bed.pods("Running"))
    assert not alive(int(marks.read_text()))


def test_the_time_limit_ends_a_job(bed: LocalBed) -> None:
    done = bed.run("--time", "300ms", "--grace", "100ms", "--name", "limited", "--", "sleep", "1000")
    assert done.returncode == 128 + signal.SIGTERM
    assert "TimeLimit" in done.stderr


def test_a_checkpoint_signal_comes_first(bed: LocalBed) -> None:
    script = "trap 'echo saved; exit 0' USR1; echo ready; while :; do sleep 0.1; done"
    client = bed.client("--checkpoint", "USR1", "--name", "saver", "--", "sh", "-c", script)
    assert client.stdout is not None
    assert client.stdout.readline() == b"ready\n"
    bed.bursar("stop", bed.pods("Running")[0])
    assert ended(client)[:2] == (0, "saved\n")


def test_an_over_quota_job_is_evicted_for_the_owner_of_the_quota(each_bed: LocalBed) -> None:
    each_bed.give(teams("a", "b"), quota("a", 1), quota("b", 1))
    borrower = each_bed.client("-n", "a", "--name", "big", "--gpus", "1", "--", "sleep", "1000")
    each_bed.until("a/big", "Running")
    second = each_bed.client("-n", "a", "--name", "over", "--gpus", "1", "--", "sleep", "1000")
    wait_for("both have begun", lambda: len(each_bed.records()) == 2)
    owner = each_bed.run("-n", "b", "--gpus", "1", "--name", "own", "--", "echo", "mine")
    assert (owner.returncode, owner.stdout) == (0, "mine\n")
    code, _, err = ended(second)
    assert (code, "Evicted" in err) == (128 + signal.SIGTERM, True)
    assert each_bed.phase("a/over") == "Evicted"
    assert each_bed.phase("a/big") == "Running"
    assert borrower.poll() is None
    assert each_bed.devices.given_twice == []


def test_an_evicted_job_with_requeue_runs_again(bed: LocalBed, tmp_path: Path) -> None:
    bed.give(teams("a", "b"), quota("a", 1), quota("b", 1))
    bed.detach("-n", "a", "--name", "own", "--gpus", "1", "--", "sleep", "1000")
    bed.until("a/own", "Running")
    runs = tmp_path / "runs"
    script = f"echo $BURSAR_ATTEMPT >> {runs}; [ $BURSAR_ATTEMPT = 1 ] && exit 0; sleep 1000"
    client = bed.client("-n", "a", "--name", "over", "--gpus", "1", "--requeue", "--", "sh", "-c", script)
    wait_for("it runs", runs.exists)
    assert bed.run("-n", "b", "--gpus", "1", "--", "true").returncode == 0
    assert ended(client)[0] == 0
    assert runs.read_text().split() == ["0", "1"]


def test_a_gang_runs_together_by_rank(bed: LocalBed) -> None:
    done = bed.run(
        "--gang", "2", "--gpus", "1", "--", "sh", "-c", "echo $BURSAR_RANK/$BURSAR_WORLD_SIZE $CUDA_VISIBLE_DEVICES"
    )
    assert done.returncode == 0
    assert sorted(line.split()[0] for line in done.stdout.splitlines()) == ["0/2", "1/2"]
    assert len({line.split()[1] for line in done.stdout.splitlines()}) == 2


def test_the_others_of_a_gang_end_when_one_fails(bed: LocalBed) -> None:
    done = bed.run("--gang", "2", "--grace", "100ms", "--", "sh", "-c", "[ $BURSAR_RANK = 1 ] && exit 9; sleep 1000")
    assert done.returncode in {9, 128 + signal.SIGTERM}
    wait_for("the others to end", lambda: bed.pods("Running") == [])


def test_a_terminal_is_given_to_the_job(bed: LocalBed) -> None:
    master, slave = pty.openpty()
    client = bed.client(
        "--",
        "sh",
        "-c",
        "test -t 0 && test -t 1 && tty && read x && echo got $x",
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    seen = b""
    while b"/dev/pts/" not in seen:
        seen += os.read(master, 1000)
    os.write(master, b"hello\r")
    while b"got hello" not in seen:
        seen += os.read(master, 1000)
    assert client.wait(timeout=300) == 0
    os.close(master)


def test_a_gpu_is_handed_on_only_when_the_driver_lists_no_process_there(bed: LocalBed) -> None:
    bed.devices.lingering = -1
    first = bed.run("--gpus", "2", "--name", "first", "--", "true")
    assert first.returncode == 0
    bed.client("--gpus", "1", "--name", "second", "--", "true")
    team = bed.pods("Running")[0].partition("/")[0]
    bed.until(f"{team}/second", "Pending")
    assert bed.phase(f"{team}/first") == "Running"  # as far as the quota and its GPUs are concerned
    bed.devices.lingering = 0
    bed.until(f"{team}/second", "Succeeded")


def test_a_gpu_that_stays_busy_is_held_before_the_end_is_reported(
    bed: LocalBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``MadeUpDevices`` holds nothing by itself: as with ``strays: ignore``."""
    monkeypatch.setattr("bursar.local.job_life.DRAIN_SECONDS", 0.2)
    monkeypatch.setattr("bursar.local.agent.TICK_SECONDS", 3600)
    bed.devices.lingering = -1
    first = bed.detach("--gpus", "1", "--name", "first", "--", "true")
    bed.until(first, "Succeeded")
    (held,) = bed.devices.held
    assert _phase_of_gpu(bed, held.lower()) == "Held"
    bed.devices.lingering = 0
    done = bed.run("--gpus", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert done.stdout.strip() in {"GPU-0", "GPU-1"} - {held}


def test_a_fraction_waits_while_another_user_has_the_mps_daemon(bed: LocalBed) -> None:
    bed.devices.shared_by = "eve"
    client = bed.client("--vram", "10Gi", "--", "echo", "mine")
    assert client.stderr is not None
    line = client.stderr.readline()
    assert b"waiting: GPU-" in line
    assert b"is shared by jobs of eve" in line
    bed.devices.shared_by = ""
    assert ended(client)[:2] == (0, "mine\n")


def test_ctrl_c_leaves_while_another_user_has_the_mps_daemon(bed: LocalBed) -> None:
    bed.devices.shared_by = "eve"
    client = bed.client("--vram", "10Gi", "--", "true")
    assert client.stderr is not None
    client.stderr.readline()
    client.send_signal(signal.SIGINT)
    assert ended(client)[0] == 128 + signal.SIGINT
    wait_for("its GPU is given back", lambda: not bed.pods("Running", "Pending"))


def test_a_fraction_that_waits_for_the_mps_daemon_outlives_a_restart(bed: LocalBed) -> None:
    bed.devices.shared_by = "eve"
    client = bed.client("--vram", "10Gi", "--", "echo", "mine")
    assert client.stderr is not None
    client.stderr.readline()
    bed.restart()
    bed.devices.shared_by = ""
    assert ended(client)[:2] == (0, "mine\n")


def test_a_held_gpu_is_not_handed_out(bed: LocalBed) -> None:
    bed.devices.held = {"GPU-0": "process 4711 of user eve belongs to no job"}
    wait_for("it is held", lambda: _phase_of_gpu(bed, "gpu-0") == "Held")
    assert bed.run("--gpus", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES").stdout == "GPU-1\n"


def test_a_gpu_that_is_gone_after_a_restart_is_removed(bed: LocalBed) -> None:
    del bed.devices.gpus[0]
    bed.restart()
    assert [_phase_of_gpu(bed, name) for name in ("gpu-0", "gpu-1")] == [None, "Running"]
    assert bed.run("--gpus", "2", "--", "true").returncode == 1


def _phase_of_gpu(bed: LocalBed, name: str) -> object:
    with bed.service.lock:
        found = bed.service.cluster.find(bed.service.cluster.kinds.find("GPU"), name)
    return None if found is None else found["status"]["phase"]


@pytest.mark.parametrize("what", ["command", "gpus", "team", "signal", "vram", "cpu"])
def test_bad_requests_are_one_line_and_leave_nothing(bed: LocalBed, what: str) -> None:
    requests = {
        "command": (["--", "no-such-command"], 127, "no-such-command: no such command"),
        "gpus": (["--gpus", "9", "--", "true"], 1, "9 GPUs are asked for, and box has 2"),
        "team": (["-n", "nobody-team", "--", "true"], 1, "you are not in team 'nobody-team'"),
        "signal": (["--checkpoint", "NOPE", "--", "true"], 2, "'NOPE' is not the name of a signal"),
        "vram": (["--vram", "500Gi", "--", "true"], 1, "no GPU of box is that large"),
        "cpu": (["--cpu", "many", "--", "true"], 2, "--cpu:"),
    }
    arguments, code, text = requests[what]
    done = bed.run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1
    assert text in done.stderr
    assert bed.pods("Pending", "Running", "Terminating") == []


def test_without_an_agent_the_exit_code_is_3(tmp_path: Path) -> None:
    environment = {**os.environ, "BURSAR_SOCKET": str(tmp_path / "none")}
    done = subprocess.run([*BURSAR, "run", "--", "true"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
