"""What came and went leaves nothing: no claims, accounts, cells, nor entries in anything that policies derive.

A cluster lives through the objects and pods of many scenarios in random order. Then all of them are deleted in random
order, and every container that can be reached from the engine is as long as in a new cluster.
"""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

import pytest

from bursar.control.admission import known_kinds
from bursar.engine.engine import Engine
from bursar.ledger.claims import Claim, ClaimSpec
from bursar.objects.decode import ManifestError
from bursar.policies.namespace.policy import LimitsPolicy
from bursar.policies.plugin import default_registry
from bursar.policies.pools.node_pools import NodePools, PoolNode
from bursar.policies.pools.parse import stored_quota
from bursar.policies.pools.policy import PoolsPolicy
from bursar.policies.results import Setting
from bursar.resources import from_amounts
from bursar.sim.cluster import Cluster
from bursar.sim.runner import act
from bursar.sim.scenario import Step, load_scenarios

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = load_scenarios([ROOT / "examples", ROOT / "tests" / "scenarios"], known_kinds(default_registry()))
AN_HOUR = 3_600_000
Sizes = dict[str, int]

_BOUNDED = {
    # Caches of a fixed size.
    *("BindingCache.bindings", "BindingCache.bindings[]", "Core.known", "CostCache.known", "GpuNodeIndex.rankings"),
    *("GpuNodeIndex.shapes", "NodeColumns.changes", "NodeColumns.shares", "NodePools.fitting", "NodePools.fitting[]"),
    *(
        "Exclusions.classes",
        "NodeMasks.allowed",
        "NodeMasks.selected",
        "NodesPolicy.costs",
        "Patterns.known",
        "PossibleNodes.known",
        "PoolBindings.cache",
        "Recall.departed",
        "Scope.reasons",
        "VictimRules.words",
    ),
    *("PluginSets.slice_costs", "PluginSets.whole_costs", "SliceCache.known", "WorkerCache.known", "_Ranks.ranks"),
    # What these and journal records hold, and what a store takes.
    *(f"ClaimSpec.details{'[]' * depth}" for depth in range(6)),
    *("ClaimSpec.annotations", "ClaimSpec.labels", "Concerned.placing", "Concerned.policies", "Concerned.quotas"),
    *("GangDecisions.decisions", "Journal.records", "Limits.listed", "NodeNeeds.selector"),
    # Kinds of what was written; resources; the GPUs of a view that is made again when it is needed.
    *[f"{policy}StatusWriter.last" for policy in ("Elastic", "Gpu", "Namespace", "Node", "Pool", "Tree")],
    *("State.tables", "Table.cells"),  # options
    *("Forest.dims", "Forest.slot_at", "GpuMemory.sizes", "NodeColumns.by_dimension", "DerivedState.needs"),
    *[f"Fleet.{part}" for part in ("accounts", "gpus", "log", "modes", "spans", "suiting")],
    *("UnitTable.offered", "UnitTable.resources", "Units.by_node", "Units.kinds", "Units.unknown"),
    *("GpusPolicy.plugin_costs", "SuitingGpus.kinds", "UnitRequests.known"),
    *[f"GpuNodeIndex.{part}" for part in ("changes", "positions", "span_at", "spans")],
    "Wakeups.moves",  # of one moment
    # One slot for each node that was ever there.
    *(
        "NodeMasks.facts",
        "NodeIndex.names",
        "NodeIndex.slots",
        "NodeResidentIndex.residents",
        "NodeResidentIndex.slots",
    ),
    *("NodeIndex.changed", "QuotaNodeIndex.facts", "QuotaNodeIndex.slots"),
}


def parts(thing: object) -> dict[str, Any]:
    """The attributes of an object, compiled or not."""
    found = dict(getattr(thing, "__dict__", {}))
    for name in dir(type(thing)):
        kind = getattr(type(thing), name, None)
        if not name.startswith("__") and isinstance(kind, GetSetDescriptorType | MemberDescriptorType):
            found[name] = getattr(thing, name, None)
    return found


def sizes(root: object) -> Sizes:
    """How many entries all containers have together that can be reached, by class and attribute."""
    found: Sizes = {}
    seen = set[int]()
    todo: list[tuple[str, object]] = [("", root)]
    while todo:
        path, thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, dict):
            found[path] = found.get(path, 0) + len(thing)
            todo += [(f"{path}[]", item) for pair in thing.items() for item in pair]
        elif isinstance(thing, list | set | frozenset | tuple | deque):
            if not isinstance(thing, tuple):
                found[path] = found.get(path, 0) + len(thing)
            todo += [(f"{path}[]", item) for item in thing]
        elif type(thing).__module__.startswith("bursar") and not isinstance(thing, type):
            todo += [(f"{type(thing).__name__}.{name}", part) for name, part in parts(thing).items()]
    return found


