"""Metrics and health of a replica: /metrics, /healthz, /readyz, /leaderz over plain HTTP.

The number of series depends on the quotas, not on the size of the cluster: nodes and GPUs appear as sums. Long
families are read in slices and the text is written in a thread, so that a scrape never costs the lease. A replica that
does not lead is ready as soon as it can serve webhooks.
"""

from __future__ import annotations

import asyncio
import platform
import resource
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bursar._version import __version__
from bursar.kube.controller.leader_term import LeaderTerm
from bursar.kube.controller.replica import Replica
from bursar.kube.http_server import Message, Receive, Send
from bursar.ledger.claims import STATES
from bursar.ledger.state import Account
from bursar.policies.policy import PlacementPolicy
from bursar.resources import UNLIMITED

T = TypeVar("T")
Values = dict[tuple[str, ...], float]
SLICE = 250


class ControllerMetrics:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    async def render(self) -> bytes:
        families = list(self._process())
        term = self._replica.term
        if term is not None and term.ready:
            families += [*_term(term), *await _claims(term), *await _accounts(term)]
        return await asyncio.to_thread(generate_latest, Families(families))

    def _process(self) -> Iterator[Metric]:
        replica = self._replica
        build: Values = {(__version__, platform.python_version()): 1}
        yield gauge("bursar_build_info", "The version that runs; always 1.", ("version", "python"), build)
        yield gauge("bursar_leader", "Whether this replica leads.", (), {(): float(replica.election.leading)})
        yield counter("bursar_terms", "Terms that ended, by why.", ("why",), single(replica.ended))
        text = "Differences between ledger and cluster; must stay 0."
        yield counter("bursar_ledger_differences", text, (), {(): replica.differences})
        dropped = single(replica.recorder.dropped)
        yield counter("bursar_events_dropped", "Events that were not written, by why.", ("why",), dropped)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        yield gauge("bursar_resident_peak_bytes", "The most memory that the process had.", (), {(): peak})
        yield gauge("bursar_resident_bytes", "The memory of the process now.", (), {(): resident()})
        yield from self._calls()

    def _calls(self) -> Iterator[Metric]:
        http = self._replica.api.http
        calls: Values = {(call.verb, call.resource): count for call, count in http.calls.items()}
        yield counter("bursar_api_calls", "Calls of the API server.", ("verb", "resource"), calls)
        failures: Values = {
            (call.verb, call.resource, str(code)): count for (call, code), count in http.failures.items()
        }
        labels = ("verb", "resource", "code")
        yield counter("bursar_api_failures", "Calls that failed; 0: no answer.", labels, failures)


class Families(Collector):
    """What was read already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def resident() -> int:
    """0 where the system has no such file."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * resource.getpagesize() if statm.exists() else 0


def _term(term: LeaderTerm) -> Iterator[Metric]:
    mirror = term.mirror
    yield counter("bursar_pods_started", "Pods that were ungated in this term.", (), {(): term.writer.started})
    yield counter("bursar_pods_evicted", "Pods that were evicted in this term.", (), {(): term.evictor.evicted})
    unbound, recovered = single(term.places.overdue), single(term.places.recovered)
    text = "Started pods that are not bound in time, by obstacle."
    yield gauge("bursar_pods_unscheduled", text, ("obstacle",), unbound)
    text = "Places of pods that were not bound in time, by what was done, in this term."
    yield counter("bursar_places_recovered", text, ("how",), recovered)
    invalid = len(mirror.objects.invalid)
    yield gauge("bursar_objects_invalid", "Objects whose last change is not in force.", (), {(): invalid})
    cached: Values = {("specs",): mirror.controller.specs.bytes, ("readings",): mirror.pods.gated_pods.bytes}
    yield gauge("bursar_cache_bytes", "What caches of pods weigh, estimated.", ("cache",), cached)
    if mirror.shadow is not None:
        verdicts = single(mirror.shadow.counts)
        yield counter("bursar_shadow_findings", "What would have been decided, by verdict.", ("verdict",), verdicts)


