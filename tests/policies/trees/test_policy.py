"""The trees policy under the engine: pods that name groups, victims that leave, settings that change."""

from __future__ import annotations

from typing import cast

import pytest

from bursar.engine.decision import Decision
from bursar.engine.disruption_budgets import KIND as BUDGET
from bursar.engine.disruption_budgets import BudgetBody
from bursar.engine.engine import Engine
from bursar.ledger.claims import RUNNING, Claim, ClaimSpec
from bursar.policies.results import Setting, SettingError
from bursar.policies.trees.api import tree_from
from bursar.policies.trees.policy import KIND, TreesPolicy
from bursar.resources import from_amounts
from bursar.selectors import Selector
from tests.at_rest import assert_at_rest
from tests.builders import Manifest, node, pod
from tests.policies.trees.test_vectors_tree import STEPS
from tests.policies.trees.world import S_EX, Plain, tree
from tests.sim.steps import TestBed


class Cluster:
    """An engine with the trees policy alone; victims leave at once."""

    def __init__(self, **shapes: str) -> None:
        self.engine = Engine([TreesPolicy()])
        self.count = 0
        for name, shape in shapes.items():
            self.set(name, shape)

    def set(self, name: str, shape: str) -> None:
        self.configure(name, tree(name, shape))

    def configure(self, name: str, document: Plain | None) -> None:
        body = None if document is None else tree_from(document)[1]
        self.engine.configure([Setting(KIND, name, body)])

    @property
    def policy(self) -> TreesPolicy:
        return cast("TreesPolicy", self.engine.policies[0])

    def pod(self, uid: str, amount: int, priority: int = 0, *, preemptible: bool = True, **groups: str) -> Decision:
        return self.pod_of(uid, amount, groups, priority, preemptible=preemptible)

    def pod_of(
        self, uid: str, amount: int, groups: dict[str, str], priority: int = 0, *, preemptible: bool = True
    ) -> Decision:
        labels = {f"quota.bursar.dev/{name}": group for name, group in groups.items()}
        spec = ClaimSpec(from_amounts({"count": amount}), labels=labels, priority=priority, preemptible=preemptible)
        self.count += 1
        decision = self.engine.decide(Claim(uid, spec, self.count, "ns", uid))
        for victim in decision.victims:
            self.engine.release(victim)
        return decision

    def state(self, name: str = "T") -> str:
        found = self.policy.trees.by_name[name]
        parts = []
        for node_name, one in sorted(found.nodes.items()):
            used = one.account.used.amount("count")
            if used:
                ids = [seat.claim.uid for seat in sorted(found.allocated_on(one), key=lambda seat: seat.stamp)]
                parts.append(f"{node_name}{used}" + (f"{{{' '.join(ids)}}}" if ids else ""))
        return " ".join(parts)

    def replayed(self) -> Engine:
        other = Engine([TreesPolicy()])
        other.replay(self.engine.journal.take())
        return other


def test_6_1_the_example_with_pods() -> None:
    cluster = Cluster(T=S_EX)
    for number, step, expected, preempted in STEPS:
        if isinstance(step, str):
            cluster.engine.release(step)
        else:
            uid, group, amount, priority = step
            decision = cluster.pod(uid, amount, priority, T=group)
            assert decision.admitted, number
            assert list(decision.victims) == preempted, number
        assert cluster.state() == expected, number
    copy = cluster.replayed()
    assert copy.state.plain() == cluster.engine.state.plain()
    assert copy.digest == cluster.engine.digest


def test_a_pod_that_names_no_tree_is_not_its_business() -> None:
    cluster = Cluster(T="R0")
    assert cluster.pod("p", 5).admitted
    assert cluster.state() == ""


UNKNOWN = [
    ("tree", {"U": "A"}, "trees.unknown-tree", "there is no quota tree U"),
    ("group", {"T": "Z"}, "trees.unknown-group", "the quota tree T has no group Z"),
    ("inner node", {"T": "R"}, "trees.inner-group", "R is not a leaf of the quota tree T"),
    ("one of two", {"T": "A", "U": "A"}, "trees.unknown-tree", "there is no quota tree U"),
]


@pytest.mark.parametrize(("groups", "reason", "sentence"), [u[1:] for u in UNKNOWN], ids=[u[0] for u in UNKNOWN])
def test_unknown_names_are_refused(groups: dict[str, str], reason: str, sentence: str) -> None:
    cluster = Cluster(T="R4(A4)")
    decision = cluster.pod_of("p", 1, groups)
    assert (decision.name, decision.reason) == ("never", reason)
    assert decision.sentence().startswith(sentence)
    assert cluster.state() == ""


