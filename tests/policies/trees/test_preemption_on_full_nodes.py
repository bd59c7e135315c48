"""Claims of quota trees on full nodes: whom they displace, and that the search costs no trial for every node."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from random import Random

import pytest

from bursar.engine.engine import Engine
from bursar.engine.preemption_trial import Trial, makes_room
from bursar.ledger.claims import RUNNING, Binding, Claim, ClaimSpec
from bursar.policies.nodes.policy import KIND as NODE
from bursar.policies.nodes.policy import NodesPolicy
from bursar.policies.nodes.rules import NodeBody
from bursar.policies.results import Setting
from bursar.policies.rights import NEVER_NAMED
from bursar.policies.trees.policy import KIND as TREE
from bursar.policies.trees.policy import TreesPolicy
from bursar.policies.trees.preemption import needed_at_root
from bursar.policies.trees.records import LABEL, TreeBody, TreeNodeBody
from bursar.resources import Limits, from_amounts

GPU = "gpu"


class Cluster:
    """Nodes of some GPUs, and a tree T with a root and groups below it."""

    def __init__(self, sizes: list[int], root: int, groups: dict[str, int]) -> None:
        self.engine = Engine([TreesPolicy(), NodesPolicy()])
        nodes = {"root": TreeNodeBody("root", "", False, {GPU: root})}
        nodes |= {name: TreeNodeBody(name, "root", False, {GPU: gpus}) for name, gpus in groups.items()}
        self.engine.configure([Setting(TREE, "T", TreeBody((GPU,), nodes))])
        self.engine.configure([Setting(NODE, f"n{i}", NodeBody(Limits({GPU: size}))) for i, size in enumerate(sizes)])
        self.number = 0

    def claim(self, uid: str, group: str, gpus: int = 1, priority: int = 0) -> Claim:
        self.number += 1
        labels = {f"{LABEL}T": group} if group else {}
        spec = ClaimSpec(from_amounts({GPU: gpus}), labels=labels, priority=priority)
        claim = Claim(uid, spec, self.number, "ns", uid)
        self.engine.submit(claim)
        return claim

    def run(self, uid: str, group: str, node: str, gpus: int = 1, priority: int = 0) -> None:
        claim = self.claim(uid, group, gpus, priority)
        self.engine.place(claim.uid, node, forced=True)
        self.engine.observe(uid, RUNNING)

    def ask(self, group: str, gpus: int = 1, priority: int = 0) -> tuple[str, list[str]]:
        decision = self.engine.decide(self.claim("x", group, gpus, priority))
        return decision.place, list(decision.victims)


def lent(nodes: int, size: int, *, guarded: bool = False) -> Cluster:
    """Every GPU is the owner's and in use by the borrower, or one of each node by a third group of its own right."""
    third = nodes if guarded else 0
    cluster = Cluster([size] * nodes, nodes * size, {"owner": nodes * size - third, "borrower": 0, "third": third})
    for node in range(nodes):
        for number in range(size):
            if guarded and not number:
                cluster.run(f"t{node}", "third", f"n{node}", priority=10)
            else:
                cluster.run(f"b{node}-{number}", "borrower", f"n{node}")
    return cluster


@pytest.mark.parametrize("priority", [0, 10])
@pytest.mark.parametrize(("gpus", "victims"), [(1, ["b2-0"]), (2, ["b2-0", "b2-1"])])
def test_an_owner_takes_back_what_it_lent(priority: int, gpus: int, victims: list[str]) -> None:
    """On the node with the newest victims; there those go first that are longest in the tree."""
    assert lent(3, 4).ask("owner", gpus, priority) == ("n2", victims)


def test_a_claim_outside_of_the_tree_goes_after_those_in_it() -> None:
    cluster = Cluster([2], 1, {"owner": 1, "borrower": 0})
    cluster.run("outside", "", "n0")
    cluster.run("inside", "borrower", "n0")
    assert cluster.ask("owner", 1, 10) == ("n0", ["inside"])


def test_a_lower_priority_outside_of_the_tree_goes_first_if_the_tree_has_room_then() -> None:
    """The tree is short as well, so its borrower leaves, and nobody else."""
    cluster = Cluster([2], 1, {"owner": 1, "borrower": 0})
    cluster.run("inside", "borrower", "n0", priority=5)
    cluster.run("outside", "", "n0", priority=1)
    assert cluster.ask("owner", 1, 10) == ("n0", ["inside"])


def test_a_claim_within_its_own_quota_does_not_serve_the_tree_because_its_node_is_full() -> None:
    cluster = Cluster([2], 2, {"a": 0, "c": 2})
    cluster.run("own", "c", "n0", 2)
    assert cluster.ask("a", 2, 10) == ("", [])


