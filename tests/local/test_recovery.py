"""What survives: a server that is killed or restarted under queued and running jobs, shims that are killed, files that
are damaged.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from bursar.local.cgroups import attach, mount_point, open_slice
from bursar.local.job_records import JobFiles
from tests.local.bed import LocalBed, alive, ended, wait_for


def test_running_jobs_go_on_over_a_restart_and_their_exit_code_is_kept(each_bed: LocalBed, tmp_path: Path) -> None:
    go = tmp_path / "go"
    client = each_bed.client(
        "--gpus", "1", "--", "sh", "-c", f"echo on; while [ ! -e {go} ]; do sleep 0.05; done; exit 4"
    )
    assert client.stdout is not None
    assert client.stdout.readline() == b"on\n"
    pod = each_bed.pods("Running")[0]
    each_bed.restart()
    assert each_bed.phase(pod) == "Running"
    go.touch()
    assert ended(client)[0] == 4
    each_bed.until(pod, "Failed")
    assert each_bed.pod(pod).message == "exit code 4"


def test_a_job_that_ends_while_no_agent_is_there_is_reported_by_the_next_one(
    each_bed: LocalBed, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    client = each_bed.client(
        "--gpus", "1", "--", "sh", "-c", f"echo on; while [ ! -e {go} ]; do sleep 0.05; done; exit 6"
    )
    assert client.stdout is not None
    assert client.stdout.readline() == b"on\n"
    pod = each_bed.pods("Running")[0]
    each_bed.stop()
    go.touch()
    assert ended(client)[0] == 6
    each_bed.start()
    each_bed.until(pod, "Failed")
    assert each_bed.pod(pod).message == "exit code 6"


def test_a_queued_job_keeps_its_place_over_a_restart(bed: LocalBed) -> None:
    first = bed.detach("--gpus", "2", "--", "sleep", "1000")
    team = first.partition("/")[0]
    bed.until(first, "Running")
    client = bed.client("--gpus", "1", "--name", "waits", "--", "echo", "here")
    assert client.stderr is not None
    assert b"in the queue" in client.stderr.readline()
    with bed.service.lock:
        uid = bed.service.cluster.pod_states[f"{team}/waits"].uid
    bed.restart()
    assert bed.bursar("stop", "--now", first).returncode == 0
    assert ended(client)[:2] == (0, "here\n")
    with bed.service.lock:
        assert bed.service.cluster.pod_states[f"{team}/waits"].uid == uid


def test_a_killed_shim_takes_its_job_with_it(each_bed: LocalBed, tmp_path: Path) -> None:
    marks = tmp_path / "pid"
    client = each_bed.client(
        "--gpus", "1", "--name", "bereft", "--", "sh", "-c", f"sleep 1000 & echo $! $$ > {marks}; wait"
    )
    wait_for("it runs", lambda: marks.exists() and len(marks.read_text().split()) == 2)
    child, command = map(int, marks.read_text().split())
    shim = int(Path(f"/proc/{command}/stat").read_text().rpartition(")")[2].split()[1])
    pod = each_bed.pods("Running")[0]
    os.kill(shim, signal.SIGKILL)
    each_bed.until(pod, "Failed")
    assert each_bed.pod(pod).reason == "ShimLost"
    assert [pid for pid in (child, command) if alive(pid)] == []
    assert ended(client)[0] == 255
    assert each_bed.run("--gpus", "2", "--", "true").returncode == 0


def test_a_shim_that_is_killed_while_no_agent_is_there(each_bed: LocalBed, tmp_path: Path) -> None:
    marks = tmp_path / "pid"
    pod = each_bed.detach("--gpus", "2", "--", "sh", "-c", f"setsid sleep 1000 & echo $! $$ > {marks}; wait")
    wait_for("it runs", lambda: marks.exists() and len(marks.read_text().split()) == 2)
    child, command = map(int, marks.read_text().split())
    shim = int(Path(f"/proc/{command}/stat").read_text().rpartition(")")[2].split()[1])
    each_bed.stop()
    os.kill(shim, signal.SIGKILL)
    wait_for("the kernel ends the command", lambda: not alive(command))
    each_bed.start()
    each_bed.until(pod, "Failed")
    assert not alive(child)


def test_a_record_of_another_boot_is_the_end_of_a_job(bed: LocalBed) -> None:
    """As after a power failure: the process id may be anybody's by now."""
    pod = bed.detach("--gpus", "2", "--", "sleep", "1000")
    wait_for("it has a record", bed.records)
    bed.stop()
    record = bed.records()[0]
    boot = JobFiles(bed.folder / "agent").load()[0].process.boot
    job = JobFiles(bed.folder / "agent").load()[0].process.pid
    record.write_text(record.read_text().replace(boot, "another-boot"))
    bed.start()
    bed.until(pod, "Failed")
    assert bed.pod(pod).reason == "Unknown"
    wait_for("what was left in its cgroup is ended, or by its mark", lambda: not alive(job))


def test_a_pod_that_was_deleted_meanwhile_has_no_process_after_the_restart(each_bed: LocalBed) -> None:
    pod = each_bed.detach("--gpus", "2", "--", "sleep", "1000")
    wait_for("it has a record", each_bed.records)
    pid = JobFiles(each_bed.folder / "agent").load()[0].process.pid
    each_bed.agent.stop()
    each_bed.service.delete([f"Pod/{pod}"])
    each_bed.service.close()
    each_bed.start()
    each_bed.until(pod, "")
    assert not alive(pid)
    wait_for("the record is gone", lambda: each_bed.records() == [])


def test_a_damaged_record_stops_nobody_else(bed: LocalBed) -> None:
    bed.stop()
    (bed.folder / "agent/jobs/a.b.1.json").write_text("{")
    bed.start()
    assert bed.run("--", "true").returncode == 0


@pytest.mark.parametrize("when", ["Pending", "Running"])
def test_a_pod_that_names_the_machine_but_has_no_client(bed: LocalBed, when: str) -> None:
    """As when somebody copies the manifest of a job: no agent runs it."""
    limits = {"bursar.dev/gpu": "9" if when == "Pending" else "1"}
    mark = {"local.bursar.dev/machine": "box"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "a", "name": "copy", "annotations": mark},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
    bed.give(pod)
    assert bed.phase("a/copy") == when
    bed.restart()
    bed.until("a/copy", "" if when == "Pending" else "Failed")


def test_jobs_live_in_a_cgroup_that_another_program_made() -> None:
    """As ``bursar-jobs.service`` does for systemd: it delegates its cgroup, and keeps a process in a part of it."""
    mount = mount_point()
    parent = Path(f"bursar-test-{os.getpid()}.slice")
    if mount is None or open_slice("auto", str(parent)).root is None:
        assert open_slice("auto", f"{parent}/jobs.service").why_not
        return
    unit = mount / parent / "jobs.service"
    (unit / "holder").mkdir(parents=True)
    holder = subprocess.Popen(["/bin/sleep", "600"])
    try:
        attach(str(unit / "holder"), holder.pid)
        groups = open_slice("auto", f"{parent}/jobs.service")
        job = groups.create("a.train.1", 500, 1 << 30)
        assert Path(job).parent == unit
        assert groups.missing_for(500, 1 << 30) == open_slice("auto", str(parent)).missing_for(500, 1 << 30)
    finally:
        holder.kill()
        holder.wait()
        for folder in (unit / "a.train.1", unit / "holder", unit, unit.parent):
            folder.rmdir()
