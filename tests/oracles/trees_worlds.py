"""Random lives of small quota trees and forests: each allocation by a real manager is compared with brute force.

A life fills its trees first. From then on nearly every allocation needs a push or a victim, or is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from random import Random

from bursar.policies.trees import MAINTENANCE, NORMAL, AllocationResponse, QuotaManager, consumer_from_plain
from tests.oracles.trees_oracle import Consumer, Grove, Plan, TreeNode, TreesJudge, Wanted, fits_again
from tests.oracles.verdicts import ILLEGAL, MISSED, OTHER, SAME, TRACE, Verdict

RESOURCES = ("cpu", "memory")
FOREST = "F"
FILLING = 10  # allocations before the first that is compared
STEPS = 10  # compared allocations, and releases between them
MOST = 9  # consumers at a time
READDED = 0.5  # of the displaced consumers that come back, as new ones of that id
UNDONE = 0.7  # of the compared decisions, so that the trees stay full of what may be a victim


# Making trees


def make_tree(random: Random, prefix: str, resources: tuple[str, ...]) -> dict[str, TreeNode]:
    """Up to seven nodes, parents first. Children's quotas together may be more than their parent's."""
    size = random.randint(2, 7)
    names = [f"{prefix}{i}" for i in range(size)]
    nodes: dict[str, TreeNode] = {}
    for i, name in enumerate(names):
        parent = random.choice(names[max(0, i - 2) : i]) if i else ""
        most = 8 if not i else random.choice((0, 1, 2, 3, 4, 6))
        least = 3 if not i else 0
        quota = {resource: random.randint(min(least, most), most) for resource in resources if random.random() < 0.95}
        nodes[name] = TreeNode(parent, random.random() < 0.3, quota)
    return nodes


def leaves(nodes: dict[str, TreeNode]) -> list[str]:
    parents = {node.parent for node in nodes.values()}
    return [name for name in nodes if name not in parents]


def reach(nodes: dict[str, TreeNode], group: str, resource: str) -> int:
    """The most of a resource that the group could ever have, on the nodes up to the first hard one."""
    path = [group]
    while nodes[path[-1]].parent:
        path.append(nodes[path[-1]].parent)
    most = 0
    for i, node in enumerate(path):
        most = max(most, min(nodes[above].quota.get(resource, 9) for above in path[i:]))
        if nodes[node].hard:
            break
    return most


def make_consumer(random: Random, name: str, trees: dict[str, dict[str, TreeNode]], *, late: bool) -> Consumer:
    """Late ones have more priority, and mostly ask for no more than their group could have."""
    named = [tree for tree in trees if random.random() < 0.85] or [random.choice(sorted(trees))]
    kind = int(random.random() < 0.08)
    priority = random.choice((0, 1, 3, 5, 9, 9) if late else (0, 0, 0, 1, 2, 5))
    rows = {}
    for tree in named:
        nodes = trees[tree]
        group = random.choice(leaves(nodes))
        resources = sorted({resource for node in nodes.values() for resource in node.quota}) or ["cpu"]
        sizes = {resource: reach(nodes, group, resource) for resource in resources}
        if random.random() < 0.1:
            sizes = dict.fromkeys(resources, 4)
        request = {
            resource: random.choice((0, 1, 2, 3)) if most > 3 else random.randint(most > 0, most)
            for resource, most in sizes.items()
        }
        own = random.choice((0, 1, 2, 5)) if random.random() < 0.15 else priority
        rows[tree] = Wanted(group, request, own, kind, random.random() < (0.06 if len(named) > 1 else 0.1))
    return Consumer(name, rows)


# Playing


class Life:
    """A manager and what the oracle must know about it. The state is read from the manager before each decision."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        resources = RESOURCES[: self.random.choice((1, 1, 2))]
        count = self.random.choice((1, 1, 2))
        self.trees = {tree: make_tree(self.random, tree, resources) for tree in ("S", "T")[:count]}
        self.forest = count > 1 or self.random.random() < 0.1
        self.consumers: dict[str, Consumer] = {}
        self.displaced: set[tuple[str, str]] = set()
        self.manager = QuotaManager()
        for tree, nodes in self.trees.items():
            self.manager.add_tree_from_struct(tree_document(tree, nodes, resources))
        if self.forest:
            self.manager.add_forest(FOREST)
            for tree in self.trees:
                self.manager.add_tree_to_forest(FOREST, tree)
        self.count = 0

    def run(self) -> Iterator[Verdict]:
        if self.random.random() < 0.15:
            self.force()
        self.manager.set_mode(NORMAL)
        for _ in range(FILLING):
            self.take(self.allocate(self.add(self.newcomer(late=False))))
        for _ in range(STEPS):
            held = len(self.held())
            if held and (held >= MOST or self.random.random() < 0.12):
                self.release()
            else:
                yield self.compare(self.returning() or self.newcomer(late=True))

    def force(self) -> None:
        """Some are there from maintenance, on any node and over its quota."""
        self.manager.set_mode(MAINTENANCE)
        for _ in range(self.random.randint(1, 3)):
            consumer = self.newcomer(late=False)
            for tree, row in consumer.rows.items():
                node = self.random.choice(sorted(self.trees[tree]))
                consumer.rows[tree] = Wanted(node, row.request, row.priority, row.type, row.unpreemptable)
            self.allocate(self.add(consumer))

    def newcomer(self, *, late: bool) -> Consumer:
        self.count += 1
        return make_consumer(self.random, f"c{self.count}", self.trees, late=late)

    def returning(self) -> Consumer | None:
        """A displaced consumer that comes back under its id while all that displaced it are still there."""
        held = self.held()
        back = sorted({loser for _, loser in self.displaced if loser not in held})
        if not back or self.random.random() > 0.4:
            return None
        name = self.random.choice(back)
        if self.random.random() > READDED:
            return self.consumers[name]
        self.manager.remove_consumer(name)
        del self.consumers[name]
        return make_consumer(self.random, name, self.trees, late=True)

    def held(self) -> set[str]:
        return {
            name
            for tree in self.trees
            for node in self.manager.get_tree_state(tree).values()
            for name in node.consumers
        }

    def release(self) -> None:
        name = self.random.choice(sorted(self.held()))
        if self.forest:
            self.manager.deallocate_forest(FOREST, name)
        else:
            self.manager.deallocate(next(iter(self.trees)), name)
        self.manager.remove_consumer(name)
        # Released by its owner: what it did is over, and so is what was done to it.
        self.displaced = {pair for pair in self.displaced if name not in pair}

    def add(self, consumer: Consumer) -> Consumer:
        if consumer.name not in self.consumers:
            self.consumers[consumer.name] = consumer
            self.manager.add_consumer(consumer_from_plain(consumer_document(consumer)))
        return consumer

    def allocate(self, consumer: Consumer) -> AllocationResponse:
        if self.forest:
            return self.manager.allocate_forest(FOREST, consumer.name)
        return self.manager.allocate(next(iter(self.trees)), consumer.name)

    def attempt(self, consumer: Consumer) -> AllocationResponse:
        """The same, and it can be undone."""
        if self.forest:
            return self.manager.try_allocate_forest(FOREST, consumer.name)
        return self.manager.try_allocate(next(iter(self.trees)), consumer.name)

    def undo(self, response: AllocationResponse) -> None:
        assert response.token is not None
        if self.forest:
            self.manager.undo_allocate_forest(response.token)
        else:
            self.manager.undo_allocate(response.token)

    def take(self, response: AllocationResponse, *, undone: bool = False) -> None:
        """What a consumer displaced is remembered also when it is displaced itself, or removed after that."""
        if response.allocated and not undone:
            self.displaced |= {(response.consumer_id, name) for name in response.preempted}
        elif not any(name == response.consumer_id for _, name in self.displaced):
            self.manager.remove_consumer(response.consumer_id)
            del self.consumers[response.consumer_id]

    def grove(self) -> Grove:
        """What the manager holds now; arrivals in the order of its stamps."""
        placed: dict[str, dict[str, tuple[str, int]]] = {}
        tables = self.manager.plain()["tables"]
        assert isinstance(tables, dict)
        for tree in self.trees:
            placed[tree] = dict(tables.get(f"trees.at/{tree}", {}))
            for name, node in self.manager.get_tree_state(tree).items():
                there = sorted((stamp, one) for one, (at, stamp) in placed[tree].items() if at == name)
                assert node.consumers == tuple(one for _, one in there)
        return Grove(self.trees, dict(self.consumers), placed, frozenset(self.displaced))

    # Comparing

    def compare(self, consumer: Consumer) -> Verdict:
        before = self.grove()
        self.add(consumer)
        judge = TreesJudge(before, consumer)
        plain = self.manager.plain()
        undone = self.random.random() < UNDONE
        response = (self.attempt if undone else self.allocate)(consumer)
        after = self.grove()
        problems = []
        if response.allocated:
            problems = judge_allocation(judge, response, before, after)
        fault = self.fault(judge, response, problems)
        if undone:
            self.undo(response)
        if fault == SAME and (undone or not response.allocated) and self.manager.plain() != plain:
            fault = TRACE
        self.take(response, undone=undone)
        story = "" if fault == SAME else tell(judge, response, problems)
        room = not response.allocated and could_be_emptied(judge)
        mark = "a forest of two" if len(judge.trees) > 1 else ""
        if judge.grove.barred(consumer.name):
            mark = "a claimant that was displaced before"
        return Verdict(self.seed, fault, response.allocated, len(response.preempted), room, story, mark)

    def fault(self, judge: TreesJudge, response: AllocationResponse, problems: list[str]) -> str:
        named = judge.named()
        if not response.allocated:
            return SAME if named is None else MISSED
        if problems:
            return ILLEGAL
        if named is None or len(judge.trees) > 1:
            return SAME
        wanted, found = judge.leaving(named), set(response.preempted)
        return SAME if found == wanted or judge.harm(found) < judge.harm(wanted) else OTHER


