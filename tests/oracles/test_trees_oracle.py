"""The brute force for quota trees says what the rules say, in cases worked out by hand."""

from __future__ import annotations

from tests.oracles.trees_oracle import Amounts, Consumer, Grove, Plan, TreeNode, TreesJudge, Wanted, fits_again


def cpu(amount: int) -> Amounts:
    return {"cpu": amount}


def tree(**nodes: tuple[str, int] | tuple[str, int, str]) -> dict[str, TreeNode]:
    """``name=(parent, quota)``, with ``"hard"`` as a third."""
    return {name: TreeNode(row[0], len(row) > 2, cpu(row[1])) for name, row in nodes.items()}


def grove(nodes: dict[str, TreeNode], *placed: tuple[str, Wanted, str]) -> Grove:
    """A tree T with (consumer, its row, its node), in the order of their arrival."""
    return forest({"T": nodes}, *((name, {"T": (row, node)}) for name, row, node in placed))


def forest(trees: dict[str, dict[str, TreeNode]], *placed: tuple[str, dict[str, tuple[Wanted, str]]]) -> Grove:
    found = Grove(trees, placed={name: {} for name in trees})
    for name, rows in placed:
        found.consumers[name] = Consumer(name, {where: row for where, (row, _) in rows.items()})
        for where, (_, node) in rows.items():
            found.put(where, name, node)
    return found


def judge(state: Grove, group: str, amount: int, priority: int = 0, kind: int = 0) -> TreesJudge:
    return TreesJudge(state, Consumer("x", {"T": Wanted(group, cpu(amount), priority, kind)}))


def ends(state: Grove, group: str, amount: int, priority: int = 0, kind: int = 0) -> set[str] | None:
    """Who leaves; None if the claimant is refused."""
    found = judge(state, group, amount, priority, kind)
    plan = found.named()
    return None if plan is None else found.leaving(plan)


# S-EX, the tree of the original's example.
S_EX = tree(
    A=("", 10), B=("A", 2), C=("A", 6), D=("A", 2), E=("B", 1), F=("B", 1), G=("C", 3), H=("C", 3),
    I=("D", 1), J=("D", 1), K=("G", 1), L=("G", 2), M=("H", 1), N=("H", 2),
)  # fmt: skip


def row(group: str, amount: int, priority: int = 0, kind: int = 0, *, unpreemptable: bool = False) -> Wanted:
    return Wanted(group, cpu(amount), priority, kind, unpreemptable)


def test_a_hard_team_evicts_lower_priority_on_its_department() -> None:
    """The boss needs b's place on B and e's on C, and learns of C only when B has room."""
    nodes = tree(R=("", 9), C=("R", 3, "hard"), B=("C", 3, "hard"), E=("C", 0))
    state = grove(nodes, ("b", row("B", 2), "B"), ("e", row("E", 1), "C"))
    assert judge(state, "B", 3, 100).plans() == [Plan(("b", "e"), ())]
    assert ends(state, "B", 3, 100) == {"b", "e"}
    assert ends(state, "B", 3) is None


def test_a_borrower_settles_above() -> None:
    """Row 3: N and no more; c goes to H."""
    state = grove(S_EX, ("a", row("N", 1), "N"), ("b", row("N", 1), "N"))
    found = judge(state, "N", 1)
    assert found.named() == Plan((), ())
    assert found.trials[frozenset()].grove.placed["T"]["x"][0] == "H"


def test_pushes_are_no_victims() -> None:
    """Row 5: b and c go to H, and b on to C."""
    state = grove(S_EX, ("c", row("N", 1), "H"), ("b", row("N", 1), "N"))
    state.put("T", "c", "N")
    placed = judge(state, "N", 2, 1).trials[frozenset()].grove.placed["T"]
    assert {name: node for name, (node, _) in placed.items()} == {"b": "C", "c": "H", "x": "N"}


def test_an_owner_reclaims_at_the_root() -> None:
    """Row 8: b is pushed out; what it lent was J's. Its priority does not matter."""
    state = grove(S_EX, ("d", row("N", 2, 1), "N"), ("c", row("N", 1), "H"), ("e", row("L", 3), "G"))
    state.consumers["b"] = Consumer("b", {"T": row("N", 1, 9)})
    state.consumers["f"] = Consumer("f", {"T": row("E", 3, 9)})
    state.put("T", "b", "A")
    state.put("T", "f", "A")
    assert judge(state, "J", 1).named() == Plan((), ("b",))
    assert ends(state, "J", 1) == {"b"}


