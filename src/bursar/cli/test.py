"""`bursar test`: run scenario files, say what happened, and fail when an expectation does."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

import click

from bursar.cli import exit_codes


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|FOLDER...", type=click.Path(path_type=Path))
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Also write a JUnit report here.")
@click.option("-v", "--verbose", is_flag=True, help="Show what happened step by step.")
def test(paths: tuple[Path, ...], junit: Path | None, verbose: bool) -> None:
    """Run scenario files on an embedded cluster.

    A folder stands for all .yaml, .yml and .json files in it. Exit code 0: all passed; 1: an expectation failed;
    2: a file is wrong, and nothing was run.
    """
    from bursar.control.admission import known_kinds
    from bursar.objects.decode import ManifestError
    from bursar.policies.plugin import default_registry
    from bursar.sim import report
    from bursar.sim.runner import Result, run_scenario
    from bursar.sim.scenario import load_scenarios

    try:
        scenarios = load_scenarios(paths, known_kinds(default_registry()))
    except ManifestError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(exit_codes.BAD_INPUT)
    results: list[Result] = []
    seconds: list[float] = []
    for scenario in scenarios:
        before = perf_counter()
        result = run_scenario(scenario)
        seconds.append(perf_counter() - before)
        results.append(result)
        if verbose:
            _print(report.story(result))
        if result.failed:
            _print([*report.failure(result), ""])
    _print(report.summary(results))
    if junit is not None:
        _write(junit, report.junit(results, seconds))
    sys.exit(exit_codes.FAILED if any(result.failed for result in results) else exit_codes.OK)


def _print(lines: list[str]) -> None:
    click.echo("\n".join(lines))


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        click.echo(f"error: {path}: cannot be written: {error.strerror or error}", err=True)
        sys.exit(exit_codes.BAD_INPUT)
