"""Build the image without a registry, and start the controller from it against a real control plane.

The base is made of Debian's packages (mmdebstrap), the image by buildah, isolated by chroot: neither a daemon nor a
registry of images is needed. ``make image`` runs it; it needs root, and the packages buildah and mmdebstrap.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster.controlplane import ControlPlane
from tests.cluster.image_run import admits

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "image"
BASE, IMAGE = "localhost/bursar-base", "localhost/bursar"
_PACKAGES = "python3,python3-venv,ca-certificates"
_SUITE = "bookworm"  # whose python3 is 3.11
_OF_THE_HOST = ("/etc/pip.conf", "/etc/ssl/certs", "/usr/local/share/ca-certificates", "/etc/apt/apt.conf.d")
_SECONDS = 120


def main() -> int:
    missing = [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
    if missing:
        print(f"these Debian packages are needed: {', '.join(missing)}", file=sys.stderr)
        return 2
    WORK.mkdir(parents=True, exist_ok=True)
    os.environ["BUILDAH_ISOLATION"] = "chroot"
    os.environ.setdefault("STORAGE_DRIVER", "vfs")
    _make_base()
    began = time.monotonic()
    _buildah("bud", "--build-arg", f"BASE={BASE}", *_volumes(), "-t", IMAGE, "-f", "Containerfile", ".")
    print(f"{IMAGE} built in {time.monotonic() - began:.0f} s")
    return _try_it()


def _make_base() -> None:
    if _buildah("images", "-q", BASE, check=False):
        return
    root = WORK / "base.tar"
    _run("mmdebstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root))
    container = _buildah("from", "scratch")
    _buildah("add", container, str(root), "/")
    _buildah("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
    _buildah("commit", container, BASE)
    _buildah("rm", container)
    root.unlink()


def _volumes() -> list[str]:
    """How this machine reaches its package registries."""
    return [part for path in _OF_THE_HOST if Path(path).exists() for part in ("-v", f"{path}:{path}:ro")]


def _try_it() -> int:
    """The controller runs from the image as a process, as the user and with the arguments of the Deployment."""
    container = _buildah("from", IMAGE)
    try:
        print(_buildah("run", "--user", "65532:65532", container, "--", "bursar", "version"))
        with ControlPlane.start() as plane:
            took = admits(plane, ["buildah", "run", "--user", "65532:65532"], container, _SECONDS)
    finally:
        _buildah("rm", container)
    print(f"the controller of the image admitted a pod {took:.1f} s after it was started")
    return 0


def _buildah(*arguments: str, check: bool = True) -> str:
    return _run("buildah", *arguments, check=check)


def _run(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(command[:2])} failed with {done.returncode}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
