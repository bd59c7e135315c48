"""Kueue's performance generator files as demand, and the summary that Kueue's own runner writes.

A file has cohorts of cluster queues, and workloads that come to each queue at a fixed interval. Kueue's quota is a
quota tree here: a queue is a soft node with its nominal quota, its cohort the hard root with the quota of all of its
queues. A borrowing limit below the rest of the cohort is a hard node between the two. As in Kueue's test no pods run
and no node matters: a workload is one unit of quota for a time. What the file calls cpu is counted as GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bursar.objects.core import Part
from bursar.objects.decode import ManifestError, decode
from bursar.objects.manifests import Document
from bursar.simulate.cluster import ARRIVED, ENDED, EVICTED, STARTED
from bursar.simulate.demand import GPU, MILLI, WHOLE_CLUSTER, Job, JobDemand, JobShape, QuotaSet, gpu_shape, node
from bursar.simulate.figures import use_over_time
from bursar.simulate.run import Run

_MOST = 1_000_000  # workloads of a file


class WorkloadTemplate(Part, frozen=True):
    class_name: str = msgspec.field(name="className")
    runtime_ms: int = msgspec.field(name="runtimeMs")
    request: int
    priority: int = 0


class WorkloadsSet(Part, frozen=True):
    count: int
    interval_ms: int = msgspec.field(name="creationIntervalMs")
    workloads: tuple[WorkloadTemplate, ...]


class QueuesSet(Part, frozen=True):
    class_name: str = msgspec.field(name="className")
    count: int
    nominal: int = msgspec.field(name="nominalQuota")
    sets: tuple[WorkloadsSet, ...] = msgspec.field(name="workloadsSets")
    limit: int | None = msgspec.field(name="borrowingLimit", default=None)
    reclaim: str = msgspec.field(name="reclaimWithinCohort", default="Any")
    within: str = msgspec.field(name="withinClusterQueue", default="LowerPriority")


class CohortSet(Part, frozen=True):
    class_name: str = msgspec.field(name="className")
    count: int
    queues: tuple[QueuesSet, ...] = msgspec.field(name="queuesSets")


class GeneratorFile(Part, frozen=True):
    cohorts: tuple[CohortSet, ...]


def generator(path: Path) -> JobDemand:
    """The workloads of the file, with its quotas."""
    cohorts = _read(path)
    shapes: dict[tuple[str, int, int], int] = {}
    kept: list[JobShape] = []
    jobs: list[tuple[int, int, Job]] = []
    trees: list[dict[str, Any]] = []
    marks: dict[str, dict[str, str]] = {}
    total = 0
    for cohort, queues in _cohorts(cohorts):
        trees.append(_tree(cohort, queues))
        for queue, given in queues:
            marks[queue] = {f"quota.bursar.dev/{cohort}": queue}
            total += given.nominal
            for at, template in _workloads(given):
                key = (template.class_name, template.request, template.priority)
                if key not in shapes:
                    shapes[key] = len(kept)
                    kept.append(gpu_shape(template.request, priority=template.priority, name=template.class_name))
                name = f"{template.class_name}-{len(jobs)}"
                jobs.append((at, len(jobs), Job(name, queue, at, template.runtime_ms, shapes[key])))
                if len(jobs) > _MOST:
                    raise ManifestError(f"describes more than {_MOST:,} workloads", source=str(path))
    jobs.sort()
    documents = tuple(Document(str(path), number, tree) for number, tree in enumerate(trees, 1))
    quotas = QuotaSet("cohorts", documents, marks)
    shares = {queue: given.nominal for _, queues in _cohorts(cohorts) for queue, given in queues}
    nodes = (node(WHOLE_CLUSTER, {GPU: total}),)
    notes = ("cpu of the generator file is counted as GPUs of one node",)
    return JobDemand("kueue", [job for _, _, job in jobs], kept, nodes, total * MILLI, shares, notes, quotas)


def _read(path: Path) -> tuple[CohortSet, ...]:
    """Newer files have a section ``cohorts``, older ones are the list."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ManifestError(f"cannot be read: {str(error).partition(chr(10))[0]}", source=str(path)) from None
    body = {"cohorts": given} if isinstance(given, list) else given
    if not isinstance(body, dict):
        raise ManifestError("is no generator file: it has no cohorts", source=str(path))
    try:
        found = decode({"cohorts": body.get("cohorts")}, GeneratorFile)[0].cohorts
        _check(found)
    except ManifestError as error:
        raise error.located(source=str(path)) from None
    return found


