"""Random operations on a manager and on the reference model, with the invariants after each of them.

Seeded, so that a run can be repeated; the short run of the suite and the long one share it.
"""

from __future__ import annotations

import random
from typing import Any

from bursar.policies.trees import (
    MAINTENANCE,
    NORMAL,
    AllocationResponse,
    ConsumerInfo,
    QuotaError,
    QuotaManager,
    Token,
    consumer_from_plain,
)
from bursar.policies.trees.model import QuotaTreeModel
from tests.policies.trees.reference_model import Node, ReferenceModel, State, Wish

RESOURCES = ("cpu", "gpu")
TREES = ("T1", "T2", "T3")
FOREST = ("T1", "T2")  # T3 stands alone


class Machine:
    """One random history."""

    def __init__(self, seed: int, *, deep: bool = False) -> None:
        self.random = random.Random(seed)
        self.manager = QuotaManager(journaled=True)
        self.reference = ReferenceModel()
        self.depth = 4 if deep else 3
        self.count = 0
        self.normal = False
        self.tokens: list[tuple[Token, State, dict[str, object]]] = []
        self.lines: list[bytes] = []
        self.outcomes: dict[str, int] = {}
        for tree in TREES:
            nodes = self.random_tree()
            self.manager.add_tree_from_struct(document(tree, RESOURCES, nodes))
            self.reference.add_tree(tree, RESOURCES, nodes)
        self.manager.add_forest("F")
        for tree in FOREST:
            self.manager.add_tree_to_forest("F", tree)

    def random_tree(self) -> dict[str, Node]:
        """A few nodes with small quotas, so that everything is short most of the time."""
        nodes = {"R": Node("", self.random.random() < 0.3, self.quota(8))}
        level = ["R"]
        for depth in range(1, self.depth):
            below = []
            for parent in level:
                for number in range(self.random.randint(1, 2)):
                    name = f"{parent}{number}"
                    nodes[name] = Node(parent, self.random.random() < 0.2, self.quota(8 // depth))
                    below.append(name)
            level = below
        return nodes

    def quota(self, most: int) -> dict[str, int]:
        listed = {name: self.random.randint(0, most) for name in RESOURCES}
        if self.random.random() < 0.1:
            del listed["gpu"]  # unlimited
        return listed

    # Operations

    def step(self) -> None:
        before = self.use()
        operations = (
            (self.add_consumer, 4),
            (self.allocate, 10),
            (self.release, 5),
            (self.try_allocate, 4),
            (self.undo, 4),
            (self.change_tree, 1),
            (self.change_mode, 1),
            (self.remove_consumer, 2),
        )
        chosen = self.random.choices([o for o, _ in operations], [weight for _, weight in operations])[0]
        name = chosen.__name__
        chosen()
        self.outcomes[name] = self.outcomes.get(name, 0) + 1
        self.check(before, forced=not self.normal or name in {"change_tree", "change_mode", "undo"})

    def add_consumer(self) -> None:
        gone = sorted({c for edge in self.reference.now.displaced for c in edge} - set(self.reference.now.wishes))
        name = self.random.choice(gone) if gone and self.random.random() < 0.5 else f"c{self.count}"
        self.count += 1
        trees = self.random.sample(TREES, self.random.randint(1, 3))
        wishes = {tree: self.wish(tree) for tree in trees}
        self.manager.add_consumer(info(name, wishes))
        self.reference.now.wishes[name] = wishes

    def wish(self, tree: str) -> Wish:
        nodes = sorted(self.reference.now.trees[tree])
        leaves = [name for name in nodes if self.reference.is_leaf(tree, name)] or ["none"]
        group = self.random.choice(leaves if self.random.random() < 0.95 else [*nodes, "none"])
        request = {name: self.random.choice((0, 1, 1, 2, 3)) for name in RESOURCES}
        if self.random.random() < 0.1:
            request["other"] = 5
        priority = self.random.choice((-1, 0, 0, 0, 1, 2))
        return Wish(group, request, priority, int(self.random.random() < 0.1), self.random.random() < 0.1)

    def pick(self) -> tuple[str, list[str], str] | None:
        """(consumer, trees, forest) for an allocation: on one tree or on the forest."""
        if not self.reference.now.wishes:
            return None
        consumer = self.random.choice(sorted(self.reference.now.wishes))
        rows = self.reference.now.wishes[consumer]
        if self.random.random() < 0.4:
            return consumer, [self.random.choice(sorted(rows))], ""
        return consumer, [tree for tree in FOREST if tree in rows], "F"

    def refused_call(self, consumer: str, trees: list[str]) -> bool:
        """Whether the call makes no sense."""
        groups = [self.reference.now.wishes[consumer][tree].group in self.reference.now.trees[tree] for tree in trees]
        return not all(groups) or any(tree in self.reference.held(consumer) for tree in trees)

    def allocate(self) -> None:
        self.attempt(trying=False)

    def try_allocate(self) -> None:
        self.attempt(trying=True)

    def attempt(self, *, trying: bool) -> None:
        picked = self.pick()
        if picked is None:
            return
        consumer, trees, via = picked
        plain = self.manager.plain()
        if self.refused_call(consumer, trees) or (trying and not self.normal):
            try:
                self.call(consumer, trees, via, trying=trying)
            except QuotaError:
                assert self.manager.plain() == plain
                return
            raise AssertionError(f"{consumer} on {trees} should have been refused")
        state = self.reference.now.copy()
        if not trees:
            expected: tuple[bool, list[str]] = (False, [])
        elif self.normal:
            expected = self.reference.allocate(consumer, trees, via)
        else:
            self.reference.force(consumer, trees, via)
            expected = (True, [])
        response = self.call(consumer, trees, via, trying=trying)
        assert (response.allocated, list(response.preempted)) == expected
        self.check_response(response, state, plain)
        if trying:
            assert response.token is not None
            self.tokens.append((response.token, state, plain))
        elif response.allocated:
            self.spoil(set(trees))

    def call(self, consumer: str, trees: list[str], via: str, *, trying: bool) -> AllocationResponse:
        if via:
            return (
                self.manager.try_allocate_forest(via, consumer)
                if trying
                else self.manager.allocate_forest(via, consumer)
            )
        return self.manager.try_allocate(trees[0], consumer) if trying else self.manager.allocate(trees[0], consumer)

    def check_response(self, response: AllocationResponse, before: State, plain: dict[str, object]) -> None:
        if not response.allocated:
            assert self.manager.plain() == plain
            assert response.message
            return
        left = {c for _, c in before.seats} - {c for _, c in self.reference.now.seats}
        assert set(response.preempted) == left
        moved = {
            (consumer, tree, before.seats[tree, consumer].node, seat.node)
            for (tree, consumer), seat in self.reference.now.seats.items()
            if (tree, consumer) in before.seats and before.seats[tree, consumer].node != seat.node
        }
        assert {(m.consumer_id, m.tree, m.source, m.target) for m in response.moves} == moved
        if self.normal:
            for victim in response.preempted:
                trees = {tree for tree, c in before.seats if c == victim}
                assert not all(self.reference.lowest_fit(tree, victim) for tree in trees), f"{victim} would fit again"

    def release(self) -> None:
        if not self.reference.now.seats:
            return
        tree, consumer = self.random.choice(sorted(self.reference.now.seats))
        via = self.reference.now.seats[tree, consumer].via
        trees = [one for one, seat in self.reference.held(consumer).items() if seat.via == via] if via else [tree]
        if via and self.random.random() < 0.1:
            try:
                self.manager.deallocate(tree, consumer)
            except QuotaError:
                return
            raise AssertionError("held through a forest")
        self.reference.release(consumer, trees)
        assert self.manager.deallocate_forest(via, consumer) if via else self.manager.deallocate(tree, consumer)
        self.spoil(set(trees))

    def undo(self) -> None:
        if not self.tokens:
            return
        token, state, plain = self.tokens.pop()
        wishes = self.reference.now.wishes
        self.reference.now = state.copy()
        self.reference.now.wishes = wishes
        self.manager.undo_allocate(token)
        after = self.manager.plain()
        assert after["accounts"] == plain["accounts"]
        assert without_mode(after) == without_mode(plain)

    def spoil(self, trees: set[str]) -> None:
        """These trees changed: tokens that watch them are stale, and say so; the others are let go."""
        stale = self.tokens
        self.tokens = []
        plain = self.manager.plain() if stale else {}
        for token, _, _ in stale:
            if token.changes and trees & set(token.after):
                try:
                    self.manager.undo_allocate(token)
                except QuotaError:
                    assert self.manager.plain() == plain
                else:
                    raise AssertionError("a stale token was taken")

    def change_mode(self) -> None:
        self.normal = not self.normal if self.random.random() < 0.3 else True
        self.manager.set_mode(NORMAL if self.normal else MAINTENANCE)

    def remove_consumer(self) -> None:
        if not self.reference.now.wishes or self.tokens:
            return
        consumer = self.random.choice(sorted(self.reference.now.wishes))
        if self.reference.held(consumer):
            try:
                self.manager.remove_consumer(consumer)
            except QuotaError:
                return
            raise AssertionError("still allocated")
        self.manager.remove_consumer(consumer)
        del self.reference.now.wishes[consumer]
        self.reference.forget()

    def change_tree(self) -> None:
        """Another quota, a renamed, moved or deleted node, or another resource; then a refresh."""
        tree = self.random.choice(TREES)
        cache = self.manager.get_tree_cache(tree)
        nodes = dict(self.reference.now.trees[tree])
        resources = self.reference.now.resources[tree]
        renames: dict[str, str] = {}
        kind = self.random.randrange(6)
        name = self.random.choice(sorted(nodes)) if nodes else ""
        if kind == 0 or not name:
            fresh = self.random_tree()
            cache.clear()
            cache.add_resource_names(list(RESOURCES))
            cache.add_node_specs(document(tree, RESOURCES, fresh)["spec"]["nodes"])
            nodes, resources = fresh, RESOURCES
        elif kind == 1:
            renames[name] = f"{name}x{self.count}"
            cache.rename_node(name, renames[name])
            nodes = {
                renames.get(one, one): node._replace(parent=renames.get(node.parent, node.parent))
                for one, node in nodes.items()
            }
        elif kind == 2 and nodes[name].parent:
            cache.delete_node(name)
            nodes = {one: node for one, node in nodes.items() if name not in self.reference.path(tree, one)}
        elif kind == 3:
            resources = self.random.choice((("cpu",), ("gpu",), RESOURCES))
            cache.add_resource_names(list(resources))
            for one in RESOURCES:
                if one not in resources and one in cache.get_resource_names():
                    cache.delete_resource_name(one)
        else:
            nodes[name] = nodes[name]._replace(quota=self.quota(6))
            cache.add_node_spec(name, node_document(nodes[name]))
        plain = self.manager.plain()
        dry = self.manager.update_tree(tree, dry_run=True)
        assert self.manager.plain() == plain
        self.reference.refresh(tree, resources, nodes, renames)
        assert self.manager.update_tree(tree).plain() == dry.plain()
        if kind == 2 and name not in nodes:
            # What dangled is gone from the reference model; the cache forgets it too.
            for one in dry.dangling:
                cache.delete_node(one)
            self.manager.update_tree(tree)
        self.spoil({tree})

    # Invariants

    def use(self) -> dict[tuple[str, str, str], int]:
        return {
            (tree, name, resource): self.reference.used(tree, name, resource)
            for tree, nodes in self.reference.now.trees.items()
            for name in nodes
            for resource in self.reference.now.resources[tree]
        }

    def check(self, before: dict[tuple[str, str, str], int], *, forced: bool) -> None:
        now = self.use()
        book = self.manager._book
        for tree, nodes in self.reference.now.trees.items():
            seats = book.trees.by_name[tree].allocations
            expected = sorted(
                (seat.stamp, c, seat.node) for (one, c), seat in self.reference.now.seats.items() if one == tree
            )
            found = sorted((seat.stamp, uid, seat.node.name) for uid, seat in seats.items())
            assert [seat[1:] for seat in found] == [seat[1:] for seat in expected]
            for name, node in nodes.items():
                account = book.trees.by_name[tree].nodes[name].account
                for resource in self.reference.now.resources[tree]:
                    used = account.used.amount(resource) // (1000 if resource == "cpu" else 1)
                    assert used == now[tree, name, resource], (tree, name, resource)
                    if not forced and resource in node.quota:
                        assert used <= max(node.quota[resource], before[tree, name, resource])

    def replayed(self) -> None:
        """What the journal repeats is what is there."""
        self.lines.extend(self.manager.journal.take())
        other = QuotaManager(journaled=True)
        other.replay(self.lines)
        assert other.plain() == self.manager.plain()
        assert other.digest == self.manager.digest
        for tree in TREES:
            mine, theirs = self.manager._book.trees.by_name[tree], other._book.trees.by_name[tree]
            assert {n: sitting(mine, n) for n in mine.nodes} == {n: sitting(theirs, n) for n in theirs.nodes}


def sitting(tree: QuotaTreeModel, node: str) -> list[tuple[str, int]]:
    return [(seat.claim.uid, seat.stamp) for seat in tree.allocated_on(tree.nodes[node])]


def without_mode(plain: dict[str, Any]) -> dict[str, object]:
    """The cells; the mode may change between a try and its undo."""
    return {name: cells for name, cells in plain["tables"].items() if name != "trees.manager"}


def node_document(node: Node) -> dict[str, Any]:
    return {"parent": node.parent, "hard": node.hard, "quota": dict(node.quota)}


def document(name: str, resources: tuple[str, ...], nodes: dict[str, Node]) -> dict[str, Any]:
    return {
        "kind": "QuotaTree",
        "metadata": {"name": name},
        "spec": {"resourceNames": list(resources), "nodes": {n: node_document(node) for n, node in nodes.items()}},
    }


def info(name: str, wishes: dict[str, Wish]) -> ConsumerInfo:
    rows = [
        {
            "treeName": tree,
            "groupID": wish.group,
            "request": wish.request,
            "priority": wish.priority,
            "type": wish.kind,
            "unPreemptable": wish.pinned,
        }
        for tree, wish in wishes.items()
    ]
    return consumer_from_plain({"kind": "Consumer", "spec": {"id": name, "trees": rows}})
