"""Build Bursar: a pure wheel, or with BURSAR_COMPILE=1 one whose hot modules are compiled by mypyc.

Everything else about the package is in pyproject.toml. The compiled modules are found by their place in the
tree, so that a new module is compiled without a word here. Extension modules never land in src/: an
in-place or editable build with BURSAR_COMPILE=1 is refused, because a later pure wheel would pick them up.
"""

import ast
import os
import re
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


def docstrings(source: str) -> dict[str, str]:
    """The docstrings of a module by the name of what has them ("" for the module), as mypyc joins names in C."""
    module = ast.parse(Path(source).read_text())
    found = {"": ast.get_docstring(module) or ""}
    for node in module.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    found[f"{node.name}___{part.name}"] = ast.get_docstring(part) or ""
    return {name: text for name, text in found.items() if text}


def c_string(text: str) -> str:
    plain = [chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in text.encode()]
    return f'"{"".join(plain)}"'


def keep_docstrings(source: str) -> None:
    """Write a module's docstrings into its C file: mypyc leaves them out, and help() would show only signatures."""
    texts = docstrings(source)
    module = source.removeprefix("src/").removesuffix(".py").replace("/", "___")
    path = Path("build", f"__native_{module}.c")
    code = path.read_text()
    prefix = re.findall(r"struct PyModuleDef (\w+)module = ", code)[0]

    def add(match: re.Match[str]) -> str:
        before, name, between, signature = match.groups()
        if name not in texts:
            return match.group()
        return f"{before}{name}{between}{'' if signature == 'NULL' else signature}{c_string(texts[name])}"

    def add_to_property(match: re.Match[str]) -> str:
        text = texts.get(f"{match[2]}___{match[3]}")
        return match.group() if text is None else f"{match[1]} NULL, PyDoc_STR({c_string(text)}), NULL"

    signature = r'(NULL|"(?:[^"\\]|\\.)*")(?=\))'
    code = re.sub(rf"(\(PyCFunction\)CPyPy_{prefix}___)(\w+)(,[\sA-Z_|]*, PyDoc_STR\(){signature}", add, code)
    code = re.sub(rf'(\.tp_name = ")(\w+)(",[^}}]*?\.tp_doc = PyDoc_STR\(){signature}', add, code)
    code = re.sub(rf"(\(getter\){prefix}___(\w+?)_get_(\w+),)\s+NULL, NULL, NULL", add_to_property, code)
    if "" in texts:
        code = code.replace("    NULL, /* docstring */", f"    PyDoc_STR({c_string(texts[''])}), /* docstring */", 1)
    path.write_text(code)


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
    for compiled in compiled_sources():
        keep_docstrings(compiled)
    for extension in extensions:
        # Only the modules' entry points are for others. What cannot be replaced from outside can be called directly.
        extension.extra_compile_args += ["-fvisibility=hidden"] if os.name == "posix" else []
else:
    extensions = []

setup(
    ext_modules=extensions,  # type: ignore[arg-type]  # mypyc names the same class by its distutils alias
    cmdclass={"build_ext": BuildOutsideTheTree},
)
