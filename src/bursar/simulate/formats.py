"""JobDemand from a path: which format it has, and what reads it.

A format is recognised by the names of files in a folder, by the columns of a table, or by the keys of a document; or it
is named by the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import SUFFIXES
from bursar.simulate import helios
from bursar.simulate.demand import JobDemand, capacity_of, resampled, with_capacity
from bursar.simulate.kueue_generator import generator
from bursar.simulate.manifest_demand import manifests
from bursar.simulate.traces import OPENB_NODES, PHILLY_JOBS, openb, philly

HELIOS = "helios"
READERS: dict[str, Callable[[Path], JobDemand]] = {
    "kueue": generator,
    "manifests": manifests,
    "openb": openb,
    "philly": philly,
}
FORMATS = (*READERS, HELIOS)
_FOLDERS = {PHILLY_JOBS: "philly", OPENB_NODES: "openb", helios.FILE: HELIOS}
_COLUMNS = {"timestamp,duration,num_gpus": "philly", "name,cpu_milli,memory_mib": "openb", "time,vc,quota": HELIOS}
_KUEUE_KEYS = ("queuesSets", "workloadsSets")


def recognised(path: Path) -> str:
    """The name of the format."""
    if not path.exists():
        raise ManifestError("does not exist", source=str(path))
    if path.is_dir():
        return next((name for file, name in _FOLDERS.items() if (path / file).exists()), "manifests")
    head = _head(path)
    for columns, name in _COLUMNS.items():
        if head.startswith(columns):
            return name
    if all(key in head for key in _KUEUE_KEYS):
        return "kueue"
    if path.suffix in SUFFIXES:
        return "manifests"
    known = ", ".join(FORMATS)
    raise ManifestError(f"is in no format that is known ({known}); name it with --format", source=str(path))


def _head(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(65_536).decode("utf-8", "replace")
    except OSError as error:
        raise ManifestError(f"cannot be read: {error.strerror}", source=str(path)) from None


@dataclass(frozen=True, slots=True)
class DemandOptions:
    """What is changed about a demand that was read."""

    capacity: str = ""  # for one without nodes: GPUs, or a part of its peak
    node_size: int = 0  # with a capacity: GPUs of each node; 0: one node has all of them
    load: int = 0  # percent of the GPUs that the jobs are drawn to ask for; 0: the jobs as they are
    first: int = 0  # how many jobs; 0: all
    seed: int = 1


def demand_from(path: Path, format_name: str = "", options: DemandOptions | None = None) -> JobDemand:
    """The jobs of a file or folder. ``ManifestError`` names the file and what is wrong with it."""
    name = format_name or recognised(path)
    if name not in READERS:
        raise ManifestError("holds sums and no jobs: nothing can be run", source=str(path))
    try:
        return _changed(READERS[name](path), options or DemandOptions())
    except ManifestError as error:
        raise error.located(source=str(path)) from None


def _changed(demand: JobDemand, options: DemandOptions) -> JobDemand:
    if options.capacity and demand.capacity:
        raise ManifestError("has nodes of its own: a capacity is for traces without")
    if options.capacity:
        demand = with_capacity(demand, capacity_of(options.capacity, demand), options.node_size)
    elif not demand.objects:
        raise ManifestError("has no nodes: say how many GPUs there are with --capacity, such as 60% of the peak")
    if options.load:
        demand = resampled(demand, options.load, options.seed)
    return demand.first(options.first) if options.first else demand
