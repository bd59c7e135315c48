"""Public traces of GPU clusters as demand: Alibaba's openb and Microsoft's Philly, in the formats in which they ship.

Only the formats are known here. The files stay where they are: commands get their path. A row that cannot be read is
one error that names file and line.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document
from bursar.simulate.demand import GPU, MILLI, Job, JobDemand, JobShape, gpu_shape, node

OPENB_NODES = "openb_node_list_all_node.csv"
OPENB_PODS = "openb_pod_list_default.csv"
PHILLY_JOBS = "philly.csv"
PHILLY_SIZES = "philly_vc_nodes.csv"
_OPENB_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")
_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_PHILLY_COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
_PRODUCT = "nvidia.com/gpu.product"
_PER_GPU = 1000  # compute that each GPU is given: a thousandth of a GPU is one of them, whatever its model

Read = TypeVar("Read")


def rows(path: Path, columns: Sequence[str], read: Callable[[Mapping[str, str]], Read]) -> list[Read]:
    """What ``read`` makes of each row of a table with these columns."""
    return list(_each(path, columns, read))


def _each(path: Path, columns: Sequence[str], read: Callable[[Mapping[str, str]], Read]) -> Iterator[Read]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            table = csv.DictReader(stream)
            missing = [name for name in columns if name not in (table.fieldnames or ())]
            if missing:
                raise ManifestError(f"has no column {missing[0]}", source=str(path), line=1)
            for row in table:
                try:
                    yield read(row)
                except (ValueError, TypeError) as error:
                    raise ManifestError(f"cannot be read: {error}", source=str(path), line=table.line_num) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ManifestError(f"cannot be read: {getattr(error, 'strerror', None) or error}", source=str(path)) from None


def whole(text: str) -> int:
    """A whole number that is not negative."""
    if not text.isascii() or not text.isdecimal() or len(text) > 15:
        raise ValueError(f"{text!r:.40} is no whole number")
    return int(text)


def beside(path: Path, name: str) -> Path:
    """A file of that name: in the folder, or beside the file."""
    return path / name if path.is_dir() else path.parent / name


# openb


def openb(path: Path) -> JobDemand:
    """Pods in the order of the file, one a second, without departures, on the nodes beside it.

    At their own times at most 66 of the 6,212 GPUs are ever busy, so the published use of the trace submits pods one
    after the other until demand passes what there is.
    """
    pods_file = path / OPENB_PODS if path.is_dir() else path
    nodes = rows(beside(path, OPENB_NODES), _NODE_COLUMNS, _openb_node)
    shapes: dict[tuple[str, ...], int] = {}
    kept: list[JobShape] = []
    jobs: list[Job] = []
    for key, name, shape in rows(pods_file, _OPENB_COLUMNS, _openb_pod):
        if key not in shapes:
            shapes[key] = len(kept)
            kept.append(shape)
        jobs.append(Job(name, "openb", len(jobs) * MILLI, None, shapes[key]))
    models = sorted({model for _, model, _ in nodes if model})
    capacity = sum(gpus for _, _, gpus in nodes) * MILLI
    objects = (_gpu_models(models), *(document for document, _, _ in nodes))
    note = "pods come one a second, in the order of the file, and never end"
    return JobDemand("openb", jobs, kept, objects, capacity, {"openb": 1}, (note,))


def _openb_node(row: Mapping[str, str]) -> tuple[Document, str, int]:
    gpus, model = whole(row["gpu"]), row["model"]
    allocatable: dict[str, Any] = {"cpu": f"{whole(row['cpu_milli'])}m", "memory": f"{whole(row['memory_mib'])}Mi"}
    labels = {}
    if gpus:
        allocatable[GPU] = gpus
        labels = {"bursar.dev/gpu-fractions": "all", _PRODUCT: model}
    return node(row["sn"], allocatable, labels), model, gpus


def _gpu_models(models: Sequence[str]) -> Document:
    """Every GPU counts as one, so that a thousandth of it is the same on each model. Pods fill GPU after GPU."""
    known = {model: {"tflops": _PER_GPU, "vram": "1Gi"} for model in models}
    section = {"placementMode": "CompactFirst", "vramWeight": 0, "models": known}
    body = {"apiVersion": "bursar.dev/v1alpha1", "kind": "Configuration", "metadata": {"name": "default"}}
    return Document("", 0, {**body, "spec": {"gpus": section}})


def _openb_pod(row: Mapping[str, str]) -> tuple[tuple[str, ...], str, JobShape]:
    cpu, memory = whole(row["cpu_milli"]), whole(row["memory_mib"])
    count, part, models = whole(row["num_gpu"]), whole(row["gpu_milli"]), row["gpu_spec"]
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
    annotations = {}
    if count:
        annotations = {
            "tensor-fusion.ai/compute-percent-request": f"{part // 10}.{part % 10}",
            "tensor-fusion.ai/gpu-count": str(count),
        }
    if models:
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": _PRODUCT, "operator": "In", "values": models.split("|")}]}]}}}  # fmt: skip
    name = "no GPU" if not count else "part of a GPU" if part < MILLI else f"{count} GPU{'s' if count > 1 else ''}"
    shape = JobShape(name, spec, annotations=annotations, gpus=count * part)
    return (row["cpu_milli"], row["memory_mib"], row["num_gpu"], row["gpu_milli"], models), row["name"], shape


# Philly


def philly(path: Path) -> JobDemand:
    """Jobs at their times with their run times. Tenants without a known size are left out, and a note says so.

    The trace has no nodes: give it a capacity.
    """
    jobs_file = path / PHILLY_JOBS if path.is_dir() else path
    sizes = dict(rows(beside(path, PHILLY_SIZES), ("vc", "node num"), lambda row: (row["vc"], whole(row["node num"]))))
    found = rows(jobs_file, _PHILLY_COLUMNS, _philly_job)
    kept = sorted(job for job in found if job[3] in sizes)
    if not kept:
        raise ManifestError("no job is of a tenant whose size is known", source=str(jobs_file))
    gpu_counts = sorted({gpus for _, _, gpus, _ in kept})
    shapes = [gpu_shape(gpus) for gpus in gpu_counts]
    position = {gpus: at for at, gpus in enumerate(gpu_counts)}
    begin = kept[0][0]
    width = len(str(len(kept)))
    jobs = [
        Job(f"job-{number:0{width}}", tenant, arrives - begin, runs, position[gpus])
        for number, (arrives, runs, gpus, tenant) in enumerate(kept, 1)
    ]
    unsized = {job[3] for job in found} - sizes.keys()
    notes = [f"{len(found) - len(kept)} jobs of {len(unsized)} tenants without a known size are left out"]
    return JobDemand("philly", jobs, shapes, (), 0, {t: sizes[t] for t in sorted(sizes)}, notes)


def _philly_job(row: Mapping[str, str]) -> tuple[int, int, int, str]:
    """(arrival, run time, GPUs, tenant)"""
    arrives = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC)
    runs, gpus = float(row["duration"]), whole(row["num_gpus"])
    if not 0 <= runs < 10**9 or gpus < 1:
        raise ValueError(f"a job of {gpus} GPUs that runs {runs} s")
    return int(arrives.timestamp()) * MILLI, int(runs * MILLI), gpus, row["cluster"]
