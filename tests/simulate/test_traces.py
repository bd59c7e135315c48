"""Public formats: what is read of them, what is left out, and what a bad row says."""

from pathlib import Path

import pytest

from bursar.objects.decode import ManifestError
from bursar.simulate.cluster import ARRIVED, EVICTED
from bursar.simulate.demand import GPU, HOUR, MILLI
from bursar.simulate.figures import figures_of
from bursar.simulate.formats import DemandOptions, demand_from, recognised
from bursar.simulate.helios import borrowing_bound
from bursar.simulate.kueue_generator import generator, summary
from bursar.simulate.quota_sets import quota_set
from bursar.simulate.run import Options, simulate
from bursar.simulate.traces import openb, philly
from tests.simulate import traces


def test_openb_pods_come_in_order_and_never_end(tmp_path: Path) -> None:
    demand = openb(traces.write_openb(tmp_path))
    assert [job.name for job in demand.jobs] == ["p0", "p1", "p2", "p3", "p4"]
    assert [job.arrives for job in demand.jobs] == [0, 1000, 2000, 3000, 4000]
    assert {job.runs for job in demand.jobs} == {None}
    assert [demand.gpus(job) for job in demand.jobs] == [460, 600, 4000, 0, 460]
    assert demand.capacity == 6 * MILLI
    assert len(demand.shapes) == 4


def test_openb_places_parts_of_gpus_models_and_whole_gpus(tmp_path: Path) -> None:
    demand = openb(traces.write_openb(tmp_path))
    run = simulate(demand, quota_set("no-quotas", demand), Options(explain=True))
    figures = figures_of(run)
    # p1 only fits the V100 node, so p2 finds three empty GPUs there and two on the other node: it waits.
    assert figures.allocated == pytest.approx(0.46 + 0.6 + 0.46)
    assert figures.total.started == 4
    assert sum(run.explained.values()) == 5
    assert run.explained["admitted"] == 4


def test_philly_leaves_out_tenants_without_a_size(tmp_path: Path) -> None:
    demand = philly(traces.write_philly(tmp_path))
    assert [(job.tenant, job.arrives, job.runs) for job in demand.jobs] == [
        ("vca", 0, 2 * HOUR),
        ("vcb", HOUR, HOUR),
    ]
    assert demand.shares == {"vca": 3, "vcb": 1}
    assert demand.notes == ["1 jobs of 1 tenants without a known size are left out"]


def test_philly_needs_a_capacity(tmp_path: Path) -> None:
    folder = traces.write_philly(tmp_path)
    with pytest.raises(ManifestError, match="has no nodes: say how many GPUs"):
        demand_from(folder)
    demand = demand_from(folder, options=DemandOptions(capacity="50%"))
    assert [document.body["status"]["allocatable"] for document in demand.objects] == [{GPU: 3}]


def test_helios_bound_is_the_smaller_of_pending_and_idle(tmp_path: Path) -> None:
    bound = borrowing_bound(traces.write_helios(tmp_path))
    assert (bound.samples, bound.pending, bound.servable) == (2, 9, 4 + 2)
    assert bound.elsewhere == 4
    assert bound.both == 1
    assert bound.part == pytest.approx(6 / 9)
    assert [(one.name, one.pending, one.own_idle, one.waiting) for one in bound.tenants] == [
        ("a", 6, 0, 1),
        ("b", 3, 1, 1),
    ]


def test_generator_file_becomes_cohorts_of_queues(tmp_path: Path) -> None:
    file = tmp_path / "generator.yaml"
    file.write_text(traces.GENERATOR.format(limit=100))
    demand = generator(file)
    assert len(demand.jobs) == 2 * 2 * 4
    assert demand.capacity == 40 * MILLI
    assert demand.quotas is not None
    assert [document.body["metadata"]["name"] for document in demand.quotas.documents] == ["cohort-0", "cohort-1"]
    nodes = demand.quotas.documents[0].body["spec"]["nodes"]
    assert nodes["cohort-0"] == {"quota": {GPU: 20}, "hard": True}
    assert nodes["cohort-0-cq-1"] == {"parent": "cohort-0", "quota": {GPU: 10}}


