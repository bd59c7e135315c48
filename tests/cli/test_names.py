"""Names that commands print are understood by the commands that take names; and listings on narrow terminals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice

import pytest
import yaml

from bursar.cli import exit_codes
from bursar.server import demo
from tests.cli.conftest import Shell
from tests.server.live import ManualClock, live

OBJECT_COMMANDS = (
    ("describe",), ("history",), ("plan", "--delete"), ("delete", "--dry-run"), ("wait", "--for", "create")
)  # fmt: skip
LISTINGS = (
    "pods", "claims", "queue", "quotas", "trees", "nodes", "gpus", "events", "changes", "kinds",
    "Node", "QuotaTree", "GPUResourceQuota", "elasticquotaprofiles", "PriorityClass",
)  # fmt: skip


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The organisation of the demo, at work for a while: quotas of every dialect, and two kinds called ElasticQuota."""
    data = tmp_path_factory.mktemp("names") / "bursar.db"
    clock = ManualClock()
    with live(data, clock=clock) as bed:
        bed.service.apply(demo.organisation())
        for beat in islice(demo.beats(), 30):
            clock.now += 2000
            if beat:
                bed.service.apply(beat)
        running = next(row for row in bed.client.claims(namespace="lab", phase="Running").items)
        bed.client.finish([f"lab/{running.name}"])
        yield Shell(bed, data, clock)


def succeeds(shell: Shell, *arguments: str) -> None:
    """The name was understood; what is in use cannot be deleted."""
    result = shell(*arguments)
    kept = arguments[0] in {"plan", "delete"} and re.search("is in use|has children", result.stderr)
    assert result.exit_code == exit_codes.OK or kept, (arguments, result.output)


def names_of(shell: Shell, *what: str) -> list[str]:
    found = shell("get", *what, "-o", "name").output.split()
    assert found, what
    return found


def sample(names: list[str]) -> list[str]:
    """The first of each kind, and the last of all."""
    return list({name.partition("/")[0]: name for name in reversed(names)}.values()) + names[-1:]


@pytest.mark.parametrize("what", ["pods", "quotas", "nodes", "QuotaTree", "GPUResourceQuota", "eq.n8s.nebuly.ai", "pc"])
def test_names_of_objects_work_in_every_command_that_takes_objects(shell: Shell, what: str) -> None:
    names = [name for name in names_of(shell, what) if "koordinator-default-quota" not in name]
    for name in sample(names):
        for command in OBJECT_COMMANDS:
            succeeds(shell, *command, name)
        kind, _, key = name.partition("/")
        succeeds(shell, "get", what, name)
        succeeds(shell, "get", what, key)
        succeeds(shell, "get", name)
        succeeds(shell, "describe", kind, key)


def test_what_apply_prints_is_understood(shell: Shell) -> None:
    """It prints short kinds; two of them are called ElasticQuota."""
    change = next(one for one in shell.bed.client.changes(limit=100).items if one.id == 1)
    printed = {f"{one.kind.partition('.')[0]}/{one.key}" for one in change.objects}
    assert {"ElasticQuota/vision/quota", "ElasticQuota/ads/ads", "Node/train-1"} <= printed
    for name in [*sample(sorted(printed)), "ElasticQuota/ads/ads"]:
        for command in OBJECT_COMMANDS:
            succeeds(shell, *command, name)
        succeeds(shell, "get", name)


def test_names_of_quotas_work_wherever_quotas_are_named(shell: Shell) -> None:
    rows = [line.split()[:2] for line in shell.lines("get", "quotas") if "(" not in line][1:]
    assert {"lab:theory", "vision/quota", "chat/quota", "ads/ads"} <= {label for _, label in rows}
    for kind, label in {kind: (kind, label) for kind, label in rows}.values():
        for form in (label, f"{kind}/{label}"):
            succeeds(shell, "get", "quotas", form)
            succeeds(shell, "explain", "quota", form)
            succeeds(shell, "explain", f"{kind}/{label}")
        succeeds(shell, "describe", "quota", label) if ":" not in label and "default" not in label else None
        succeeds(shell, "get", "pods", "--quota", label)
    for line in shell.lines("top"):
        if "/" in line.split()[0]:
            succeeds(shell, "get", "quotas", line.split()[0])
    succeeds(shell, "describe", "quota", "lab:theory")