def judge_allocation(judge: TreesJudge, response: AllocationResponse, before: Grove, after: Grove) -> list[str]:
    """What is wrong about an allocation: its victims, or the state that it leaves."""
    victims = set(response.preempted)
    problems = []
    plans = chain(judge.plans(), judge.lenient_plans())
    if not any(victims <= {*plan.chosen, *plan.pushed_out} for plan in plans):
        problems.append("the victims are no part of a legal set")
    problems += [f"{name} would fit in again" for name in sorted(victims) if fits_again(after, name) is not None]
    for tree, nodes in judge.grove.trees.items():
        gone = {name for name in before.placed[tree] if name not in after.placed[tree]}
        if gone != victims & set(before.placed[tree]):
            problems.append(f"gone from {tree}: {sorted(gone)}")
        for node in nodes:
            problems += over(tree, node, before, after)
        problems += [f"{name} is on no node of its path" for name in strays(tree, before, after)]
    here = [tree for tree in judge.trees if judge.claimant.name not in after.placed[tree]]
    return problems + [f"the claimant is not on {tree}" for tree in here]


def over(tree: str, node: str, before: Grove, after: Grove) -> list[str]:
    """No use of a resource rises above max(quota, use before)."""
    quota, was = after.trees[tree][node].quota, before.used(tree, node)
    used = after.used(tree, node).items()
    return [
        f"{resource} of {node} is {amount}, above {quota[resource]}"
        for resource, amount in used
        if resource in quota and amount > max(quota[resource], was.get(resource, 0))
    ]


