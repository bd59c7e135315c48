"""The search for victims: which claims to evict so that another fits, with the least harm.

What is missing is known as amounts in accounts, so the least set at a place is found by arithmetic (``victim_sets``).
A quota policy that governs the claim may have rules of its own (``Rights``): they say who may be displaced, in which
order, and which sets are legal. Without such a policy a claim displaces claims of lower priority on its node. The set
is then applied in the transaction: a policy that decides otherwise than by amounts still refuses there.

Nodes are compared by the harm of their least sets: class first, then the highest priority hit, number, sum of
priorities, newest, name. A node whose bound is no better than the best set found so far is not looked at, and only a
set that is better is applied.

Where a refusing policy cannot say what is missing (a quota tree, parts of GPUs), victims are found by trial: while a
policy refuses, the first one that does names the next victim, which leaves in every policy, and the claim is tried
again; then those that can be spared are, the most important first, by halves.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop
from itertools import islice
from typing import Final, final

from bursar.engine.charging import Core
from bursar.engine.eligibility import EligibleVictims, Slack, eligible, relief_of
from bursar.engine.node_clearing import NodeClearing
from bursar.engine.placement import best_node, open_nodes, open_to_all_but, possible_slots
from bursar.engine.preemption_trial import Trial, evict, makes_room
from bursar.engine.victim_sets import JudgedSets, VictimSetCheck, least_set
from bursar.ledger.claims import Binding, Claim
from bursar.policies.policy import PlacementPolicy, Policy
from bursar.policies.results import Refusal
from bursar.policies.rights import Contender, Rights, Row, Shortage, goes_before, in_order

_TRIED: Final = 64  # victims of one policy, to tell whether it is what a claim waits for
Harm = tuple[int, int, int, int, int, str]
Bound = tuple[int, int, int, int, int, int]
"""The least harm of a plan on a node, with the node's slot instead of its name."""


@final
class PreemptionPlan:
    """Victims that make room for a claim at a place."""

    __slots__ = ("known_harm", "place", "returning", "shortage", "victims", "worst")

    def __init__(self, place: str, victims: list[Claim], worst: int = 0) -> None:
        self.place: Final = place
        self.shortage: Shortage | None = None  # what it answers, if amounts tell
        self.returning: list[Claim] = []  # who counts again when the victims leave
        self.victims: Final = victims
        self.worst: Final = worst  # the best class that is hit
        self.known_harm: Harm | None = None

    def harm(self) -> Harm:
        """Smaller is better: class, highest priority hit, how many, all priorities together, oldest of those, name."""
        if self.known_harm is None:
            highest = -(2**40)
            oldest = total = 0
            for victim in self.victims:
                priority = victim.spec.priority
                total += priority
                if priority > highest:
                    highest = priority
                    oldest = victim.created
                elif priority == highest and victim.created < oldest:
                    oldest = victim.created
            self.known_harm = (self.worst, highest, len(self.victims), total, -oldest, self.place)
        return self.known_harm