def test_accounts_that_explain_prints_are_understood(shell: Shell) -> None:
    waiting = [row.split()[1:3] for row in shell.lines("get", "queue")[1:]]
    accounts: set[str] = set()
    for namespace, name in waiting:
        text = shell("explain", f"{namespace}/{name}", "--no-fixes").output
        accounts |= set(re.findall(r"\b(?:elastic/ElasticQuota|limits)/[\w/.-]+[\w]", text))
    assert "elastic/ElasticQuota/you/quota" in accounts
    for account in accounts:
        succeeds(shell, "explain", "quota", account)
        succeeds(shell, "get", "quotas", account)
        succeeds(shell, "get", "pods", "--quota", account)


def test_pods_are_named_in_every_form(shell: Shell) -> None:
    for form in (["you/first"], ["Pod/you/first"], ["pod", "you/first"], ["pod", "first", "-n", "you"]):
        for command in ("describe", "history", "delete"):
            succeeds(shell, command, *form, *(["--dry-run"] if command == "delete" else []))
    for form in (["you/first"], ["Pod/you/first"], ["first", "-n", "you"], ["pod", "you/first"]):
        assert "you/first" in shell.lines("explain", *form)[0]
        assert "is Pending: only a running pod can finish" in shell("finish", *form).stderr
    succeeds(shell, "get", "events", "you/first")
    succeeds(shell, "get", "events", "Pod/you/first")


def test_kinds_are_called_alike_in_any_case(shell: Shell) -> None:
    assert shell("get", "pod").output == shell("get", "Pod").output == shell("get", "PODS").output
    assert shell("get", "node", "-o", "json").output == shell("get", "Node", "-o", "json").output
    for name in names_of(shell, "kinds"):
        for called in (name, name.lower()):
            assert shell("get", called).exit_code == exit_codes.OK


def test_reasons_that_are_printed_have_a_meaning(shell: Shell) -> None:
    for width in (60, 120):
        for row in shell.lines("get", "queue", width=width)[1:]:
            assert shell("reasons", row.split()[-1]).exit_code == exit_codes.OK, row


# Manifests that were printed


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_every_kind_makes_the_round_trip(shell: Shell, form: str) -> None:
    before = shell.bed.position()
    for name in (*names_of(shell, "kinds"), "pods", "nodes"):
        printed = shell("get", name, "-o", form).output
        if not (yaml.safe_load(printed) or {}).get("items"):
            continue
        result = shell("apply", "-f", "-", stdin=printed)
        assert result.exit_code == exit_codes.OK, (name, result.output)
        assert {line.split()[-1] for line in result.output.splitlines()} == {"unchanged"}
    assert shell.bed.position() == before


def test_one_object_is_printed_by_itself(shell: Shell) -> None:
    found = json.loads(shell("get", "pods", "you/first", "-o", "json").output)
    assert (found["kind"], found["metadata"]["name"]) == ("Pod", "first")
    assert json.loads(shell("get", "pods", "-n", "you", "-o", "json").output)["kind"] == "List"


def test_an_ended_pod_that_was_read_does_not_run_again(shell: Shell) -> None:
    ended = names_of(shell, "pods", "--phase", "Succeeded")[0].partition("/")[2]
    text = shell("get", "pods", ended, "-o", "yaml").output
    assert shell("apply", "-f", "-", stdin=text).output == f"Pod/{ended} unchanged\n"
    changed = yaml.safe_load(text)
    changed["metadata"]["labels"] = {"changed": "yes"}
    result = shell("apply", "-f", "-", stdin=yaml.safe_dump(changed))
    assert result.exit_code == exit_codes.FAILED
    assert "metadata.uid: this pod has ended: take its uid away to create another one of its name" in result.stderr
    del changed["metadata"]["uid"], changed["metadata"]["resourceVersion"]
    assert shell("apply", "--dry-run", "-f", "-", stdin=yaml.safe_dump(changed)).exit_code == exit_codes.OK


