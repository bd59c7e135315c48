"""Build the compiled package into build/compiled, if a source changed since the last time.

The build works on a copy of the sources under build/, and installs from there: no extension module can land
in src/, and a module that was deleted is not shipped from an old build. The fingerprint of the copy is
written last, so that an interrupted build is repeated. A file lock makes concurrent makes wait for each
other.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from sources import ROOT, build_inputs, fingerprint

COPY = ROOT / "build" / "compiled-src"
TARGET = ROOT / "build" / "compiled"
LOG = ROOT / "build" / "compiled.log"
STAMP = TARGET / ".fingerprint"


def copy_sources() -> None:
    shutil.rmtree(COPY, ignore_errors=True)
    for path in build_inputs():
        destination = COPY / path.relative_to(ROOT)
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, destination)


def install() -> int:
    shutil.rmtree(TARGET, ignore_errors=True)
    command = [
        sys.executable, "-m", "pip", "install", "--verbose", "--disable-pip-version-check", "--no-deps",
        "--no-build-isolation", "--no-compile", "--target", str(TARGET), str(COPY),
    ]  # fmt: skip
    with LOG.open("w") as log:
        environment = {**os.environ, "BURSAR_COMPILE": "1"}
        return subprocess.run(
            command, cwd=COPY, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
        ).returncode


def build() -> int:
    wanted = fingerprint()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return 0
    print("compiled: building with mypyc into build/compiled", flush=True)
    started = time.monotonic()
    copy_sources()
    status = install()
    if status != 0:
        print(LOG.read_text(), file=sys.stderr)
        print(f"compiled: build failed, see {LOG.relative_to(ROOT)}", file=sys.stderr)
        return status
    modules = len(list(TARGET.glob("bursar/**/*.so")))
    STAMP.write_text(wanted)
    print(f"compiled: {modules} modules in {time.monotonic() - started:.0f} s", flush=True)
    return 0


def main() -> int:
    Path(ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / ".compiled.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        return build()


if __name__ == "__main__":
    sys.exit(main())
