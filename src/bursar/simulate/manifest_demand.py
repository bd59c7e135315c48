"""Manifests as demand: pods with annotations that say when they come and how long they run, beside nodes and quotas.

| annotation of a pod | meaning |
|---|---|
| ``sim.bursar.dev/runs-for`` | how long it runs; without it, until the end |
| ``sim.bursar.dev/arrives-after`` | when it comes, counted from the beginning; at once without it |
| ``sim.bursar.dev/repeats`` | how many of it come, 1 by default |
| ``sim.bursar.dev/every`` | the time between these |

Objects that are no pods are there from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bursar.control.admission import known_kinds
from bursar.objects.decode import ManifestError
from bursar.objects.kinds import NODE, POD
from bursar.objects.manifests import Document, load_path
from bursar.objects.validation import duration_ms
from bursar.policies.plugin import default_registry
from bursar.quantity import MILLI as MILLI_UNITS
from bursar.quantity import QuantityError, parse
from bursar.sim.pods import RUNS_FOR
from bursar.simulate.demand import GPU, Job, JobDemand, JobShape

ARRIVES_AFTER = "sim.bursar.dev/arrives-after"
REPEATS = "sim.bursar.dev/repeats"
EVERY = "sim.bursar.dev/every"
_OURS = (RUNS_FOR, ARRIVES_AFTER, REPEATS, EVERY)
_PERCENT = "tensor-fusion.ai/compute-percent-request"
_COUNT = "tensor-fusion.ai/gpu-count"
_MOST = 1_000_000


def manifests(path: Path) -> JobDemand:
    """The pods of a file or folder as jobs; everything else as objects."""
    return from_documents(load_path(path), path.stem)


def from_documents(documents: Sequence[Document], name: str) -> JobDemand:
    kinds = known_kinds(default_registry())
    objects: list[Document] = []
    shapes: list[JobShape] = []
    jobs: list[Job] = []
    capacity = 0
    for document in documents:
        read = kinds.read(document)
        if read.kind.name != POD.name:
            objects.append(document)
            if read.kind.name == NODE.name:
                capacity += _amount((document.body.get("status") or {}).get("allocatable"))
            continue
        try:
            arrives, every, repeats, runs = _times(document.body)
        except ManifestError as error:
            raise document.error(error.located(subject=f"Pod {read.key}")) from None
        if len(jobs) + repeats > _MOST:
            raise document.error(ManifestError(f"more than {_MOST:,} pods", subject=f"Pod {read.key}"))
        shapes.append(_shape(document.body, read.name))
        names = [read.name] if repeats == 1 else [f"{read.name}-{number}" for number in range(repeats)]
        jobs += [
            Job(one, read.namespace, arrives + number * every, runs, len(shapes) - 1)
            for number, one in enumerate(names)
        ]
    if not jobs:
        raise ManifestError("has no pods: nothing arrives", source=name)
    jobs.sort(key=lambda job: job.arrives)
    return JobDemand(name, jobs, shapes, objects, capacity)


def _times(body: Mapping[str, Any]) -> tuple[int, int, int, int | None]:
    """(arrival, time between repeats, repeats, run time)"""
    marks = (body.get("metadata") or {}).get("annotations") or {}
    repeats = str(marks.get(REPEATS, "1"))
    if not repeats.isascii() or not repeats.isdecimal() or not 1 <= int(repeats[:9]) <= _MOST:
        raise ManifestError(f"{repeats!r:.40} is not a number from 1 to {_MOST:,}", f"metadata.annotations.{REPEATS}")
    times = [_time(marks, mark) for mark in (ARRIVES_AFTER, EVERY, RUNS_FOR)]
    return times[0] or 0, times[1] or 0, int(repeats), times[2]


def _time(marks: Mapping[str, Any], mark: str) -> int | None:
    return duration_ms(marks[mark], f"metadata.annotations.{mark}") if mark in marks else None


def _shape(body: Mapping[str, Any], name: str) -> JobShape:
    metadata = body.get("metadata") or {}
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key not in _OURS}
    spec = body.get("spec") or {}
    return JobShape(name, spec, metadata.get("labels") or {}, annotations, gpus=_gpus(spec, annotations))


def _gpus(spec: Mapping[str, Any], annotations: Mapping[str, Any]) -> int:
    """Thousandths of a GPU that the pod takes, whole ones of the device plugin and parts by annotation."""
    found = 0
    for container in spec.get("containers") or []:
        resources = container.get("resources") or {}
        found += _amount(resources.get("limits") or resources.get("requests"))
    if _PERCENT in annotations:
        try:
            part = parse(str(annotations[_PERCENT]), MILLI_UNITS) // 100
            found += part * int(str(annotations.get(_COUNT, "1")))
        except (QuantityError, ValueError):
            return found  # the pod is judged by its policy, which says what is wrong
    return found


def _amount(resources: Mapping[str, Any] | None) -> int:
    """Thousandths of a GPU in amounts by resource."""
    amount = (resources or {}).get(GPU)
    return 0 if amount is None else parse(str(amount), MILLI_UNITS)
