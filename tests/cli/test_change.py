"""apply, delete, undo, what-if and plan: what they do, what they refuse, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bursar.cli import exit_codes
from tests.cli.conftest import Shell
from tests.server.live import ManualClock, live, pod, quota


def written(path: Path, *bodies: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump_all(bodies))
    return path


def test_apply_says_what_became_of_it_and_undo_takes_it_back(shell: Shell, tmp_path: Path) -> None:
    file = written(tmp_path / "pod.yaml", pod("a", "mine", 1))
    result = shell("apply", "-f", file)
    assert result.output.splitlines() == [
        "Pod/a/mine created",
        "  a/mine started on n1",
        "change 4; take it back with: bursar undo 4",
    ]
    assert shell("apply", "-f", file).output == "Pod/a/mine unchanged\n"
    undone = shell("undo", "4")
    assert undone.stdout.splitlines()[0] == "Pod/a/mine deleted"
    assert "not brought back: Pod a/mine runs on n1" in undone.stderr
    assert shell("get", "pods", "-n", "a").output == "no claims found\n"


def test_undo_takes_the_last_change(shell: Shell) -> None:
    assert shell("undo", "--dry-run").output.splitlines()[0] == "Pod/b/two deleted (dry run)"
    assert shell("undo", "--dry-run", "-o", "json").exit_code == exit_codes.OK
    assert shell("undo", "--yes").output.splitlines()[0] == "Pod/b/two deleted"
    assert "there is no change 99" in shell("undo", "99").stderr


def test_the_last_change_of_others_is_not_taken_back_unasked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    before = shell.bed.position()
    result = shell("undo")
    assert result.exit_code == exit_codes.BAD_INPUT
    assert result.stderr.startswith("error: the last is change 3 of 2027-01-15T08:02:00Z: apply Pod/b/two; ")
    monkeypatch.setattr("bursar.cli.change._is_asked", lambda: True)
    assert shell("undo", stdin="n\n").exit_code == exit_codes.FAILED
    assert shell.bed.position() == before
    assert "Pod/b/two deleted" in shell("undo", stdin="y\n").output


def test_dry_run_changes_nothing(shell: Shell, tmp_path: Path) -> None:
    before = shell.bed.position()
    result = shell("apply", "--dry-run", "-f", written(tmp_path / "pod.yaml", pod("a", "mine", 1)))
    assert result.output.splitlines()[0] == "Pod/a/mine created (dry run)"
    assert shell.bed.position() == before


def test_apply_a_folder_and_stdin(shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    written(folder / "1.yaml", pod("a", "p1", 1))
    written(folder / "2.yaml", pod("a", "p2", 1), quota("c", 0))
    assert shell("apply", "-f", folder).output.count(" created") == 3
    result = shell("apply", "-f", "-", stdin=json.dumps(pod("a", "p3", 1)))
    assert result.output.startswith("Pod/a/p3 created")


def test_delete_by_name_and_by_manifest(shell: Shell, tmp_path: Path) -> None:
    assert shell("delete", "Pod/b/two").output.startswith("Pod/b/two deleted")
    file = written(tmp_path / "one.yaml", pod("b", "one", 3))
    assert shell("delete", "-f", file).output.startswith("Pod/b/one deleted")
    assert shell("delete", "-f", file).exit_code == exit_codes.FAILED
    assert shell("delete").exit_code == exit_codes.BAD_INPUT
    assert shell("delete", "Pod/b/one", "-f", file).exit_code == exit_codes.BAD_INPUT


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        ("kind: [", exit_codes.BAD_INPUT, "line 2: not YAML"),
        ("", exit_codes.BAD_INPUT, "no objects found"),
        ("kind: Pod\n", exit_codes.FAILED, "bad.yaml: document 1: Pod: apiVersion: is required"),
        (yaml.safe_dump_all([pod("a", "x"), {**quota("d", 1), "spec": {"mni": {}}}]), exit_codes.FAILED,
         "bad.yaml: document 2: ElasticQuota d/quota: spec.mni"),
    ],
)  # fmt: skip
def test_a_bad_file_is_named_and_nothing_is_applied(
    shell: Shell, tmp_path: Path, content: str, code: int, message: str
) -> None:
    good = written(tmp_path / "good.yaml", pod("a", "good"))
    bad = tmp_path / "bad.yaml"
    bad.write_text(content)
    before = shell.bed.position()
    for verb in ("apply", "plan"):
        result = shell(verb, "-f", good, "-f", bad) if content else shell(verb, "-f", bad)
        assert result.exit_code == code, result.output
        assert message in result.stderr
    assert shell.bed.position() == before


def test_what_if(shell: Shell, tmp_path: Path) -> None:
    file = written(tmp_path / "pod.yaml", pod("a", "mine", 1))
    assert shell("what-if", "-f", file).output.splitlines()[1].split()[:3] == ["a/mine", "now", "n1"]
    lines = shell("what-if", "-f", file, "--count", "3").output.splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["a/mine-1", "now"],
        ["a/mine-2", "after-evictions"],
        ["a/mine-3", "queued"],
    ]
    assert lines[4:] == ["", "starts:", "  b/two"]
    assert shell("what-if", "-f", file, "--count", "3", "--fail-unless-now").exit_code == exit_codes.FAILED
    assert shell.file("what-if", "-f", file, "--count", "3").output.splitlines() == lines
    assert json.loads(shell("what-if", "-f", file, "-o", "json").output)["pods"][0]["verdict"] == "now"


@pytest.mark.parametrize("metadata", [{"name": "x"}, {"name": "x", "namespace": "a"}])
def test_what_only_the_policies_refuse_is_said_with_its_file(
    shell: Shell, tmp_path: Path, metadata: dict[str, str]
) -> None:
    fine = written(tmp_path / "fine.yaml", pod("a", "fine", 1))
    spec = {"total": {"requests": {"tflops": "much"}}}
    bad = {"apiVersion": "tensor-fusion.ai/v1", "kind": "GPUResourceQuota", "metadata": metadata, "spec": spec}
    file = written(tmp_path / "bad.yaml", bad)
    named = f"{metadata.get('namespace', 'default')}/x"
    for command in ("apply", "plan"):
        result = shell(command, "-f", fine, "-f", file)
        assert result.exit_code == exit_codes.FAILED
        assert f"{file}: document 1: GPUResourceQuota {named}: spec.total.requests.tflops: " in result.stderr


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (None, "spec: is required"),
        ({}, "spec.template: is required"),
        ({"template": {}, "parallelism": -1}, "spec.parallelism: -1 is not a number of pods from 0 to 1000"),
    ],
)
def test_what_is_wrong_with_a_job_is_said_with_its_name(
    shell: Shell, tmp_path: Path, spec: dict[str, object] | None, problem: str
) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "a", "name": "sweep"}, "spec": spec}
    file = written(tmp_path / "job.yaml", job)
    result = shell("what-if", "-f", file)
    assert result.exit_code != exit_codes.OK
    assert f"document 1: Job a/sweep: {problem}" in result.stderr


def test_plan_says_who_starts_and_who_is_evicted(shell: Shell, tmp_path: Path) -> None:
    raised = written(tmp_path / "raised.yaml", quota("b", 5, max={"nvidia.com/gpu": 5}))
    result = shell("plan", "-f", raised, "--fail-on-eviction")
    assert result.exit_code == exit_codes.OK
    taken = written(tmp_path / "taken.yaml", pod("a", "owner", 2))
    lines = shell("plan", "-f", taken).output.splitlines()
    assert lines[0] == "Pod/a/owner created"
    assert lines[2:4] == ["starts:", "  a/owner"]
    assert lines[lines.index("evicted:") + 1].startswith("  b/one on n1: engine.preempted")
    assert ", 1 would be evicted, " in lines[-1]
    failed = shell("plan", "-f", taken, "--fail-on-eviction")
    assert failed.exit_code == exit_codes.FAILED
    assert "1 would be evicted (--fail-on-eviction)" in failed.stderr
    assert shell.file("plan", "-f", taken, "--fail-on-eviction").exit_code == exit_codes.FAILED
    assert json.loads(shell("plan", "-f", taken, "-o", "json").output)["evicted"][0]["pod"] == "b/one"


def test_plan_of_a_deletion_and_a_horizon(shell: Shell) -> None:
    assert "b/two" in shell("plan", "--delete", "Pod/b/one").output
    assert shell("plan").exit_code == exit_codes.BAD_INPUT
    ahead = shell("plan", "--delete", "Pod/b/two", "--horizon", "15m").output
    assert "Plan within 15m" in ahead
    assert shell("plan", "--delete", "Pod/b/two", "--horizon", "long").exit_code == exit_codes.BAD_INPUT


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["plan", "--delete", "nonsense"], "'nonsense' names no object: expected KIND/namespace/name"),
        (["delete", "nonsense", "x"], "the kind 'nonsense' is not known; known are "),
        (["plan", "--delete", "Pod/one"], "'Pod/one' does not have the form Pod/namespace/name"),
        (["delete", "nonsense"], "'nonsense' names no object: expected KIND/namespace/name"),
        (["delete", "Pod/b/one", "Node/a/b"], "'Node/a/b' does not have the form Node/name"),
        (["undo", "x"], "'x' is not the number of a change; `bursar get changes` lists them"),
        (["undo", "0"], "'0' is not the number of a change"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_names_nothing_is_bad_input(shell: Shell, arguments: list[str], problem: str) -> None:
    before = shell.bed.position()
    result = shell(*arguments)
    assert result.exit_code == exit_codes.BAD_INPUT
    assert problem in result.stderr
    assert shell.bed.position() == before


@pytest.mark.parametrize("arguments", [["plan", "--delete", "Pod/b/none"], ["delete", "Pod/b/none"], ["undo", "99"]])
def test_what_names_something_that_is_not_there_is_refused(shell: Shell, arguments: list[str]) -> None:
    assert shell(*arguments).exit_code == exit_codes.FAILED


def test_plan_of_a_node_that_goes(shell: Shell) -> None:
    result = shell("plan", "--delete", "Node/n1", "--fail-on-eviction")
    lines = result.stdout.splitlines()
    assert lines[lines.index("stranded:") + 1] == "  b/one on n1"
    assert lines[-1].endswith(" would lose their node. Nothing was changed.")
    assert result.exit_code == exit_codes.FAILED
    assert "0 would be evicted, " in result.stderr


def test_a_store_file_is_not_changed(shell: Shell, tmp_path: Path) -> None:
    file = written(tmp_path / "pod.yaml", pod("a", "mine"))
    for command in (["apply", "-f", file], ["delete", "Pod/b/one"], ["undo"]):
        result = shell.file(*command)
        assert result.exit_code == exit_codes.BAD_INPUT
        assert "a store file is only read" in result.stderr


def test_nobody_there(shell: Shell) -> None:
    result = shell("get", "pods", "--server", "http://127.0.0.1:9")
    assert result.exit_code == exit_codes.UNREACHABLE == 3
    assert "http://127.0.0.1:9" in result.stderr
    assert "bursar serve" in result.stderr
    assert shell("get", "pods", "--server", "ftp://x").exit_code == exit_codes.BAD_INPUT


def test_a_file_that_is_no_store(shell: Shell, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    foreign.write_text("hello")
    for path in (foreign, tmp_path / "none.db"):
        result = shell("get", "pods", "--data", path)
        assert result.exit_code == exit_codes.BAD_INPUT
        assert str(path) in result.stderr


def test_tokens(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("# who\nadmin " + "s" * 40 + "\nread " + "r" * 40 + "\n")
    tokens.chmod(0o600)
    reader = tmp_path / "reader"
    reader.write_text("r" * 40 + "\n")
    with live(tmp_path / "bursar.db", clock=ManualClock(), tokens=tokens, token="s" * 40) as bed:
        shell = Shell(bed, tmp_path / "bursar.db", ManualClock())
        assert "--token-file" in shell("get", "pods").stderr
        assert shell("get", "pods", "--token-file", reader).exit_code == exit_codes.OK
        assert shell("undo", "--token-file", reader).exit_code != exit_codes.OK
        assert shell("get", "pods", "--token-file", tokens).exit_code == exit_codes.OK
        refused = shell("delete", "Pod/a/b", "--token-file", reader)
        assert refused.exit_code == exit_codes.FAILED
        assert "role admin" in refused.stderr
        assert shell("get", "pods", "--token-file", tmp_path / "none").exit_code == exit_codes.BAD_INPUT
