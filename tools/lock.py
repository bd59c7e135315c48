"""Pin the newest versions of all dependencies, with hashes, into requirements/.

The files work for every platform (markers instead of one machine's choice) and name no package index: where
packages come from is the business of whoever installs them.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMON = [
    "uv", "pip", "compile", "--quiet", "--upgrade", "--universal", "--python-version", "3.11",
    "--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--custom-compile-command",
    "make lock", "pyproject.toml",
]  # fmt: skip


def compile_lock(name: str, *extra: str) -> None:
    target = f"requirements/{name}.txt"
    subprocess.run([sys.executable, "-m", *COMMON, *extra, "--output-file", target], check=True, cwd=ROOT)
    addresses = [line for line in (ROOT / target).read_text().splitlines() if "://" in line or "--index" in line]
    if addresses:
        sys.exit(f"{target} names where packages come from: {addresses[0]}")


if __name__ == "__main__":
    compile_lock("run")
    compile_lock("dev", "requirements/dev.in", "--constraints", "requirements/run.txt")
