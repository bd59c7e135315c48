"""Brute force for quota trees and forests: every set of phase-2 candidates, judged by whether phase 1 then succeeds.

The trees are so small that all sets can be tried. Nothing here is shared with the policy: phase 1 is written from the
notes on the algorithm and the rules, each beside the lines that state it.

Where the text is open, the most literal reading is taken:

* Candidates of phase 2 are all consumers on the claimant's path in a tree, up to the root, wherever its climb ends.
* In a forest a victim leaves all its trees, so it makes room in some where it is no candidate (higher priority, other
  type, not on the path). Each victim must be needed by a tree where it is a candidate: without it, with the others
  gone, phase 1 of that tree fails.
* Phase 1 runs over the trees of a forest in name order. A consumer that it pushes out of a root leaves all its trees
  at once: trees before in the order were served already, trees after it have the room.
* A consumer pushed out of a root is a victim of phase 1, whatever its priority (owners reclaim from borrowers), unless
  it is unPreemptable in any tree, has another type in that tree, or displaced the claimant.
* A claimant must be admitted if a set is legal by that. An allocation is only called illegal if another reading does
  not help it either: each victim leaves when the first tree that it is taken for is served, and one that no tree needs
  is merely too much, not illegal.
* A set of phase 2 need not be what leaves in the end: victims of both phases that fit in again are kept or moved. What
  leaves is legal if it is part of the victims of both phases for some legal set, and none of it fits in again.
* Of several legal sets of phase 2 the one is named whose most important member is least important: higher priority,
  then later arrival. The empty set is best: phase 2 is for what phase 1 cannot do. Arrivals are only compared in one
  tree; in a forest of several trees all legal sets are equally good.
* That set is not always the least harmful one in the end, because phase 1 may push out another consumer beside it. Then
  a legal set is right, too, of which less important consumers leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, product

Amounts = dict[str, int]


@dataclass(frozen=True)
class TreeNode:
    """A resource that is missing in the quota is unlimited here."""

    parent: str  # "" for the root
    hard: bool
    quota: Amounts


@dataclass(frozen=True)
class Wanted:
    """What a consumer requests of one tree."""

    group: str
    request: Amounts
    priority: int = 0
    type: int = 0
    unpreemptable: bool = False


@dataclass(frozen=True)
class Consumer:
    name: str
    rows: dict[str, Wanted]  # by tree


@dataclass
class Grove:
    """Trees with consumers on them. ``placed`` has the node and the stamp of each arrival, by tree and consumer."""

    trees: dict[str, dict[str, TreeNode]]
    consumers: dict[str, Consumer] = field(default_factory=dict)
    placed: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict)
    displaced: frozenset[tuple[str, str]] = frozenset()  # (who displaced, who was displaced)
    paths: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def copy(self) -> Grove:
        placed = {tree: dict(there) for tree, there in self.placed.items()}
        return Grove(self.trees, self.consumers, placed, self.displaced, self.paths)

    def path(self, tree: str, node: str) -> list[str]:
        """From the node to the root."""
        if (tree, node) not in self.paths:
            parent = self.trees[tree][node].parent
            self.paths[tree, node] = [node, *(self.path(tree, parent) if parent else [])]
        return self.paths[tree, node]

    def on(self, tree: str, node: str) -> list[str]:
        """The consumers of a node, the longest there first."""
        there = [(stamp, name) for name, (at, stamp) in self.placed[tree].items() if at == node]
        return [name for _, name in sorted(there)]

    def request(self, tree: str, name: str) -> Amounts:
        return self.consumers[name].rows[tree].request

    def used(self, tree: str, node: str) -> Amounts:
        """What the consumers on the node and on all below it request."""
        total: Amounts = {}
        for name, (at, _) in self.placed[tree].items():
            if node in self.path(tree, at):
                for resource, amount in self.request(tree, name).items():
                    total[resource] = total.get(resource, 0) + amount
        return total

    def fits(self, tree: str, node: str, request: Amounts, without: Iterable[str] = ()) -> bool:
        """Dimensions with a zero request are skipped. ``without`` are consumers that would not be counted."""
        used, quota = self.used(tree, node), self.trees[tree][node].quota
        for resource, amount in request.items():
            freed = sum(self.request(tree, name).get(resource, 0) for name in without)
            if amount > 0 and resource in quota and used.get(resource, 0) - freed + amount > quota[resource]:
                return False
        return True

    def put(self, tree: str, name: str, node: str) -> None:
        """Each arrival at a node takes the tree's next stamp."""
        latest = max((stamp for _, stamp in self.placed[tree].values()), default=0)
        self.placed[tree][name] = (node, latest + 1)

    def remove(self, name: str) -> None:
        """Victims leave every tree that they hold."""
        for there in self.placed.values():
            there.pop(name, None)

    def barred(self, claimant: str) -> set[str]:
        """Those that preempted the claimant, directly or through others."""
        found: set[str] = set()
        todo = [claimant]
        while todo:
            loser = todo.pop()
            for winner, other in self.displaced:
                if other == loser and winner not in found:
                    found.add(winner)
                    todo.append(winner)
        return found

    def protected(self, name: str, claimant: str) -> bool:
        """Never a victim: unPreemptable in any tree that it holds, or barred by what happened before."""
        holds = [tree for tree, there in self.placed.items() if name in there]
        return name in self.barred(claimant) or any(self.consumers[name].rows[tree].unpreemptable for tree in holds)


