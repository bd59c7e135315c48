"""`bursar audit` checks a journal from its lines alone; `bursar test` runs scenario files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import click

from bursar.cli import exit_codes
from bursar.cli.connection import fail
from bursar.cli.output import echo

if TYPE_CHECKING:
    from bursar.audit.auditor import Auditor
    from bursar.server.object_audit import ObjectAudit
    from bursar.store.segments import Gap, HistoryPart


_SQLITE = b"SQLite format 3\0"
Lines = Iterator[bytes]


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--head", metavar="SEQ:HASH", help="A hash printed by an earlier audit: the journal must still hold it.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print the result.")
def audit(file: Path, head: str | None, output: str) -> None:
    """Check the journal of a store file, of a file with one line a record (- for stdin), or of a folder of history.

    The folder is what `bursar controller --history` writes: every leader's ledger is checked from its first record, and
    so is that each continues the one before. Gaps are named, and are no fault.

    Exit code 0: every record is true to the others; 1: the first one that is not, with the numbers; 2: the file could
    not be read.
    """
    from bursar.audit.auditor import AuditError, Auditor
    from bursar.store.schema import StoreError

    if file.is_dir():
        _audit_history(file, output)
        return
    name = "stdin" if str(file) == "-" else str(file)
    auditor = Auditor()
    anchor = _anchor(head)
    try:
        with _lines(file, auditor) as (lines, objects):
            first = auditor.seq + 1
            for line in lines:
                auditor.feed(line)
                if objects is not None:
                    objects.after(auditor.seq, auditor.objects)
                if anchor is not None and anchor[0] == auditor.seq and anchor[1] != auditor.head:
                    problem = f"has hash {auditor.head}; --head says {anchor[1]}: another history stands here"
                    raise AuditError(auditor.seq, problem)
            if objects is not None:
                objects.check_present(auditor.seq)
        if not auditor.seq:
            fail(f"{name}: holds no record, so there is nothing to check", exit_codes.FAILED)
        if anchor is not None and not first <= anchor[0] <= auditor.seq:
            raise AuditError(anchor[0], f"is not there: the journal goes from {first} to {auditor.seq}")
    except AuditError as error:
        click.echo(f"BAD  {name}: {error}")
        sys.exit(exit_codes.FAILED)
    except (OSError, StoreError) as error:
        fail(f"{name}: {error.strerror}" if isinstance(error, OSError) else str(error))
    _print(name, first, auditor, objects, output)


def _audit_history(folder: Path, output: str) -> None:
    """Check all terms in a folder; ends the program."""
    import json

    from bursar.audit.auditor import AuditError
    from bursar.store.segments import SegmentError, history_of

    terms: list[AuditedLedger] = []
    try:
        for part in history_of(folder):
            if not terms or terms[-1].name != part.ledger:
                terms.append(AuditedLedger(part.ledger, part.header.term, part.header.began))
            terms[-1].take(part)
    except (AuditError, SegmentError) as error:
        where = f"term {terms[-1].term}: " if isinstance(error, AuditError) else ""
        click.echo(f"BAD  {folder}: {where}{error}")
        sys.exit(exit_codes.FAILED)
    except OSError as error:
        fail(f"{folder}: {error.strerror}")
    if not terms:
        fail(f"{folder}: holds no history, so there is nothing to check", exit_codes.FAILED)
    if output == "json":
        click.echo(json.dumps({"folder": str(folder), "terms": [one.plain() for one in terms]}))
        return
    records = sum(one.records for one in terms)
    click.echo(f"GOOD {folder}: {len(terms)} ledgers of leaders, {records:,} records, each continues the one before")
    for one, following in zip(terms, [*terms[1:], None], strict=True):
        for line in one.lines(None if following is None else following.began):
            click.echo(f"  {line}")


@dataclass
class AuditedLedger:
    """The ledger of one leader, as far as it was checked."""

    name: str
    term: int
    began: int
    records: int = 0
    last: int = 0  # the time of the last record
    proven: bool = True  # checked from the first record on
    sealed: bool = False
    gaps: list[Gap] = field(default_factory=list)
    auditor: Auditor | None = None

    def take(self, part: HistoryPart) -> None:
        from bursar.audit.auditor import Auditor
        from bursar.store.segments import gap_of, position_of

        self.sealed = part.seal is not None
        for line in part.lines:
            gap = gap_of(line)
            if gap is not None:
                self.gaps.append(gap)
                self.proven = False
                continue
            seq, self.last = position_of(line)
            if self.auditor is None and self.proven:
                self.proven, self.auditor = seq == 1, Auditor()
            if self.proven and self.auditor is not None:
                self.auditor.feed(line)
            self.records += 1

    def lines(self, following: int | None) -> Iterator[str]:
        from bursar.objects.validation import timestamp

        how = "checked" if self.proven else "only their hashes are checked from where records are missing"
        yield f"term {self.term}, from {timestamp(self.began)}: {self.records:,} records, {how}"
        for gap in self.gaps:
            yield f"  gap: {gap.records} records from {timestamp(gap.since)} to {timestamp(gap.until)}: {gap.why}"
        if not self.sealed and following is not None:
            since = timestamp(self.last or self.began)
            yield f"  gap: what was decided after {since} until {timestamp(following)}: the leader ended without a word"

    def plain(self) -> dict[str, object]:
        from msgspec.structs import asdict

        named = {name: getattr(self, name) for name in ("term", "began", "records", "last", "proven", "sealed")}
        return named | {"gaps": [asdict(gap) for gap in self.gaps]}


def _anchor(text: str | None) -> tuple[int, str] | None:
    if text is None:
        return None
    seq, _, hashed = text.partition(":")
    if not seq.isdecimal() or len(hashed) != 32:
        raise click.BadParameter(f"{text!r} is not a record number and its hash, 17:<32 digits>", param_hint="--head")
    return int(seq), hashed


@contextmanager
def _lines(file: Path, auditor: Auditor) -> Iterator[tuple[Lines, ObjectAudit | None]]:
    """The lines to check, and the objects beside them; the auditor stands where they begin."""
    if str(file) == "-":
        yield _records(sys.stdin.buffer), None
        return
    with file.open("rb") as stream:
        start = stream.read(len(_SQLITE))
        stream.seek(0)
        if start[:1] == b"[":
            yield _records(stream), None
            return
    if start != _SQLITE:
        fail(f"{file}: is neither a store nor a journal")
    with _stored(file, auditor) as found:
        yield found


def _records(stream: Iterator[bytes]) -> Lines:
    return (line.rstrip(b"\r\n") for line in stream)


@contextmanager
def _stored(file: Path, auditor: Auditor) -> Iterator[tuple[Lines, ObjectAudit]]:
    from bursar.server.object_audit import ObjectAudit
    from bursar.store.schema import damaged
    from bursar.store.snapshots import newest
    from bursar.store.store import Store
    from bursar.store.upkeep import check

    with Store.open(file, read_only=True) as store:
        problems = check(store)
        if problems:
            raise damaged(store.path, problems[0])
        try:
            snapshot = newest(store, store.pruned_to) if store.pruned_to else None
            if snapshot is not None:
                auditor.begin(snapshot.text())
        except ValueError as error:
            raise damaged(store.path, error) from error
        count = store.last_seq - store.pruned_to
        objects = ObjectAudit(store)
        objects.extend(store.last_seq)
        if store.pruned_to:
            objects.after(auditor.seq, auditor.objects)
        lines = store.load_journal(store.pruned_to + 1, store.last_seq)
        with click.progressbar(
            lines, count, "auditing", file=sys.stderr, hidden=not sys.stderr.isatty(), update_min_steps=1000
        ) as bar:
            yield iter(bar), objects


def _print(name: str, first: int, auditor: Auditor, objects: ObjectAudit | None, output: str) -> None:
    entries = {"objects": objects.entries} if objects is not None and objects.entries else {}
    uncovered = [] if objects is None else objects.uncovered
    counts = auditor.counts | entries
    if output == "json":
        import json

        summary = {"file": name, "first": first, "last": auditor.seq, "head": auditor.head, "checked": counts}
        click.echo(json.dumps(summary | ({"uncovered": uncovered} if objects is not None else {})))
        return
    checked = f"records {first} to {auditor.seq} are true to each other"
    if auditor.seq < first:
        checked = f"the snapshot of record {auditor.seq} is true to itself, and no record follows it"
    click.echo(f"GOOD {name}: {checked}")
    for what, count in counts.items():
        click.echo(f"  {what:<10} {count:>12,}")
    click.echo(f"  {'head':<10} {auditor.seq}:{auditor.head}")
    if uncovered:
        ranges = ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in uncovered[:10])
        more = f" and {len(uncovered) - 10} more" if len(uncovered) > 10 else ""
        click.echo(f"  objects of these records are not covered, because an older version wrote them: {ranges}{more}")


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
        fail(str(error))
    results: list[Result] = []
    seconds: list[float] = []
    for scenario in scenarios:
        before = perf_counter()
        result = run_scenario(scenario)
        seconds.append(perf_counter() - before)
        results.append(result)
        if verbose:
            echo(report.story(result))
        if result.failed:
            echo([*report.failure(result), ""])
    echo(report.summary(results))
    if junit is not None:
        try:
            junit.write_bytes(report.junit(results, seconds))
        except OSError as error:
            fail(f"{junit}: cannot be written: {error.strerror or error}")
    sys.exit(exit_codes.FAILED if any(result.failed for result in results) else exit_codes.OK)
