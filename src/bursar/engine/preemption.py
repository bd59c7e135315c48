"""The search for victims: which claims to evict so that another fits, with the least harm.

For one place: while a policy refuses, it names the next victim (least harm first), the victim is released in every
policy, and the claim is tried again. The set that works is then pruned: from the most to the least important victim,
each is left out if the claim still fits without it, so that no subset would do.

If a claim needs a node and none has room, the search runs for every feasible node, and the plan with the least harm
wins: the least important victims, then the fewest, then the newest, then the node's name. If quota and node both
refuse, victims on that node come first, so that the same ones serve both.

On a node priority alone says who may be displaced, unless a quota policy that governs the claim has a rule of its own
(``order_node_victims``).

The engine decides who may be a victim at all: counted, preemptible, not of the claim's own gang, allowed by disruption
budgets, and not barred by preemption history.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from bursar.engine.charging import Core
from bursar.engine.eviction import begin_eviction
from bursar.engine.placement import best_node, nodes_with_victims, open_nodes
from bursar.ledger.claims import Binding, Claim
from bursar.policies.policy import PlacementPolicy, Policy
from bursar.policies.results import Refusal
from bursar.resources import EMPTY


@final
class PreemptionPlan:
    """Victims that make room for a claim at a place."""

    __slots__ = ("place", "victims")

    def __init__(self, place: str, victims: list[Claim]) -> None:
        self.place: Final = place
        self.victims: Final = victims

    def harm(self) -> tuple[int, int, int, int, str]:
        """Smaller is better: highest priority hit, how many, all priorities together, oldest hit, name."""
        priorities = [v.spec.priority for v in self.victims]
        oldest = min([v.created for v in self.victims], default=0)
        return (max(priorities, default=-(2**40)), len(priorities), sum(priorities), -oldest, self.place)


def may_take(core: Core, victim: Claim) -> bool:
    """Whether a claim may be evicted at all, for any other claim."""
    return not core.eviction_rules.protection(victim)


def eligible(core: Core, claim: Claim, victim: Claim) -> bool:
    """Whether the engine lets this claim displace that one."""
    return not core.eviction_rules.obstacle(claim, victim)


def best_plan(core: Core, claim: Claim, placed: bool = True) -> PreemptionPlan | None:
    """The plan with the least harm, or None; for quota alone if not ``placed``. Leaves the transaction as it was."""
    for policy in core.searching:
        policy.search_begins(claim)
    try:
        return _best_plan(core, claim) if placed and core.needs_place(claim) else plan_at(core, claim, "")
    finally:
        for policy in core.searching:
            policy.search_ends()


def _best_plan(core: Core, claim: Claim) -> PreemptionPlan | None:
    open_now = best_node(core, claim, open_nodes(core, claim))
    if open_now:
        # Nodes have room: only quotas refuse, and whom they need to take does not depend on the node.
        return plan_at(core, claim, open_now)
    best: PreemptionPlan | None = None
    for name in nodes_with_victims(core, claim):
        plan = plan_at(core, claim, name)
        if plan is not None and (best is None or plan.harm() < best.harm()):
            best = plan
    return best


def plan_at(core: Core, claim: Claim, place: str) -> PreemptionPlan | None:
    """Victims that make the claim fit at one place, pruned; None if there are none that do."""
    tx = core.tx
    mark = tx.savepoint()
    search = _Search(core, claim, place)
    chosen = search.run()
    tx.rollback_to(mark)
    if chosen is None:
        return None
    plan = PreemptionPlan(place, _pruned(core, claim, place, chosen))
    accepted = not apply_plan(core, claim, plan) and core.approves(claim, plan.victims)
    tx.rollback_to(mark)
    return plan if accepted else None


def apply_plan(core: Core, claim: Claim, plan: PreemptionPlan) -> tuple[Refusal, ...]:
    """Evict the victims and charge the claim; () if it worked."""
    for victim in plan.victims:
        if victim.counts():  # one that only counts again because another victim goes may have been told already
            begin_eviction(core, victim)
    return core.attempt(claim, plan.place, False)


def _pruned(core: Core, claim: Claim, place: str, chosen: list[Claim]) -> list[Claim]:
    """Leave out victims that the claim does not need, the most important first.

    Displacing a held claim lets its own victims back in, so sparing one victim can make another one needless.
    Passes are repeated until none can be spared.
    """
    kept = chosen
    while True:
        before = len(kept)
        for victim in reversed(kept):
            fewer = [other for other in kept if other is not victim]
            mark = core.tx.savepoint()
            if fewer and not apply_plan(core, claim, PreemptionPlan(place, fewer)):
                kept = fewer
            core.tx.rollback_to(mark)
        if len(kept) == before:
            return kept


@final
class _Search:
    """One run for one place: asks refusing policies for victims until the claim fits."""

    __slots__ = ("candidates", "claim", "core", "local_only", "place", "reason")

    def __init__(self, core: Core, claim: Claim, place: str) -> None:
        self.core: Final = core
        self.claim: Final = claim
        self.place: Final = place
        self.candidates: Iterator[Claim] = iter(())
        self.reason: str = ""
        self.local_only: bool = False

    def run(self) -> list[Claim] | None:
        """The victims in the order they were chosen, or None; their evictions stay in the transaction."""
        chosen: list[Claim] = []
        while True:
            refusals = self.core.attempt(self.claim, self.place, False)
            if not refusals:
                return chosen
            victim = self._next(refusals)
            if victim is None:
                return None
            begin_eviction(self.core, victim)
            chosen.append(victim)

    def _next(self, refusals: tuple[Refusal, ...]) -> Claim | None:
        """The next victim for the binding refusal, from the policy that refused."""
        refusal = refusals[0]
        if refusal.permanent:
            return None
        if refusal.reason != self.reason:
            self._ask(refusals)
        found = self._pull()
        if found is None:
            # The list may have been made for a state that is past: ask once more, now without preference.
            self.local_only = False
            self._ask_again(refusal)
            found = self._pull()
        return found

    def _ask(self, refusals: tuple[Refusal, ...]) -> None:
        placing = {policy.name for policy in self.core.placing}
        mixed = refusals[0].policy not in placing and any(r.policy in placing for r in refusals)
        self.local_only = mixed and bool(self.place)
        self._ask_again(refusals[0])

    def _ask_again(self, refusal: Refusal) -> None:
        self.reason = refusal.reason
        self.candidates = iter(())
        core = self.core
        for i in range(len(core.policies)):
            policy = core.policies[i]
            if policy.name == refusal.policy:
                bound = policy.bind(self.claim, self.place)
                if isinstance(bound, Binding):
                    ordered = self._ordered_by_quota(policy, bound, refusal)
                    own = policy.victims(core.tx, self.claim, bound, refusal)
                    self.candidates = own if ordered is None else iter(ordered)

    def _ordered_by_quota(self, policy: Policy, binding: Binding, refusal: Refusal) -> list[Claim] | None:
        """If a node refuses, the first quota policy that governs the claim orders the victims there."""
        core = self.core
        if not isinstance(policy, PlacementPolicy) or not core.ordering:
            return None
        victims = policy.victims_on_node(core.tx, self.claim, binding, refusal)
        if victims is None:
            return None
        short = EMPTY
        for i in range(len(binding.accounts)):
            short = short.peak(binding.accounts[i].missing(binding.costs[i]))
        for quota in core.ordering:
            ranked = quota.order_node_victims(core.tx, self.claim, victims, short)
            if ranked is not None:
                return ranked
        return None

    def _pull(self) -> Claim | None:
        for victim in self.candidates:
            if self.local_only and victim.place != self.place:
                continue
            if eligible(self.core, self.claim, victim):
                return victim
        return None
