"""`bursar simulate`: its outputs, files and errors."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bursar.cli.main import cli
from tests.simulate import traces


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["simulate", *map(str, arguments)], env={"COLUMNS": "200", "NO_COLOR": "1"})


@pytest.fixture
def philly(tmp_path: Path) -> Path:
    return traces.write_philly(tmp_path)


def test_compares_quota_sets_in_one_table(philly: Path) -> None:
    result = run(philly, "--capacity", "100%", "-q", "hard-caps", "-q", "elastic")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split()[0] == "QUOTAS"
    assert [line.split()[0] for line in lines[1:3]] == ["hard-caps", "elastic"]
    assert "Note: 1 jobs of 1 tenants without a known size are left out." in result.stdout


def test_writes_report_csv_and_json(philly: Path, tmp_path: Path) -> None:
    html, table = tmp_path / "report.html", tmp_path / "report.csv"
    result = run(philly, "--capacity", 5, "-q", "elastic", "--html", html, "--csv", table, "-o", "json")
    assert result.exit_code == 0, result.output
    assert [one["quotas"] for one in json.loads(result.stdout)["runs"]] == ["elastic"]
    assert html.read_text().startswith("<!doctype html>")
    assert table.read_text().startswith("quotas,tenant,jobs")


def test_journal_of_a_run_passes_the_audit(philly: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    assert run(philly, "--capacity", 5, "-q", "elastic", "--journal", journal).exit_code == 0
    audited = CliRunner().invoke(cli, ["audit", str(journal)])
    assert audited.exit_code == 0
    assert audited.stdout.startswith("GOOD")


def test_wide_output_has_a_table_for_each_set(philly: Path) -> None:
    result = run(philly, "--capacity", 5, "-q", "elastic", "-o", "wide")
    assert "TENANT" in result.stdout
    assert [line.split()[0] for line in result.stdout.splitlines()[4:8]] == ["TENANT", "vca", "vcb", "all"]


def test_helios_prints_the_bound(tmp_path: Path) -> None:
    result = run(traces.write_helios(tmp_path))
    assert "1 of 1.50 pending GPU-hours (66.7 %) had idle GPUs" in result.stdout
    value = json.loads(run(tmp_path, "-o", "json").stdout)
    assert value["upperBound"] == pytest.approx(2 / 3, abs=1e-6)


def test_generator_runs_under_its_own_quotas(tmp_path: Path) -> None:
    file = tmp_path / "generator.yaml"
    file.write_text(traces.GENERATOR.format(limit=100))
    value = json.loads(run(file, "-o", "json").stdout)
    assert value["runs"][0]["quotas"] == "cohorts"
    assert value["summaries"][0]["workloadClasses"]["large"]["count"] == 4


def test_explains_each_decision_about_openb(tmp_path: Path) -> None:
    result = run(traces.write_openb(tmp_path), "--explain")
    assert result.exit_code == 0, result.output
    assert "as given, explained: admitted 4" in result.stdout


def test_draws_the_same_jobs_with_the_same_seed(tmp_path: Path) -> None:
    folder = traces.write_openb(tmp_path)
    one, again, other = (
        json.loads(run(folder, "--load", 300, "--seed", seed, "-o", "json").stdout)["runs"][0] for seed in (3, 3, 4)
    )
    for found in (one, again, other):
        del found["seconds"], found["decisionsPerSecond"]
    assert one == again
    assert one != other


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere"], "error: nowhere: does not exist"),
        (["."], "has no nodes: say how many GPUs there are with --capacity"),
        ([".", "--capacity", "lots"], "'lots' is no capacity"),
        ([".", "--capacity", "5", "-q", "fair"], "error: fair: is neither a file nor one of hard-caps, elastic"),
        ([".", "--format", "openb"], "openb_node_list_all_node.csv: cannot be read: No such file"),
        ([".", "--format", "swf"], "'swf' is none of kueue, manifests"),
        ([".", "--capacity", "5", "-q", "elastic", "-q", "trees", "--journal", "j"], "--journal is for one run"),
        ([".", "--capacity", "5", "-q", "elastic", "--html", "no/such/folder"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line(
    philly: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    monkeypatch.chdir(philly)
    result = run(*arguments)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert "Traceback" not in result.output
