"""The reference pages as the tool writes them now, for tests that compare them with docs/."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

TOOL = Path(__file__).resolve().parents[1] / "tools" / "reference.py"


def reference_page(name: str) -> str:
    return _pages()[name]


@cache
def _pages() -> dict[str, str]:
    """In a process of its own: click remembers the help of a command that was shown in another form."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with TemporaryDirectory() as folder:
        subprocess.run([sys.executable, TOOL, folder], env=environment, check=True)
        return {page.name: page.read_text() for page in Path(folder).iterdir()}