def test_all_trees_or_none() -> None:
    cluster = Cluster(T="R4(A4)", U="R1(A1!)")
    decision = cluster.pod("p", 2, T="A", U="A")
    assert decision.reason == "trees.quota.count"
    assert decision.refusals[0].account == "trees/U/A"
    assert (cluster.state("T"), cluster.state("U")) == ("", "")
    assert cluster.pod("q", 1, T="A", U="A").admitted
    assert (cluster.state("T"), cluster.state("U")) == ("A1{q} R1", "A1{q} R1")


def test_a_claim_that_may_not_be_preempted_is_moved_but_never_a_victim() -> None:
    cluster = Cluster(T="R4(A2)")
    cluster.pod("u", 2, preemptible=False, T="A")
    assert cluster.pod("n", 2, 1, T="A").admitted
    assert cluster.state() == "A2{n} R4{u}"
    assert cluster.pod("m", 2, 2, T="A").victims == ("n",)


def test_the_engine_keeps_a_victim_and_the_plan_finds_another() -> None:
    cluster = Cluster(T="R4(A0)")
    cluster.pod("first", 2, T="A")
    cluster.pod("second", 2, T="A")
    cluster.engine.observe("first", RUNNING)
    everybody = BudgetBody("ns", Selector(()), None, 0, False)
    cluster.engine.configure([Setting(BUDGET, "ns/all", everybody)])
    # the budget protects what runs: second, which does not run yet, goes instead of first
    assert cluster.pod("n", 2, 1, T="A").victims == ("second",)
    assert cluster.state() == "R4{first n}"


def test_resizing_keeps_the_seat_where_it_fits() -> None:
    cluster = Cluster(T="R4(A2)")
    cluster.pod("p", 1, T="A")
    claim = cluster.engine.claim("p")
    labels = claim.spec.labels
    assert cluster.engine.adjust("p", ClaimSpec(from_amounts({"count": 2}), labels=labels)).admitted
    assert cluster.state() == "A2{p} R2"
    assert cluster.engine.adjust("p", ClaimSpec(from_amounts({"count": 4}), labels=labels)).admitted
    assert cluster.state() == "R4{p}"
    before = cluster.engine.state.plain()
    assert not cluster.engine.adjust("p", ClaimSpec(from_amounts({"count": 5}), labels=labels)).admitted
    assert cluster.engine.state.plain() == before
    assert cluster.engine.adjust("p", ClaimSpec(from_amounts({"count": 1}), labels=labels)).admitted
    assert cluster.state() == "A1{p} R1"


def test_a_pod_changes_its_group() -> None:
    cluster = Cluster(T="R4(A2,B2)")
    cluster.pod("p", 1, T="A")
    moved = ClaimSpec(from_amounts({"count": 1}), labels={"quota.bursar.dev/T": "B"})
    assert cluster.engine.adjust("p", moved).admitted
    assert cluster.state() == "B1{p} R1"


def test_a_running_pod_is_labelled_later() -> None:
    cluster = Cluster(T="R4(A2)")
    cluster.pod("p", 1)
    assert cluster.engine.adjust(
        "p", ClaimSpec(from_amounts({"count": 1}), labels={"quota.bursar.dev/T": "A"})
    ).admitted
    assert cluster.state() == "A1{p} R1"
    assert cluster.engine.adjust("p", ClaimSpec(from_amounts({"count": 1}))).admitted
    assert cluster.state() == ""
    copy = cluster.replayed()
    assert copy.state.plain() == cluster.engine.state.plain()
    assert copy.digest == cluster.engine.digest


def test_a_tree_that_went_and_came_back_counts_whoever_runs() -> None:
    cluster = Cluster(T="R4(A2)")
    cluster.pod("p", 3, T="A")
    cluster.configure("T", None)
    assert cluster.engine.state.accounts == {}
    cluster.set("T", "R2(A2)")
    assert cluster.state() == "R3{p}"
    assert cluster.pod("q", 1, T="A").victims == ("p",)  # an owner takes back what is borrowed over the quota
    copy = cluster.replayed()
    assert copy.state.plain() == cluster.engine.state.plain()


def test_a_changed_tree_carries_everybody_over() -> None:
    cluster = Cluster(T="R4(A2,B2)")
    cluster.pod("a", 2, T="A")
    cluster.pod("b", 2, T="B")
    cluster.set("T", "R4(A1)")
    assert cluster.state() == "A2{a} R4{b}"
    cluster.set("T", "R4(A4,B4)")
    assert cluster.state() == "A2{a} B2{b} R4"


def test_a_held_claim_that_gives_up_gives_its_victims_their_seats_back() -> None:
    cluster = Cluster(T="R2(A2!)")
    cluster.pod("v", 2, T="A")
    cluster.engine.observe("v", RUNNING)
    spec = ClaimSpec(from_amounts({"count": 2}), labels={"quota.bursar.dev/T": "A"}, priority=1)
    decision = cluster.engine.decide(Claim("n", spec, 9))
    assert decision.name == "held"
    assert cluster.state() == "A2{n} R2"
    cluster.engine.give_up("n")
    assert cluster.state() == "A2{v} R2"


