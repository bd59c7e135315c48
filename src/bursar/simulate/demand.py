"""JobDemand: jobs that arrive, ask for GPUs and run for a time, beside the nodes that they run on.

A job is one pod, or several equal pods that start together. Jobs of one shape ask for the same, so a trace of 80,000
jobs has a handful of shapes. Times are integer milliseconds, GPUs integer thousandths. Everything random here is drawn
from a seeded generator: the same seed gives the same jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document

GPU = "nvidia.com/gpu"
MILLI = 1000
HOUR = 3_600_000
WHOLE_CLUSTER = "all"  # the node of a demand that only knows how many GPUs there are


@dataclass(frozen=True, slots=True)
class JobShape:
    """What each pod of a job asks for: a manifest of a pod without its name and namespace."""

    name: str  # the class of job, for people
    spec: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pods: int = 1  # that start together, or not at all
    gpus: int = 0  # thousandths of a GPU that each pod takes

    def body(self, namespace: str, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
        """The manifest of one of its pods."""
        metadata = {
            "namespace": namespace,
            "name": name,
            "labels": {**self.labels, **labels},
            "annotations": dict(self.annotations),
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(self.spec)}


class Job(NamedTuple):
    name: str
    tenant: str  # the namespace of its pods
    arrives: int
    runs: int | None  # None: it never ends
    shape: int  # position in the shapes of the demand


@dataclass(frozen=True, slots=True)
class QuotaSet:
    """Manifests that are applied before the first job arrives."""

    name: str
    documents: Sequence[Document] = ()
    marks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by tenant: labels of its pods


@dataclass(frozen=True, slots=True)
class JobDemand:
    """What is asked for, and of which cluster."""

    name: str
    jobs: Sequence[Job]  # by arrival
    shapes: Sequence[JobShape]
    objects: Sequence[Document] = ()  # nodes, and whatever else is there before the first job
    capacity: int = 0  # thousandths of a GPU that the nodes have
    shares: Mapping[str, int] = field(default_factory=dict)  # weight of each tenant, where the trace says so
    notes: Sequence[str] = ()  # what was left out or assumed, for people
    quotas: QuotaSet | None = None  # those that the demand comes with

    @property
    def tenants(self) -> list[str]:
        return sorted({job.tenant for job in self.jobs})

    def gpus(self, job: Job) -> int:
        """Thousandths of a GPU that all pods of the job take."""
        shape = self.shapes[job.shape]
        return shape.gpus * shape.pods

    @property
    def asked(self) -> int:
        """Thousandths of a GPU that all jobs together ask for."""
        return sum(self.gpus(job) for job in self.jobs)

    def first(self, count: int) -> JobDemand:
        """Only the jobs that arrive first."""
        return replace(self, jobs=self.jobs[:count])

    def with_note(self, note: str) -> JobDemand:
        return replace(self, notes=(*self.notes, note))


def gpu_shape(gpus: int, *, pods: int = 1, priority: int | None = None, name: str = "") -> JobShape:
    """Pods that ask the device plugin for so many whole GPUs each."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": {GPU: gpus}}}]}
    if priority is not None:
        spec["priority"] = priority
    total = gpus * pods
    return JobShape(name or f"{total} GPU{'s' if total != 1 else ''}", spec, pods=pods, gpus=gpus * MILLI)


def node(name: str, allocatable: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> Document:
    metadata: dict[str, Any] = {"name": name}
    if labels:
        metadata["labels"] = dict(labels)
    body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": dict(allocatable)}}
    return Document("", 0, body)


def peak(demand: JobDemand) -> int:
    """Thousandths of a GPU that are in use at most if no job ever waits."""
    changes: list[tuple[int, int]] = []
    for job in demand.jobs:
        changes.append((job.arrives, demand.gpus(job)))
        if job.runs is not None:
            changes.append((job.arrives + job.runs, -demand.gpus(job)))
    most = now = 0
    for _, change in sorted(changes):  # what ends at a moment has ended for jobs that arrive then
        now += change
        most = max(most, now)
    return most


def capacity_of(text: str, demand: JobDemand) -> int:
    """Whole GPUs, as thousandths: ``60%`` of the peak, or a number of GPUs."""
    number = text.removesuffix("%")
    if not number.isascii() or not number.isdecimal() or int(number) < 1:
        raise ManifestError(f"{text!r:.40} is no capacity: a number of GPUs (746), or a part of the peak (60%)")
    if text == number:
        return int(number) * MILLI
    return int(number) * peak(demand) // (100 * MILLI) * MILLI


def with_capacity(demand: JobDemand, capacity: int, per_node: int = 0) -> JobDemand:
    """The same jobs on so many GPUs: on one node that has them all, or on nodes of ``per_node`` GPUs.

    Jobs larger than a node become pods of a node each, which start together; the last one may leave room.
    """
    whole = capacity // MILLI
    if not per_node:
        return replace(demand, objects=(node(WHOLE_CLUSTER, {GPU: whole}),), capacity=whole * MILLI)
    count = whole // per_node
    if not count:
        raise ManifestError(f"{whole} GPUs are less than one node of {per_node}")
    names = [f"node-{number:0{len(str(count))}}" for number in range(1, count + 1)]
    shapes = [_spread(shape, per_node) for shape in demand.shapes]
    nodes = tuple(node(name, {GPU: per_node}) for name in names)
    return replace(demand, objects=nodes, shapes=shapes, capacity=count * per_node * MILLI)


def _spread(shape: JobShape, per_node: int) -> JobShape:
    whole = shape.gpus // MILLI
    if whole <= per_node:
        return shape
    return gpu_shape(per_node, pods=shape.pods * -(-whole // per_node), name=shape.name)


def resampled(demand: JobDemand, percent: int, seed: int) -> JobDemand:
    """Jobs drawn with replacement until they ask for this share of the capacity, one second after the other."""
    if not demand.capacity or not demand.asked:
        raise ManifestError("only a demand for GPUs of known nodes can be resampled")
    random = Random(seed)  # noqa: S311 a sample, not a secret
    wanted, asked, drawn = demand.capacity * percent // 100, 0, list[Job]()
    while asked < wanted:
        job = demand.jobs[random.randrange(len(demand.jobs))]
        asked += demand.gpus(job)
        drawn.append(job._replace(name=f"{job.name}-{len(drawn)}", arrives=len(drawn) * MILLI))
    note = f"jobs drawn with replacement (seed {seed}) until they ask for {percent} % of the GPUs"
    return replace(demand, jobs=drawn).with_note(note)


def split(total: int, weights: Mapping[str, int]) -> dict[str, int]:
    """A whole number in proportion to weights: largest remainder, ties by name."""
    whole = sum(weights.values())
    if whole <= 0:
        raise ManifestError("the weights of the tenants add up to nothing")
    found = {name: total * weight // whole for name, weight in weights.items()}
    left = total - sum(found.values())
    by_remainder = sorted(weights, key=lambda name: (-(total * weights[name] % whole), name))
    for name in by_remainder[:left]:
        found[name] += 1
    return found
