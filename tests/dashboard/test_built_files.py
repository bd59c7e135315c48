"""The dashboard that is committed is the one that its sources make.

Without Node nothing can be built. Then the note of the last build says which sources it had and what it made.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from bursar.server.dashboard import FILES

NOTE = "web/built-from"


def fingerprint(files: Iterable[Path], root: Path) -> str:
    lines = sorted((path.relative_to(root).as_posix(), sha256(path.read_bytes()).hexdigest()) for path in files)
    return sha256("".join(f"{name} {digest}\n" for name, digest in lines).encode()).hexdigest()


def test_the_built_files_are_of_these_sources(repository: Path) -> None:
    web = repository / "web"
    sources = [path for path in web.glob("src/**/*") if path.is_file()]
    sources += [web / name for name in ("build.mjs", "package-lock.json", "tsconfig.json")]
    noted = (repository / NOTE).read_text().split()
    assert noted == [fingerprint(sources, web), fingerprint(FILES.iterdir(), FILES)], "run: make dashboard"


def test_a_build_gives_the_same_files(repository: Path, tmp_path: Path) -> None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return  # the note is what can be said here
    web = tmp_path / "web"
    shutil.copytree(repository / "web", web, symlinks=True)
    if not (web / "node_modules").exists():
        subprocess.run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=web, check=True)
    subprocess.run([npm, "exec", "--", "tsc", "--noEmit"], cwd=web, check=True)
    subprocess.run([node, "build.mjs", "built"], cwd=web, check=True)
    built = {path.name: path.read_bytes() for path in (web / "built").iterdir()}
    assert built == {path.name: path.read_bytes() for path in FILES.iterdir()}, "run: make dashboard"
