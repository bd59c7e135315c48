"""The parts of the golden record that are read off the code and ``deploy/``: API, command line, reasons, manifests."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import yaml
from click.testing import CliRunner

from bursar.cli import exit_codes
from bursar.cli.main import COMMANDS, cli, load_command
from bursar.control.admission import all_reasons
from bursar.policies.plugin import default_registry
from bursar.server.openapi import document
from bursar.store.store import Store
from tests.golden.journals import read_journals
from tests.golden.record import ROOT, Part, shortened

MANIFESTS = ("deploy/crds", "deploy/admission", "deploy/alerts")
NOBODY_LISTENS = "http://127.0.0.1:1"
LONGEST_TEXT = 160  # characters
RUNS: tuple[list[str], ...] = (
    [],
    ["--help"],
    ["no-such-command"],
    ["--no-such-option"],
    ["test", "passes"],
    ["test", "fails"],
    ["test", "no-such-file"],
    ["test", "journal"],
    ["audit", "journal"],
    ["audit", "altered"],
    ["audit", "passes"],
    ["audit", "--head", f"1:{'0' * 32}", "journal"],
    ["audit", "--head", "wrong", "journal"],
    ["audit", "no-such-file"],
    ["reasons", "elastic"],
    ["reasons", "no-such-reason"],
    ["completion", "bash"],
    ["version"],
    ["get", "pods", "--data", "no-such-file"],
    ["get", "pods", "--data", "journal"],
)
ASKING = (
    ["apply", "-f", "passes"],
    ["delete", "Pod/a/b"],
    ["describe", "Pod/a/b"],
    ["diff", "--from", "1"],
    ["explain", "a/b"],
    ["get", "pods"],
    ["history", "Pod/a/b"],
    ["plan", "-f", "passes"],
    ["top", "quotas"],
    ["undo", "1"],
    ["what-if", "-f", "passes"],
)


def openapi() -> Part:
    """The OpenAPI document without the version of Bursar."""
    whole = document()
    del whole["info"]["version"]
    return whole


def reasons() -> Part:
    found = all_reasons(default_registry())
    return {
        policy: {one.code: {"means": one.means, "helps": one.helps} for one in said} for policy, said in found.items()
    }


def manifests() -> Part:
    """The documents under deploy/, by file, kind and name."""
    files = sorted(path for folder in MANIFESTS for path in (ROOT / folder).rglob("*.yaml"))
    found = {}
    for path in [*files, ROOT / "deploy" / "rbac.yaml", ROOT / "charts" / "bursar" / "values.yaml"]:
        documents = [one for one in yaml.safe_load_all(path.read_text()) if one is not None]
        named = {_name(one, index): _shortened(one) for index, one in enumerate(documents)}
        found[str(path.relative_to(ROOT))] = named
    return found


def _shortened(value: Any) -> Any:  # noqa: ANN401 what YAML can hold
    """The same without the ends of long expressions."""
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return shortened(value, LONGEST_TEXT) if isinstance(value, str) else value


def _name(document: dict[str, Any], index: int) -> str:
    metadata = document.get("metadata") or {}
    return f"{document['kind']} {metadata.get('name')}" if "kind" in document else str(index)


def store() -> Part:
    """The tables of a store file, and the format version that it declares."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "bursar.db"
        Store.create(path).close()
        connection = sqlite3.connect(path)
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
        numbers = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        }
        connection.close()
    return {**numbers, "tables": {name: re.sub(r"\s+", " ", sql) for name, sql in rows}}


# The command line


def commands() -> Part:
    """The arguments and options of every command, and the exit codes of ways to run it."""
    return {
        "codes": {name: getattr(exit_codes, name) for name in dir(exit_codes) if name.isupper()},
        "commands": {name: _command(load_command(address)) for name, address in sorted(COMMANDS.items())},
        "exits": _exit_codes(),
    }


def _command(command: click.Command) -> dict[str, Any]:
    found = [_parameter(parameter) for parameter in command.params]
    return {"help": command.get_help(click.Context(command)), "hidden": command.hidden, "parameters": found}


def _parameter(parameter: click.Parameter) -> dict[str, Any]:
    """Everything that click says of an argument or option, unless it is the usual."""
    return {key: _usual_left_out(value) for key, value in parameter.to_info_dict().items() if _is_plain(value)}


def _usual_left_out(value: object) -> object:
    return {key: item for key, item in value.items() if _is_plain(item)} if isinstance(value, dict) else value


def _is_plain(value: object) -> bool:
    return isinstance(value, dict | list | tuple | str | int | float) and value not in (False, "", (), [])


def _exit_codes() -> dict[str, int]:
    """Of commands that need no server, and of the others without one; files are named as in the temporary folder."""
    with TemporaryDirectory() as folder:
        here = Path(folder)
        lines = next(read_journals()).lines
        (here / "journal").write_bytes(b"".join(line + b"\n" for line in lines))
        (here / "altered").write_bytes(b"".join(line.replace(b"cpu", b"gpu") + b"\n" for line in lines))
        (here / "passes").write_bytes((ROOT / "examples" / "queueing.yaml").read_bytes())
        (here / "fails").write_text("{name: fails, steps: [{expect: {pods: {a/b: {phase: Running}}}}]}")
        return {" ".join(words): _exit_code(words, here) for words in [*RUNS, *_usage(), *_without_server()]}


def _usage() -> Iterator[list[str]]:
    for name in sorted(COMMANDS):
        yield [name, "--help"]
        yield [name, "--no-such-option"]


def _without_server() -> Iterator[list[str]]:
    for words in ASKING:
        yield [*words, "--server", NOBODY_LISTENS]


def _exit_code(words: list[str], folder: Path) -> int:
    found = [str(folder / word) if (folder / word).is_file() else word for word in words]
    return CliRunner().invoke(cli, found).exit_code
