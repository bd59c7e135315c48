import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.controlplane import ComponentError, ControlPlane
from tests.cluster.controlplane.ports import Ports, is_free
from tests.cluster.waiting import eventually

ORPHANS = """
import sys
from tests.cluster.controlplane import ControlPlane
plane = ControlPlane.start(scheduler=False, controller_manager=False, kwok=False)
print(plane.folder, *(plane.component(name).pid for name in ("etcd", "kube-apiserver")), flush=True)
sys.stdin.read()
"""


def small() -> ControlPlane:
    return ControlPlane.start(scheduler=False, controller_manager=False, kwok=False)


def port(plane: ControlPlane) -> int:
    return int(plane.url.rpartition(":")[2])


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_leaves_nothing_behind() -> None:
    with small() as plane:
        assert not is_free(port(plane))
        pids = [plane.component(name).pid for name in ("etcd", "kube-apiserver")]
    assert is_free(port(plane))
    assert not any(is_alive(pid) for pid in pids)
    assert not plane.folder.exists()


def test_two_planes_run_side_by_side() -> None:
    with small() as one, small() as other:
        assert port(one) != port(other)
        one.create_namespace("only-here")
        assert "only-here" not in other.kubectl("get", "namespaces")


def test_a_failed_block_keeps_the_logs(tmp_path: Path) -> None:
    folder = tmp_path / "plane"
    with (
        pytest.raises(RuntimeError, match="on purpose"),
        ControlPlane.start(scheduler=False, controller_manager=False, kwok=False, folder=folder),
    ):
        raise RuntimeError("on purpose")
    assert (folder / "logs" / "kube-apiserver.log").stat().st_size > 0


def test_a_component_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(
        ComponentError, match=r"kube-apiserver ended with exit code 1(.|\n)*unknown flag: --no-such-flag"
    ):
        ControlPlane.start(folder=tmp_path / "plane", apiserver_flags=["--no-such-flag"])


def test_nothing_outlives_a_killed_parent(repository: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHANS], cwd=repository, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        folder, *pids = parent.stdout.readline().split()
        assert all(is_alive(int(pid)) for pid in pids)
        os.kill(parent.pid, signal.SIGKILL)
    eventually(lambda: not any(is_alive(int(pid)) for pid in pids), "etcd and the API server are gone")
    eventually(lambda: not Path(folder).exists(), "the folder is gone")


def test_ports_are_not_handed_out_twice() -> None:
    one, other = Ports(), Ports()
    ports = [one.take() for _ in range(20)] + [other.take() for _ in range(20)]
    one.close()
    other.close()
    assert len(set(ports)) == 40
