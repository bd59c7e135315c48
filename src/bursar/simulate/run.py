"""Runs of a demand under a quota set: from the first arrival until nothing happens any more.

A run is deterministic. Its result is the log of events, samples of quotas and of free GPUs, and why jobs still wait in
the end; ``figures`` makes numbers of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count

from bursar.engine.decision import Decision
from bursar.ledger.claims import PENDING, Claim
from bursar.policies.plugin import Registry
from bursar.policies.quota_table import QuotaRecord
from bursar.policies.results import Check
from bursar.resources import dimension
from bursar.simulate.cluster import Event, VirtualCluster
from bursar.simulate.demand import GPU, MILLI, JobDemand, QuotaSet

SAMPLES = 200  # of quotas and free GPUs, between the first arrival and the last
Progress = Callable[[int, int], None]
"""(jobs that have arrived, jobs there are)"""


@dataclass(frozen=True, slots=True)
class Options:
    """How a demand is run."""

    resumes: bool = False  # an evicted job goes on from where it was, instead of from its beginning
    explain: bool = False  # ask for the tree of checks of each decision about a job that arrives
    until: int | None = None  # stop at this time


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment of a run."""

    at: int
    stranded: float  # the part of the free GPUs that a pod of this demand cannot use, on average
    quotas: Mapping[str, tuple[int | None, int | None]]  # by tenant: min, and runtime or max, in GPUs


@dataclass(slots=True)
class Run:
    """What became of a demand."""

    demand: JobDemand
    quotas: QuotaSet
    resumes: bool = False
    events: list[Event] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)  # by reason: jobs that still wait in the end
    explained: Counter[str] = field(default_factory=Counter)  # by outcome or reason: decisions that were explained
    decisions: int = 0
    seconds: float = 0.0  # of processor time
    lines: list[bytes] = field(default_factory=list)  # of the journal, if it was asked for


def simulate(
    demand: JobDemand,
    quotas: QuotaSet,
    options: Options | None = None,
    progress: Progress | None = None,
    keep: Callable[[list[bytes]], object] | None = None,
    registry: Registry | None = None,
) -> Run:
    """Run the demand; ``keep`` takes the lines of the journal. Raises ``ManifestError`` for bad objects."""
    options = options or Options()
    cluster = VirtualCluster(demand, quotas.marks, resumes=options.resumes, registry=registry)
    run = Run(demand, quotas, options.resumes, cluster.log)
    cluster.apply([*demand.objects, *quotas.documents])
    begun = time.process_time()
    _go_on(cluster, run, options, progress, keep)
    run.seconds = time.process_time() - begun
    run.decisions = cluster.controller.decided
    run.waiting = _still_waiting(cluster)
    return run


def _go_on(
    cluster: VirtualCluster,
    run: Run,
    options: Options,
    progress: Progress | None,
    keep: Callable[[list[bytes]], object] | None,
) -> None:
    """Step by step until nothing is due any more."""
    journal, jobs = cluster.engine.journal, cluster.demand.jobs
    sampled = _sampled(run.demand)
    for steps in count():
        moment = cluster.upcoming
        if moment is None or (options.until is not None and moment > options.until):
            break
        while sampled and moment > sampled[-1]:
            run.samples.append(take_sample(cluster, sampled.pop()))
        cluster.step(moment)
        if options.explain:
            _explain(cluster, run)
        if keep is None:
            journal.drop()
        elif len(journal.records) >= MILLI:
            keep(journal.take())
        if progress is not None and steps % 256 == 0:
            progress(cluster.arrived, len(jobs))
    if keep is not None:
        keep(journal.take())
    if progress is not None:
        progress(cluster.arrived, len(jobs))


def _sampled(demand: JobDemand) -> list[int]:
    """The moments of the samples, the last one first."""
    if not demand.jobs:
        return []
    first, last = demand.jobs[0].arrives, demand.jobs[-1].arrives
    return sorted({first + (last - first) * step // SAMPLES for step in range(SAMPLES + 1)}, reverse=True)


def _explain(cluster: VirtualCluster, run: Run) -> None:
    """Ask why, as a person would, for the jobs that arrived last."""
    for claim in cluster.last_decided:
        check = cluster.controller.explain(claim.uid)
        run.explained["admitted" if check.passed else binding_reason(check) or "refused"] += 1
    cluster.last_decided = []


def binding_reason(check: Check) -> str:
    """The reason of the check that is the one to fix; else of the first that failed."""
    failed = [one for one in check.children if not one.passed]
    inner = (binding_reason(one) for one in sorted(failed, key=lambda child: not child.binding))
    return next((reason for reason in inner if reason), check.reason)


def _still_waiting(cluster: VirtualCluster) -> dict[str, int]:
    reasons: Counter[str] = Counter()
    for claim in cluster.controller.queue.waiting():
        reasons[_reason(claim) or "not complete"] += 1
    return dict(sorted(reasons.items()))


def _reason(claim: Claim) -> str:
    decision = claim.decision
    return decision.reason if claim.state == PENDING and isinstance(decision, Decision) else ""


# Samples


def take_sample(cluster: VirtualCluster, at: int) -> Sample:
    return Sample(at, stranded(cluster), quota_lines(cluster))


def stranded(cluster: VirtualCluster) -> float:
    """The part of the free GPUs that is on nodes where a pod of this demand, drawn by count, does not fit."""
    capacity = cluster.node_gpus
    free = Counter(total - cluster.placed.get(name, 0) for name, total in capacity.items())
    whole = sum(gpus * nodes for gpus, nodes in free.items())
    sizes = cluster.pod_sizes
    pods = sum(sizes.values())
    if whole <= 0 or not pods:
        return 0.0
    useless = sum(
        gpus * nodes * sum(number for size, number in sizes.items() if size > gpus) for gpus, nodes in free.items()
    )
    return useless / (whole * pods)


def quota_lines(cluster: VirtualCluster) -> dict[str, tuple[int | None, int | None]]:
    """What the quotas of each tenant say about GPUs now."""
    found: dict[str, tuple[int | None, int | None]] = {}
    tenants = cluster.tenants
    for row in quota_rows(cluster):
        figures = row.resources.get(GPU)
        names = (row.namespace, row.name, row.node.removeprefix("t-"))
        tenant = next((name for name in names if name in tenants), "")
        if figures is not None and tenant:
            found[tenant] = (_gpus(figures.min), _gpus(figures.max if figures.runtime is None else figures.runtime))
    return found


def quota_rows(cluster: VirtualCluster) -> list[QuotaRecord]:
    """The quotas of all policies, as lists show them."""
    cluster.write_statuses()
    found: list[QuotaRecord] = []
    for plugin, policy in cluster.registry.paired(cluster.engine.policies):
        if plugin.quotas.rows is not None:
            found.extend(plugin.quotas.rows(policy))
        for kind, read in plugin.quotas.objects.items():
            for stored in cluster.objects.all(kind):
                row = QuotaRecord(plugin.name, kind, stored.namespace, stored.name)
                read(row, stored.body, stored.written)
                found.append(row)
    return found


def _gpus(amount: int | None) -> int | None:
    """Whole GPUs of an amount in the units of its resource."""
    return None if amount is None else amount // dimension(GPU).parse(1)
