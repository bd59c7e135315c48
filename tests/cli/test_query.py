"""get, describe, explain, top, history and diff: what they print, from a server and from its file."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import yaml

from bursar.cli import exit_codes
from bursar.cli.output import repeat
from tests.cli.conftest import Shell
from tests.server.live import pod

TABLES = {
    "pods": """\
NAMESPACE  NAME  PHASE    ASKS FOR  NODE  AGE  NOTE
b          one   Running  gpu 3     n1     2m  borrows
b          two   Pending  gpu 2     -     60s  elastic.max.nvidia.com/gpu
""",
    "queue": """\
#  NAMESPACE  NAME  ASKS FOR  AGE  WHY
1  b          two   gpu 2     60s  elastic.max.nvidia.com/gpu
""",
    "trees": """\
TREE  NODE  RESOURCE        USED  QUOTA  HARD  BORROWED
org   all   nvidia.com/gpu     0      4  yes          -
org     x   nvidia.com/gpu     0      1  -            -
org     y   nvidia.com/gpu     0      3  -            -
""",
    "nodes": """\
NODE  READY  PODS  USED
n1    yes       1  gpu 3/4
""",
    "gpus": "no GPUs that are handed out in parts\n",
}


@pytest.mark.parametrize("what", ["pods", "queue", "trees", "nodes", "gpus"])
def test_tables(shell: Shell, what: str) -> None:
    assert shell("get", what).output == TABLES[what]


@pytest.mark.parametrize(
    "what", ["pods", "queue", "quotas", "trees", "nodes", "gpus", "events", "changes", "kinds", "Node"]
)
@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml"])
def test_a_file_answers_as_the_server_does(shell: Shell, what: str, form: str) -> None:
    shell("get", "pods")  # time passes up to now, and what that changes is written
    by_server, by_file = shell("get", what, "-o", form), shell.file("get", what, "-o", form)
    assert by_server.exit_code == by_file.exit_code == exit_codes.OK
    if form in {"table", "wide"} and what not in {"pods", "queue", "Node"}:  # ages: no time passes in a file
        assert by_file.output == by_server.output
    elif form == "json":
        assert json.loads(by_file.output).keys() == json.loads(by_server.output).keys()


def test_quotas_of_all_dialects(shell: Shell) -> None:
    lines = shell.lines("get", "quotas")
    assert "ElasticQuota  b/quota  nvidia.com/gpu     3    2    3         1  -" in lines
    assert "QuotaTree     org:y    nvidia.com/gpu     0    3    -         -  -" in lines


@pytest.mark.parametrize("width", [30, 60, 80, 200])
@pytest.mark.parametrize("what", ["pods", "queue", "quotas", "events", "kinds"])
def test_tables_fit_the_terminal(shell: Shell, what: str, width: int) -> None:
    assert max(map(len, shell.lines("get", what, "-o", "wide", width=width))) <= width


def test_what_is_cut_says_so(shell: Shell) -> None:
    assert shell.lines("get", "queue", width=24)[1].endswith("…")


def test_json_and_yaml_are_the_answers_of_the_api(shell: Shell) -> None:
    as_json = json.loads(shell("get", "claims", "-o", "json").output)
    as_yaml = yaml.safe_load(shell("get", "claims", "-o", "yaml").output)
    assert as_json == as_yaml
    assert [item["name"] for item in as_json["items"]] == ["one", "two"]
    assert as_json["moment"]["seq"] == shell.bed.client.info().moment.seq


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--phase", "Pending"], ["two"]),
        (["--node", "n1"], ["one"]),
        (["-n", "a"], []),
        (["b/one"], ["one"]),
        (["-n", "b", "two"], ["two"]),
        (["--quota", "elastic/ElasticQuota/b/quota"], ["one", "two"]),
        (["--quota", "b/quota"], ["one", "two"]),
        (["--quota", "a/quota"], []),
        (["--quota", "b/none"], []),
        (["--limit", "1"], ["one"]),
    ],
)
def test_filters(shell: Shell, arguments: list[str], names: list[str]) -> None:
    found = json.loads(shell("get", "claims", *arguments, "-o", "json").output)
    assert [item["name"] for item in found["items"]] == names
    assert [name.rpartition("/")[2] for name in shell("get", "pods", *arguments, "-o", "name").output.split()] == names
    manifests = json.loads(shell("get", "pods", *arguments, "-o", "json").output)
    assert [one["metadata"]["name"] for one in manifests.get("items", [manifests])] == names


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["get", "nonsense"], exit_codes.BAD_INPUT, "the kind 'nonsense' is not known"),
        (
            ["get", "ElasticQota"],
            exit_codes.BAD_INPUT,
            "the kind 'ElasticQota' is not known; did you mean elasticquota?",
        ),
        (["get", "qeue"], exit_codes.BAD_INPUT, "the kind 'qeue' is not known; did you mean queue?"),
        (["get", "pods", "b/none"], exit_codes.FAILED, "there is no pod b/none; did you mean b/one?"),
        (["get", "quotas", "org:z"], exit_codes.FAILED, "there is no quota org:z; did you mean org:"),
        (["get", "trees", "orgg"], exit_codes.FAILED, "there is no quota tree orgg"),
        (["get", "Node", "n11"], exit_codes.FAILED, "there is no Node n11; did you mean n1?"),
        (["get", "pods", "-A", "-n", "b"], exit_codes.BAD_INPUT, "-A means all namespaces, and -n one of them"),
        (["explain", "quota", "b/qota"], exit_codes.FAILED, "there is no quota 'b/qota'; did you mean b/quota?"),
        (["top", "-r", "gpus"], exit_codes.BAD_INPUT, "nothing here has the resource 'gpus'; did you mean gpu?"),
        (["get", "nodes", "-n", "a"], exit_codes.BAD_INPUT, "nodes cannot be filtered by --namespace"),
        (["get", "events", "--at", "-1m"], exit_codes.BAD_INPUT, "events takes no --at"),
        (["get", "pods", "--at", "soon"], exit_codes.BAD_INPUT, "'soon' is not a time"),
        (["get", "pods", "--at", "99999"], exit_codes.BAD_INPUT, "there is no record 99999"),
        (
            ["get", "pods", "--at", "2099-01-01T00:00:00Z"],
            exit_codes.BAD_INPUT,
            "`at`: '2099-01-01T00:00:00Z' is in the",
        ),
        (["explain", "b/none"], exit_codes.FAILED, "there is no claim 'b/none'; did you mean b/one?"),
        (["explain", "b/none"], exit_codes.FAILED, "`bursar get pods`"),
        (["explain", "none"], exit_codes.BAD_INPUT, "'none' names no pod: write NAMESPACE/POD"),
        (["explain", "a/b/none"], exit_codes.BAD_INPUT, "'a/b/none' names no pod: write NAMESPACE/POD"),
        (["describe", "nobody"], exit_codes.BAD_INPUT, "names no object"),
        (["describe", "Node/none"], exit_codes.FAILED, "there is no Node 'none'"),
        (["history", "--at", "-1m"], exit_codes.BAD_INPUT, "--at wants an object"),
        (["diff", "--from", "5", "--to", "2"], exit_codes.BAD_INPUT, "after the one in"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_said_and_have_their_code(shell: Shell, arguments: list[str], code: int, message: str) -> None:
    for result in (shell(*arguments), shell.file(*arguments)):
        assert result.exit_code == code, result.output
        assert message in result.stderr


def test_explain_marks_the_first_check_and_gives_fixes(shell: Shell) -> None:
    lines = shell.lines("explain", "b/two")
    assert lines[0] == (
        "b/two is pending: elastic/ElasticQuota/b/quota: nvidia.com/gpu 2 wanted, 3 of 3 in use"
        "  [elastic.max.nvidia.com/gpu]"
    )
    assert lines[2] == "What would let it in (each was tried):"
    assert lines.index("Checks:") > lines.index("What would let it in (each was tried):")
    assert not any("unlimited" in line for line in lines)
    assert sum("<- first" in line for line in lines) == 1
    fixes = lines[lines.index("What would let it in (each was tried):") + 1 :]
    assert "  1. wait for b/one to end (at 2027-01-15T08:11:00Z)  [wait]" in fixes
    assert shell.file("explain", "b/two").output == "\n".join([*lines, ""])


def test_explain_for_machines(shell: Shell) -> None:
    found = json.loads(shell("explain", "b/two", "-o", "json").output)
    assert [fix["code"] for fix in found["fixes"]] == ["wait"]
    assert found["fixes"][0]["waitsFor"] == ["b/one"]
    assert json.loads(shell("explain", "b/two", "--no-fixes", "-o", "json").output).get("fixes", []) == []


def test_explain_of_one_that_runs_has_no_fixes(shell: Shell) -> None:
    result = shell("explain", "b/one")
    assert result.exit_code == exit_codes.OK
    assert result.output.startswith("b/one is running on n1, on quota that others lend\n")
    assert "let it in" not in result.output


def test_describe(shell: Shell) -> None:
    text = shell("describe", "b/two").output
    assert text.startswith("Pod b/two\n")
    for part in ("phase: Pending", "Why:", "<- first", "History:", "created"):
        assert part in text
    assert "QUOTA    RESOURCE" in shell("describe", "ElasticQuota.n8s.nebuly.ai/b/quota").output
    assert "b          one   Running" in shell("describe", "node/n1").output
    assert yaml.safe_load(shell("describe", "Node/n1", "-o", "yaml").output)["kind"] == "Node"


def test_top(shell: Shell) -> None:
    assert shell.lines("top", "-r", "gpu")[:3] == [
        "QUOTA    RESOURCE        USED  LIMIT    %",
        "b/quota  nvidia.com/gpu     3      3  100  ████████████████████",
        "a/quota  nvidia.com/gpu     0      2    0  ░░░░░░░░░░░░░░░░░░░░",
    ]
    assert shell.lines("top", "teams")[1] == "b     nvidia.com/gpu     3       5  60  ████████████░░░░░░░░"
    assert shell.lines("top", "nodes")[1] == "n1    nvidia.com/gpu     3    4  75  ███████████████░░░░░"
    (row,) = json.loads(shell("top", "nodes", "-o", "json").output)
    assert row == {
        "name": "n1", "resource": "nvidia.com/gpu", "used": "3", "limit": "4", "percent": "75", "claims": 1
    }  # fmt: skip


@pytest.mark.parametrize("at", ["-90s", "2027-01-15T08:01:30Z"])
def test_the_past(shell: Shell, at: str) -> None:
    shell("get", "pods")
    assert [line.split()[:3] for line in shell.lines("get", "pods", "--at", at)[1:]] == [["b", "one", "Running"]]
    assert shell("explain", "b/two", "--at", at).exit_code == exit_codes.FAILED
    first = shell.file("get", "pods", "--at", "2027-01-15T08:01:30Z")
    assert [line.split()[1] for line in first.output.splitlines()[1:]] == ["one"]


def test_what_is_asked_of_gpus_by_annotation_is_shown(shell: Shell) -> None:
    worker = pod("a", "worker", 0)
    marks = {"tensor-fusion.ai/tflops-request": "20", "tensor-fusion.ai/vram-request": "16Gi"}
    shell.bed.give({**worker, "metadata": {**worker["metadata"], "annotations": marks}})
    assert "tflops 20, vram 16Gi" in shell.lines("get", "claims", "-n", "a")[1]
    assert any("tflops 20, vram 16Gi" in line for line in shell.lines("get", "queue"))


def test_a_record_is_a_moment(shell: Shell) -> None:
    assert shell.lines("get", "pods", "--at", "1") == ["no claims found"]


def test_history_and_diff(shell: Shell) -> None:
    everything = shell.lines("history")
    assert everything[0].split() == ["RECORD", "TIME", "WHAT", "WHO", "NODE", "WHY"]
    assert everything[1].split()[2:4] == ["waiting", "b/two"]
    assert len(shell.lines("history", "--since", "2027-01-15T08:01:30Z")) < len(everything)
    of_pod = shell.lines("history", "b/one")
    assert of_pod[0].split()[1] == "created"
    assert any("admitted  b/one" in line for line in of_pod)
    shell.bed.client.finish(["b/one"])
    changes = shell.lines("diff", "--from", "2027-01-15T08:01:30Z")
    assert "Pod/b/two created" in changes
    assert changes[-1] == "pods: 1 came, 1 finished"
    assert "status.phase: Running -> Succeeded" in shell("diff", "--from", "-2m", "--status").output
    past = yaml.safe_load(shell("history", "Pod/b/one", "--at", "2027-01-15T08:01:30Z").output)
    assert past["status"]["phase"] == "Running"


def test_watch_prints_what_changed_until_interrupted(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [0]

    def sleep(_: float) -> None:
        looks[0] += 1
        if looks[0] == 1:
            shell.bed.give(pod("a", "new", 1))
        if looks[0] == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("bursar.cli.output.time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    result = shell("get", "pods", "--watch")
    assert result.exit_code == exit_codes.OK
    assert result.output.count("NAMESPACE") == 2
    assert result.output.count("new") == 1


def test_who_watches_a_store_file_sees_what_comes_into_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [0]

    def sleep(_: float) -> None:
        looks[0] += 1
        if looks[0] == 1:
            shell.bed.give(pod("a", "new", 1))
        if looks[0] == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("bursar.cli.output.time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    result = shell.file("get", "pods", "--watch")
    assert result.exit_code == exit_codes.OK
    assert result.output.count("new") == 1


def test_the_pause_after_a_look_that_took_long_is_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pauses, lasts = [0.0], list[float](), iter((0.1, 30.0, 1.0))

    def look(_: object) -> list[str]:
        clock[0] += next(lasts)
        return []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("bursar.cli.output.time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0]))
    repeat(nullcontext, look, watch=True, interval=2.0)  # type: ignore[arg-type] # nobody is asked
    assert pauses == [2.0, 120.0, 4.0]
