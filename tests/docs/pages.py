"""Pages whose examples run: every page is a session at one terminal, from top to bottom, against a server of its own.

* A yaml block that begins with ``# some-name.yaml`` is a file of that name. Files beside the page are there, too.
* A console block has commands (``$ ...``) and what they print. ``...`` on a line of its own stands for any lines.
  ``$ echo $?`` tells the exit code of the command before. One hash is as good as another.
* ``<!-- 10m later -->`` lets time pass.

Blocks of other languages are not run. ``python -m tests.docs.pages PAGE...`` writes what the commands print now into
the pages, to be read before it is committed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from bursar.cli import manifest_lists
from bursar.cli.main import cli
from bursar.objects.validation import duration_ms, timestamp
from tests.server.live import Live, ManualClock, live

WIDTH = 90
_PART = re.compile(r"```(?P<language>\w*)\n(?P<text>.*?)```|<!-- (?P<later>\w+) later -->", re.DOTALL)
_HASH = re.compile(r"\b[0-9a-f]{32}\b")
_NAMED = re.compile(r"# (\S+\.yaml)\n")


@dataclass
class Command:
    line: str
    expected: list[str] = field(default_factory=list)


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class Session:
    """Somebody at a terminal with an empty server."""

    def __init__(self, bed: Live, clock: ManualClock) -> None:
        self._bed = bed
        self._clock = clock
        self._code = 0

    def wait(self, duration: str) -> None:
        """Time passes, and whatever is due happens at its time."""
        self._clock.now += duration_ms(duration)
        self._bed.service.tick()

    def run(self, line: str) -> list[str]:
        """What the command prints."""
        words = shlex.split(line)
        if words == ["echo", "$?"]:
            return [str(self._code)]
        if words[:1] != ["bursar"]:
            raise ValueError(f"only commands of bursar are run: {line}")
        env = {"BURSAR_SERVER": self._bed.address, "COLUMNS": str(WIDTH), "NO_COLOR": "1"}
        env["BURSAR_CONFIG"] = "config.yaml"
        with mock.patch.object(manifest_lists, "wall_time", return_value=timestamp(self._clock.now)):
            result = CliRunner().invoke(cli, words[1:], prog_name="bursar", env=env)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        self._code = result.exit_code
        return [text.rstrip() for text in result.output.splitlines()]


@contextmanager
def session(page: Path) -> Iterator[Session]:
    with tempfile.TemporaryDirectory() as folder:
        for beside in page.parent.glob("*.yaml"):
            shutil.copy(beside, folder)
        clock = ManualClock()
        with inside(Path(folder)), live(Path(folder) / "bursar.db", clock=clock) as bed:
            yield Session(bed, clock)


def commands(text: str) -> list[Command]:
    found: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:]))
        else:
            found[-1].expected.append(line)
    return found


def parts(page: Path) -> Iterator[re.Match[str]]:
    return _PART.finditer(page.read_text())


def play(page: Path) -> Iterator[tuple[re.Match[str], list[tuple[Command, list[str]]]]]:
    """Go through a page; for each of its parts the commands in it and what they printed."""
    with session(page) as terminal:
        for part in parts(page):
            answers: list[tuple[Command, list[str]]] = []
            if part["later"]:
                terminal.wait(part["later"])
            elif part["language"] == "yaml" and (named := _NAMED.match(part["text"])):
                Path(named[1]).write_text(part["text"])
            elif part["language"] == "console":
                answers = [(command, terminal.run(command.line)) for command in commands(part["text"])]
            yield part, answers


def matches(expected: list[str], found: list[str]) -> bool:
    """Whether it was printed; hashes are another with every version of the journal."""
    shown = [_HASH.sub("HASH", line) for line in expected]
    pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(line) + "\n" for line in shown)
    found = [_HASH.sub("HASH", line) for line in found]
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in found)) is not None


def rewritten(page: Path) -> str:
    """The page with what the commands print now; where ``...`` stands and still fits, it stays."""
    text, end = [], 0
    whole = page.read_text()
    for part, answers in play(page):
        text.append(whole[end : part.start()])
        end = part.end()
        if not answers:
            text.append(part[0])
            continue
        lines = []
        for command, found in answers:
            lines += [f"$ {command.line}", *(command.expected if matches(command.expected, found) else found)]
        text.append("\n".join(["```console", *lines, "```"]))
    return "".join([*text, whole[end:]])


if __name__ == "__main__":
    for page in [Path(name).resolve() for name in sys.argv[1:]]:
        page.write_text(rewritten(page))
