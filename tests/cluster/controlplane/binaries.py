"""Find the binaries of the control plane, or build them once.

Looked for in this order: the folder KUBEBUILDER_ASSETS (used whatever its version is, because somebody chose it), PATH
(when the version is the pinned one up to its patch level), the cache, a build from the committed Go modules into the
cache. The cache lies outside of the repository and is keyed by the modules' go.sum files, so that a new pin builds anew
and nothing stale is used. One builder at a time holds the lock of the cache; a binary appears there by a rename, whole.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cluster.controlplane.golang import NEEDED, NoGoError, find_go, say

HERE = Path(__file__).resolve().parent
PROGRESS_SECONDS = 20


class BinariesError(Exception):
    """A binary is missing and cannot be built; the message says what to do."""


class Command(NamedTuple):
    """One binary: the committed module that pins it, its package, and how to ask its version."""

    module: str
    package: str
    ask_version: tuple[str, ...]


COMMANDS = {
    "etcd": Command("kubernetes", "go.etcd.io/etcd/server/v3", ("--version",)),
    "kube-apiserver": Command("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", ("--version",)),
    "kubectl": Command("kubernetes", "k8s.io/kubernetes/cmd/kubectl", ("version", "--client")),
    "kube-scheduler": Command("kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", ("--version",)),
    "kube-controller-manager": Command("kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", ("--version",)),
    "kwok": Command("kwok", "sigs.k8s.io/kwok/cmd/kwok", ("--version",)),
    "helm": Command("kubernetes", "helm.sh/helm/v3/cmd/helm", ("version", "--short")),
}


class Binary(NamedTuple):
    path: Path
    version: str
    origin: str

    def line(self) -> str:
        return f"{self.path.name} {self.version} ({self.origin}: {self.path})"


def cache_folder() -> Path:
    """Where binaries are kept: one folder for each state of the go.sum files."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    digest = hashlib.sha256()
    for module in ("kubernetes", "kwok"):
        digest.update((HERE / module / "go.sum").read_bytes())
    return Path(base) / "bursar" / "controlplane" / digest.hexdigest()[:16]


def pinned_version(name: str) -> str:
    """The version that the committed go.mod requires, for example v1.36.3."""
    command = COMMANDS[name]
    requirements = (HERE / command.module / "go.mod").read_text()
    modules: list[tuple[str, str]] = re.findall(r"^(?:require)?\s+(\S+) (v\S+)", requirements, re.MULTILINE)
    return next(version for module, version in modules if command.package.startswith(module))


def find(names: tuple[str, ...] = tuple(COMMANDS)) -> dict[str, Binary]:
    """All of the named binaries, built where that is needed."""
    found = {name: binary for name in names if (binary := _ready(name)) is not None}
    missing = [name for name in names if name not in found]
    if missing:
        _build(missing)
        found |= {name: Binary(cache_folder() / name, pinned_version(name), "cache") for name in missing}
    return found


def _ready(name: str) -> Binary | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and (path := Path(assets) / name).exists():
        return Binary(path, version_of(path, name), "KUBEBUILDER_ASSETS")
    on_path = shutil.which(name)
    if on_path and _same_minor(version := version_of(Path(on_path), name), pinned_version(name)):
        return Binary(Path(on_path), version, "PATH")
    cached = cache_folder() / name
    return Binary(cached, pinned_version(name), "cache") if cached.exists() else None


def version_of(path: Path, name: str) -> str:
    """What a binary says of its version, ``unknown`` where that cannot be read."""
    done = subprocess.run([path, *COMMANDS[name].ask_version], capture_output=True, text=True, check=False)
    found = re.search(r"v?(\d+\.\d+\.\d+)", done.stdout)
    return f"v{found[1]}" if found else "unknown"


def _same_minor(version: str, pinned: str) -> bool:
    return version.split(".")[:2] == pinned.split(".")[:2]


def _build(names: list[str]) -> None:
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache):
        missing = [name for name in names if not (cache / name).exists()]
        if not missing:
            return
        try:
            go = find_go(cache)
        except NoGoError as error:
            raise BinariesError(_advice(missing, error)) from error
        for number, name in enumerate(missing, 1):
            _build_one(go, cache, name, f"({number} of {len(missing)})")


def _advice(missing: list[str], error: NoGoError) -> str:
    needed = f"{NEEDED[0]}.{NEEDED[1]}"
    return (
        f"the control plane needs {', '.join(missing)}: not in KUBEBUILDER_ASSETS, on PATH (version "
        f"{pinned_version(missing[0])}) or in {cache_folder()}, and cannot be built: {error}.\n"
        f"Install Go {needed} or newer, or set KUBEBUILDER_ASSETS to a folder that has the binaries."
    )


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    with (cache / ".lock").open("w") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another build into {cache}")
            fcntl.flock(guard, fcntl.LOCK_EX)
        yield


def _build_one(go: Path, cache: Path, name: str, position: str) -> None:
    command = COMMANDS[name]
    say(f"building {name} {pinned_version(name)} {position}; this happens once")
    scratch = cache / f".new-{name}"
    arguments = [str(go), "build", "-trimpath", "-ldflags", _link_flags(), "-o", str(scratch), command.package]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    started = time.monotonic()
    log = cache / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments, cwd=HERE / command.module, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        _wait(process, name, started)
    if process.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise BinariesError(f"building {name} with {go} failed (exit {process.returncode}, log {log}):\n{tail}")
    log.unlink()
    scratch.rename(cache / name)
    say(f"built {name} in {time.monotonic() - started:.0f} s")


def _wait(process: subprocess.Popen[bytes], name: str, started: float) -> None:
    try:
        while True:
            try:
                process.wait(PROGRESS_SECONDS)
                return
            except subprocess.TimeoutExpired:
                say(f"building {name}, {time.monotonic() - started:.0f} s so far")
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _link_flags() -> str:
    """Versions are set when linking; without them the API server calls itself v0.0.0 and clients misjudge it."""
    kubernetes = pinned_version("kube-apiserver")
    major, minor = kubernetes.removeprefix("v").split(".")[:2]
    stamps = {
        "k8s.io/component-base/version.gitVersion": kubernetes,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "helm.sh/helm/v3/internal/version.version": pinned_version("helm"),
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": major,
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": minor,
        "sigs.k8s.io/kwok/pkg/consts.Version": pinned_version("kwok"),
    }
    return " ".join(["-s", "-w", *(f"-X {variable}={value}" for variable, value in stamps.items())])