# Narrow terminals


def cells(shell: Shell, what: str, columns: set[str]) -> set[str]:
    """What stands in these columns where there is room for everything."""
    lines = shell.lines("get", what)
    found: set[str] = set()
    for title in columns:
        start = re.search(rf"(^|  ){title}( |$)", lines[0])
        if start is not None:
            begin = start.start() + len(start[1])
            found |= {line[begin:].strip().split("  ")[0] for line in lines[1:]}
    return {one for one in found if one not in {"-", ""} and ", " not in one and "(" not in one}


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("what", LISTINGS)
def test_listings_fit_and_keep_names_whole(shell: Shell, what: str, width: int) -> None:
    for form in ("table", "wide"):
        lines = shell.lines("get", what, "-o", form, width=width)
        assert max(map(len, lines)) <= width, form
        words = {word for line in lines for word in line.split()}
        names = cells(shell, what, {"NAMESPACE", "NAME", "QUOTA", "TREE", "GPU", "POD"})
        assert names <= words, (form, sorted(names - words)[:5])
        if what == "kinds":
            assert cells(shell, what, {"KIND"}) <= words


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("by", ["quotas", "teams", "nodes"])
def test_top_fits_and_keeps_names_whole(shell: Shell, by: str, width: int) -> None:
    whole, lines = shell.lines("top", by), shell.lines("top", by, width=width)
    assert max(map(len, lines)) <= width
    assert {line.split()[0] for line in whole} == {line.split()[0] for line in lines}


def test_quotas_of_single_nodes_are_one_row_at_the_end(shell: Shell) -> None:
    lines = shell.lines("get", "quotas")
    assert [line.split()[:3] for line in lines if line.startswith("Node")] == [["Node", "(5", "nodes)"]]
    assert lines[-1].startswith("Node")
    assert sum(line.startswith("Node ") for line in shell.lines("get", "quotas", "-o", "wide")) == 5
    assert shell.lines("get", "quotas", "train-1")[1].split()[:2] == ["Node", "train-1"]


def test_teams_that_use_parts_of_gpus_are_listed(shell: Shell) -> None:
    assert {("chat", "tflops"), ("chat", "vram")} <= {tuple(line.split()[:2]) for line in shell.lines("top", "teams")}


def test_a_long_table_says_what_it_leaves_out(shell: Shell) -> None:
    lines = shell.lines("top", "quotas", "--limit", "3")
    assert len(lines) == 5
    assert re.fullmatch(r"and \d+ more: --limit 0 shows all", lines[-1])
    assert len(shell.lines("top", "quotas", "--limit", "0")) > 10


# The rest of what is typed


def test_the_version(shell: Shell) -> None:
    assert shell("--version").output == shell("version").output


def test_whom_to_ask_may_be_said_before_the_command(shell: Shell) -> None:
    shell.environment = {"BURSAR_SERVER": ""}
    try:
        assert shell("--server", shell.bed.address, "get", "nodes").exit_code == exit_codes.OK
        assert shell("--data", shell.data, "get", "nodes").exit_code == exit_codes.OK
        assert shell("get", "nodes", "--server", "http://127.0.0.1:1").exit_code == exit_codes.UNREACHABLE
    finally:
        shell.environment = {}


def test_borrowed_counts_as_used_in_every_dialect(shell: Shell) -> None:
    for row in shell.bed.client.quotas().items:
        for amounts in row.resources.values():
            if amounts.borrowed not in {"", "0"}:
                assert int(amounts.used) >= int(amounts.borrowed)
                assert int(amounts.used) - int(amounts.borrowed) <= int(amounts.min)