def _check(cohorts: tuple[CohortSet, ...]) -> None:
    for cohort in cohorts:
        for queues in cohort.queues:
            if queues.reclaim != "Any" or queues.within != "LowerPriority":
                problem = "only reclaimWithinCohort Any with withinClusterQueue LowerPriority is what a quota tree does"
                raise ManifestError(problem, f"cohorts.queuesSets {queues.class_name}")
            for one in queues.sets:
                if min(one.count, one.interval_ms, *(w.runtime_ms for w in one.workloads), 0) < 0:
                    raise ManifestError("counts and times cannot be negative", "cohorts.queuesSets.workloadsSets")
                if any(workload.request < 1 for workload in one.workloads):
                    raise ManifestError("must be at least 1", "cohorts.queuesSets.workloadsSets.workloads.request")


def _cohorts(given: tuple[CohortSet, ...]) -> Iterator[tuple[str, list[tuple[str, QueuesSet]]]]:
    """(cohort, its queues)"""
    for cohort_set in given:
        for number in range(cohort_set.count):
            name = f"{cohort_set.class_name}-{number}"
            yield name, [(f"{name}-{one.class_name}-{i}", one) for one in cohort_set.queues for i in range(one.count)]


def _workloads(queues: QueuesSet) -> Iterator[tuple[int, WorkloadTemplate]]:
    for one in queues.sets:
        for number in range(one.count):
            for template in one.workloads:
                yield number * one.interval_ms, template


def _tree(cohort: str, queues: list[tuple[str, QueuesSet]]) -> dict[str, Any]:
    total = sum(given.nominal for _, given in queues)
    nodes: dict[str, Any] = {cohort: {"quota": {GPU: total}, "hard": True}}
    for queue, given in queues:
        parent = cohort
        if given.limit is not None and given.nominal + given.limit < total:
            parent = f"{queue}-most"
            nodes[parent] = {"parent": cohort, "quota": {GPU: given.nominal + given.limit}, "hard": True}
        nodes[queue] = {"parent": parent, "quota": {GPU: given.nominal}}
    spec = {"resourceNames": [GPU], "nodes": nodes}
    return {"apiVersion": "bursar.dev/v1alpha1", "kind": "QuotaTree", "metadata": {"name": cohort}, "spec": spec}


def summary(run: Run) -> dict[str, Any]:
    """The fields of the summary of Kueue's runner: by class of workloads, and the use of the queues.

    Time to admission ends with the last admission of a workload, as that is the one that it finished with.
    """
    classes: dict[str, list[int]] = {}
    demand = run.demand
    for at, what, position in run.events:
        job = demand.jobs[position]
        count, evictions, admission, finish = classes.get(demand.shapes[job.shape].name) or classes.setdefault(
            demand.shapes[job.shape].name, [0] * 4
        )
        passed = at - job.arrives
        sums = [count + (what == ARRIVED), evictions + (what == EVICTED), admission, finish]
        if what == ENDED:
            sums[3] += passed
            sums[2] += passed - (job.runs or 0)
        classes[demand.shapes[job.shape].name] = sums
    span = max(1, run.events[-1][0] - run.events[0][0]) if run.events else 1
    used = use_over_time(run, [run.events[0][0], run.events[-1][0]])["all"][0] / MILLI if span > 1 else 0.0
    return {
        "wallMs": span,
        "workloadClasses": {
            name: {
                "count": count,
                "totalEvictions": evictions,
                "averageTimeToAdmissionMs": admission // count if count else 0,
                "averageTimeToFinishMs": finish // count if count else 0,
            }
            for name, (count, evictions, admission, finish) in sorted(classes.items())
        },
        "clusterQueues": {
            "nominalQuota": demand.capacity // MILLI,
            "averageUsage": round(used, 1),
            "averageUsagePercent": round(100 * used * MILLI / demand.capacity, 1) if demand.capacity else 0.0,
        },
        "started": sum(1 for _, what, _ in run.events if what == STARTED),
    }
