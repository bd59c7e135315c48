"""A store file, asked like a server: the same handlers answer from the file alone.

The file is opened read-only at its last record. No time passes: "now" is the last moment in the file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar, cast

import click
import msgspec

from bursar.objects.decode import ManifestError
from bursar.policies.plugin import default_registry
from bursar.server import steady_clock, time_travel
from bursar.server.client import Client, RequestFailedError, content_type
from bursar.server.copies import LocalCopies
from bursar.server.handlers import Handlers
from bursar.server.operations import Operation
from bursar.server.problems import problem_of
from bursar.server.request_query import RequestQuery
from bursar.server.service import Service, StoppedError
from bursar.sim.cluster import Cluster
from bursar.store.schema import StoreError
from bursar.store.store import Store

T = TypeVar("T")


class FileService(Service):
    """The service over a file that is only read."""

    def __init__(self, store: Store) -> None:  # the parent's opens the file for writing
        self.store = store
        self.lock = RLock()
        self.error = StoppedError("a store file is only read")
        here = time_travel.at_record(store, store.last_seq)
        self._here = here
        self.cluster = time_travel.past(store, Cluster(default_registry(), manifests=store.manifest), here)
        self._clock = self.cluster.now
        self._last = None
        self.started = here.at

    def latest(self) -> int:
        """Nothing changed in the file since its last moment, so it can be asked about any time up to the present."""
        return max(self.now(), steady_clock.wall_clock())

    def position(self) -> time_travel.Revision:
        return self._here

    def _back_in_step(self) -> None:
        """Nothing is ever written."""


class FileClient(Client):
    """Asks a service in this process, such as that of a file."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._handlers = Handlers(service, LocalCopies(service, default_registry()))

    def _ask(self, operation: Operation[T], values: dict[str, Any], body: bytes) -> T:
        if operation.streams:
            return cast("T", iter(()))
        asked = RequestQuery(operation, values, body, content_type(operation))
        try:
            found = self._handlers.answer(asked)
        except (StoreError, ManifestError):
            raise
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                raise
            raise RequestFailedError(problem) from error
        return msgspec.convert(msgspec.to_builtins(found), operation.answer or cast("type[T]", dict))


@contextmanager
def open_file(path: Path) -> Iterator[Client]:
    with Store.open(path, read_only=True) as store:
        count = store.last_seq - store.pruned_to
        if count > 100_000 and sys.stderr.isatty():
            click.echo(f"reading {count:,} records of {path} ...", err=True)
        yield FileClient(FileService(store))
