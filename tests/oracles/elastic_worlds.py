"""Random small worlds for elastic quotas, and their decisions by a real engine compared with brute force.

Nodes and quotas are made nearly full on purpose: their size follows from the claims that are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from bursar import Claim, ClaimSpec, Decision, Engine, Setting, default_registry, parse_vector
from bursar.engine.disruption_budgets import KIND, BudgetBody
from bursar.ledger.claims import RUNNING
from bursar.objects.kinds import CORE_KINDS, KindSet
from bursar.selectors import Requirement, Selector
from tests.builders import node as node_manifest
from tests.builders import read
from tests.oracles.elastic_oracle import CLASS_NAMES, Asking, Choice, Judge, MinMax, SmallWorld
from tests.oracles.verdicts import ILLEGAL, MISSED, OTHER, SAME, TRACE, Verdict

RESOURCES = ("example.com/a", "example.com/b", "example.com/c")
PLUGINS = [plugin for plugin in default_registry() if plugin.name in ("elastic", "nodes")]
KINDS = KindSet([*CORE_KINDS, *(kind for plugin in PLUGINS for kind in plugin.kinds)])
UNLISTED = "an unlisted dimension on a full node"
GROUP = "n8s.nebuly.ai/v1alpha1"


# Making a world


def make_world(random: Random) -> tuple[SmallWorld, Asking]:
    resources = RESOURCES[: random.choice((1, 1, 1, 2, 2, 3))]
    namespaces = [f"t{i}" for i in range(random.randint(1, 5))]
    groups = _groups(random, namespaces)
    homes = [*namespaces, "free"] if random.random() < 0.1 else namespaces
    names = [f"n{i}" for i in range(random.choice((1, 1, 2, 2, 3)))]
    ages = random.choice((3, 30, 300))  # a small number makes ties
    claims = tuple(
        _claim(random, f"c{i}", random.choice(homes), resources, ages, random.choice(names))
        for i in range(random.randint(2, 9))
    )
    claimant = _claim(random, "x", random.choice(namespaces), resources, ages * 2)
    quotas = _quotas(random, groups, resources, claims, claimant)
    nodes = {name: _stock(random, resources, [c for c in claims if c.node == name]) for name in names}
    return SmallWorld(quotas, nodes, claims, _budgets(random, claims), _displaced(random, claims)), claimant


def _groups(random: Random, namespaces: list[str]) -> list[tuple[str, ...]]:
    """Which namespaces share a quota: at most four quotas."""
    groups: list[list[str]] = []
    for namespace in namespaces:
        if groups and (len(groups) == 4 or random.random() < 0.15):
            random.choice(groups).append(namespace)
        else:
            groups.append([namespace])
    return [tuple(group) for group in groups]


def _claim(random: Random, name: str, namespace: str, resources: tuple[str, ...], ages: int, node: str = "") -> Asking:
    asked = {resource: random.choice((1, 1, 1, 2, 2, 3, 4, 6)) for resource in resources if random.random() < 0.8}
    return Asking(
        name,
        namespace,
        asked or {random.choice(resources): random.randint(1, 3)},
        node,
        random.choice((0, 0, 0, 5, 5, 10)),
        random.randint(1, ages),
        random.random() < 0.9,
        bool(node) or random.random() < 0.97,
    )


def _quotas(
    random: Random,
    groups: list[tuple[str, ...]],
    resources: tuple[str, ...],
    claims: tuple[Asking, ...],
    claimant: Asking,
) -> tuple[MinMax, ...]:
    """The sum of mins of a dimension is what is used of it, or a little more; it is dealt out at random."""
    mins: list[dict[str, int]] = [{} for _ in groups]
    slack = random.choice((0, 0, 1, 2, 4, 30))
    for resource in resources:
        listing = [i for i in range(len(groups)) if random.random() < 0.9]
        if not listing:
            continue
        inside = [c for c in claims if any(c.namespace in groups[i] for i in listing)]
        left = sum(c.requests.get(resource, 0) for c in inside) + random.randint(0, slack)
        for i in listing:
            mins[i][resource] = 0
        favoured = random.choice([*listing, *(i for i in listing if claimant.namespace in groups[i])])
        for _ in range(left):
            chosen = favoured if random.random() < 0.3 else random.choice(listing)
            mins[chosen][resource] += 1
    return tuple(
        MinMax(f"q{i}", group, mins[i], _maximum(random, mins[i], resources)) for i, group in enumerate(groups)
    )


def _maximum(random: Random, minimum: dict[str, int], resources: tuple[str, ...]) -> dict[str, int]:
    if random.random() < 0.75:
        return {}
    return {name: minimum.get(name, 2) + random.randint(0, 6) for name in resources if random.random() < 0.7}


def _stock(random: Random, resources: tuple[str, ...], there: list[Asking]) -> dict[str, int]:
    slack = random.choice((0, 0, 0, 1, 1, 2, 30))
    return {name: sum(c.requests.get(name, 0) for c in there) + random.randint(0, slack) for name in resources}


def _budgets(random: Random, claims: tuple[Asking, ...]) -> tuple[tuple[frozenset[str], int], ...]:
    """A disruption budget is about claims of one namespace."""
    found = []
    for namespace in sorted({claim.namespace for claim in claims}):
        if random.random() < 0.12:
            names = [claim.name for claim in claims if claim.namespace == namespace and random.random() < 0.8]
            if names:
                found.append((frozenset(names), random.randint(0, min(2, len(names)))))
    return tuple(found)


def _displaced(random: Random, claims: tuple[Asking, ...]) -> tuple[tuple[str, str], ...]:
    """Who displaced the claimant, and maybe who displaced that one. A displacer has a lower number than its victim."""
    if random.random() > 0.12:
        return ()
    first = random.randrange(len(claims))
    pairs = [(claims[first].name, "x")]
    if first and random.random() < 0.4:
        pairs.append((claims[random.randrange(first)].name, claims[first].name))
    return tuple(pairs)


# Playing it


class Table:
    """A world as an engine with the elastic and nodes policies, through what they export."""

    def __init__(self, world: SmallWorld, claimant: Asking) -> None:
        self.world = world
        self.engine = Engine([plugin.create() for plugin in PLUGINS])
        self.engine.configure([*self._quotas(), *self._nodes()])
        for one in world.claims:
            self._submit(one)
            self.engine.place(one.name, one.node, forced=True)
            self.engine.observe(one.name, RUNNING)
        self.engine.configure(self._budgets())
        self.claim = self._submit(claimant)
        self.before = (self.engine.digest, self.engine.state.plain())

    def decide(self) -> Decision:
        return self.engine.decide(self.claim)

    def untouched(self) -> bool:
        return (self.engine.digest, self.engine.state.plain()) == self.before

    def _quotas(self) -> list[Setting]:
        return [setting for quota in self.world.quotas for setting in _settings(_quota_manifest(quota))]

    def _nodes(self) -> list[Setting]:
        stocks = {name: {"pods": 100, **stock} for name, stock in self.world.nodes.items()}
        return [setting for name, stock in stocks.items() for setting in _settings(node_manifest(name, stock))]

    def _budgets(self) -> list[Setting]:
        found = []
        for i, (names, allowed) in enumerate(self.world.budgets):
            namespace = next(claim.namespace for claim in self.world.claims if claim.name in names)
            selector = Selector((Requirement(f"budget{i}", "Exists", ()),))
            found.append(Setting(KIND, f"{namespace}/b{i}", BudgetBody(namespace, selector, None, allowed, False)))
        return found

    def _submit(self, one: Asking) -> Claim:
        """A claim that was displaced once: its place was taken from a pod of the same owner, which is gone."""
        for winner, loser in self.world.displaced:
            if loser == one.name:
                self.engine.recall_history(winner, "", [(f"before-{loser}", f"owner-{loser}", "")])
        spec = ClaimSpec(
            parse_vector(one.requests),
            labels={f"budget{i}": "" for i, (names, _) in enumerate(self.world.budgets) if one.name in names},
            priority=one.priority,
            preemptible=one.preemptible,
            preempts=one.preempts,
            owner=f"owner-{one.name}",
        )
        claim = Claim(one.name, spec, one.created, one.namespace, one.name)
        self.engine.submit(claim)
        return claim


def _quota_manifest(quota: MinMax) -> dict[str, object]:
    spec: dict[str, object] = {"min": quota.minimum, **({"max": quota.maximum} if quota.maximum else {})}
    composite = len(quota.namespaces) > 1
    return {
        "apiVersion": GROUP,
        "kind": "CompositeElasticQuota" if composite else "ElasticQuota",
        "metadata": {"namespace": quota.namespaces[0], "name": quota.name},
        "spec": {**spec, **({"namespaces": list(quota.namespaces)} if composite else {})},
    }


def _settings(manifest: dict[str, object]) -> list[Setting]:
    found = read(manifest, KINDS)
    kind, key = found.kind.name, found.key
    return [
        setting
        for plugin in PLUGINS
        if kind in plugin.translate
        for setting in plugin.translate[kind](key, found.typed)
    ]


# Comparing


def play(seed: int) -> Iterator[Verdict]:
    world, claimant = make_world(Random(seed))
    yield compare(world, claimant, seed)


def compare(world: SmallWorld, claimant: Asking, seed: int = 0) -> Verdict:
    judge = Judge(world, claimant)
    best = judge.choose()
    table = Table(world, claimant)
    decision = table.decide()
    mine = Choice(decision.place, tuple(sorted(decision.victims))) if decision.admitted else None
    fault = fault_of(judge, best, mine)
    if fault == SAME and mine is None and not table.untouched():
        fault = TRACE
    room = best is None and mine is None and _room(judge)
    story = "" if fault == SAME else tell(world, claimant, best, mine)
    unlisted = any(judge.walked[name] != found for classes in judge.classes.values() for name, found in classes.items())
    mark = UNLISTED if unlisted else ""
    return Verdict(seed, fault, mine is not None, len(decision.victims), room, story, mark)


def fault_of(judge: Judge, best: Choice | None, mine: Choice | None) -> str:
    """The same victims on any node where they make room, or victims as important.

    Of full nodes that do equal harm, the first by name is taken. A node with room is as good: the quota alone needs
    victims then, and the score chooses among such nodes.
    """
    if mine is None:
        return SAME if best is None else MISSED
    if best is None or judge.objections(mine.node, mine.victims):
        return ILLEGAL
    if best.victims == mine.victims:
        return SAME  # on whatever node
    if not best.victims or mine.victims not in _least_sets(judge, mine.node):
        return OTHER
    if mine.node == best.node or (not judge.lacking[mine.node] and _beats(judge, mine, best, without_name=True)):
        return SAME
    others = [Choice(node, ()) for node in judge.world.nodes if node != mine.node]
    return SAME if all(_beats(judge, mine, other) for other in others) else OTHER


def _beats(judge: Judge, mine: Choice, other: Choice, without_name: bool = False) -> bool:
    """Whether the choice does no more harm than one of the least sets on the other node, however ties end there."""
    parts = -1 if without_name else None
    keys = [judge.node_key(Choice(other.node, victims))[:parts] for victims in _least_sets(judge, other.node)]
    return not keys or judge.node_key(mine)[:parts] <= max(keys)


def _least_sets(judge: Judge, node: str) -> list[tuple[str, ...]]:
    """The least set on a node, and those that differ from it first in claims that are equally important."""
    least = judge.choose_on(node)
    if least is None:
        return []
    return [tuple(sorted(found)) for found in judge.legal_sets(node) if _as_good(judge, node, found, least)]


def _as_good(judge: Judge, node: str, found: tuple[str, ...], least: tuple[str, ...]) -> bool:
    """Whether it is that set, or the first that differ, the most important first, are equally important."""
    if set(least) <= set(found):
        return len(least) == len(found)
    known = {claim.name: claim for claim in judge.world.claims}

    def ranked(names: tuple[str, ...]) -> list[tuple[tuple[int, int, int], str]]:
        return sorted(((judge.importance(known[name], node), name) for name in names), reverse=True)

    pairs = zip(ranked(found), ranked(least), strict=False)
    first = next((pair for pair in pairs if pair[0] != pair[1]), None)
    return first is not None and first[0][0] == first[1][0]


def _room(judge: Judge) -> bool:
    """Whether the claim would be admitted if all preemptible claims left."""
    everybody = frozenset(claim.name for claim in judge.world.claims if claim.preemptible)
    return any(not judge.not_admitted(node, everybody) for node in judge.world.nodes)


def tell(world: SmallWorld, claimant: Asking, best: Choice | None, mine: Choice | None) -> str:
    judge = Judge(world, claimant)
    lines = [f"  {name} has {_short(stock)}" for name, stock in world.nodes.items()]
    for quota in world.quotas:
        extra = f" max {_short(quota.maximum)}" if quota.maximum else ""
        lines.append(
            f"  {quota.name} {','.join(quota.namespaces)} min {_short(quota.minimum)}{extra}"
            f" guaranteed {_short(judge.guaranteed[quota.name])}"
        )
    for one in (*world.claims, claimant):
        walked = judge.walked[one.name]
        marks = ("" if one.preemptible else " non-preemptible") + ("" if one.preempts else " preempts none")
        lines.append(
            f"  {one.namespace}/{one.name} {_short(one.requests)} on {one.node or '-'} priority {one.priority}"
            f" created {one.created}{marks} ({'-' if walked is None else CLASS_NAMES[walked]})"
        )
        on = [node for node in world.nodes if walked is not None and judge.classes[node][one.name] != walked]
        lines += [f"    beyond-share on {node}, which is full of what its quota does not list" for node in on]
    lines += [f"  budget {sorted(names)} allows {allowed}" for names, allowed in world.budgets]
    lines += [f"  {winner} displaced {loser}" for winner, loser in world.displaced]
    lines.append(f"  wanted: {_show(best)}; the engine: {_show(mine)}")
    if mine is not None:
        lines += [f"  against the engine's: {text}" for text in judge.objections(mine.node, mine.victims)]
    return "\n".join(lines)


def _short(amounts: dict[str, int]) -> str:
    return "{" + " ".join(f"{name[-1]}{amount}" for name, amount in amounts.items()) + "}"


def _show(choice: Choice | None) -> str:
    return "refused" if choice is None else f"on {choice.node}, victims {list(choice.victims)}"