def test_what_is_in_the_quota_of_others_stays() -> None:
    assert lent(3, 4, guarded=True).ask("owner", 4, 0) == ("", [])


@pytest.mark.parametrize(("guarded", "trials"), [(False, 1), (True, 1)])
def test_nodes_are_ruled_out_without_a_trial(guarded: bool, trials: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One trial may find out who would leave on the best node, or whether the quota alone is in the way."""
    cluster = lent(12, 4, guarded=guarded)
    asked: list[str] = []
    real = Trial.run

    def counted(trial: Trial) -> list[Claim] | None:
        asked.append(trial.place)
        return real(trial)

    monkeypatch.setattr(Trial, "run", counted)
    place, victims = cluster.ask("owner", 4, 0)
    assert (place, len(victims)) == (("", 0) if guarded else ("n11", 4))
    assert len(asked) <= trials


@pytest.mark.parametrize("seed", range(120))
def test_no_set_that_clears_a_node_is_missed(seed: int) -> None:
    rng = Random(seed)
    groups = {name: rng.randrange(4) for name in ("a", "b", "c")}
    cluster = Cluster([rng.randrange(2, 5) for _ in range(2)], rng.randrange(4, 8), groups)
    for number in range(rng.randrange(3, 7)):
        group = rng.choice(("a", "b", "c", ""))
        cluster.run(f"c{number}", group, f"n{rng.randrange(2)}", rng.randrange(1, 3), rng.choice((0, 1, 5)))
    claim = cluster.claim("x", rng.choice(("a", "b")), rng.randrange(1, 4), 3)
    found = clearing_sets(cluster, claim)
    full = all(lacking(cluster, claim, node) > 0 for node in ("n0", "n1"))
    decision = cluster.engine.decide(claim)
    if not decision.admitted:
        assert not found
    elif found and full:  # where a node has room the climb takes back from borrowers first, whatever their priority
        assert highest(cluster, decision.victims) <= min(highest(cluster, one) for one in found)


def clearing_sets(cluster: Cluster, claim: Claim) -> list[list[str]]:
    """The sets of lower priority that clear a node, none of them too many, and of which those that the tree could name
    satisfy it.
    """
    core = cluster.engine._core
    binding = core.policies[0].bind(claim, "")
    assert isinstance(binding, Binding)
    found: list[list[str]] = []
    for node in ("n0", "n1"):
        missing = lacking(cluster, claim, node)
        there = [one for one in cluster.engine.state.claims.values() if one.place == node and one.spec.priority < 3]
        for size in range(1, len(there) + 1):
            for some in combinations(there, size):
                freed = [one.spec.requests.amount(GPU) for one in some]
                named = [one for one in some if core.policies[0].standing(claim, binding, one) != NEVER_NAMED]
                core.ledger.begin(0)
                cleared = sum(freed) - min(freed) < missing and makes_room(core, claim, node, list(some))
                if cleared and makes_room(core, claim, "", named):
                    found.append([one.uid for one in some])
                core.ledger.abort()
    return found


def lacking(cluster: Cluster, claim: Claim, node: str) -> int:
    account = cluster.engine.state.accounts[f"nodes/{node}"]
    return account.used.amount(GPU) + claim.spec.requests.amount(GPU) - account.limits.listed[GPU]


def highest(cluster: Cluster, uids: Sequence[str]) -> int:
    return max((cluster.engine.state.claims[uid].spec.priority for uid in uids), default=-1)


@pytest.mark.parametrize(
    ("asked", "needed"),
    [
        (2, ""),
        (3, ""),  # the root lacks 1, which any of them frees
        (4, "b"),  # 2: b alone would do
        (5, "ab"),
        (6, "ab"),
    ],
)
def test_those_are_needed_without_whom_the_root_stays_too_full(asked: int, needed: str) -> None:
    cluster = Cluster([8], 6, {"x": 2, "y": 2, "z": 6})
    for uid, group, gpus in (("a", "x", 1), ("b", "y", 2), ("c", "z", 1)):
        cluster.run(uid, group, "n0", gpus)
    (policy,) = [one for one in cluster.engine.policies if isinstance(one, TreesPolicy)]
    tree = policy.trees.by_name["T"]
    assert tree.root is not None
    victims = [cluster.engine.state.claims[uid] for uid in "ab"]
    claim = cluster.claim("asks", "z", asked, 9)
    found = needed_at_root(tree, tree.root, claim.spec.requests, victims)
    assert "".join(sorted(found)) == needed
    bound = policy.bind(claim, "")
    assert isinstance(bound, Binding)
    assert policy.needs_all(claim, bound, victims) is (needed == "ab")
