"""Runs: what happens to jobs under quotas, by hand-counted cases, and that a run is what the engine decides."""

from dataclasses import replace
from pathlib import Path

import pytest

from bursar.audit.auditor import Auditor
from bursar.objects.manifests import load_text
from bursar.simulate.cluster import ARRIVED, ENDED, EVICTED, STARTED
from bursar.simulate.demand import HOUR, JobDemand, QuotaSet
from bursar.simulate.figures import Figures, figures_of, jain
from bursar.simulate.manifest_demand import from_documents
from bursar.simulate.quota_sets import BUILT_IN, quota_set, tenant_shares
from bursar.simulate.run import Options, Run, simulate
from tests.simulate.traces import demand_of

# a has the whole cluster of 8 from 0 on; b comes an hour later and asks for its half.
LENT = demand_of(("a", 4, 0, 4), ("a", 4, 0, 4), ("b", 4, 1, 1))


def ran(demand: JobDemand, quotas: str, **options: bool) -> tuple[Run, Figures]:
    run = simulate(demand, quota_set(quotas, demand), Options(**options))
    return run, figures_of(run)


def starts(run: Run) -> list[tuple[str, float]]:
    return [(run.demand.jobs[position].name, at / HOUR) for at, what, position in run.events if what == STARTED]


def test_hard_caps_let_a_tenant_wait_beside_idle_gpus() -> None:
    run, figures = ran(LENT, "hard-caps")
    assert starts(run) == [("j0", 0), ("j2", 1), ("j1", 4)]
    assert figures.total.waited == 4 * 4
    assert figures.total.evictions == 0


def test_elastic_quota_lends_and_takes_back() -> None:
    run, figures = ran(LENT, "elastic")
    # j1 runs on what b leaves idle for an hour, is evicted for j2, and begins again when j2 has ended.
    assert starts(run) == [("j0", 0), ("j1", 0), ("j2", 1), ("j1", 2)]
    assert figures.total.evictions == 1
    assert figures.total.lost == 4
    assert figures.total.waited == 4
    assert run.events[-1] == (6 * HOUR, ENDED, 1)


def test_resumed_job_goes_on_from_where_it_was() -> None:
    run, figures = ran(LENT, "elastic", resumes=True)
    assert run.events[-1] == (5 * HOUR, ENDED, 1)
    assert figures.total.lost == 0
    assert figures.total.used == 4 * 4 + 4 * 4 + 4


@pytest.mark.parametrize("quotas", list(BUILT_IN))
def test_every_job_comes_and_ends_once_and_no_gpu_is_used_twice(quotas: str) -> None:
    jobs = [("abc"[n % 3], 1 + n % 4, n / 7, 0.5 + n % 5) for n in range(60)]
    run, figures = ran(demand_of(*jobs, nodes=2), quotas)
    for what in (ARRIVED, ENDED):
        assert sorted(position for _, kind, position in run.events if kind == what) == list(range(60))
    kinds = [kind for _, kind, _ in run.events]
    assert kinds.count(STARTED) == 60 + kinds.count(EVICTED)
    busy = 0
    for _, what, position in run.events:
        gpus = run.demand.gpus(run.demand.jobs[position])
        busy += gpus if what == STARTED else -gpus if what in {EVICTED, ENDED} else 0
        assert 0 <= busy <= run.demand.capacity
    assert busy == 0
    assert figures.total.finished == figures.total.jobs == 60
    work = sum(run.demand.gpus(job) * (job.runs or 0) for job in run.demand.jobs) / HOUR / 1000
    assert figures.total.used == pytest.approx(work + figures.total.lost)


def test_gang_starts_and_is_evicted_as_a_whole() -> None:
    demand = demand_of(("a", 2, 0, 4), ("a", 2, 0, 4), ("b", 2, 1, 1), nodes=2, gpus=4, pods=2)
    run, figures = ran(demand, "elastic")
    assert starts(run) == [("j0", 0), ("j1", 0), ("j2", 1), ("j1", 2)]
    assert figures.total.evictions == 1
    assert figures.total.lost == 4


def test_job_that_no_quota_admits_waits_until_the_end_with_its_reason() -> None:
    run, figures = ran(demand_of(("a", 6, 0, 1), ("b", 2, 0, 4)), "hard-caps")
    assert run.waiting == {"elastic.max.nvidia.com/gpu": 1}
    assert figures.total.started == 1
    assert figures.total.waits == [0, 4 * HOUR]


def test_same_input_gives_the_same_run_and_a_journal_that_the_auditor_accepts() -> None:
    jobs = [("ab"[n % 2], 1 + n % 3, n / 5, 1 + n % 4) for n in range(30)]
    lines: list[list[bytes]] = [[], []]
    for kept in lines:
        demand = demand_of(*jobs)
        simulate(demand, quota_set("elastic", demand), keep=kept.extend)
    assert lines[0] == lines[1]
    auditor = Auditor()
    for line in lines[0]:
        auditor.feed(line)
    assert auditor.counts["decisions"] > 30


def test_run_stops_at_a_time() -> None:
    run = simulate(LENT, quota_set("hard-caps", LENT), Options(until=2 * HOUR))
    assert run.events[-1][0] <= 2 * HOUR


def test_manifests_say_when_pods_come_and_how_long_they_run() -> None:
    documents = load_text(
        """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {nvidia.com/gpu: 2}}
---
apiVersion: v1
kind: Pod
metadata:
  namespace: team
  name: nightly
  annotations:
    sim.bursar.dev/runs-for: 1h
    sim.bursar.dev/arrives-after: 30m
    sim.bursar.dev/repeats: "3"
    sim.bursar.dev/every: 15m
spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}
""",
        "demand.yaml",
    )
    demand = from_documents(documents, "demand")
    run = simulate(demand, QuotaSet("none"))
    assert starts(run) == [("nightly-0", 0.5), ("nightly-1", 0.75), ("nightly-2", 1.5)]


def test_quota_of_a_tenant_is_sampled_beside_its_use() -> None:
    run, _ = ran(LENT, "elastic")
    assert run.samples[0].quotas == {"a": (4, None), "b": (4, None)}


def test_shares_follow_the_trace_or_else_what_tenants_use() -> None:
    demand = demand_of(("a", 4, 0, 3), ("b", 4, 1, 1))
    assert tenant_shares(demand) == {"a": 4, "b": 4}
    assert tenant_shares(replace(demand, shares={})) == {"a": 6, "b": 2}


def test_user_manifests_are_a_quota_set(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "apiVersion: n8s.nebuly.ai/v1alpha1\nkind: ElasticQuota\nmetadata: {namespace: a, name: q}\n"
        "spec: {min: {nvidia.com/gpu: 4}, max: {nvidia.com/gpu: 4}}\n"
    )
    found = quota_set(f"tight={file}", LENT)
    assert found.name == "tight"
    assert quota_set(str(file), LENT).name == "mine"
    run = simulate(LENT, found)
    assert starts(run) == [("j0", 0), ("j2", 1), ("j1", 4)]


@pytest.mark.parametrize(
    ("values", "expected"), [([1.0, 1.0], 1.0), ([1.0, 0.0], 0.5), ([0.5, 1.0], 0.9), ([], 1.0), ([0.0, 0.0], 1.0)]
)
def test_jain(values: list[float], expected: float) -> None:
    assert jain(values) == pytest.approx(expected)