def test_borrowing_limit_is_a_hard_node_above_the_queue(tmp_path: Path) -> None:
    file = tmp_path / "generator.yaml"
    file.write_text(traces.GENERATOR.format(limit=5))
    quotas = generator(file).quotas
    assert quotas is not None
    nodes = quotas.documents[0].body["spec"]["nodes"]
    assert nodes["cohort-0-cq-0-most"] == {"parent": "cohort-0", "quota": {GPU: 15}, "hard": True}
    assert nodes["cohort-0-cq-0"]["parent"] == "cohort-0-cq-0-most"


def test_generator_runs_with_the_summary_of_its_own_runner(tmp_path: Path) -> None:
    file = tmp_path / "generator.yaml"
    file.write_text(traces.GENERATOR.format(limit=100))
    demand = generator(file)
    assert demand.quotas is not None
    run = simulate(demand, demand.quotas)
    found = summary(run)
    # Each large workload takes its queue's whole quota for a second, and small ones have less priority.
    assert found["workloadClasses"]["large"] == {
        "count": 4,
        "totalEvictions": 0,
        "averageTimeToAdmissionMs": 0,
        "averageTimeToFinishMs": 1000,
    }
    small = found["workloadClasses"]["small"]
    assert small["count"] == 12
    assert small["averageTimeToFinishMs"] == small["averageTimeToAdmissionMs"] + 200
    assert small["totalEvictions"] == sum(what == EVICTED for _, what, _ in run.events)
    assert sum(what == ARRIVED for _, what, _ in run.events) == 16


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("philly.csv", "timestamp,duration\n", "line 1: has no column num_gpus"),
        ("philly.csv", traces.PHILLY_JOBS + "2017-10-09 07:00:00,-5,4,1,vca\n", "line 5: cannot be read: a job of 4"),
        ("philly.csv", traces.PHILLY_JOBS + "yesterday,5,4,1,vca\n", "line 5: cannot be read: Invalid isoformat"),
        ("philly.csv", traces.PHILLY_JOBS + "2017-10-09 07:00:00,nan,4,1,vca\n", "line 5: cannot be read: a job of 4"),
        ("philly_vc_nodes.csv", "vc,node num\nvca,1e3\n", "line 2: cannot be read: '1e3' is no whole number"),
        ("philly_vc_nodes.csv", "vc,node num\nother,1\n", "no job is of a tenant whose size is known"),
    ],
)
def test_bad_row_names_file_and_line(tmp_path: Path, file: str, text: str, problem: str) -> None:
    traces.write_philly(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(ManifestError) as error:
        philly(tmp_path)
    assert problem in str(error.value)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"reclaimWithinCohort: Any": "reclaimWithinCohort: Never"}, "only reclaimWithinCohort Any"),
        ({"request: 1}": "request: 0}"}, "must be at least 1"),
        ({"count: 3": "count: -3"}, "cannot be negative"),
        ({"count: 3": "count: 3000000"}, "more than 1,000,000 workloads"),
        ({"cohorts:": "teams:"}, "cohorts"),
    ],
)
def test_generator_that_cannot_be_run_is_refused(tmp_path: Path, change: dict[str, str], problem: str) -> None:
    text = traces.GENERATOR.format(limit=100)
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "generator.yaml"
    file.write_text(text)
    with pytest.raises(ManifestError, match=problem):
        generator(file)


def test_formats_are_recognised(tmp_path: Path) -> None:
    for name, write in (
        ("openb", traces.write_openb),
        ("philly", traces.write_philly),
        ("helios", traces.write_helios),
    ):
        folder = tmp_path / name
        folder.mkdir()
        assert recognised(write(folder)) == name
        named = "openb_pod_list_default.csv" if name == "openb" else next(folder.iterdir()).name
        if name != "philly":
            assert recognised(folder / named) == name
    assert recognised(tmp_path / "philly" / "philly.csv") == "philly"
    (tmp_path / "generator.yaml").write_text(traces.GENERATOR.format(limit=1))
    assert recognised(tmp_path / "generator.yaml") == "kueue"
    (tmp_path / "pods.yaml").write_text("kind: Pod\n")
    assert recognised(tmp_path / "pods.yaml") == "manifests"
    (tmp_path / "notes.txt").write_text("hello\n")
    with pytest.raises(ManifestError, match="no format that is known"):
        recognised(tmp_path / "notes.txt")
