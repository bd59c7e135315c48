"""The files a build of Bursar is made of, and one hash over them, the pins and the interpreter."""

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD_FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
SHIPPED = {".py", ".typed", ".yaml", ".csv", ".html", ".css", ".js", ".svg"}


def build_inputs() -> list[Path]:
    """Everything a wheel is made of, in a fixed order: modules and the package data, no caches or extension modules."""
    package = (path for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix in SHIPPED)
    return [*(ROOT / name for name in BUILD_FILES), *sorted(package)]


def fingerprint() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for path in [ROOT / "requirements" / "dev.txt", *build_inputs()]:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