def test_what_is_no_tree_is_refused() -> None:
    cluster = Cluster()
    cycle = {"A": {"parent": "B", "quota": {}}, "B": {"parent": "A", "quota": {}}}
    document = {"kind": "QuotaTree", "metadata": {"name": "T"}, "spec": {"nodes": cycle}}
    with pytest.raises(SettingError, match=r"QuotaTree T: spec\.nodes\.A: no node is a root"):
        cluster.configure("T", document)
    assert cluster.engine.state.accounts == {}


def test_explain_shows_every_node_on_the_way() -> None:
    cluster = Cluster(T="R4(M3(A2!))")
    cluster.pod("x", 2, T="A")
    cluster.pod("p", 1, T="A")
    lines = "\n".join(cluster.engine.explain("p").lines())
    assert "FAIL <- first A: hard; count 1 wanted, 2 of 2 in use [trees.quota.count]" in lines
    assert "ok   M: soft; count 1 wanted, 2 of 3 in use" in lines
    assert "counts on A" in "\n".join(cluster.engine.explain("x").lines())


def test_outputs_are_written_once_a_change() -> None:
    cluster = Cluster(T="R4(A2)")
    cluster.pod("p", 3, T="A")
    (output,) = cluster.engine.outputs(0)
    assert (output.kind, output.key, output.part) == ("QuotaTree.bursar.dev", "T", "status")
    nodes = cast("Plain", cast("Plain", output.value)["nodes"])
    assert nodes == {
        "R": {"used": {"count": "3"}, "claims": 1, "borrowing": ["ns/p"]},
        "A": {"used": {}, "claims": 0},
    }
    assert cluster.engine.outputs(0) == []


def test_a_status_names_a_few_borrowers_however_many_there_are() -> None:
    """It is written once a second, and the API server takes no object of more than a megabyte or so."""
    cluster = Cluster(T="R100(A2)")
    for number in range(30):
        cluster.pod(f"p{number:02}", 1, T="A")
    (output,) = cluster.engine.outputs(0)
    root = cast("Plain", cast("Plain", cast("Plain", output.value)["nodes"])["R"])
    assert root["claims"] == 28
    assert root["borrowing"] == [f"ns/p{number:02}" for number in range(2, 22)]


def test_a_claim_that_came_before_its_tree_hears_when_the_tree_is_full() -> None:
    """A group that has room reclaims nothing, though its nodes are full; once others took the room, it does."""

    def member(name: str, group: str, cpus: int, priority: int = 0) -> Manifest:
        return pod(name, "a", {"cpu": cpus}, priority=priority, labels={"quota.bursar.dev/t": group})

    def below(cpus: int) -> dict[str, object]:
        return {"parent": "root", "quota": {"cpu": cpus}}

    groups = {"root": {"quota": {"cpu": 6}}, "x": below(0), "y": below(3)}
    tree = {"kind": "QuotaTree", "metadata": {"name": "t"}, "spec": {"resourceNames": ["cpu"], "nodes": groups}}
    bed = TestBed(*(node(name, {"cpu": cpus}) for name, cpus in (("n1", 3), ("n2", 3), ("n3", 1))))
    bed.give(pod("outside", "a", {"cpu": 3}, priority=5), member("owner", "y", 3), member("borrower", "x", 3, 1))
    assert bed.see("a/owner").reason == "trees.unknown-tree"
    bed.give(tree)
    assert (bed.see("a/borrower").phase, bed.see("a/owner").reason) == ("Running", "nodes.full")
    bed.give(member("small", "x", 1))
    assert (bed.see("a/borrower").phase, bed.see("a/owner").phase) == ("Evicted", "Running")
    assert_at_rest(bed)


def test_a_claim_whose_group_is_gone_counts_for_what_it_grew_to() -> None:
    def groups(name: str) -> Manifest:
        nodes = {"root": {"quota": {"cpu": 6}}, name: {"parent": "root", "quota": {"cpu": 6}}}
        return {"kind": "QuotaTree", "metadata": {"name": "t"}, "spec": {"resourceNames": ["cpu"], "nodes": nodes}}

    def runs(cpus: int) -> Manifest:
        return pod("p", "a", {"cpu": cpus}, labels={"quota.bursar.dev/t": "x"})

    bed = TestBed(node("n1", {"cpu": 9}), groups("x"), runs(1))
    bed.give(groups("y"))
    assert bed.engine.state.accounts["trees/t/root"].used.amount("cpu") == 1000
    claim = bed.controller.claim("a/p")
    assert claim is not None
    spec = ClaimSpec(from_amounts({"cpu": 3000}), labels=dict(claim.spec.labels))
    bed.engine.adjust(claim.uid, spec, forced=True)
    assert bed.engine.state.accounts["trees/t/root"].used.amount("cpu") == 3000
