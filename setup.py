"""Build Bursar: a pure wheel, or with BURSAR_COMPILE=1 one whose hot modules are compiled by mypyc.

Everything else about the package is in pyproject.toml. The compiled modules are found by their place in the
tree, so that a new module is compiled without a word here. Extension modules never land in src/: an
in-place or editable build with BURSAR_COMPILE=1 is refused, because a later pure wheel would pick them up.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

PACKAGE = Path("src/bursar")
COMPILED_FILES = (
    "quantity.py",
    "resources.py",
    "selectors.py",
    "kube/client/protobuf.py",
)
COMPILED_FOLDERS = ("ledger", "policies", "engine")
# api.py, journal_lines.py and plugin.py hold msgspec structs and registration; __init__.py only re-exports.
INTERPRETED_NAMES = {"__init__.py", "api.py", "plugin.py", "journal_lines.py"}


def compiled_sources() -> list[str]:
    files = [PACKAGE / name for name in COMPILED_FILES]
    for folder in COMPILED_FOLDERS:
        files.extend(sorted((PACKAGE / folder).rglob("*.py")))
    return [str(path) for path in files if path.is_file() and path.name not in INTERPRETED_NAMES]


def compile_side_by_side(
    compiler: Any,
    sources: list[str],
    output_dir: str | None = None,
    macros: list[Any] | None = None,
    include_dirs: list[str] | None = None,
    debug: bool = False,
    extra_preargs: list[str] | None = None,
    extra_postargs: list[str] | None = None,
    depends: list[str] | None = None,
) -> list[str]:
    """What the compiler object does for one C file after the other, on all cores: there is one a module."""
    macros, objects, extra_postargs, options, build = compiler._setup_compile(
        output_dir, macros, include_dirs, sources, depends, extra_postargs
    )
    arguments = compiler._get_cc_args(options, debug, extra_preargs)

    def compile_one(target: str) -> None:
        source, extension = build[target]
        compiler._compile(target, source, extension, arguments, extra_postargs, options)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, objects))
    return list(objects)


class BuildOutsideTheTree(build_ext):
    def build_extensions(self) -> None:
        self.compiler.compile = partial(compile_side_by_side, self.compiler)
        super().build_extensions()

    def run(self) -> None:
        if self.extensions and (self.inplace or self.editable_mode):
            raise SystemExit("BURSAR_COMPILE=1 builds wheels only: an in-place build would leave .so files in src/")
        super().run()


if os.environ.get("BURSAR_COMPILE") == "1" and compiled_sources():
    from mypyc.build import mypycify

    extensions = mypycify(["--strict", *compiled_sources()], opt_level="3", strip_asserts=False, multi_file=True)
    for extension in extensions:
        # Only the modules' entry points are for others. What cannot be replaced from outside can be called directly.
        extension.extra_compile_args += ["-fvisibility=hidden"] if os.name == "posix" else []
else:
    extensions = []

setup(
    ext_modules=extensions,  # type: ignore[arg-type]  # mypyc names the same class by its distutils alias
    cmdclass={"build_ext": BuildOutsideTheTree},
)
