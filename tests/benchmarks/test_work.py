import gc
import weakref
from itertools import islice

from benchmarks.timing import collector, rate
from benchmarks.work.arithmetic import MapNode, cycles, map_add, map_fits, map_leaves
from benchmarks.work.deciding import DROPPED, KEPT, SEALED, engine_over, growth, new_claims, run_emptying
from benchmarks.work.quantities import TEXTS
from benchmarks.work.tree import DIMENSIONS, TreePolicy, cost_of, parent_numbers
from bursar.engine.engine import Engine
from bursar.policies.results import Setting
from bursar.quantity import MILLI, UNIT, parse
from tests.reference_models.quantity import parse as parse_with_fractions


def test_the_tree_has_depth_four_and_six_dimensions() -> None:
    engine = engine_over(1_000)
    assert len(engine.state.accounts) == 1 + 10 + 100 + 1_000
    assert len(cost_of()) == len(DIMENSIONS) == 6
    claim = next(new_claims(1_000))
    engine.decide(claim)
    binding = claim.bindings[0]
    assert binding is not None
    assert [account.used.amount("cpu") for account in binding.accounts] == [1, 1, 1, 1]


def test_growth_means_ten_and_ten_thousand_accounts() -> None:
    assert [len(engine_over(leaves).state.accounts) for leaves in (7, 9_000)] == [10, 9_991]


def test_claims_differ_in_uid_and_name_and_reach_every_leaf() -> None:
    claims = list(islice(new_claims(100), 1_000))
    assert len({claim.uid for claim in claims}) == len({claim.name for claim in claims}) == 1_000
    assert len({claim.namespace for claim in claims}) == 100
    assert len({id(claim.spec) for claim in claims}) == 10


def test_pairs_leave_the_accounts_empty_and_two_records_each() -> None:
    for records, left in ((DROPPED, 0), (SEALED, 0), (KEPT, 2_400)):
        engine = engine_over(10)
        assert run_emptying(engine, list(islice(new_claims(10), 1_200)), records) == 1_200
        assert len(engine.journal.records) == left
        assert engine.version == 1 + 2_400
        assert not engine.state.claims
        assert not any(account.used.vector() for account in engine.state.accounts.values())


def test_maps_count_the_same_as_accounts() -> None:
    leaf = map_leaves()[-1]
    cost = dict(cost_of().pairs())
    assert map_fits(leaf, cost)
    map_add(leaf, cost, 1)
    depth, node = 0, leaf
    while True:
        assert node.used == cost
        depth += 1
        if node.parent is None:
            break
        node = node.parent
    assert depth == 4
    leaf.limits["cpu"] = 1
    assert not map_fits(leaf, cost)


def test_maps_share_their_parents() -> None:
    leaves = map_leaves()
    parents = {id(leaf.parent) for leaf in leaves}
    roots = {id(_root(leaf)) for leaf in leaves}
    assert (len(parents), len(roots)) == (len({lower for _, lower in parent_numbers(1_000)}), 1)


def _root(node: MapNode) -> MapNode:
    return node if node.parent is None else _root(node.parent)


def test_both_quantity_parsers_read_the_measured_texts_alike() -> None:
    for text in TEXTS:
        for resolution in (MILLI, UNIT):
            assert parse(text, resolution) == parse_with_fractions(text, resolution, False)


def test_the_collector_is_as_it_was_after_a_measurement() -> None:
    before = gc.isenabled()
    for wanted in (True, False):
        with collector(wanted):
            assert gc.isenabled() is wanted
        assert gc.isenabled() is before


def test_a_rate_is_steps_by_time_and_counts_the_first_run() -> None:
    calls: list[int] = []

    def work() -> int:
        calls.append(1)
        return 1_000

    assert rate(work, runs=3) > 0
    assert len(calls) == 3


def test_a_dropped_engine_leaves_nothing_behind() -> None:
    """Claims, accounts, changes and records are no business of the cyclic collector: none may close a cycle."""
    policy = TreePolicy("tree", 10)
    engine = Engine([policy])
    engine.configure([Setting("tree.Tree", "all", None)])
    for claim in islice(new_claims(10), 50):
        engine.decide(claim)
    gone = weakref.ref(policy)
    del policy, engine, claim
    gc.collect()
    assert gone() is None


def test_arithmetic_is_measured_with_accounts_and_with_maps() -> None:
    assert set(cycles(rounds=1)) == {"accounts", "maps"}


def test_growth_compares_a_small_ledger_with_a_large_one() -> None:
    found = growth(leaves=70, claims=100, count=10, with_collector=True)
    assert found["base"] > 0
    assert set(found) == {"base", "added"}