@final
class VictimSearch:
    """The search for one decision. ``cut`` says that sets were left unjudged, because there are too many."""

    __slots__ = (
        "amounts_tell",
        "claim",
        "clearing",
        "core",
        "governed",
        "judged",
        "only_varying",
        "quota_rows",
        "quotas_stay",
        "rights",
        "victims",
    )

    def __init__(self, core: Core, claim: Claim) -> None:
        self.core: Final = core
        self.claim: Final = claim
        self.judged: Final = JudgedSets(core.time)
        self.rights: Rights = Rights(claim)
        self.governed: str = ""  # the policy that gave the rights
        self.quota_rows: list[Row] = []
        self.amounts_tell: bool = True  # of the quotas that refuse
        self.only_varying: bool = False  # full nodes help only where other claims may be displaced
        self.quotas_stay: bool = False  # no victims would satisfy the quotas that refuse, wherever the claim runs
        self.victims: EligibleVictims = EligibleVictims(core, claim)
        self.clearing: Final = NodeClearing(claim, self.victims, self.judged)

    @property
    def cut(self) -> bool:
        return self.judged.cut

    def best_plan(self, placed: bool = True) -> PreemptionPlan | None:
        """The plan with the least harm, or None; for quota alone if not ``placed``. Changes nothing."""
        core = self.core
        for policy in core.searching:
            found = policy.search_begins(self.claim)
            if found is not None:
                self.rights = found
                self.governed = policy.name
        try:
            self._read_quotas()
            if not placed or not core.needs_place(self.claim):
                return self._plan_at("")
            free = open_nodes(core, self.claim)
            open_now = best_node(core, self.claim, free)
            if not open_now:
                return self._over_nodes(free, None)
            # If nodes have room, only quotas refuse, and whom they need to take does not depend on the node, unless
            # claims are of a worse class on full nodes. Otherwise less harm is done there only by fewer victims.
            plan = self._plan_at(open_now)
            if not self.amounts_tell:
                return plan
            if (plan is None or (len(plan.victims) <= 1 and plan.worst == 0)) and not self.rights.vary_by_node():
                return plan
            self.only_varying = plan is None
            return self._over_nodes(free, plan)
        finally:
            for policy in core.searching:
                policy.search_ends()

    def could_resolve(self, refusal: Refusal) -> bool:
        """Whether victims would satisfy the quota that refused, if no other one refused. Changes nothing."""
        core = self.core
        mark = core.tx.savepoint()
        for policy in core.policies:
            bound = policy.bind(self.claim, "") if policy.name == refusal.policy else None
            if isinstance(bound, Binding):
                evict(core, [one for one in self._named_by(policy, bound, refusal) if eligible(core, self.claim, one)])
        left = core.attempt(self.claim, "", False)
        core.tx.rollback_to(mark)
        return refusal.policy not in [other.policy for other in left]

    def _named_by(self, policy: Policy, binding: Binding, refusal: Refusal) -> list[Claim]:
        if policy.name != self.governed:
            return list(islice(policy.victims(self.core.tx, self.claim, binding, refusal), _TRIED))
        plan = self._least_plan(Shortage("", policy.missing(self.claim, binding) or [], []), None)
        return [] if plan is None else plan.victims

    def _read_quotas(self) -> None:
        """What the quotas are short of, wherever the claim runs."""
        core = self.core
        names = [refusal.policy for refusal in core.quota_refusals(self.claim)]
        self.quota_rows = []
        for policy in core.policies:
            if policy.name in names:
                bound = policy.bind(self.claim, "")
                if not isinstance(bound, Binding):
                    self.amounts_tell = False
                    continue
                rows = policy.missing(self.claim, bound)
                if rows is None:
                    self.amounts_tell = False
                    self.clearing.refusing.append((policy, bound))
                else:
                    self.quota_rows.extend(rows)

    # One place

    def _plan_at(self, place: str) -> PreemptionPlan | None:
        """The plan where only quotas refuse."""
        if self.amounts_tell:
            plan = self._least_plan(Shortage(place, self.quota_rows, []), None)
            if plan is None:
                self.quotas_stay = True
                return None
            if self._holds(plan):
                return plan
        return self._plan_by_trial(place)

    def _least_plan(self, shortage: Shortage, residents: dict[str, Claim] | None) -> PreemptionPlan | None:
        best: list[Contender] | None = None
        self.judged.next_place()
        for way in self.rights.ways():
            found = self._least_in(way, shortage, residents)
            if found is not None and (best is None or self._less_harm(found, best)):
                best = found
        if best is None:
            return None
        plan = PreemptionPlan(shortage.place, [c.claim for c in best], max([c.rank for c in best], default=0))
        plan.shortage = shortage
        plan.returning = self.victims.returning(best)
        return plan

    def _least_in(self, way: int, shortage: Shortage, residents: dict[str, Claim] | None) -> list[Contender] | None:
        """The least legal set of one way.

        On a full node the least set that clears the node comes first. Whatever set is legal, its members on the node
        clear the node, so it is no smaller. If that one serves the quotas as well it is the least of all, and if there
        is none, there is no set at all.
        """
        rows = [*shortage.on_node, *shortage.rows, *self.rights.needs(way)]
        check = RightsCheck(self, shortage, rows)
        here: list[Contender] = []
        if residents is not None:
            here = self._on_node(way, shortage, residents, rows)
            if not _could_clear(here, len(shortage.on_node), check.needs):
                return None
            clearing = RightsCheck(self, None, shortage.on_node)
            found = least_set(iter(here), clearing.needs, self.judged, clearing)
            if found is None or (check.enough(found) and check.accepts(found)):
                return found
        contenders = self._contenders(way, shortage, residents, here, rows)
        return least_set(contenders, check.needs, self.judged, check)

    def _less_harm(self, one: list[Contender], other: list[Contender]) -> bool:
        """Compares the most important members, then the next ones. Both are given least important first."""
        for i in range(min(len(one), len(other))):
            mine, theirs = one[len(one) - 1 - i], other[len(other) - 1 - i]
            if mine.claim is not theirs.claim:
                return goes_before(self.rights, mine, theirs)
        return len(one) < len(other)

    # Contenders

    def _contenders(
        self,
        way: int,
        shortage: Shortage,
        residents: dict[str, Claim] | None,
        here: list[Contender],
        rows: list[Row],
    ) -> Iterator[Contender]:
        """Those on the node and the eligible ones elsewhere that relieve any row, the least important first."""
        at = 0
        if self.quota_rows or self.rights.needs(way):
            for contender in self.rights.everywhere(way, shortage):
                if residents is not None and contender.claim.uid in residents:
                    continue
                while at < len(here) and goes_before(self.rights, here[at], contender):
                    yield here[at]
                    at += 1
                if self._counts(contender, rows):
                    yield contender
        yield from here[at:]

    def _on_node(self, way: int, shortage: Shortage, residents: dict[str, Claim], rows: list[Row]) -> list[Contender]:
        """The contenders of the node; none if they cannot clear it."""
        found: list[Contender] = []
        slack = Slack(shortage.on_node)
        for resident in residents.values():
            contender = self.rights.contender(way, resident, shortage)
            if contender is not None and self._counts(contender, rows):
                found.append(contender)
            elif not slack.stays(resident):
                return []
        found.reverse()  # the newest come first in most classes
        return in_order(self.rights, found)

    def _counts(self, contender: Contender, rows: list[Row]) -> bool:
        relief = relief_of(contender.claim, rows)
        for amount in relief:
            if amount > 0:
                contender.relief = relief
                return self.victims.admit(contender)
        return False

    # All nodes

    def _over_nodes(self, free: bytearray, best: PreemptionPlan | None) -> PreemptionPlan | None:
        """The plan with the least harm over all nodes that have no room, and the best so far."""
        core = self.core
        keeper = _keeper_of(core, self.claim)
        others = open_to_all_but(core, self.claim, keeper)
        bounds = self._bounds(keeper, free)
        while bounds:
            bound = heappop(bounds)
            slot = bound[-1]
            if best is not None and (*bound[:-1], core.nodes.names[slot]) > best.harm():
                break
            if best is not None and keeper is not None and self._does_more_harm(keeper, bound, best):
                continue
            plan = self._plan_on(keeper, slot, others[slot] == 1, best)
            if plan is not None and (best is None or plan.harm() < best.harm()):
                best = plan
        return best

    def _does_more_harm(self, keeper: PlacementPolicy, bound: Bound, best: PreemptionPlan) -> bool:
        """Whether the node needs so many victims that the best plan so far is better; no victim is below the least."""
        worst, priority, _, _, newest, slot = bound
        count = keeper.fewest_victims(self.claim, slot)
        return (worst, priority, count, count * priority, newest, self.core.nodes.names[slot]) > best.harm()

    def _bounds(self, keeper: PlacementPolicy | None, free: bytearray) -> list[Bound]:
        """A heap of the least harm that a plan could do on each feasible node, with its slot."""
        found: list[Bound] = []
        any_priority = not self.governed and self.clearing.takes_back()
        for slot in possible_slots(self.core, self.claim):
            if free[slot]:
                continue
            least = None if keeper is None else keeper.least_important(slot)
            if least is not None and (any_priority or self.rights.may_help(slot, least)):
                priority = least.spec.priority
                found.append((0, priority, 1, priority, -least.created, slot))
            elif keeper is None:
                found.append((0, -(2**40), 0, -(2**62), -(2**62), slot))
        heapify(found)
        return found

    def _plan_on(
        self, keeper: PlacementPolicy | None, slot: int, only_room: bool, best: PreemptionPlan | None
    ) -> PreemptionPlan | None:
        """The plan on one full node; None if there is none, or none better than the best so far."""
        core = self.core
        name = core.nodes.names[slot]
        if keeper is None or not only_room or (self.governed and not self.amounts_tell):
            return self._plan_by_trial(name)
        bound = keeper.bind(self.claim, name)
        rows = keeper.missing(self.claim, bound) if isinstance(bound, Binding) else None
        residents = keeper.residents(slot)
        if rows is None or residents is None:
            return self._plan_by_trial(name)
        if self.only_varying and not self.rights.vary_where(rows):
            return None
        if not self.amounts_tell:
            return self._plan_by_clearing(name, rows, residents, best)
        plan = self._least_plan(Shortage(name, self.quota_rows, rows), residents)
        if plan is None or (best is not None and plan.harm() > best.harm()):
            return None
        return plan if self._holds(plan) else self._plan_by_trial(name)

    def _plan_by_clearing(
        self, name: str, rows: list[Row], residents: dict[str, Claim], best: PreemptionPlan | None
    ) -> PreemptionPlan | None:
        """The plan on a full node where a quota that refuses finds its victims by trial."""
        found = self.clearing.of(rows, residents)
        if found is None:
            return None
        if best is not None and found.everybody and PreemptionPlan(name, found.everybody).harm() >= best.harm():
            return None
        alike = len(found.named) == len(found.least)
        core, claim = self.core, self.claim
        if (
            found.least
            and makes_room(core, claim, name, found.least)
            and (alike or makes_room(core, claim, "", found.named))
        ):
            return PreemptionPlan(name, found.least)
        return self._plan_by_trial(name)

    def _holds(self, plan: PreemptionPlan) -> bool:
        """Whether the plan is legal as a whole, and the claim fits when it is applied."""
        shortage = plan.shortage
        if shortage is not None and self.rights.judge(plan.victims, plan.returning, shortage):
            return False
        return makes_room(self.core, self.claim, plan.place, plan.victims)

    # By trial

    def _plan_by_trial(self, place: str) -> PreemptionPlan | None:
        best: PreemptionPlan | None = None
        for way in self.rights.ways():
            trial = Trial(self.core, self.claim, self.rights, self.governed, way, place, self.quota_rows)
            victims = trial.run()
            plan = None if victims is None else PreemptionPlan(place, victims, trial.worst)
            if plan is not None and (best is None or plan.harm() < best.harm()):
                best = plan
        return best