def test_priority_at_the_root() -> None:
    """Row 10: I and D are too small for i; at A it pushes the lower priority only."""
    state = grove(S_EX, ("h", row("K", 1), "K"), ("d", row("N", 2, 1), "N"), ("c", row("N", 1), "H"))
    for name, asked, node in (("g", row("J", 1), "J"), ("e", row("L", 3), "A")):
        state.consumers[name] = Consumer(name, {"T": asked})
        state.put("T", name, node)
    assert ends(state, "I", 3, 1) == {"e"}
    assert ends(state, "I", 3) is None


def test_a_failure_above_is_retried_higher() -> None:
    """Soft L4, M1, R4: c(L,2) fits L, fails at M, and settles on R; with L hard it is refused."""
    soft = grove(tree(R=("", 4), M=("R", 1), L=("M", 4)))
    assert judge(soft, "L", 2).trials[frozenset()].grove.placed["T"]["x"][0] == "R"
    assert ends(grove(tree(R=("", 4), M=("R", 1), L=("M", 4, "hard"))), "L", 2) is None


def test_a_hard_node_stops_the_climb() -> None:
    nodes = tree(R=("", 16), X=("R", 3, "hard"))
    assert ends(grove(nodes, ("job-1", row("X", 2), "X")), "X", 3, 1) == {"job-1"}
    assert ends(grove(nodes, ("job-1", row("X", 2, unpreemptable=True), "X")), "X", 3, 1) is None
    assert ends(grove(nodes, ("job-1", row("X", 2, kind=1), "X")), "X", 3, 1) is None


def test_phase_2_over_two_levels() -> None:
    """Example 8: the lowest priorities of the whole path go first, and l2 is pushed."""
    nodes = tree(R=("", 20), D=("R", 6, "hard"), L=("D", 4), K=("D", 4))
    state = grove(
        nodes, ("l1", row("L", 2), "L"), ("l2", row("L", 2, 1), "L"), ("k1", row("K", 1), "K"), ("d1", row("L", 1), "D")
    )
    assert ends(state, "L", 3, 2) == {"d1", "l1"}


def test_a_dimension_of_zero_is_skipped() -> None:
    """X13: the root is over its memory; a request of cpu alone is accepted."""
    quota = {"cpu": 10, "memory": 10}
    nodes = {"R": TreeNode("", False, quota), "A": TreeNode("R", False, quota), "B": TreeNode("R", False, quota)}
    state = grove(nodes, ("a", Wanted("A", {"cpu": 0, "memory": 11}), "A"))
    asked = Consumer("z", {"T": Wanted("B", {"cpu": 1, "memory": 0})})
    assert TreesJudge(state, asked).named() == Plan((), ())


def test_a_reclaim_needs_a_preemptible_one_of_its_type() -> None:
    """X16."""
    nodes = tree(R=("", 4), A=("R", 2), B=("R", 2))
    assert ends(grove(nodes, ("hi", row("A", 4, 9), "R")), "B", 1) == {"hi"}
    hard = tree(R=("", 4, "hard"), A=("R", 2), B=("R", 2))
    assert ends(grove(hard, ("hi", row("A", 4, 9), "R")), "B", 1) == {"hi"}
    assert ends(grove(nodes, ("hi", row("A", 4, 9, unpreemptable=True), "R")), "B", 1) is None
    assert ends(grove(nodes, ("hi", row("A", 4, 9, kind=3), "R")), "B", 1) is None


def test_an_unpreemptable_one_of_another_type_is_pushed() -> None:
    """X16d."""
    state = grove(tree(R=("", 4), A=("R", 2)), ("u", row("A", 2, 0, 3, unpreemptable=True), "A"))
    placed = judge(state, "A", 2, 1).trials[frozenset()].grove.placed["T"]
    assert {name: node for name, (node, _) in placed.items()} == {"u": "R", "x": "A"}


def test_no_more_than_needed() -> None:
    """X17 and X17b: the small one, or that of the other resource, stays."""
    state = grove(tree(R=("", 4), A=("R", 0)), ("s", row("A", 1), "R"), ("b", row("A", 3), "R"))
    assert ends(state, "A", 3, 1) == {"b"}
    nodes = {"R": TreeNode("", False, {"cpu": 4, "gpu": 1}), "A": TreeNode("R", False, {"cpu": 0, "gpu": 0})}
    wanted = Wanted("A", {"gpu": 1}, 0), "R"
    small = grove(nodes, ("s", row("A", 1), "R"), ("g", *wanted))
    found = TreesJudge(small, Consumer("x", {"T": Wanted("A", {"gpu": 1}, 1)}))
    assert found.named() == Plan((), ("g",))