async def _claims(term: LeaderTerm) -> list[Metric]:
    controller, claims = term.mirror.controller, term.mirror.engine.state.claims
    states: Counter[str] = Counter()
    pending: Counter[str] = Counter()
    async for claim in _sliced(claims.values()):
        states[STATES[claim.state]] += 1
    async for claim in _sliced(controller.queue.waiting()):
        pending[controller.reason(claim.uid)[0] or "undecided"] += 1
    return [
        gauge("bursar_claims", "Claims by state.", ("state",), single(states)),
        gauge("bursar_claims_pending", "Claims that wait, by reason.", ("reason",), single(pending)),
    ]


async def _accounts(term: LeaderTerm) -> list[Metric]:
    state, policies = term.mirror.engine.state, term.mirror.engine.policies
    places = {policy.name for policy in policies if isinstance(policy, PlacementPolicy)}
    quotas, sums = _Amounts(), _Amounts()
    async for account in _sliced(state.accounts.values()):
        if account.physical:
            sums.add((account.policy,), account)
        elif account.policy not in places:
            quotas.add((account.policy, account.name), account)
    each, together = ("policy", "account", "resource"), ("policy", "resource")
    return [
        gauge("bursar_account_used", "What counts in a quota, in the smallest unit.", each, quotas.used),
        gauge("bursar_account_limit", "The limit of a quota, in the smallest unit.", each, quotas.limit),
        gauge("bursar_nodes_used", "What counts on all nodes, or all their GPUs, together.", together, sums.used),
        gauge("bursar_nodes_limit", "What all nodes, or all their GPUs, have together.", together, sums.limit),
    ]


class _Amounts:
    """Sums of accounts, by whatever they are told apart by and the resource."""

    def __init__(self) -> None:
        self.used: Values = {}
        self.limit: Values = {}

    def add(self, who: tuple[str, ...], account: Account) -> None:
        for name, amount in account.used.vector().pairs():
            self.used[*who, name] = self.used.get((*who, name), 0) + amount
        for name, most in account.limits.listed.items():
            if most < UNLIMITED:
                self.limit[*who, name] = self.limit.get((*who, name), 0) + most


async def _sliced(things: Iterable[T]) -> AsyncIterator[T]:
    """All of them as they are at the start; others get their turn in between."""
    for index, one in enumerate(list(things)):
        if index % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        yield one


def single(counted: Counter[str]) -> Values:
    return {(label,): count for label, count in counted.items()}


def gauge(name: str, text: str, labels: tuple[str, ...], values: Values) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=labels), values)


def counter(name: str, text: str, labels: tuple[str, ...], values: Values) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for labels, value in values.items():
        family.add_metric(list(labels), value)
    return family


class HealthApp:
    def __init__(
        self,
        unready: Callable[[], list[str]],
        metrics: Callable[[], Awaitable[bytes]],
        leads: Callable[[], int | None] = lambda: None,
    ) -> None:
        """``leads``: the term in which this replica decides; None: it does not."""
        self._unready = unready
        self._leads = leads
        self._metrics = metrics

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, text = await self._answer(scope["path"])
        kind = b"text/plain; version=0.0.4; charset=utf-8"
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": text})

    async def _answer(self, path: str) -> tuple[int, bytes]:
        if path == "/healthz":
            return 200, b"ok\n"
        if path == "/readyz":
            missing = self._unready()
            return (503, "".join(f"{one}\n" for one in missing).encode()) if missing else (200, b"ok\n")
        if path == "/leaderz":
            term = self._leads()
            return (503, b"does not lead\n") if term is None else (200, f"leads, term {term}\n".encode())
        if path == "/metrics":
            return 200, await self._metrics()
        return 404, b"there are /healthz, /readyz, /leaderz and /metrics\n"