def strays(tree: str, before: Grove, after: Grove) -> list[str]:
    """Consumers that moved off their path or over a hard node."""
    found = []
    for name, (node, _) in after.placed[tree].items():
        if before.placed[tree].get(name, ("", 0))[0] == node:
            continue
        path = after.path(tree, after.consumers[name].rows[tree].group)
        below = path[: path.index(node)] if node in path else path
        if node not in path or any(after.trees[tree][one].hard for one in below):
            found.append(name)
    return found


def could_be_emptied(judge: TreesJudge) -> bool:
    """Whether the claimant would fit if every consumer that may be a victim left."""
    grove = judge.grove.copy()
    for name in judge.grove.consumers:
        if not grove.protected(name, judge.claimant.name):
            grove.remove(name)
    return fits_again(grove, judge.claimant.name) is not None


# Documents and texts


def tree_document(tree: str, nodes: dict[str, TreeNode], resources: tuple[str, ...]) -> dict[str, object]:
    rows = {}
    for name, node in nodes.items():
        row: dict[str, object] = {"hard": node.hard, "quota": node.quota}
        rows[name] = row | ({"parent": node.parent} if node.parent else {})
    spec = {"resourceNames": list(resources), "nodes": rows}
    return {"kind": "QuotaTree", "metadata": {"name": tree}, "spec": spec}


def consumer_document(consumer: Consumer) -> dict[str, object]:
    rows = [
        {
            "treeName": tree,
            "groupID": row.group,
            "request": row.request,
            "priority": row.priority,
            "type": row.type,
            "unPreemptable": row.unpreemptable,
        }
        for tree, row in consumer.rows.items()
    ]
    return {"kind": "Consumer", "metadata": {"name": consumer.name}, "spec": {"id": consumer.name, "trees": rows}}


def tell(judge: TreesJudge, response: AllocationResponse, problems: list[str]) -> str:
    grove = judge.grove
    lines = []
    for tree, nodes in grove.trees.items():
        for name, node in nodes.items():
            there = " ".join(_one(grove, tree, one) for one in grove.on(tree, name))
            mark = "hard" if node.hard else "soft"
            lines.append(f"  {tree}: {name} in {node.parent or '-'} {mark} {_short(node.quota)}  {there}")
    lines += [f"  asks {tree}: {_one(grove, tree, judge.claimant.name)}" for tree in judge.trees]
    lines += [f"  {winner} displaced {loser}" for winner, loser in sorted(grove.displaced)]
    named = judge.named()
    lines.append(f"  wanted: {_plan(judge, named)}")
    got = f"allocated, victims {sorted(response.preempted)}" if response.allocated else "refused"
    return "\n".join([*lines, f"  the manager: {got}", *(f"  wrong: {problem}" for problem in problems)])


def _one(grove: Grove, tree: str, name: str) -> str:
    row = grove.consumers[name].rows[tree]
    marks = (f" type {row.type}" if row.type else "") + (" unpreemptable" if row.unpreemptable else "")
    return f"{name}({row.group} {_short(row.request)} p{row.priority}{marks})"


def _short(amounts: dict[str, int]) -> str:
    return "{" + " ".join(f"{name[:1]}{amount}" for name, amount in amounts.items()) + "}"


def _plan(judge: TreesJudge, plan: Plan | None) -> str:
    if plan is None:
        return "refused"
    ends = f", of whom {sorted(judge.leaving(plan))} leave" if len(judge.trees) == 1 else ""
    return f"chosen {list(plan.chosen)}, pushed out {list(plan.pushed_out)}{ends}"


def play(seed: int) -> Iterator[Verdict]:
    yield from Life(seed).run()
