"""Metrics for Prometheus.

Gauges are read from the cluster at a scrape, and its lock is held only while numbers are copied. The text is rendered
outside of the lock, at most once a second.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bursar._version import __version__
from bursar.ledger.claims import STATES
from bursar.policies.quota_table import QuotaFigures, QuotaRecord
from bursar.resources import dimension
from bursar.server import quotas, rows
from bursar.server.background import AuditWatch
from bursar.server.copies import Copies
from bursar.server.machines import machine_figures
from bursar.server.quotas import Gathered
from bursar.server.service import Service
from bursar.sim.cluster import Cluster

Values = Mapping[Any, float]  # by the values of the labels
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_CACHED_FOR = 1.0
_QUOTA_LABELS = ("policy", "kind", "namespace", "quota", "node", "resource")
_FIGURES: tuple[tuple[str, str, Callable[[QuotaFigures], int | None]], ...] = (
    ("used", "what decisions count", lambda f: f.used),
    ("min", "what is guaranteed", lambda f: f.min),
    ("max", "what is allowed at most", lambda f: f.max),
    ("runtime", "what the quota may use now", lambda f: f.runtime),
    ("borrowed", "used beyond what is guaranteed", lambda f: f.borrowed),
    ("lent", "guaranteed, and used by others now", lambda f: f.lent),
)


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The numbers of one moment."""

    quotas: Gathered
    nodes: list[tuple[str, dict[str, int], dict[str, int]]]  # (name, allocatable, used)
    states: Counter[str]
    pending: Counter[str]
    policies: dict[tuple[str, str], int]  # by policy and what it counted
    seq: int
    objects: int


def snapshot(cluster: Cluster) -> MetricsSnapshot:
    """The caller holds the cluster's lock."""
    states: Counter[str] = Counter(STATES[claim.state] for claim in cluster.engine.state.claims.values())
    pending: Counter[str] = Counter()
    for claim in cluster.controller.queue.waiting():
        pending[cluster.controller.reason(claim.uid)[0] or "undecided"] += 1
    nodes: list[tuple[str, dict[str, int], dict[str, int]]] = []
    for stored in cluster.objects.all("Node"):
        account = cluster.engine.state.accounts.get(rows.NODE_PREFIX + stored.key)
        if account is not None:
            listed = {name: most for name, most in account.limits.listed.items() if most < 2**62}
            nodes.append((stored.key, listed, dict(account.used.vector().pairs())))
    engine = cluster.engine
    counted = {(policy.name, name): count for policy in engine.policies for name, count in policy.counters().items()}
    return MetricsSnapshot(
        quotas.gather(cluster), nodes, states, pending, counted, engine.version, cluster.objects.count()
    )


