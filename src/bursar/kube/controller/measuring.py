"""Metrics of a replica, read when somebody scrapes."""

from __future__ import annotations

import platform
import resource
from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bursar._version import __version__
from bursar.kube.controller.process import Replica
from bursar.kube.controller.term import Term
from bursar.ledger.claims import STATES
from bursar.limits import UNLIMITED

Values = dict[tuple[str, ...], float]


class Metrics(Collector):
    """Everything that is worth an alert or a picture."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not read anything."""
        return ()

    def collect(self) -> Iterator[Metric]:
        replica = self._replica
        build: Values = {(__version__, platform.python_version()): 1}
        yield _gauge("bursar_build_info", "The version that runs; always 1.", ("version", "python"), build)
        yield _gauge("bursar_leader", "Whether this replica leads.", (), {(): float(replica.elector.leading)})
        yield _counter("bursar_terms", "Terms that ended, by why.", ("why",), _single(replica.ended))
        text = "Differences between ledger and cluster; must stay 0."
        yield _counter("bursar_ledger_differences", text, (), {(): replica.differences})
        dropped = _single(replica.recorder.dropped)
        yield _counter("bursar_events_dropped", "Events that were not written, by why.", ("why",), dropped)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        yield _gauge("bursar_resident_peak_bytes", "The most memory that the process had.", (), {(): peak})
        yield from self._calls()
        if replica.term is not None and replica.term.ready:
            yield from _term(replica.term)
            yield from _accounts(replica.term)

    def _calls(self) -> Iterator[Metric]:
        http = self._replica.api.http
        calls: Values = {(call.verb, call.resource): count for call, count in http.calls.items()}
        yield _counter("bursar_api_calls", "Calls of the API server.", ("verb", "resource"), calls)
        failures: Values = {
            (call.verb, call.resource, str(code)): count for (call, code), count in http.failures.items()
        }
        labels = ("verb", "resource", "code")
        yield _counter("bursar_api_failures", "Calls that failed; 0: no answer.", labels, failures)


def _term(term: Term) -> Iterator[Metric]:
    mirror = term.mirror
    states = Counter(STATES[claim.state] for claim in mirror.engine.state.claims.values())
    yield _gauge("bursar_claims", "Claims by state.", ("state",), _single(states))
    waiting = mirror.controller.queue.waiting()
    pending = Counter(mirror.controller.reason(claim.uid)[0] or "undecided" for claim in waiting)
    yield _gauge("bursar_claims_pending", "Claims that wait, by reason.", ("reason",), _single(pending))
    yield _counter("bursar_pods_started", "Pods that were let go in this term.", (), {(): term.writer.started})
    yield _counter("bursar_pods_evicted", "Pods that were evicted in this term.", (), {(): term.reclaimer.evicted})
    invalid = len(mirror.objects.invalid)
    yield _gauge("bursar_objects_invalid", "Objects whose last change is not in force.", (), {(): invalid})
    if mirror.shadow is not None:
        verdicts = _single(mirror.shadow.counts)
        yield _counter("bursar_shadow_findings", "What would have been decided, by verdict.", ("verdict",), verdicts)


def _accounts(term: Term) -> Iterator[Metric]:
    used: Values = {}
    limit: Values = {}
    for account in term.mirror.engine.state.accounts.values():
        for name, amount in account.used.vector().pairs():
            used[account.policy, account.name, name] = amount
        for name, most in account.limits.listed.items():
            if most < UNLIMITED:
                limit[account.policy, account.name, name] = most
    labels = ("policy", "account", "resource")
    yield _gauge("bursar_account_used", "What counts in an account, in the smallest unit.", labels, used)
    yield _gauge("bursar_account_limit", "The limit of an account, in the smallest unit.", labels, limit)


def _single(counted: Counter[str]) -> Values:
    return {(label,): count for label, count in counted.items()}


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Values) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=labels), values)


def _counter(name: str, text: str, labels: tuple[str, ...], values: Values) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for labels, value in values.items():
        family.add_metric(list(labels), value)
    return family
