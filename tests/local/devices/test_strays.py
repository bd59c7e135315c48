"""Processes without a job: who they are, what they hold, for how long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bursar.local.devices.api import GpuProcess
from bursar.local.devices.strays import LINGER, Remnants, StrayWatch, container_of, held_gpus, user_name
from tests.local.devices.machines import GIB, Owners

ONE = "GPU-1"


def process(folder: Path, pid: int, cgroup: str = "0::/user.slice\n") -> GpuProcess:
    (folder / str(pid)).mkdir()
    (folder / str(pid) / "comm").write_text("python\n", encoding="utf-8")
    (folder / str(pid) / "cgroup").write_text(cgroup, encoding="utf-8")
    return GpuProcess(ONE, pid, GIB)


def test_a_process_without_a_job_is_named(tmp_path: Path) -> None:
    (stray,) = StrayWatch(tmp_path).update(0, [process(tmp_path, 4242)], Owners(), set())
    me = user_name(os.getuid())
    assert stray.sentence() == f"process 4242 (python) of user {me} belongs to no job"
    assert held_gpus([stray]) == {ONE: stray.sentence()}


def test_a_container_is_named(tmp_path: Path) -> None:
    one = process(tmp_path, 7, f"0::/system.slice/docker-{'0123456789ab' * 5}.scope\n")
    (stray,) = StrayWatch(tmp_path).update(0, [one], Owners(), set())
    assert " in container 0123456789ab " in stray.sentence()


@pytest.mark.parametrize(
    ("owners", "own"), [pytest.param({"train": 7}, set(), id="a job's"), pytest.param({}, {7}, id="an MPS server")]
)
def test_processes_that_are_no_strays(tmp_path: Path, owners: dict[str, int], own: set[int]) -> None:
    assert StrayWatch(tmp_path).update(0, [process(tmp_path, 7)], Owners(**owners), own) == []


def test_a_gpu_is_held_a_little_longer(tmp_path: Path) -> None:
    watch = StrayWatch(tmp_path)
    one = process(tmp_path, 7)
    assert watch.update(0, [one], Owners(), set())
    assert watch.update(LINGER - 0.1, [], Owners(), set())
    assert not watch.update(LINGER, [], Owners(), set())


def test_a_process_that_has_ended_is_said_to_have(tmp_path: Path) -> None:
    (stray,) = StrayWatch(tmp_path).update(0, [GpuProcess(ONE, 9, GIB)], Owners(), set())
    assert "it has ended" in stray.sentence()


@pytest.mark.parametrize(
    ("cgroups", "container"),
    [
        ("0::/user.slice/user-1000.slice/session-2.scope", ""),
        ("0::/bursar.slice/job-3", ""),
        ("0::/system.slice/docker-3f2a1b0c9d8e7f60aabb.scope", "3f2a1b0c9d8e"),
        ("0::/docker/3f2a1b0c9d8e7f60aabb", "3f2a1b0c9d8e"),
        ("0::/user.slice/user-1000.slice/libpod-aaaabbbbccccdddd.scope/container", "aaaabbbbcccc"),
        ("12:devices:/kubepods/burstable/pod1/cri-containerd-99998888777766665555.scope", "999988887777"),
        ("0::/kubepods.slice/crio-0a0b0c0d0e0f0a0b.scope", "0a0b0c0d0e0f"),
        ("0::/lxc.payload.builder", "builder"),
    ],
)  # fmt: skip
def test_containers_by_their_cgroup(cgroups: str, container: str) -> None:
    assert container_of(cgroups) == container


def test_a_user_without_a_name_is_a_number() -> None:
    assert user_name(0) == "root"
    assert user_name(2**31 - 7) == str(2**31 - 7)


def test_what_an_ended_job_left_holds_its_gpu_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "mps/remnants.json"
    left = GpuProcess(ONE, 7, GIB)
    Remnants(path).add("a/train", [left])
    remnants = Remnants(path)
    assert remnants.held([left, GpuProcess(ONE, 8, GIB)]) == {ONE: "process 7 of a/train is still on it after the end"}
    assert remnants.held([GpuProcess(ONE, 8, GIB)]) == {}
    assert Remnants(path).held([left]) == {}
