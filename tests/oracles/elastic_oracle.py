"""Brute force for elastic quotas: every set of victims on every node, judged by the rules as they are written.

The worlds are so small that all sets can be tried. Nothing here is shared with the policy: the rules are those of the
seed and the notes, each beside the lines that state it. ``Judge.objections`` says why a set is not legal,
``Judge.choose`` names the legal set that does the smallest harm.

Where the text is open, the most literal reading is taken:

* *Ends within min (or min + guaranteed)* looks at the dimensions that the claimant requests and its quota's min lists.
* A dimension is *short* if the claimant does not get it with nobody evicted: from max, from the sum of mins, or from
  the node in question. The three kinds are not told apart where the text says "short dimension".
* *Use of an unlisted dimension counts as over-quota on full nodes*: while the node is short of a dimension that a claim
  on it requests and its quota's min does not list, the claim is over-quota. Nothing is guaranteed to the quota there:
  the claim is beyond its share, and the quota's use is above min + guaranteed. (The other reading, over-quota but
  within-share, would give fair shares of a dimension to quotas that take no part in it.)
* The claimant's own use of an unlisted short dimension gives it no right there, but takes none that its min gives it:
  min is obtainable wherever the mins fit. Others are then judged by the short dimensions that its quota lists, and a
  victim must hold some of those.
* A claim that the walk against min takes is in-quota, even if the walk against min + guaranteed passes it over. The
  second walk starts from nothing, like the first.
* A fair-share victim is one that only the fair-share rule gives; the floor holds for the quotas of those. *At or above
  min* is judged with nobody evicted, for every dimension that min lists.
* The claim that may not be preempted is compared with min on the dimensions that it requests and min lists.
* The largest request/min share of a claim with a request where min is zero is larger than every other.
* Victims of the same class, priority and creation are equally important: the choice between them is free.
* Across nodes, *class* is the best class hit; *newest* is the creation of the oldest of the victims with the highest
  priority, and the later one wins.
* Claims without a quota are no victims of claims with one. A claimant without a quota is out of scope, and so are
  held and terminating claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations

IN_QUOTA, OVER_QUOTA, BEYOND_SHARE = 0, 1, 2  # worst last
CLASS_NAMES = ("in-quota", "over-quota", "beyond-share")


@dataclass(frozen=True)
class MinMax:
    """A quota: an elastic one if it has one namespace, else a composite."""

    name: str
    namespaces: tuple[str, ...]
    minimum: dict[str, int]
    maximum: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Asking:
    """A claim. ``node`` is where it runs; the claimant has none."""

    name: str
    namespace: str
    requests: dict[str, int]
    node: str = ""
    priority: int = 0
    created: int = 0
    preemptible: bool = True
    preempts: bool = True


@dataclass(frozen=True)
class SmallWorld:
    """``budgets``: (names, how many of them may be evicted). ``displaced``: (who displaced, who was displaced)."""

    quotas: tuple[MinMax, ...]
    nodes: dict[str, dict[str, int]]
    claims: tuple[Asking, ...]
    budgets: tuple[tuple[frozenset[str], int], ...] = ()
    displaced: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Choice:
    """Where a claimant goes and who leaves for it."""

    node: str
    victims: tuple[str, ...]


def used_by(claims: Iterable[Asking], resource: str) -> int:
    return sum(claim.requests.get(resource, 0) for claim in claims)


class Judge:
    """The rules for one claimant in one world."""

    def __init__(self, world: SmallWorld, claimant: Asking) -> None:
        self.world = world
        self.claimant = claimant
        self.all = (*world.claims, claimant)  # the claim is in, and nobody is evicted
        self._quotas = {name: quota for quota in world.quotas for name in quota.namespaces}  # a namespace has one
        self._members = {quota.name: [one for one in self.all if self.quota_of(one) is quota] for quota in world.quotas}
        found = self.quota_of(claimant)
        if found is None:
            raise ValueError("a claimant without a quota is out of scope")
        self.quota = found
        self.resources = sorted(name for name, amount in claimant.requests.items() if amount > 0)
        # Classes, shares, pool and guaranteed are those with the claim in and nobody evicted.
        self.guaranteed = {quota.name: self._guaranteed(quota) for quota in world.quotas}
        self.walked = {claim.name: self._walked_class(claim) for claim in self.all}
        self.lacking = {node: self.short_on_node(node) for node in world.nodes}
        self.claimed = {node: self._claimed(lacking) for node, lacking in self.lacking.items()}
        self.short = {node: {*self.over_max(), *self.over_total(), *self.lacking[node]} for node in world.nodes}
        self.classes = {
            node: {claim.name: self._class_of(claim, node) for claim in self.all if self.quota_of(claim)}
            for node in world.nodes
        }
        self.rights = {node: {claim.name: self._rights(claim, node) for claim in world.claims} for node in world.nodes}

    def quota_of(self, claim: Asking) -> MinMax | None:
        return self._quotas.get(claim.namespace)

    def members(self, quota: MinMax, without: frozenset[str] = frozenset()) -> list[Asking]:
        """The claims of a quota, the claimant among them, without the victims. A composite counts once."""
        return [claim for claim in self._members[quota.name] if claim.name not in without]

    # Pool, guaranteed, classes

    def taking_part(self, resource: str) -> list[MinMax]:
        """A quota takes part in a dimension only if its min lists it."""
        return [quota for quota in self.world.quotas if resource in quota.minimum]

    def pool(self, resource: str) -> int:
        """What the quotas leave of their mins: the sum of max(0, min - used)."""
        takers = self.taking_part(resource)
        return sum(max(0, quota.minimum[resource] - used_by(self.members(quota), resource)) for quota in takers)

    def _guaranteed(self, quota: MinMax) -> dict[str, int]:
        """floor(pool x min / sum of mins); the remainder is guaranteed to no quota."""
        parts = {}
        for resource, minimum in quota.minimum.items():
            total = sum(other.minimum[resource] for other in self.taking_part(resource))
            parts[resource] = self.pool(resource) * minimum // total if total else 0
        return parts

    def share(self, quota: MinMax) -> dict[str, int]:
        """The sum of min and guaranteed."""
        return {name: amount + self.guaranteed[quota.name][name] for name, amount in quota.minimum.items()}

    def walk_key(self, quota: MinMax, claim: Asking) -> tuple[object, ...]:
        """Non-preemptible first, then high priority, then older, then smaller, then by namespace and name."""
        largest = (0, Fraction(0))
        for name, amount in claim.requests.items():
            if amount > 0 and name in quota.minimum:
                minimum = quota.minimum[name]
                largest = max(largest, (0, Fraction(amount, minimum)) if minimum else (1, Fraction(0)))
        amounts = tuple(claim.requests.get(name, 0) for name in sorted({n for c in self.all for n in c.requests}))
        return (claim.preemptible, -claim.priority, claim.created, largest, amounts, claim.namespace, claim.name)

    def walk(self, quota: MinMax, bound: dict[str, int]) -> set[str]:
        """First fit: a claim is taken if it and those taken before it fit on all that it requests and the bound lists.

        One that is not taken adds nothing.
        """
        taken: list[Asking] = []
        for claim in sorted(self.members(quota), key=lambda one: self.walk_key(quota, one)):
            asked = [name for name, amount in claim.requests.items() if amount > 0 and name in bound]
            if all(used_by([*taken, claim], name) <= bound[name] for name in asked):
                taken.append(claim)
        return {claim.name for claim in taken}

    def _walked_class(self, claim: Asking) -> int | None:
        """The walk against min gives the in-quota claims; the same against min + guaranteed parts the others."""
        quota = self.quota_of(claim)
        if quota is None:
            return None
        if claim.name in self.walk(quota, quota.minimum):
            return IN_QUOTA
        return OVER_QUOTA if claim.name in self.walk(quota, self.share(quota)) else BEYOND_SHARE

    def _claimed(self, lacking: list[str]) -> list[str]:
        """The dimensions that the node is short of by which others may be displaced."""
        listed = [name for name in lacking if name in self.quota.minimum]
        return listed if len(listed) < len(lacking) else lacking

    def _class_of(self, claim: Asking, node: str) -> int:
        """On full nodes, use of an unlisted dimension counts as over-quota: no part of it is guaranteed."""
        quota, walked = self.quota_of(claim), self.walked[claim.name]
        assert quota is not None
        assert walked is not None
        if claim is self.claimant or claim.node != node:
            return walked
        lacking = self.lacking[node] if quota is self.quota else self.claimed[node]
        unlisted = any(claim.requests.get(name, 0) > 0 for name in lacking if name not in quota.minimum)
        return BEYOND_SHARE if unlisted else walked

    # What is short

    def over_max(self, victims: frozenset[str] = frozenset()) -> list[str]:
        """Only what the claimant requests is checked; what max does not list is unlimited."""
        limits = self.quota.maximum
        left = self.members(self.quota, victims)
        return [name for name in self.resources if name in limits and used_by(left, name) > limits[name]]

    def over_total(self, victims: frozenset[str] = frozenset()) -> list[str]:
        """The sum of used stays within the sum of mins, over the quotas whose min lists the dimension."""
        over = []
        for name in self.resources:
            if name not in self.quota.minimum:
                continue
            takers = self.taking_part(name)
            used = sum(used_by(self.members(quota, victims), name) for quota in takers)
            if used > sum(quota.minimum[name] for quota in takers):
                over.append(name)
        return over

    def short_on_node(self, node: str, victims: frozenset[str] = frozenset()) -> list[str]:
        """A node's allocatable is a stock: it has nothing of what it does not list."""
        there = [claim for claim in self.world.claims if claim.node == node and claim.name not in victims]
        stock = self.world.nodes[node]
        return [name for name in self.resources if used_by([*there, self.claimant], name) > stock.get(name, 0)]

    def above(self, bound: dict[str, int], victims: frozenset[str] = frozenset()) -> list[str]:
        """The dimensions in which the claimant's quota ends above the bound, with the victims of the set gone."""
        left = self.members(self.quota, victims)
        return [name for name in self.resources if name in bound and used_by(left, name) > bound[name]]

    # Legality of a set

    def objections(self, node: str, victims: Iterable[str]) -> list[str]:
        """Why these victims do not let the claimant run on the node; nothing if they legally do."""
        gone = frozenset(victims)
        leaving = [claim for claim in self.world.claims if claim.name in gone]
        found = [*self._protected(leaving), *self.not_admitted(node, gone)]
        if found:
            return found
        # Ends within min, or within min + guaranteed: judged on the final state, with the set's own victims gone.
        ends = {"own": True, "min": not self.above(self.quota.minimum, gone)}
        ends["share"] = not self.above(self.share(self.quota), gone)
        rights = {one.name: [right for right in self.rights[node][one.name] if ends[right]] for one in leaving}
        found += [f"no right to {name}" for name, granted in rights.items() if not granted]
        fair = [one for one in leaving if rights[one.name] == ["share"]]
        return found + self._below_min(fair, gone)

    def _protected(self, leaving: list[Asking]) -> list[str]:
        """Never a claim marked non-preemptible, against a budget, or one that displaced the claimant."""
        found = [f"{claim.name} is non-preemptible" for claim in leaving if not claim.preemptible]
        if leaving and not self.claimant.preempts:
            found.append("the claimant preempts none")
        for names, allowed in self.world.budgets:
            if len([claim for claim in leaving if claim.name in names]) > allowed:
                found.append(f"the budget of {sorted(names)} allows {allowed}")
        barred = self.displacers()
        return found + [f"{claim.name} displaced the claimant" for claim in leaving if claim.name in barred]

    def displacers(self) -> set[str]:
        """Those that preempted the claimant, directly or through others."""
        found: set[str] = set()
        todo = [self.claimant.name]
        while todo:
            loser = todo.pop()
            for winner, other in self.world.displaced:
                if other == loser and winner not in found:
                    found.add(winner)
                    todo.append(winner)
        return found

    def not_admitted(self, node: str, gone: frozenset[str]) -> list[str]:
        """The claim must be admitted in the state in which the victims have left."""
        found = [f"above max of {name}" for name in self.over_max(gone)]
        found += [f"above the sum of mins of {name}" for name in self.over_total(gone)]
        found += [f"no room for {name}" for name in self.short_on_node(node, gone)]
        if not self.claimant.preemptible:
            firm = [claim for claim in self.members(self.quota, gone) if not claim.preemptible]
            listed = [name for name in self.resources if name in self.quota.minimum]
            over = [name for name in listed if used_by(firm, name) > self.quota.minimum[name]]
            found += [f"non-preemptible use above min of {name}" for name in over]
        return found

    def _rights(self, victim: Asking, node: str) -> list[str]:
        """By which rules the claimant may displace it, if its quota ends as the rule wants.

        All but the end is judged with the claim in and nobody evicted.
        """
        quota = self.quota_of(victim)
        if quota is None:
            return []
        requested = {name for name, amount in victim.requests.items() if amount > 0}
        short, lacking = self.short[node], self.claimed[node]
        ours, theirs = self.classes[node][self.claimant.name], self.classes[node][victim.name]
        if quota is self.quota:
            # Strictly lower priority and not of a better class; it requests a short dimension, or one in which the
            # quota would end above min or above min + guaranteed.
            ending = {*self.above(self.quota.minimum), *self.above(self.share(self.quota))}
            lower = victim.priority < self.claimant.priority and theirs >= ours
            return ["own"] if lower and requested & (short | ending) else []
        claimed = set(self.claimed[node]) if victim.node == node else set()
        if not requested & {*claimed, *(set(self.over_total()) & set(quota.minimum))}:
            return []  # only claims that request a short dimension are candidates
        found = []
        # An in-quota claim whose quota ends within min may displace over-quota claims.
        if ours == IN_QUOTA and theirs != IN_QUOTA:
            found.append("min")
        # An in-quota or within-share claim whose quota ends within min + guaranteed may displace beyond-share claims of
        # quotas with used > min + guaranteed on a short dimension.
        bound, before = self.share(quota), self.members(quota)
        limits = {name: bound.get(name, 0) for name in short if name in bound or name in lacking}
        greedy = any(used_by(before, name) > limit for name, limit in limits.items())
        if ours != BEYOND_SHARE and theirs == BEYOND_SHARE and greedy:
            found.append("share")
        return found

    def _below_min(self, fair: list[Asking], gone: frozenset[str]) -> list[str]:
        """Fair share never takes a victim's quota, on any dimension, from at or above min to below it."""
        found = []
        for quota in self.world.quotas:
            if quota not in [self.quota_of(claim) for claim in fair]:
                continue
            for name, minimum in quota.minimum.items():
                before, after = used_by(self.members(quota), name), used_by(self.members(quota, gone), name)
                if before >= minimum > after:
                    found.append(f"{quota.name} would fall below min of {name}")
        return found

    # The choice

    def sets(self) -> Iterator[tuple[str, ...]]:
        """All sets of counted claims that may leave at all, the small ones first."""
        names = [claim.name for claim in self.world.claims if not self._protected([claim])]
        for size in range(len(names) + 1):
            yield from combinations(names, size)

    def legal_sets(self, node: str) -> list[tuple[str, ...]]:
        return [victims for victims in self.sets() if not self.objections(node, victims)]

    def importance(self, victim: Asking, node: str) -> tuple[int, int, int]:
        """Worst class first, then lower priority, then newest: the least important has the smallest key."""
        return (-self.classes[node][victim.name], victim.priority, -victim.created)

    def harm(self, node: str, victims: Iterable[str]) -> list[tuple[int, int, int]]:
        """The most important victim first. Of two lists the smaller one is less harm, and a part is less than all."""
        gone = set(victims)
        return sorted((self.importance(one, node) for one in self.world.claims if one.name in gone), reverse=True)

    def choose_on(self, node: str) -> tuple[str, ...] | None:
        """The legal set whose most important victim is least important, ties by the next one."""
        return min(self.legal_sets(node), key=lambda victims: self.harm(node, victims), default=None)

    def choose(self) -> Choice | None:
        """Across nodes: class first, then highest priority hit, number, sum, newest, name."""
        found = [(node, self.choose_on(node)) for node in sorted(self.world.nodes)]
        choices = [Choice(node, tuple(sorted(victims))) for node, victims in found if victims is not None]
        for choice in choices:
            if not choice.victims:
                return choice  # nobody has to leave; which of those nodes it takes is another rule
        return min(choices, key=self.node_key, default=None)

    def node_key(self, choice: Choice) -> tuple[int, int, int, int, int, str]:
        victims = [claim for claim in self.world.claims if claim.name in choice.victims]
        best = min(self.classes[choice.node][claim.name] for claim in victims)
        highest = max(claim.priority for claim in victims)
        oldest = min(claim.created for claim in victims if claim.priority == highest)
        return (-best, highest, len(victims), sum(claim.priority for claim in victims), -oldest, choice.node)
