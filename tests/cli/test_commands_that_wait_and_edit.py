"""wait, edit, finish, contexts and completion: what people type between apply and explain."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import yaml
from click.shell_completion import ShellComplete

from bursar.cli import exit_codes
from bursar.cli import wait as waiting
from bursar.cli.main import cli
from tests.cli.conftest import Shell
from tests.server.live import pod


class Passing:
    """A clock that goes on when somebody sleeps, and what happens meanwhile."""

    def __init__(self, *happens: Callable[[], object]) -> None:
        self._now = 0.0
        self._happens = list(happens)

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        if self._happens:
            self._happens.pop(0)()


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["b/one", "--for", "Running"], "Pod/b/one Running"),
        (["pod", "one", "-n", "b", "--for", "phase=running"], "Pod/b/one Running"),
        (["b/none", "--for", "delete"], "Pod/b/none deleted"),
        (["b/two", "--for", "create"], "Pod/b/two created"),
        (["b/two", "--for", "jsonpath={.status.phase}=Pending"], "Pod/b/two .status.phase=Pending"),
        (["b/two", "--for", "jsonpath={.spec.containers[0]['name']}"], "Pod/b/two .spec.containers[0]['name']"),
        (["quota", "a/quota", "--for", "create"], "ElasticQuota.n8s.nebuly.ai/a/quota created"),
    ],
)  # fmt: skip
def test_what_is_so_already_needs_no_waiting(shell: Shell, arguments: list[str], printed: str) -> None:
    assert shell("wait", *arguments, "--timeout", "0").output == f"{printed}\n"


@pytest.mark.parametrize(
    ("text", "met"),
    [("condition=Ready", True), ("condition=ready=true", True), ("condition=Exceeded", False),
     ("condition=Exceeded=False", True), ("condition=Other", False)],
)  # fmt: skip
def test_conditions_of_a_status(text: str, met: bool) -> None:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Exceeded", "status": "False"}]
    assert waiting.read_condition(text).met({"status": {"conditions": conditions}}) == met
    assert not waiting.read_condition(text).met(None)


def test_wait_ends_when_it_comes_true(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Passing(lambda: None, lambda: shell.bed.client.finish(["b/one"]))
    monkeypatch.setattr(waiting, "time", clock)
    assert shell("wait", "b/one", "--for", "Succeeded").output == "Pod/b/one Succeeded\n"
    assert clock.monotonic() == 1.0
    assert shell("wait", "b/two", "--for", "Running", "--timeout", "0").exit_code == exit_codes.OK


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["b/two", "--for", "Running"], exit_codes.FAILED, "not Running within 30s: Pod/b/two"),
        (["b/one", "--for", "delete", "--timeout", "2m"], exit_codes.FAILED, "not deleted within 2m: Pod/b/one"),
        (["b/one", "--for", "Runing"], exit_codes.BAD_INPUT, "--for: 'Runing' is not understood; known are delete,"),
        (["b/one", "--for", "jsonpath={.a..b}=1"], exit_codes.BAD_INPUT, "is no path of a field"),
        (["b/one", "--for", "Running", "--timeout", "soon"], exit_codes.BAD_INPUT, "--timeout: "),
    ],
)
def test_wait_gives_up(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.setattr(waiting, "time", Passing())
    result = shell("wait", *arguments)
    assert result.exit_code == code
    assert message in result.stderr


def test_what_can_never_be_is_not_waited_for(shell: Shell) -> None:
    shell.bed.client.finish(["b/one"])
    result = shell("wait", "b/one", "--for", "Running", "--timeout", "10m")
    assert result.exit_code == exit_codes.FAILED
    assert result.stderr == "error: Pod/b/one is Succeeded, and will not be Running\n"


def edits(monkeypatch: pytest.MonkeyPatch, *changes: Callable[[str], str | None]) -> list[str]:
    """An editor that makes these changes, one each time it is opened; returns the texts that it got."""
    seen: list[str] = []
    left = list(changes)

    def editor(text: str, **_: object) -> str | None:
        seen.append(text)
        return left.pop(0)(text)

    monkeypatch.setattr(click, "edit", editor)
    return seen


def test_edit_applies_what_was_changed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = edits(monkeypatch, lambda text: text.replace("nvidia.com/gpu: 3", "nvidia.com/gpu: 4"))
    lines = shell.lines("edit", "eq", "b/quota")
    assert lines[0] == "ElasticQuota/b/quota changed"
    assert "resourceVersion" in seen[0]
    assert "status:" not in seen[0]
    assert shell.bed.client.object("ElasticQuota.n8s.nebuly.ai", "b/quota")["spec"]["max"] == {"nvidia.com/gpu": 4}


@pytest.mark.parametrize("change", [lambda _: None, lambda text: text, lambda _: "# nothing\n"])
def test_edit_without_a_change_changes_nothing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str | None]
) -> None:
    before = shell.bed.position()
    edits(monkeypatch, change)
    assert shell("edit", "b/two").output == "nothing was changed\n"
    assert shell.bed.position() == before


def test_what_is_refused_can_be_corrected(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = edits(
        monkeypatch,
        lambda text: text.replace("max:", "mxa:"),
        lambda text: text.replace("mxa:", "max:").replace("gpu: 3", "gpu: 4"),
    )
    assert shell.lines("edit", "eq/b/quota")[0] == "ElasticQuota/b/quota changed"
    assert seen[1].startswith("# edited: document 1: ElasticQuota b/quota: spec.mxa: is not a known field; ")


def test_a_change_in_between_is_not_overwritten_and_the_text_is_kept(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(text: str) -> str:
        shell.bed.give({**pod("b", "two", 1)})
        return text.replace("gpu: 2", "gpu: 4")

    edits(monkeypatch, change, lambda text: text)
    result = shell("edit", "b/two")
    assert result.exit_code == exit_codes.FAILED
    assert "metadata.resourceVersion: the object has version" in result.stderr
    kept = Path(re.findall(r"kept in (\S+)", result.stderr)[0])
    assert "nvidia.com/gpu: 4" in kept.read_text()
    kept.unlink()


def test_finish(shell: Shell) -> None:
    assert shell("finish", "b/one").output.splitlines()[:2] == ["Pod/b/one changed", "  b/one finished on n1"]
    result = shell("finish", "b/one")
    assert result.exit_code == exit_codes.FAILED
    assert "is Succeeded: only a running pod can finish" in result.stderr


# Contexts


@pytest.fixture(name="config")
def config_file(shell: Shell, tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    shell.environment = {"BURSAR_CONFIG": str(path), "BURSAR_SERVER": ""}
    return path


def test_contexts_say_whom_to_ask(shell: Shell, config: Path) -> None:
    assert "no contexts in " in shell("config", "get-contexts").output
    assert shell("config", "current-context").exit_code == exit_codes.FAILED
    made = shell("config", "set-context", "test", "--server", shell.bed.address, "-n", "b")
    assert made.output == "context test created (current)\n"
    shell("config", "set-context", "file", "--data", shell.data)
    assert config.stat().st_mode & 0o077 == 0
    names = [line.split()[1] for line in shell.lines("get", "pods")[1:]]
    assert names == ["one", "two"]
    assert shell.lines("get", "pods") == shell.lines("get", "pods", "--context", "test")
    assert [line.split()[:2] for line in shell.lines("config", "get-contexts")[1:]] == [["-", "file"], ["*", "test"]]
    shell("config", "use-context", "file")
    assert shell("config", "current-context").output == "file\n"
    assert "a store file is only read" in shell("delete", "b/two").stderr
    shell.environment["BURSAR_CONTEXT"] = "test"
    assert shell("delete", "pod", "two", "--dry-run").output.startswith("Pod/b/two deleted")


@pytest.mark.usefixtures("config")
def test_the_namespace_of_a_context_is_that_of_names_and_manifests(shell: Shell, tmp_path: Path) -> None:
    shell("config", "set-context", "a", "--server", shell.bed.address, "-n", "a")
    body = pod("a", "mine", 1)
    del body["metadata"]["namespace"]
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(body))
    assert shell("apply", "-f", tmp_path / "pod.yaml").output.startswith("Pod/a/mine created")
    assert "a/mine" in shell.lines("explain", "mine")[0]
    assert [line.split()[1] for line in shell.lines("get", "pods")[1:]] == ["mine"]
    assert [line.split()[1] for line in shell.lines("get", "pods", "-A")[1:]] == ["mine", "one", "two"]
    assert [line.split()[1] for line in shell.lines("get", "pods", "-n", "b")[1:]] == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("contexts: {a: {sever: x}}", ["get", "pods"], "contexts.a.sever: is not a known field; did you mean server?"),
        ("contexts: [a]", ["get", "pods"], "contexts: expected a mapping"),
        ("contexts: {a: {cluster: maybe}}", ["get", "pods"], "contexts.a.cluster: expected true or false"),
        ("current-context: b\ncontexts: {lab: {}}", ["get", "pods"], "there is no context 'b'"),
        ("contexts: {lab: {}}", ["config", "use-context", "labb"], "no context 'labb'; did you mean lab?"),
        ("contexts: {a: {data: x}}", ["config", "set-context", "a", "--server", "y"], "one of a server, a store"),
        ("contexts: {", ["get", "pods"], "not YAML"),
    ],
)  # fmt: skip
def test_a_file_of_contexts_that_is_wrong_is_said(
    shell: Shell, config: Path, text: str, arguments: list[str], message: str
) -> None:
    config.write_text(text)
    result = shell(*arguments)
    assert result.exit_code == exit_codes.BAD_INPUT
    assert str(config) in result.stderr or "context a" in result.stderr
    assert message in result.stderr


def test_what_is_typed_goes_before_the_context(shell: Shell, config: Path) -> None:
    config.write_text("current-context: off\ncontexts: {off: {server: 'http://127.0.0.1:1'}}")
    assert shell("get", "pods").exit_code == exit_codes.UNREACHABLE
    assert shell("get", "pods", "--server", shell.bed.address).exit_code == exit_codes.OK
    shell.environment["BURSAR_SERVER"] = shell.bed.address
    assert shell("get", "pods").exit_code == exit_codes.OK
    assert shell("get", "pods", "--context", "off").exit_code == exit_codes.UNREACHABLE


# Completion


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["get", "pods", "b/"], ["b/one", "b/two"]),
        (["get", "quotas", "org:"], ["org:all", "org:x", "org:y"]),
        (["get", "Node", ""], ["n1"]),
        (["describe", "ElasticQuota.n8s.nebuly.ai/a"], ["ElasticQuota.n8s.nebuly.ai/a/quota"]),
        (["describe", "b/t"], ["b/two"]),
        (["describe", "eq", "b"], ["b/quota"]),
        (["explain", "b/o"], ["b/one"]),
        (["explain", "quota", "a/"], ["a/quota"]),
        (["finish", "b/o"], ["b/one"]),
        (["get", "pods", "-n", ""], ["a", "b"]),
        (["get", "pods", "--quota", "b"], ["b/quota"]),
        (["get", "pods", "--node", ""], ["n1"]),
        (["undo", ""], ["1", "2", "3"]),
        (["wait", "b/o"], ["b/one"]),
    ],
    ids=" ".join,
)
def test_names_are_completed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: list[str]
) -> None:
    monkeypatch.setenv("BURSAR_SERVER", shell.bed.address)
    monkeypatch.setenv("BURSAR_CONFIG", "/nowhere")
    *typed, begun = words
    found = ShellComplete(cli, {}, "bursar", "_BURSAR_COMPLETE").get_completions(typed, begun)
    assert sorted(item.value for item in found) == expected


def test_a_server_that_is_not_there_completes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BURSAR_SERVER", "http://127.0.0.1:1")
    assert ShellComplete(cli, {}, "bursar", "_BURSAR_COMPLETE").get_completions(["get", "pods"], "") == []
    assert capsys.readouterr() == ("", "")