class Trial:
    """One claimant on a grove that it may change: phase 1, with all victims of phase 2 gone before."""

    def __init__(self, grove: Grove, claimant: str) -> None:
        self.grove = grove
        self.claimant = claimant
        self.pushed_out: list[str] = []

    def run(self, tree: str) -> bool:
        """Phase 1 in one tree: the climb from the group to the root."""
        row = self.grove.consumers[self.claimant].rows[tree]
        if row.group in {node.parent for node in self.grove.trees[tree].values()}:
            return False  # a group is a leaf
        path = self.grove.path(tree, row.group)
        start = 0
        while start < len(path):
            before, out = self.grove.copy(), list(self.pushed_out)
            stop = self._settle(tree, path, start)
            if stop is None:
                return True
            self.grove.placed, self.pushed_out = before.placed, out  # all of it is rolled back
            # A hard node that cannot serve ends the search. So does one that was passed: there is no borrowing above.
            if any(self.grove.trees[tree][node].hard for node in path[: stop + 1]):
                return False
            start = stop + 1
        return False

    def _settle(self, tree: str, path: list[str], start: int) -> int | None:
        """Place the claimant on one node of the path; those above only count the request. Or: the node that fails."""
        for i in range(start, len(path)):
            if not self._make_room(tree, path[i], only_lower=i == start):
                return i
            if i == start:
                self.grove.put(tree, self.claimant, path[i])
        return None

    def _make_room(self, tree: str, node: str, *, only_lower: bool) -> bool:
        """The request fits, or it does after consumers of the node have moved up to the parent."""
        grove, row = self.grove, self.grove.consumers[self.claimant].rows[tree]
        # Above the node where it settled the claimant is in the use already: there its request takes its own place.
        own = [self.claimant] if self.claimant in grove.placed[tree] else []
        if grove.fits(tree, node, row.request, own):
            return True
        root = not grove.trees[tree][node].parent
        if grove.trees[tree][node].hard and not root:
            return False  # consumers of a hard node may not leave it upwards
        chosen: list[str] = []
        for name in self._movable(tree, node, only_lower=only_lower, root=root):
            chosen.append(name)
            if grove.fits(tree, node, row.request, [*own, *chosen]):
                break
        else:
            return False
        self._move(tree, node, self._pruned(tree, node, chosen, own))
        return True

    def _movable(self, tree: str, node: str, *, only_lower: bool, root: bool) -> list[str]:
        """Lower priority first, then longest on the node. Where it settles, the claimant pushes lower priorities only.

        Nobody leaves the root who is unPreemptable, of another type, or displaced the claimant.
        """
        grove, row = self.grove, self.grove.consumers[self.claimant].rows[tree]
        names = sorted(
            (name for name in grove.on(tree, node) if name != self.claimant),
            key=lambda name: grove.consumers[name].rows[tree].priority,  # a stable sort: the longest there first
        )
        rows = {name: grove.consumers[name].rows[tree] for name in names}
        if only_lower:
            names = [name for name in names if rows[name].priority < row.priority]
        if root:
            names = [name for name in names if rows[name].type == row.type]
            names = [name for name in names if not grove.protected(name, self.claimant)]
        return names

    def _pruned(self, tree: str, node: str, chosen: list[str], own: list[str]) -> list[str]:
        """Moves are dropped from the last chosen backwards, and made in chosen order."""
        row = self.grove.consumers[self.claimant].rows[tree]
        kept = list(chosen)
        for name in reversed(chosen):
            rest = [other for other in kept if other != name]
            if self.grove.fits(tree, node, row.request, [*own, *rest]):
                kept = rest
        return kept

    def _move(self, tree: str, node: str, names: list[str]) -> None:
        parent = self.grove.trees[tree][node].parent
        for name in names:
            if parent:
                self.grove.put(tree, name, parent)
            else:
                self.grove.remove(name)
                self.pushed_out.append(name)