def _could_clear(here: list[Contender], count: int, needs: list[int]) -> bool:
    """Whether all contenders on a node together free the first rows."""
    for r in range(count):
        total = 0
        for contender in here:
            total += contender.relief[r]
        if total < needs[r]:
            return False
    return True


def _keeper_of(core: Core, claim: Claim) -> PlacementPolicy | None:
    """The placement policy that knows which claims are on a node."""
    for policy in core.keepers:
        if policy in core.concerned(claim).placing:
            return policy
    return None


@final
class RightsCheck(VictimSetCheck):
    """Sums with those that return, then the rights; without a shortage to judge by, only the sums."""

    def __init__(self, search: VictimSearch, shortage: Shortage | None, rows: list[Row]) -> None:
        self.search: Final = search
        self.shortage: Final = shortage
        self.rows: Final = rows
        self.needs: Final = [row.amount for row in rows]

    def accepts(self, chosen: list[Contender]) -> bool:
        returning = self.search.victims.returning(chosen)
        if not returning:
            return True  # each contender is in the right by itself; rows and loads are all that the way adds for a set
        if not self.enough(chosen, returning):
            return False
        shortage = self.shortage
        return shortage is None or not self.search.rights.judge([c.claim for c in chosen], returning, shortage)

    def enough(self, chosen: list[Contender], returning: list[Claim] | None = None) -> bool:
        """Whether the set frees all that its rows miss, with what those that return take again."""
        sums = [-need for need in self.needs]
        for contender in chosen:
            for r in range(len(sums)):
                sums[r] += contender.relief[r]
        for claim in returning or ():
            relief = relief_of(claim, self.rows)
            for r in range(len(sums)):
                sums[r] -= relief[r]
        return min(sums, default=0) >= 0


def apply_plan(core: Core, claim: Claim, plan: PreemptionPlan) -> tuple[Refusal, ...]:
    """Evict the victims and charge the claim; () if it worked."""
    evict(core, plan.victims)
    return core.attempt(claim, plan.place, False)
