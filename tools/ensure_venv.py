"""Make .venv hold exactly what a lock file says, once.

Runs on the bare Python of the machine, so it uses nothing but the standard library. A stamp in .venv keeps
the hash of the lock file and of the interpreter: as long as they stand, nothing is installed again. `dev`
contains `run`, so a current `dev` stamp serves both. A file lock lets two makes start at once. A .venv of
another interpreter is built anew.
"""

import fcntl
import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
INTERPRETER_STAMP = VENV / ".interpreter"
PROGRAM = VENV / "bin" / "bursar"
PROGRAM_TEXT = f"""#!{VENV_PYTHON}
import sys
sys.path.insert(0, {str(ROOT / "src")!r})
from bursar.cli.main import main
main()
"""


def lock_file(kind: str) -> Path:
    return ROOT / "requirements" / f"{kind}.txt"


def stamp_file(kind: str) -> Path:
    return VENV / f".installed-{kind}"


def wanted_stamp(kind: str) -> str:
    inputs = [lock_file(kind)]
    if kind == "dev":  # the editable install carries the entry points and the dependencies of pyproject.toml
        inputs.append(ROOT / "pyproject.toml")
    digest = hashlib.sha256()
    for path in inputs:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_current(kind: str) -> bool:
    stamp = stamp_file(kind)
    return stamp.exists() and stamp.read_text() == wanted_stamp(kind)


def ensure_interpreter() -> None:
    interpreter = f"{sys.version}\n{sys.base_prefix}\n"
    if INTERPRETER_STAMP.exists() and INTERPRETER_STAMP.read_text() == interpreter and VENV_PYTHON.exists():
        return
    print(f"setup: creating .venv with Python {sys.version.split()[0]}", flush=True)
    venv.create(VENV, clear=True, with_pip=True)
    INTERPRETER_STAMP.write_text(interpreter)


def pip_install(*arguments: str) -> None:
    command = [str(VENV_PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, cwd=ROOT)


def install(kind: str) -> None:
    print(f"setup: installing requirements/{kind}.txt into .venv", flush=True)
    pip_install("--require-hashes", "--only-binary", ":all:", "-r", str(lock_file(kind)))
    if kind == "dev":
        pip_install("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    stamp_file(kind).write_text(wanted_stamp(kind))


def ensure_program() -> None:
    """The command line, straight from the sources; an editable install brings its own."""
    if not PROGRAM.exists():
        PROGRAM.write_text(PROGRAM_TEXT)
        PROGRAM.chmod(0o755)


def main(arguments: list[str]) -> int:
    if arguments not in (["run"], ["dev"]):
        print("usage: ensure_venv.py run|dev", file=sys.stderr)
        return 2
    if sys.version_info < (3, 11):  # noqa: UP036 whatever Python the machine has starts this
        print(
            f"Bursar needs Python 3.11 or newer, this is {sys.version.split()[0]}: make PYTHON=...",
            file=sys.stderr,
        )
        return 2
    kind = arguments[0]
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    with (build / ".setup.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        ensure_interpreter()
        if not is_current(kind) and not (kind == "run" and is_current("dev")):
            install(kind)
        ensure_program()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"setup failed: {' '.join(error.cmd)} (exit {error.returncode})")
