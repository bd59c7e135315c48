"""What policies write to a status is what the definitions say: anything else the API server would drop in silence."""

from pathlib import Path

import msgspec
import pytest

from bursar.control.admission import known_kinds
from bursar.objects.crds import WrittenStatus
from bursar.objects.kinds import Kind
from bursar.policies.plugin import default_registry
from bursar.sim.cluster import Cluster
from bursar.sim.runner import _run
from bursar.sim.scenario import Scenario, load_scenarios

ROOT = Path(__file__).parent.parent.parent
KINDS = known_kinds(default_registry())
DEFINED = [kind for kind in KINDS if kind.group and kind.qualified]
SCENARIOS = load_scenarios([ROOT / "examples", ROOT / "tests" / "scenarios"], KINDS)


def statuses(cluster: Cluster) -> list[tuple[Kind, object]]:
    found = [(kind, manifest.get("status")) for kind in DEFINED for manifest in cluster.objects.list(kind.name)]
    return [(kind, status) for kind, status in found if status]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"{Path(s.source).stem}: {s.name}" for s in SCENARIOS])
def test_statuses_fit_their_definition(scenario: Scenario) -> None:
    cluster = Cluster()
    for step in scenario.steps:
        list(_run(cluster, step))
        for kind, status in statuses(cluster):
            if kind.status is not None or kind.strict:
                msgspec.convert(status, kind.status or WrittenStatus)


def test_there_are_statuses_of_most_kinds() -> None:
    seen: set[str] = set()
    for scenario in SCENARIOS:
        cluster = Cluster()
        for step in scenario.steps:
            list(_run(cluster, step))
        seen.update(kind.name for kind, _ in statuses(cluster))
    assert {kind.name for kind in DEFINED if kind.status is not None} <= seen | {"GPUPool.tensor-fusion.ai"}