def lived(seed: int) -> Cluster:
    """A cluster in which much has happened."""
    chance = random.Random(seed)
    cluster = Cluster()
    steps = [step for scenario in chance.sample(SCENARIOS, 30) for step in scenario.steps]
    for step in chance.sample(steps, len(steps)):
        for part in single(step):
            try:
                act(cluster, part)
            except ManifestError:  # many do not fit together
                continue
    assert len(cluster.engine.state.claims) > 20
    return cluster


def single(step: Step) -> list[Step]:
    """A step for each object that it applies; ends and deletions are left out."""
    if step.action == "apply":
        return [Step(step.number, "apply", documents=(document,)) for document in step.documents]
    return [step] if step.action == "advance" else []


def clear(cluster: Cluster, seed: int) -> None:
    """Delete everything, in random order; what others still use waits for its turn."""
    chance = random.Random(seed)
    for _ in range(20):
        there = [(kind, stored.key) for kind in cluster.kinds for stored in cluster._store.all(kind.name)]
        for kind, key in chance.sample(there, len(there)):
            try:
                cluster.delete([(kind, key)])
            except ManifestError:
                continue
        cluster.advance(AN_HOUR)
    assert not [stored.key for kind in cluster.kinds for stored in cluster._store.all(kind.name)]


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_left_of_what_came_and_went(seed: int) -> None:
    fresh, cluster = Cluster(), lived(seed)
    fresh.settle()
    empty, full = sizes(fresh.engine), sizes(cluster.engine)
    clear(cluster, seed)
    state = cluster.engine.state
    assert not state.claims
    assert not state.accounts
    tables = {table: sorted(state.cells(table)) for table in state.tables}
    assert tables == {"pools.options": [""]}
    left = {path: n for path, n in sizes(cluster.engine).items() if n > empty.get(path, 0)}
    assert {path: n for path, n in left.items() if path not in _BOUNDED} == {}
    assert sum(full.values()) > 3 * sum(empty.values()), "there was something"


def test_namespaces_leave_no_accounts() -> None:
    engine = Engine(default_registry().policies())
    for number in range(500):
        spec = ClaimSpec(annotations={"tensor-fusion.ai/tflops-request": "1"}, placeable=False)
        claim = Claim(f"u{number}", spec, number, f"ns{number}", "worker")
        engine.submit(claim)
        assert f"limits/ns{number}" in engine.state.accounts
        if number % 2:
            engine.admit(claim)
            engine.release(claim.uid)
        else:
            engine.release(claim.uid)
    assert not engine.state.accounts
    assert not engine.state.namespaces
    (limits,) = (policy for policy in engine.policies if isinstance(policy, LimitsPolicy))
    assert (limits.residents, limits.unviewed, limits.costs.bindings) == ({}, {}, {})


def test_removed_pool_quotas_leave_no_branches() -> None:
    policy = PoolsPolicy()
    engine = Engine([policy])
    engine.configure([pool_quota("first")])
    forest = policy.derived.forest
    before = len(forest.branches), len(policy.derived.roles), len(engine.state.accounts), len(forest.trees)
    for number in range(300):
        engine.configure([pool_quota(f"q{number}")])
        claim = Claim(f"u{number}", ClaimSpec(from_amounts({"cpu": 1000})), number, f"q{number}", "pod")
        engine.admit(claim)
        engine.configure([Setting("pools.Quota", f"q{number}/q{number}", None)])
        engine.release(claim.uid)
    after = len(forest.branches), len(policy.derived.roles), len(engine.state.accounts), len(forest.trees)
    assert after == before


def pool_quota(name: str) -> Setting:
    body = stored_quota({"metadata": {"namespace": name, "name": name}, "spec": {"max": {"cpu": "4"}}})
    return Setting("pools.Quota", f"{name}/{name}", body)


def test_requests_that_fit_a_node_are_remembered_within_a_bound() -> None:
    pools = NodePools()
    pools.node_changed("n", PoolNode({"cpu": 1000}, {}))
    for amount in range(1, 5000):
        assert pools.could_take("", from_amounts({"cpu": amount})) == (amount <= 1000)
    assert len(pools.fitting[""]) < 4200
    pools.node_changed("n", PoolNode({"cpu": 4999}, {}))
    assert pools.could_take("", from_amounts({"cpu": 4999}))
