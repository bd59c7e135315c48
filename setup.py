"""Build Bursar: a pure wheel, or with BURSAR_COMPILE=1 one whose hot modules are compiled by mypyc.

Everything else about the package is in pyproject.toml. The compiled modules are found by their place in the
tree, so that a new module is compiled without a word here. Extension modules never land in src/: an
in-place or editable build with BURSAR_COMPILE=1 is refused, because a later pure wheel would pick them up.
"""

import os
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

PACKAGE = Path("src/bursar")
COMPILED_FILES = ("quantity.py", "vectors.py", "selectors.py")
COMPILED_FOLDERS = ("ledger", "policies", "engine")
# kinds.py and plugin.py hold msgspec structs and registration; __init__.py only re-exports.
INTERPRETED_NAMES = {"__init__.py", "kinds.py", "plugin.py"}


def compiled_sources() -> list[str]:
    files = [PACKAGE / name for name in COMPILED_FILES]
    for folder in COMPILED_FOLDERS:
        files.extend(sorted((PACKAGE / folder).rglob("*.py")))
    return [str(path) for path in files if path.is_file() and path.name not in INTERPRETED_NAMES]


class BuildOutsideTheTree(build_ext):
    def run(self) -> None:
        if self.extensions and (self.inplace or self.editable_mode):
            raise SystemExit("BURSAR_COMPILE=1 builds wheels only: an in-place build would leave .so files in src/")
        super().run()


if os.environ.get("BURSAR_COMPILE") == "1" and compiled_sources():
    from mypyc.build import mypycify

    extensions = mypycify(["--strict", *compiled_sources()], opt_level="3", strip_asserts=False)
else:
    extensions = []

setup(
    ext_modules=extensions,  # type: ignore[arg-type]  # mypyc names the same class by its distutils alias
    cmdclass={"build_ext": BuildOutsideTheTree},
)
