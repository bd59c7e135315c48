"""`bursar simulate`: a trace or manifests under one or several sets of quotas, in virtual time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bursar.cli.connection import fail
from bursar.cli.output import Column, echo, machine, output_option, table, wrapped

if TYPE_CHECKING:
    from bursar.simulate.demand import JobDemand
    from bursar.simulate.figures import Figures
    from bursar.simulate.run import Options, Progress, Run

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--format", "format_name", default="", metavar="NAME",
              help="openb, philly, helios, kueue or manifests; recognised if it is left out.")  # fmt: skip
@click.option("-q", "--quotas", multiple=True, metavar="NAME|PATH|LABEL=PATH",
              help="Manifests, or hard-caps, elastic, trees, pools, no-quotas; repeat to compare.")  # fmt: skip
@click.option("--capacity", default="", metavar="GPUS|PERCENT%",
              help="For traces without nodes: so many GPUs, or a part of the peak of the demand.")  # fmt: skip
@click.option("--node-size", type=click.IntRange(min=1), help="With --capacity: nodes of so many GPUs instead of one.")
@click.option("--load", type=click.IntRange(1, 1000), metavar="PERCENT",
              help="Draw jobs with replacement until they ask for this part of the GPUs.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), help="Only the first so many jobs.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of everything that is drawn.")
@click.option("--evicted", type=click.Choice(["restart", "resume"]), default="restart", show_default=True,
              help="An evicted job begins again, or goes on from where it was.")  # fmt: skip
@click.option("--explain", is_flag=True, help="Explain each decision about a job that arrives, and count the reasons.")
@click.option("--html", type=_FILE, help="Write a report with plots here.")
@click.option("--csv", "csv_file", type=_FILE, help="Write a row for each quota set and tenant here.")
@click.option("--journal", type=_FILE, help="Write the journal of the (only) run here, for `bursar audit`.")
@output_option
def simulate(  # noqa: PLR0913, PLR0917 click passes one for each option
    trace: Path,
    format_name: str,
    quotas: tuple[str, ...],
    capacity: str,
    node_size: int | None,
    load: int | None,
    jobs: int | None,
    seed: int,
    evicted: str,
    explain: bool,
    html: Path | None,
    csv_file: Path | None,
    journal: Path | None,
    output: str,
) -> None:
    """Run the jobs of a trace, or of manifests, under quotas in virtual time, with the engine and loop of the server.

    The same input and seed give the same result. For the sums of Helios, which have no jobs, it prints what borrowing
    could serve at most.
    """
    from bursar.objects.decode import ManifestError
    from bursar.simulate import comparison
    from bursar.simulate.formats import FORMATS, HELIOS, DemandOptions, demand_from, recognised
    from bursar.simulate.html_report import page
    from bursar.simulate.run import Options

    if format_name and format_name not in FORMATS:
        raise click.BadParameter(f"{format_name!r} is none of {', '.join(FORMATS)}", param_hint="--format")
    if journal is not None and len(quotas) > 1:
        raise click.UsageError("--journal is for one run: give one --quotas")
    try:
        name = format_name or recognised(trace)
        if name == HELIOS:
            _helios(trace, output)
            return
        changes = DemandOptions(capacity, node_size or 0, load or 0, jobs or 0, seed)
        demand = demand_from(trace, name, changes)
        found = _runs(demand, quotas, Options(resumes=evicted == "resume", explain=explain), journal)
    except ManifestError as error:
        fail(str(error))
    figures = [one for _, one in found]
    if html is not None:
        _write(html, page(f"{demand.name}: {len(demand.jobs):,} jobs", found))
    if csv_file is not None:
        _write(csv_file, comparison.table_text(figures))
    _print(demand, found, output)


def _runs(
    demand: JobDemand, wanted: tuple[str, ...], options: Options, journal: Path | None
) -> list[tuple[Run, Figures]]:
    import gc

    from bursar.simulate.demand import QuotaSet
    from bursar.simulate.figures import figures_of
    from bursar.simulate.quota_sets import quota_set
    from bursar.simulate.run import simulate as run_demand

    sets = [quota_set(text, demand) for text in wanted] or [demand.quotas or QuotaSet("as given")]
    gc.disable()  # the core makes no reference cycles, and this process ends with the runs
    found: list[tuple[Run, Figures]] = []
    for one in sets:
        with _bar(one.name, len(demand.jobs)) as progress, _lines(journal) as keep:
            run = run_demand(demand, one, options, progress, keep)
        found.append((run, figures_of(run)))
    return found


@contextmanager
def _bar(label: str, jobs: int) -> Iterator[Progress]:
    with click.progressbar(length=jobs, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        yield lambda done, _: bar.update(done - bar.pos)


@contextmanager
def _lines(journal: Path | None) -> Iterator[Callable[[list[bytes]], object] | None]:
    """What takes the lines of the journal, if they are wanted."""
    if journal is None:
        yield None
        return
    try:
        with journal.open("wb") as stream:
            yield lambda lines: stream.writelines(line + b"\n" for line in lines)
    except OSError as error:
        fail(f"{journal}: cannot be written: {error.strerror or error}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{path}: cannot be written: {error.strerror or error}")


def _print(demand: JobDemand, found: list[tuple[Run, Figures]], output: str) -> None:
    from bursar.simulate import comparison
    from bursar.simulate.kueue_generator import summary

    figures = [one for _, one in found]
    if output in {"json", "yaml"}:
        value = comparison.plain(figures, demand.notes)
        if demand.quotas is not None:
            value["summaries"] = [summary(run) for run, _ in found]
        echo(machine(value, output))
        return
    lines = table(_columns(comparison.HEADINGS, comparison.MORE), comparison.rows(figures), wide=output == "wide")
    if output == "wide":
        for one in figures:
            lines += ["", one.name, *table(_columns(comparison.TENANT_HEADINGS), comparison.tenant_rows(one))]
    for one in figures:
        lines += _counts("still waiting", one.name, one.waiting) + _counts("explained", one.name, one.explained)
    for note in demand.notes:
        lines += ["", *wrapped(f"Note: {note}.", 0)]
    echo(lines)


def _columns(names: Sequence[str], more: int = 0) -> list[Column]:
    """A name and numbers; ``more``: so many at the end are only in wide tables."""
    return [Column(name, right=at > 0, name=at == 0, wide=at >= len(names) - more) for at, name in enumerate(names)]


def _counts(title: str, name: str, counts: object) -> list[str]:
    if not isinstance(counts, dict) or not counts:
        return []
    named = ", ".join(f"{reason} {count:,}" for reason, count in sorted(counts.items(), key=lambda one: -one[1]))
    return ["", *wrapped(f"{name}, {title}: {named}", 0)]


def _helios(trace: Path, output: str) -> None:
    from bursar.simulate import helios

    found = helios.borrowing_bound(trace)
    if output in {"json", "yaml"}:
        echo(machine(helios.plain(found), output))
        return
    lines = table(_columns(helios.HEADINGS), helios.tenant_rows(found))
    for sentence in helios.sentences(found):
        lines += ["", *wrapped(sentence, 0)]
    echo(lines)
