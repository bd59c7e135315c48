"""Make sure that there is a Chromium for the tests of the dashboard; ``path()`` finds it.

Where none is installed and apt-get may be used (Debian, as root), this installs the package ``chromium``. Otherwise it
says what to do and fails: the tests of the dashboard are never skipped.
"""

import os
import shutil
import subprocess
import sys
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ATTEMPTS = 3


def path() -> str | None:
    """The browser; ``BURSAR_CHROMIUM`` names another one."""
    named = os.environ.get("BURSAR_CHROMIUM")
    if named:
        return named
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def install() -> None:
    """With apt-get; a package list that is missing or old is read again."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    get = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3", "-qq"]
    commands = ([*get, "install", "--yes", "--no-install-recommends", "chromium"], [*get, "update"])
    for attempt in range(ATTEMPTS):
        if subprocess.run(commands[0], env=environment, check=False).returncode == 0:
            return
        time.sleep(5 * attempt)
        subprocess.run(commands[1], env=environment, check=False)
    sys.exit("setup failed: the package chromium cannot be installed. Install one, or name it in BURSAR_CHROMIUM.")


def main() -> int:
    if path() is not None:
        return 0
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(
            "setup failed: the tests of the dashboard need a Chromium. Install one, or name it in BURSAR_CHROMIUM.",
            file=sys.stderr,
        )
        return 1
    print("setup: installing the package chromium", flush=True)
    install()
    return 0 if path() is not None else 1


if __name__ == "__main__":
    sys.exit(main())