class ServerMetrics(Collector):
    def __init__(self, service: Service, audit: AuditWatch | None, copies: Copies) -> None:
        self._service = service
        self._copies = copies
        self._audit = audit
        self._lock = Lock()
        self._rendered = (0.0, b"")
        self.registry = CollectorRegistry()
        self.requests = Histogram(
            "bursar_http_request_duration_seconds",
            "Time to answer a request, streams left out.",
            ("operation", "status"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.changes = Histogram(
            "bursar_change_duration_seconds",
            "Time from a change being taken to it being on the disk.",
            ("verb",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.registry.register(self)

    def render(self) -> bytes:
        with self._lock:
            at, text = self._rendered
            if time.monotonic() - at > _CACHED_FOR or not text:
                text = generate_latest(self.registry)
                self._rendered = (time.monotonic(), text)
            return text

    def describe(self) -> Iterable[Metric]:
        """Nothing, because registering must not read the cluster."""
        return ()

    def collect(self) -> Iterator[Metric]:
        numbers, _ = self._service.read(snapshot)
        build = (__version__, platform.python_version())
        yield _gauge("bursar_build_info", "The version that runs; always 1.", ("version", "python"), {build: 1})
        yield from _quota_metrics(numbers.quotas.quotas())
        yield from _node_metrics(numbers)
        yield _gauge("bursar_claims", "Claims by state.", ("state",), _single(numbers.states))
        yield _gauge("bursar_claims_pending", "Claims that wait, by reason.", ("reason",), _single(numbers.pending))
        tally = self._service.tally
        decisions = dict(sorted(tally.decisions.items()))
        yield _counter("bursar_decisions", "Decisions by outcome.", ("outcome", "reason"), decisions)
        yield _counter("bursar_evictions", "Pods told to leave, by reason.", ("reason",), _single(tally.evictions))
        yield _counter("bursar_journal_records", "Journal records by cause.", ("cause",), _single(tally.records))
        yield _counter("bursar_pod_events", "What happened to pods.", ("event",), _single(tally.pods))
        yield _counter("bursar_policy_events", "What policies counted.", ("policy", "event"), numbers.policies)
        for one in machine_figures(self._service.machines.rows()):
            yield _gauge(one.name, one.about, one.labels, one.values)
        yield from self._service_metrics(numbers)

    def _service_metrics(self, numbers: MetricsSnapshot) -> Iterator[Metric]:
        service, audit = self._service, self._audit
        yield _gauge("bursar_journal_seq", "The last journal record.", (), {(): numbers.seq})
        yield _gauge("bursar_objects", "Objects that are there.", (), {(): numbers.objects})
        yield _gauge("bursar_accepting_changes", "1 while changes are taken.", (), {(): service.error is None})
        about = "How often the state was made again from the file, after a write had failed."
        yield _counter("bursar_state_reloads", about, (), {(): service.rebuilds})
        about = "How far the server's time is ahead of the clock of its machine; 0 unless that was set back."
        yield _gauge("bursar_clock_ahead_seconds", about, (), {(): service.ahead / 1000})
        yield _gauge("bursar_listeners", "Live streams and threads that hear of batches.", (), {(): len(service.hub)})
        waiting = {(): self._copies.waiting}
        yield _gauge("bursar_copy_questions_waiting", "Questions that wait for a copy of the cluster.", (), waiting)
        processes = {(): len(self._copies.pids)}
        yield _gauge("bursar_copy_processes", "Processes that have a copy of the cluster.", (), processes)
        if audit is not None:
            failures = {(): audit.failures}
            yield _counter("bursar_audit_failures", "Records that cannot be true. Must stay 0.", (), failures)
            yield _gauge("bursar_audited_seq", "The last record found to be right.", (), {(): audit.audited})


def _quota_metrics(found: list[QuotaRecord]) -> Iterator[Metric]:
    for name, about, figure in _FIGURES:
        values = {
            (quota.policy, quota.kind, quota.namespace, quota.name, quota.node, resource): _units(resource, amount)
            for quota in found
            for resource, figures in quota.resources.items()
            if (amount := figure(figures)) is not None
        }
        yield _gauge(f"bursar_quota_{name}", f"Quotas: {about}.", _QUOTA_LABELS, values)


def _node_metrics(numbers: MetricsSnapshot) -> Iterator[Metric]:
    allocatable, used = (
        {(node, name): _units(name, amount) for node, *sides in numbers.nodes for name, amount in sides[side].items()}
        for side in (0, 1)
    )
    yield _gauge("bursar_node_allocatable", "What a node has.", ("node", "resource"), allocatable)
    yield _gauge("bursar_node_used", "What decisions count on a node.", ("node", "resource"), used)


def _units(resource: str, amount: int) -> float:
    """Whole units, as Prometheus has it: cores, bytes, GPUs."""
    return amount / dimension(resource).resolution


def _single(counted: Counter[str]) -> Values:
    return {(label,): count for label, count in sorted(counted.items())}


def _gauge(name: str, about: str, labels: tuple[str, ...], values: Values) -> Metric:
    return _filled(GaugeMetricFamily(name, about, labels=labels), values)


def _counter(name: str, about: str, labels: tuple[str, ...], values: Values) -> Metric:
    return _filled(CounterMetricFamily(name, about, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
