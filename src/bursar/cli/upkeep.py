"""`bursar backup` copies a store while work goes on, `restore` goes on from a copy, `prune` drops old history.

A copy is checked as a whole before it counts as a backup or is restored: the pages of the file, and every record.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bursar.cli import exit_codes
from bursar.cli.connection import FILE, Target, asks, fail, reporting

if TYPE_CHECKING:
    from bursar.server.client import Client

_DAYS = re.compile(r"([0-9]{1,5})d")
_DAY = 24 * 3600 * 1000


class KeptFor(click.ParamType[int]):
    """For how long history is kept: a duration (12h), or days (30d)."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from bursar.objects.decode import ManifestError
        from bursar.objects.validation import duration_ms

        days = _DAYS.fullmatch(str(value))
        try:
            kept = int(days[1]) * _DAY if days else duration_ms(value)
        except ManifestError:
            self.fail(f"{str(value)!r:.60} is no time such as 30d or 12h", param, ctx)
        if not kept:
            self.fail("a history of no length cannot be kept", param, ctx)
        return kept


@click.command()
@click.argument("file", type=FILE)
@asks
def backup(file: Path, target: Target) -> None:
    """Copy the store of a server, or with --data a store file, while work goes on.

    The copy is a store file of one moment. It is checked before it gets its name, and overwrites nothing.
    """
    from bursar.store import schema, upkeep
    from bursar.store.store import Store

    if target.live:
        fail("a live cluster has no store; back up its objects with kubectl")
    with reporting(), schema.new_file(file) as scratch:
        if target.data is not None:
            source = str(target.data)
            Store.open(target.data, read_only=True).close()
            upkeep.copy(target.data, scratch)
        else:
            with target.open() as client:
                source = f"the store of {client.address}"
                _receive(client, scratch)
        _check(scratch, file)
    _tell(f"copied {source} to {file}", file)


def _receive(client: Client, path: Path) -> None:
    """Write the copy that a server sends."""
    import os

    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        for part in client.backup():
            file.write(part)


@click.command()
@click.argument("file", type=FILE)
@click.option("--data", type=FILE, default="bursar.db", show_default=True, help="The store to make of it.")
@click.option("--replace", is_flag=True, help="Move the store that is there away first, under another name.")
@click.option("--accept-cut-off", is_flag=True,
              help="Take a copy that was made without its write-ahead log: its last changes are missing.")  # fmt: skip
def restore(file: Path, data: Path, replace: bool, accept_cut_off: bool) -> None:
    """Make a store of a backup, for `bursar serve`. No server may be running on it."""
    from bursar.store import upkeep

    with reporting():
        _check(file, file, cut_off=accept_cut_off)
        moved = upkeep.restore(file, data, replace=replace)
        _tell(f"restored {file} to {data}", data)
    if moved is not None:
        click.echo(f"  the store that was there is now {moved}")


@click.command()
@click.option("--data", type=FILE, default="bursar.db", show_default=True, help="The store file.")
@click.option("--retain", type=KeptFor(), required=True, metavar="TIME", help="Keep history of this time: 30d, 12h.")
def prune(data: Path, retain: int) -> None:
    """Drop history before a time from a store that no server writes, and give its room back.

    A server does it by itself with `bursar serve --retain`.
    """
    from bursar.server.retention import Retention
    from bursar.server.steady_clock import wall_clock
    from bursar.store import snapshots, upkeep
    from bursar.store.store import Store

    with reporting():
        before = data.stat().st_size if data.exists() else 0
        with Store.open(data) as store:
            gone = Retention(store, retain).prune(wall_clock())
            if not gone and store.last_seq > store.pruned_to:
                snapshots.take(store)
                gone = Retention(store, retain).prune(wall_clock())
            begins = store.pruned_to + 1
        upkeep.compact(data)
    click.echo(f"dropped {gone:,} journal records; the journal of {data} begins with record {begins}")
    click.echo(f"  the file has {data.stat().st_size:,} bytes; it had {before:,}")


def _check(path: Path, name: Path, *, cut_off: bool = False) -> None:
    """End the program unless the store is right in every page and every record."""
    from bursar.audit.auditor import AuditError, Auditor
    from bursar.ledger.replay import ReplayError
    from bursar.server.audit_child import begun
    from bursar.store.schema import damaged
    from bursar.store.store import Store
    from bursar.store.upkeep import check

    with Store.open(path, read_only=True, cut_off=cut_off) as store:
        problems = check(store)
        if problems:
            raise damaged(name, problems[0])
        try:
            auditor = Auditor()
            objects = begun(store, auditor)
            objects.extend(store.last_seq)
            for line in store.load_journal(store.pruned_to + 1, store.last_seq):
                auditor.feed(line)
                objects.after(auditor.seq, auditor.objects)
            objects.check_present(auditor.seq)
        except (AuditError, ReplayError) as error:
            fail(f"{name}: the audit fails: {error}", exit_codes.FAILED)


def _tell(done: str, path: Path) -> None:
    """What is in a store that was just written."""
    from bursar.store.store import Store

    with Store.open(path, read_only=True) as store:
        first, last = store.pruned_to + 1, store.last_seq
    records = f"records {first:,} to {last:,}" if last >= first else "no records"
    click.echo(f"{done}: {records}")