@dataclass(frozen=True)
class Plan:
    """A legal set of phase 2, and whom phase 1 then pushes out of a root."""

    chosen: tuple[str, ...]
    pushed_out: tuple[str, ...]


class TreesJudge:
    """All legal sets of victims for one claimant, whose trees are those of the grove that it names."""

    def __init__(self, grove: Grove, claimant: Consumer) -> None:
        self.grove = grove.copy()
        self.grove.consumers = {**grove.consumers, claimant.name: claimant}
        self.claimant = claimant
        self.trees = sorted(tree for tree in claimant.rows if tree in grove.trees)
        tried = {chosen: self._tried(chosen) for chosen in self.sets()}
        self.failing = {chosen: failing for chosen, (failing, _) in tried.items()}
        self.trials = {chosen: trial for chosen, (_, trial) in tried.items()}

    def candidates(self, tree: str) -> list[str]:
        """Lower priority, preemptible, same type, on the path, not barred."""
        row = self.claimant.rows[tree]
        path = self.grove.path(tree, row.group)
        found = []
        for name, (node, _) in self.grove.placed[tree].items():
            other = self.grove.consumers[name].rows[tree]
            lower = other.priority < row.priority and other.type == row.type
            if node in path and lower and not self.grove.protected(name, self.claimant.name):
                found.append(name)
        return sorted(found)

    def sets(self) -> Iterator[frozenset[str]]:
        names = sorted({name for tree in self.trees for name in self.candidates(tree)})
        for size in range(len(names) + 1):
            yield from (frozenset(chosen) for chosen in combinations(names, size))

    def _tried(self, chosen: frozenset[str]) -> tuple[str, Trial]:
        """The first tree whose phase 1 fails after these have left; "" if none does."""
        trial = Trial(self.grove.copy(), self.claimant.name)
        for name in chosen:
            trial.grove.remove(name)
        for tree in self.trees:
            if not trial.run(tree):
                return tree, trial
        return "", trial

    def legal(self, chosen: frozenset[str]) -> bool:
        """Phase 1 succeeds after they left, and each is needed by a tree where it is a candidate."""
        if self.failing[chosen]:
            return False
        if len(self.trees) == 1:
            return True
        return all(self._needed(name, chosen - {name}) for name in chosen)

    def _needed(self, name: str, others: frozenset[str]) -> bool:
        """Some tree where it is a candidate fails without it."""
        for tree in self.trees:
            trial = Trial(self.grove.copy(), self.claimant.name)
            for other in others:
                trial.grove.remove(other)
            for earlier in self.trees[: self.trees.index(tree)]:
                trial.run(earlier)  # what it pushes out of its root leaves this tree, too
            if name in self.candidates(tree) and not trial.run(tree):
                return True
        return False

    def lenient_plans(self) -> Iterator[Plan]:
        """The sets that are legal if each victim leaves when the tree is served for which it is taken."""
        for chosen in self.failing:
            names = sorted(chosen)
            homes = [[tree for tree in self.trees if name in self.candidates(tree)] for name in names]
            for taken in product(*homes):
                plan = self._lenient(dict(zip(names, taken, strict=True)))
                if plan is not None:
                    yield plan

    def _lenient(self, taken: dict[str, str]) -> Plan | None:
        failing, trial = self._served(taken)
        if failing:
            return None
        for name, tree in taken.items():
            without, _ = self._served({other: where for other, where in taken.items() if other != name})
            if without not in {tree, ""}:
                return None  # another tree needs it, where it is no candidate
        return Plan(tuple(sorted(taken)), tuple(trial.pushed_out))

    def _served(self, taken: dict[str, str]) -> tuple[str, Trial]:
        """The first tree that fails, if the victims leave one tree after the other."""
        trial = Trial(self.grove.copy(), self.claimant.name)
        for tree in self.trees:
            for name in (name for name, where in taken.items() if where == tree):
                trial.grove.remove(name)
            if not trial.run(tree):
                return tree, trial
        return "", trial

    def plans(self) -> list[Plan]:
        legal = [chosen for chosen in self.failing if self.legal(chosen)]
        return [Plan(tuple(sorted(chosen)), tuple(self.trials[chosen].pushed_out)) for chosen in legal]

    # The choice

    def harm(self, chosen: Iterable[str]) -> list[tuple[int, int]]:
        """Most important first: higher priority, then later arrival. Only for one tree."""
        tree = self.trees[0]
        rows = {name: self.grove.consumers[name].rows[tree] for name in chosen}
        return sorted(((row.priority, self.grove.placed[tree][name][1]) for name, row in rows.items()), reverse=True)

    def named(self) -> Plan | None:
        """The legal set whose most important member is least important, ties by the next one."""
        plans = self.plans()
        if len(self.trees) > 1:
            return plans[0] if plans else None
        return min(plans, key=lambda plan: self.harm(plan.chosen), default=None)

    def leaving(self, plan: Plan) -> set[str]:
        """Who leaves in the end: the victims in reverse order of choice that find no place again. Only for one tree."""
        grove, tree = self.trials[frozenset(plan.chosen)].grove.copy(), self.trees[0]
        known = {name: self.harm([name]) for name in plan.chosen}
        victims = [*sorted(plan.chosen, key=lambda name: known[name]), *plan.pushed_out]
        gone = set()
        for name in reversed(victims):
            old = self.grove.placed[tree][name][0]
            place = fits_again(grove, name, {tree: old})
            if place is None:
                gone.add(name)
            else:
                grove.put(tree, name, place[tree])
        return gone


def fits_again(grove: Grove, name: str, old: dict[str, str] | None = None) -> dict[str, str] | None:
    """Where a victim finds a place in all its trees: its old node, or else the lowest on its path up to the root.

    It climbs over no hard node. None if some tree has no place for it.
    """
    found = {}
    for tree, row in grove.consumers[name].rows.items():
        if tree not in grove.trees:
            continue
        path = grove.path(tree, row.group)
        reach = next((i for i, node in enumerate(path) if grove.trees[tree][node].hard), len(path) - 1)
        starts = [*([old[tree]] if old and tree in old else []), *path[: reach + 1]]
        fitting = [start for start in starts if _fits_from(grove, tree, start, row.request)]
        if not fitting:
            return None
        found[tree] = fitting[0]
    return found


def _fits_from(grove: Grove, tree: str, start: str, request: Amounts) -> bool:
    return all(grove.fits(tree, node, request) for node in grove.path(tree, start))