def test_the_lower_priority_goes_first_whatever_their_order() -> None:
    """X22."""
    nodes = tree(R=("", 4), H=("R", 4, "hard"))
    assert ends(grove(nodes, ("p5", row("H", 2, 5), "H"), ("p0", row("H", 2), "H")), "H", 2, 6) == {"p0"}
    assert ends(grove(nodes, ("p1", row("H", 2), "H"), ("p2", row("H", 2), "H")), "H", 2, 6) == {"p1"}


def test_priority_zero_preempts_what_is_below() -> None:
    """X25."""
    state = grove(tree(R=("", 4), H=("R", 2, "hard")), ("m", row("H", 2, -1), "H"))
    assert ends(state, "H", 2) == {"m"}


def test_a_victim_that_fits_elsewhere_is_kept() -> None:
    """With v gone s is pushed to R; there is room for v on R as well."""
    state = grove(tree(R=("", 9), H=("R", 2)), ("v", row("H", 2), "H"))
    assert fits_again(state, "v") == {"T": "R"}
    assert ends(state, "H", 2, 1) == set()


def test_who_displaced_the_claimant_is_safe_from_it() -> None:
    state = grove(tree(R=("", 4), A=("R", 2), B=("R", 2)), ("hi", row("A", 4, 9), "R"))
    state.displaced = frozenset({("hi", "y"), ("y", "x")})
    assert ends(state, "B", 1) is None


def test_a_group_is_a_leaf() -> None:
    assert ends(grove(S_EX), "H", 1) is None


# Forests


def both(first: Wanted, second: Wanted) -> Consumer:
    return Consumer("x", {"S": first, "T": second})


def test_victims_leave_every_tree() -> None:
    """V is needed by S; by that it makes room in T, where its priority is too high."""
    trees = {"S": tree(R=("", 2), G=("R", 2, "hard")), "T": tree(Q=("", 2), P=("Q", 2, "hard"))}
    state = forest(trees, ("v", {"S": (row("G", 2), "G"), "T": (row("P", 2, 9), "P")}))
    assert TreesJudge(state, both(row("G", 1, 5), row("P", 1, 5))).plans() == [Plan(("v",), ())]


def test_a_victim_is_a_candidate_where_it_is_needed() -> None:
    """S has room for both; in T v's priority is too high, and its type in the second case."""
    trees = {"S": tree(R=("", 3), G=("R", 3, "hard")), "T": tree(Q=("", 2), P=("Q", 2, "hard"))}
    state = forest(trees, ("v", {"S": (row("G", 2), "G"), "T": (row("P", 2, 9), "P")}))
    assert TreesJudge(state, both(row("G", 1, 5), row("P", 1, 5))).plans() == []
    other = forest(trees, ("v", {"S": (row("G", 2), "G"), "T": (row("P", 2, 0, 1), "P")}))
    assert TreesJudge(other, both(row("G", 1, 5), row("P", 1, 5))).plans() == []


def test_unpreemptable_in_one_tree_is_unpreemptable() -> None:
    trees = {"S": tree(R=("", 2), G=("R", 2, "hard")), "T": tree(Q=("", 9), P=("Q", 9, "hard"))}
    state = forest(trees, ("v", {"S": (row("G", 2), "G"), "T": (row("P", 2, unpreemptable=True), "P")}))
    assert TreesJudge(state, both(row("G", 1, 5), row("P", 1, 5))).plans() == []


def test_the_forest_of_the_original() -> None:
    """Job-4: job-2 is pushed out of the context tree, job-1 is evicted on Srvc-X."""
    context = tree(
        Root=("", 10), A=("Root", 4), B=("Root", 6, "hard"), C1=("A", 1), C2=("A", 1), C3=("B", 2), C4=("B", 2, "hard")
    )
    service = tree(Root=("", 16), X=("Root", 3, "hard"), Y=("Root", 4), Z=("Root", 5))
    state = forest(
        {"S": context, "T": service},
        ("job-1", {"S": (row("C4", 2), "C4"), "T": (row("X", 2), "X")}),
        ("job-2", {"S": (row("C2", 3), "A"), "T": (row("Y", 1), "Y")}),
        ("job-3", {"S": (row("C3", 4), "B"), "T": (row("Z", 4), "Z")}),
    )
    assert Plan(("job-1",), ("job-2",)) in TreesJudge(state, both(row("C2", 4, 1), row("X", 3, 1))).plans()
    assert TreesJudge(state, both(row("C4", 4, 1), row("Z", 2, 1))).plans() == []
