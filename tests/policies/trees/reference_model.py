"""A reference model of quota trees: plain dictionaries, every sum worked out anew, rollback by copying everything.

Short, slow and obviously right; it follows the rules sentence by sentence and shares no code with the library.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Cost = dict[str, int]


class Node(NamedTuple):
    parent: str  # "" for the root
    hard: bool
    quota: Cost


class Wish(NamedTuple):
    group: str
    request: Cost
    priority: int = 0
    kind: int = 0
    pinned: bool = False


class Seat(NamedTuple):
    node: str
    stamp: int
    via: str


@dataclass
class State:
    """All that an operation may change."""

    seats: dict[tuple[str, str], Seat] = field(default_factory=dict)  # (tree, consumer)
    displaced: set[tuple[str, str]] = field(default_factory=set)  # (winner, loser)
    trees: dict[str, dict[str, Node]] = field(default_factory=dict)
    resources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    wishes: dict[str, dict[str, Wish]] = field(default_factory=dict)  # by consumer, by tree

    def copy(self) -> State:
        return State(
            dict(self.seats),
            set(self.displaced),
            {name: dict(nodes) for name, nodes in self.trees.items()},
            dict(self.resources),
            {name: dict(rows) for name, rows in self.wishes.items()},
        )


class ReferenceModel:
    def __init__(self) -> None:
        self.now = State()
        self.victims: list[tuple[str, dict[str, Seat]]] = []
        self.origins: dict[tuple[str, str], Seat] = {}  # at the beginning of the operation
        self.stamps = 0  # given out so far, ever

    # The shape of a tree

    def add_tree(self, name: str, resources: tuple[str, ...], nodes: dict[str, Node]) -> None:
        self.now.trees[name] = nodes
        self.now.resources[name] = resources

    def path(self, tree: str, node: str) -> list[str]:
        found = [node]
        while self.now.trees[tree][found[-1]].parent:
            found.append(self.now.trees[tree][found[-1]].parent)
        return found

    def is_leaf(self, tree: str, node: str) -> bool:
        nodes = self.now.trees[tree]
        return node in nodes and all(other.parent != node for other in nodes.values())

    # Who is where

    def cost(self, tree: str, consumer: str) -> Cost:
        request = self.now.wishes[consumer][tree].request
        return {name: amount for name, amount in request.items() if name in self.now.resources[tree] and amount > 0}

    def used(self, tree: str, node: str, resource: str, but: str = "") -> int:
        return sum(
            self.cost(tree, consumer).get(resource, 0)
            for (place, consumer), seat in self.now.seats.items()
            if place == tree and consumer != but and node in self.path(tree, seat.node)
        )

    def fits(self, tree: str, node: str, cost: Cost, but: str = "") -> bool:
        """Whether there is room for the cost; ``but``: one who is not counted."""
        quota = self.now.trees[tree][node].quota
        return all(self.used(tree, node, n, but) + amount <= quota[n] for n, amount in cost.items() if n in quota)

    def fits_up(self, tree: str, node: str, cost: Cost) -> bool:
        return all(self.fits(tree, one, cost) for one in self.path(tree, node))

    def sitting(self, tree: str, node: str) -> list[str]:
        """Lower priority first, then longest on the node."""
        found = [c for (place, c), seat in self.now.seats.items() if place == tree and seat.node == node]
        return sorted(found, key=lambda c: (self.now.wishes[c][tree].priority, self.now.seats[tree, c].stamp))

    def held(self, consumer: str) -> dict[str, Seat]:
        return {tree: seat for (tree, c), seat in self.now.seats.items() if c == consumer}

    def sit(self, tree: str, consumer: str, node: str, via: str) -> None:
        self.stamps += 1
        self.now.seats[tree, consumer] = Seat(node, self.stamps, via)

    def barred(self, claimant: str, victim: str) -> bool:
        reached = {claimant}
        while True:
            more = {winner for winner, loser in self.now.displaced if loser in reached} - reached
            if not more:
                return victim in reached - {claimant}
            reached |= more

    def may_displace(self, tree: str, claimant: str, victim: str) -> bool:
        rows = self.now.wishes
        pinned = any(rows[victim][one].pinned for one in self.held(victim))
        same_kind = rows[victim][tree].kind == rows[claimant][tree].kind
        return same_kind and not pinned and not self.barred(claimant, victim)

    # Allocation

    def allocate(self, consumer: str, trees: list[str], via: str) -> tuple[bool, list[str]]:
        """(whether it worked, who was preempted, in the order in which they were chosen)."""
        before = self.now.copy()
        self.victims = []
        self.origins = before.seats
        if not self.allocate_all(consumer, trees, via):
            together = self.together(consumer, trees, via) if len(trees) > 1 else []
            for one in together:
                self.depart(one)
            if not together or not self.allocate_all(consumer, trees, via):
                self.now = before
                return False, []
        preempted = [name for name, seats in reversed(self.victims) if not self.put_back(name, seats)][::-1]
        self.now.displaced |= {(consumer, loser) for loser in preempted}
        self.slide()
        return True, preempted

    def allocate_all(self, consumer: str, trees: list[str], via: str) -> bool:
        before, gone = self.now.copy(), list(self.victims)
        if all(self.allocate_in(tree, consumer, via) for tree in sorted(trees)):
            return True
        self.now, self.victims = before, gone
        return False

    def together(self, consumer: str, trees: list[str], via: str) -> list[str]:
        """The first set after which every tree climbs; each member is needed in a tree where it is a candidate."""
        of = {
            tree: self.candidates(tree, consumer) if self.is_leaf(tree, self.now.wishes[consumer][tree].group) else []
            for tree in sorted(trees)
        }
        before = self.now.copy()

        def failing(gone: list[str]) -> list[str]:
            self.now, self.victims = before.copy(), []
            for one in gone:
                self.depart(one)
            found = [tree for tree in of if not self.climb_in(tree, consumer, via)]
            self.now, self.victims = before.copy(), []
            return found

        def legal(some: list[str]) -> bool:
            others = {one: [other for other in some if other != one] for one in some}
            return not failing(some) and all(any(one in of[t] for t in failing(rest)) for one, rest in others.items())

        every = list(dict.fromkeys(one for candidates in of.values() for one in candidates))
        return next((some for some in subsets(every) if legal(some)), [])

    def climb_in(self, tree: str, consumer: str, via: str) -> bool:
        return self.is_leaf(tree, self.now.wishes[consumer][tree].group) and self.climb(tree, consumer, via)

    def candidates(self, tree: str, consumer: str) -> list[str]:
        """Those of lower priority on the way, the least important first."""
        mine = self.now.wishes[consumer][tree]
        found = [
            one
            for node in self.path(tree, mine.group)
            for one in self.sitting(tree, node)
            if self.now.wishes[one][tree].priority < mine.priority and self.may_displace(tree, consumer, one)
        ]
        return sorted(found, key=lambda c: (self.now.wishes[c][tree].priority, self.now.seats[tree, c].stamp))

    def allocate_in(self, tree: str, consumer: str, via: str) -> bool:
        group = self.now.wishes[consumer][tree].group
        if not self.is_leaf(tree, group):
            return False
        return self.climb(tree, consumer, via) or self.evict(tree, consumer, via)

    def climb(self, tree: str, consumer: str, via: str) -> bool:
        cost = self.cost(tree, consumer)
        before, gone = self.now.copy(), list(self.victims)
        settled, hard = "", False
        for node in self.path(tree, self.now.wishes[consumer][tree].group):
            hard = hard or self.now.trees[tree][node].hard
            # The consumer is seated as soon as it settles, so it is left out of what the nodes above use.
            room = self.fits(tree, node, cost, consumer) or self.clear(tree, node, consumer, lower_only=not settled)
            if room and not settled:
                self.sit(tree, consumer, node, via)
                settled = node
            elif not room and not settled and self.now.trees[tree][node].hard:
                return False
            elif not room and settled:
                self.now, self.victims, settled = before.copy(), list(gone), ""
                if hard:
                    return False
        return bool(settled)

    def clear(self, tree: str, node: str, consumer: str, *, lower_only: bool) -> bool:
        spec = self.now.trees[tree][node]
        if spec.hard and spec.parent:
            return False
        mine = self.now.wishes[consumer][tree].priority
        candidates = [
            one
            for one in self.sitting(tree, node)
            if not (lower_only and self.now.wishes[one][tree].priority >= mine)
            and (spec.parent or self.may_displace(tree, consumer, one))
        ]
        chosen: list[str] = []
        for one in candidates:
            chosen.append(one)
            if self.would_fit(tree, node, consumer, chosen):
                break
        else:
            return False
        for one in reversed(chosen):
            fewer = [other for other in chosen if other != one]
            if self.would_fit(tree, node, consumer, fewer):
                chosen = fewer
        for one in chosen:
            if spec.parent:
                self.sit(tree, one, spec.parent, self.now.seats[tree, one].via)
            else:
                self.depart(one)
        return True

    def would_fit(self, tree: str, node: str, consumer: str, without: list[str]) -> bool:
        before = dict(self.now.seats)
        for one in without:
            del self.now.seats[tree, one]
        result = self.fits(tree, node, self.cost(tree, consumer), consumer)
        self.now.seats = before
        return result

    def evict(self, tree: str, consumer: str, via: str) -> bool:
        """Least important first until the climb works; then those that are not needed come back, the last one first."""
        candidates = self.candidates(tree, consumer)
        before, gone = self.now.copy(), list(self.victims)

        def climb_without(leaving: list[str]) -> bool:
            self.now, self.victims = before.copy(), list(gone)
            for one in leaving:
                self.depart(one)
            return self.climb(tree, consumer, via)

        first = [candidates[: n + 1] for n in range(len(candidates))]
        chosen = next((some for some in (*first, *subsets(candidates)) if climb_without(some)), None)
        if chosen is None:
            self.now, self.victims = before, gone
            return False
        for one in reversed(chosen):
            fewer = [other for other in chosen if other != one]
            chosen = fewer if climb_without(fewer) else chosen
        return climb_without(chosen)

    def depart(self, consumer: str) -> None:
        """It leaves every tree; the seats that it had at the beginning of the operation are kept."""
        self.victims.append((consumer, {tree: self.origins[tree, consumer] for tree in self.held(consumer)}))
        for tree in self.held(consumer):
            del self.now.seats[tree, consumer]

    def put_back(self, consumer: str, seats: dict[str, Seat]) -> bool:
        before = self.now.copy()
        for tree, seat in sorted(seats.items()):
            cost = self.cost(tree, consumer)
            if self.fits_up(tree, seat.node, cost):
                self.now.seats[tree, consumer] = seat
                continue
            node = self.lowest_fit(tree, consumer)
            if not node:
                self.now = before
                return False
            self.sit(tree, consumer, node, seat.via)
        return True

    def lowest_fit(self, tree: str, consumer: str) -> str:
        group = self.now.wishes[consumer][tree].group
        for node in self.path(tree, group) if group in self.now.trees[tree] else []:
            if self.fits_up(tree, node, self.cost(tree, consumer)):
                return node
            if self.now.trees[tree][node].hard:
                return ""
        return ""

    # Everything else

    def force(self, consumer: str, trees: list[str], via: str) -> None:
        for tree in sorted(trees):
            self.sit(tree, consumer, self.now.wishes[consumer][tree].group, via)
        self.slide()

    def release(self, consumer: str, trees: list[str]) -> None:
        for tree in trees:
            del self.now.seats[tree, consumer]
        if not self.held(consumer):
            self.now.displaced = {(winner, loser) for winner, loser in self.now.displaced if winner != consumer}
            self.forget(consumer)
        self.slide()

    def forget(self, released: str = "") -> None:
        """Who displaced whom is of no interest when none of those who are connected by it is there any more."""
        rest = set(self.now.displaced)
        while rest:
            kin = set(next(iter(rest)))
            while any(bool(kin & set(edge)) and not set(edge) <= kin for edge in rest):
                kin |= {c for edge in rest if kin & set(edge) for c in edge}
            edges = {edge for edge in rest if kin & set(edge)}
            if not (kin - {released}) & set(self.now.wishes):
                self.now.displaced -= edges
            rest -= edges

    def slide(self) -> None:
        for tree in sorted(self.now.trees):
            nodes = self.now.trees[tree]
            for node in sorted(nodes, key=lambda name: (len(self.path(tree, name)), name)):
                order = [
                    (-self.now.wishes[c][tree].priority, self.now.seats[tree, c].stamp, c)
                    for c in self.sitting(tree, node)
                ]
                movers = [(c, self.child(tree, node, c)) for _, _, c in sorted(order)]
                for consumer, child in movers:
                    if child and self.fits(tree, child, self.cost(tree, consumer)):
                        self.sit(tree, consumer, child, self.now.seats[tree, consumer].via)

    def child(self, tree: str, node: str, consumer: str) -> str:
        """The next node on the way down to the consumer's group, "" when it is there."""
        group = self.now.wishes[consumer][tree].group
        way = self.path(tree, group) if group in self.now.trees[tree] else []
        return way[way.index(node) - 1] if node in way and node != group else ""

    def refresh(self, tree: str, resources: tuple[str, ...], nodes: dict[str, Node], renames: dict[str, str]) -> None:
        """``nodes``: only those that hang from the root."""
        old = dict(self.now.seats)
        for rows in self.now.wishes.values():
            if tree in rows:
                rows[tree] = rows[tree]._replace(group=renames.get(rows[tree].group, rows[tree].group))
        self.add_tree(tree, resources, nodes)
        root = next((name for name, node in nodes.items() if not node.parent), "")
        lost = []
        for (place, consumer), seat in sorted(old.items(), key=lambda item: item[1].stamp):
            if place != tree:
                continue
            group = self.now.wishes[consumer][tree].group
            node = renames.get(seat.node, seat.node)
            target = group if group in nodes else root
            if self.is_leaf(tree, group) and node in nodes and node in self.path(tree, group):
                target = node
            if not target:
                lost.append(consumer)
            elif target == node:
                self.now.seats[tree, consumer] = Seat(node, seat.stamp, seat.via)
            else:
                self.sit(tree, consumer, target, seat.via)
        for consumer in lost:
            via = old[tree, consumer].via
            for other, seat in self.held(consumer).items():
                if other == tree or (via and seat.via == via):
                    del self.now.seats[other, consumer]
        self.slide()


def subsets(candidates: list[str]) -> list[list[str]]:
    """All of them, those whose most important member is least important first; none if there would be too many."""
    if len(candidates) > 12:
        return []
    return [[one for i, one in enumerate(candidates) if mask >> i & 1] for mask in range(1, 2 ** len(candidates))]
