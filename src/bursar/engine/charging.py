"""The parts of every decision: bind, check, charge and release a claim in all policies that it concerns.

``Core`` holds the ledger, the policies in their order, and the engine's own records (disruption budgets, preemption
history). All functions work inside the open transaction; a refusal leaves no trace.
"""

from __future__ import annotations

from typing import Final, final

from bursar.engine.disruption_budgets import Budgets, VictimRules
from bursar.engine.possible import PossibleNodes
from bursar.engine.time_box import DecisionTime
from bursar.ledger.claims import PENDING, Binding, Claim, ClaimSpec
from bursar.ledger.preemption_history import PreemptionHistory
from bursar.ledger.state import near_overflow
from bursar.ledger.transaction import Ledger, Transaction
from bursar.policies.ownership import OwnerRules
from bursar.policies.placement_kit import NodeIndex, SpecWeights
from bursar.policies.policy import (
    ConcernVersion,
    NeedsSource,
    PlacementPolicy,
    Policy,
    PreemptionHooks,
    QuotaPolicy,
    StatusHooks,
    TimeHooks,
    overrides,
)
from bursar.policies.results import Refusal
from bursar.selectors import NodeNeeds


@final
class DirectedNeeds(NeedsSource):
    """What the quota policies require of a claim's node (the affinity of a quota tree)."""

    def __init__(self, policies: list[QuotaPolicy]) -> None:
        self.policies: Final = policies

    def needs(self, claim: Claim) -> tuple[NodeNeeds, ...]:
        found: list[NodeNeeds] = []
        for policy in self.policies:
            extra = policy.node_needs(claim)
            if extra is not None:
                found.append(extra)
        return tuple(found)


@final
class Concerned:
    """The policies that may govern the claims of one spec in one namespace, in their order."""

    __slots__ = ("namespace", "placing", "policies", "quotas", "spec")

    def __init__(self, spec: ClaimSpec | None, namespace: str, policies: list[Policy]) -> None:
        self.spec: Final = spec
        self.namespace: Final = namespace
        self.policies: Final = policies
        self.placing: Final = [p for p in policies if isinstance(p, PlacementPolicy)]
        self.quotas: Final = [p for p in policies if not isinstance(p, PlacementPolicy)]


@final
class Core:
    """The ledger and the policies over it, listed by the hooks that they implement."""

    __slots__ = (
        "advancing",
        "budgets",
        "checking",
        "closing",
        "concern_version",
        "demanding",
        "evictees",
        "eviction_rules",
        "following",
        "granting",
        "history",
        "keepers",
        "known",
        "known_version",
        "last",
        "ledger",
        "nodes",
        "opening",
        "owner_rules",
        "placing",
        "policies",
        "possible",
        "revoking",
        "searching",
        "selective",
        "settling",
        "time",
        "tx",
        "waking",
        "weights",
        "writing",
    )

    def __init__(self, policies: list[Policy]) -> None:
        self.ledger: Final = Ledger()
        self.tx: Final[Transaction] = self.ledger.tx
        self.nodes: Final = NodeIndex()
        self.time: Final = DecisionTime()
        self.policies: Final = policies
        quotas = [p for p in policies if isinstance(p, QuotaPolicy)]
        self.placing: Final = [p for p in policies if isinstance(p, PlacementPolicy)]
        self.selective: Final = [p for p in policies if overrides(p, Policy, "concerns")]
        self.checking: Final = [_has_check(p) for p in policies]
        self.settling: Final = [p for p in policies if overrides(p, Policy, "settle")]
        self.keepers: Final = [p for p in self.placing if overrides(p, PlacementPolicy, "residents")]
        self.searching: Final = [p for p in policies if overrides(p, PreemptionHooks, "search_begins")]
        self.granting: Final = [p for p in policies if overrides(p, PreemptionHooks, "node_victims_topics")]
        self.advancing: Final = [p for p in policies if overrides(p, TimeHooks, "advance")]
        self.revoking: Final = [p for p in policies if overrides(p, TimeHooks, "revocations")]
        self.waking: Final = [p for p in policies if overrides(p, TimeHooks, "next_due")]
        self.writing: Final = [p for p in policies if overrides(p, StatusHooks, "outputs")]
        self.following: Final = [p for p in quotas if overrides(p, QuotaPolicy, "state_changed")]
        self.opening: Final = [p for p in quotas if overrides(p, QuotaPolicy, "open_accounts")]
        self.closing: Final = [p for p in quotas if overrides(p, QuotaPolicy, "close_accounts")]
        self.evictees: Final = [overrides(p, Policy, "finish_eviction") for p in policies]
        self.demanding: Final = [p for p in quotas if overrides(p, QuotaPolicy, "demand")]
        self.history: Final = PreemptionHistory(self.ledger)
        self.budgets: Final = Budgets(self.ledger.state)
        self.ledger.watch("budgets", self.budgets)
        self.eviction_rules: Final = VictimRules(self.ledger.state, self.budgets, self.history)
        self.eviction_rules.lending = [p for p in policies if overrides(p, PreemptionHooks, "over_quota")]
        self.concern_version: Final = ConcernVersion()
        self.known: Final[dict[tuple[ClaimSpec, str], Concerned]] = {}
        self.known_version: int = 0
        self.weights: Final = SpecWeights()
        self.last: Concerned = Concerned(None, "", policies)  # whom the last claim that was asked about concerns
        needs_of = DirectedNeeds([p for p in quotas if overrides(p, QuotaPolicy, "node_needs")])
        self.possible: Final = PossibleNodes(self.ledger.state, self.nodes, self.placing, needs_of)
        names: set[str] = set()
        self.owner_rules: Final = next((p.owner_rules for p in policies if p.excludes), OwnerRules())
        for slot, policy in enumerate(policies):
            if policy.name in names:
                raise ValueError(f"two policies are called {policy.name}")
            names.add(policy.name)
            policy.slot = slot
            policy.concern_version = self.concern_version
            policy.eviction_rules = self.eviction_rules
            policy.demand_rules = self.possible
            policy.owner_rules = self.owner_rules
            self.ledger.watch(policy.name, policy)
            policy.attach(self.ledger.state, self.nodes, needs_of)

    def concerned(self, claim: Claim) -> Concerned:
        """The policies to ask about a claim. The answer is kept until a setting that decides it changes."""
        if not self.selective:
            return self.last
        if self.known_version != self.concern_version.number:
            self.known_version = self.concern_version.number
            self.weights.total = 0
            self.known.clear()
        elif claim.spec is self.last.spec and claim.namespace == self.last.namespace:
            return self.last
        key = (claim.spec, claim.namespace)
        found = self.known.get(key)
        if found is None:
            if self.weights.full(claim.spec):
                self.known.clear()
            others = [p for p in self.selective if not p.concerns(claim)]
            found = Concerned(claim.spec, claim.namespace, [p for p in self.policies if p not in others])
            self.known[key] = found
        self.last = found
        return found

    def needs_place(self, claim: Claim) -> bool:
        return len(self.placing) > 0 and claim.spec.placeable

    # Entering

    def enter(self, claim: Claim) -> None:
        """A claim enters, pending; its demand counts from here."""
        tx = self.tx
        tx.add_claim(claim)
        self.history.submitted(claim)
        self.budgets.exists(tx, claim, True)
        self.bind_demand(claim)
        self.open_accounts(claim)

    def open_accounts(self, claim: Claim) -> None:
        """The claim is new or asks for something else: policies may open the accounts that will govern it."""
        for policy in self.opening:
            policy.open_accounts(self.tx, claim)

    def bind_demand(self, claim: Claim) -> None:
        """Bind a pending claim that has no place: its demand counts as if it had just been submitted."""
        before = claim.bindings
        bindings = self._demand_bindings(claim) if self.demanding else ()
        self.tx.set_bindings(claim, bindings)
        self.move_demand(claim, before, bindings)

    def _demand_bindings(self, claim: Claim) -> tuple[Binding | None, ...]:
        """The bindings before a decision; a policy that refuses to bind counts no demand."""
        found: list[Binding | None] = [None] * len(self.policies)
        for policy in self.concerned(claim).quotas:
            bound = policy.bind(claim, "")
            if isinstance(bound, Binding):
                found[policy.slot] = bound
            elif policy.excludes and bound is not None:
                return self._nowhere()
        return tuple(found)

    def _nowhere(self) -> tuple[Binding | None, ...]:
        return tuple([None] * len(self.policies))

    def demand(self, claim: Claim, bindings: tuple[Binding | None, ...], wanted: bool) -> None:
        for policy in self.demanding:
            binding = bindings[policy.slot] if policy.slot < len(bindings) else None
            if binding is not None:
                policy.demand(self.tx, claim, binding, wanted)

    def move_demand(self, claim: Claim, old: tuple[Binding | None, ...], new: tuple[Binding | None, ...]) -> None:
        """Move demand to other bindings. A binding that stays the same is not touched, so it wakes no waiting claim."""
        for policy in self.demanding:
            slot = policy.slot
            before = old[slot] if slot < len(old) else None
            after = new[slot] if slot < len(new) else None
            if before is after:
                continue
            if before is not None:
                policy.demand(self.tx, claim, before, False)
            if after is not None:
                policy.demand(self.tx, claim, after, True)

    # Charging

    def bind_all(self, claim: Claim, place: str, refusals: list[Refusal]) -> tuple[Binding | None, ...]:
        """The claim's bindings at a place; a policy that cannot read the claim adds its refusal."""
        found: list[Binding | None] = [None] * len(self.policies)
        policies = self.concerned(claim).policies if self.selective else self.policies
        for policy in policies:
            bound = policy.bind(claim, place)
            if isinstance(bound, Refusal):
                refusals.append(bound)
            else:
                found[policy.slot] = bound
        return tuple(found)

    def bind_by_force(self, claim: Claim, place: str, old: tuple[Binding | None, ...]) -> tuple[Binding | None, ...]:
        """The claim's bindings at a place where it is already, as far as policies can read it."""
        refusals: list[Refusal] = []
        found = list(self.bind_all(claim, place, refusals))
        for refusal in refusals:
            for policy in self.policies:
                if policy.name == refusal.policy:
                    if policy.excludes and claim.state == PENDING:
                        return self._nowhere()
                    slot = policy.slot
                    found[slot] = policy.bind_anyway(claim, place, old[slot] if slot < len(old) else None)
        return tuple(found)

    def quota_refusals(self, claim: Claim) -> tuple[Refusal, ...]:
        """Why quotas refuse a pending claim wherever it runs, one refusal for each. Leaves no trace."""
        refusals: list[Refusal] = []
        bindings = self.bind_all(claim, "", refusals)
        if refusals:
            return tuple(refusals)
        if not self._can_check(claim, bindings):
            mark = self.tx.savepoint()
            found = self.attempt(claim, "", False)
            self.tx.rollback_to(mark)
            return found
        for policy in self.concerned(claim).policies:
            binding = bindings[policy.slot]
            refusal = None if binding is None else policy.check(claim, binding)
            if refusal is not None:
                refusals.append(refusal)
        return tuple(refusals)

    def _can_check(self, claim: Claim, bindings: tuple[Binding | None, ...]) -> bool:
        """Whether checks find what charges would: not if demand moves first, or a sum may leave the exact range."""
        for i in range(len(bindings)):
            binding = bindings[i]
            if binding is not None and (not self.checking[i] or near_overflow(binding.accounts, binding.costs)):
                return False
        if claim.bindings:
            for policy in self.demanding:
                if claim.bindings[policy.slot] is not bindings[policy.slot]:
                    return False
        return True

    def attempt(self, claim: Claim, place: str, forced: bool) -> tuple[Refusal, ...]:
        """Charge the claim at a place in all policies, or in none: then returns a refusal of each that refused."""
        if not forced:
            self.time.step()
        tx = self.tx
        mark = tx.savepoint()
        refusals: list[Refusal] = []
        bindings = self.bind_by_force(claim, place, ()) if forced else self.bind_all(claim, place, refusals)
        if refusals:
            return tuple(refusals)
        if claim.bindings and self.demanding:
            self.move_demand(claim, claim.bindings, bindings)
        tx.set_bindings(claim, bindings)
        try:
            for i in range(len(bindings)):
                binding = bindings[i]
                if binding is not None:
                    refusal = self.policies[i].charge(tx, claim, binding, forced)
                    if refusal is not None:
                        refusals.append(refusal)
        except OverflowError as error:
            if forced:
                raise
            refusals.append(Refusal("engine", "engine.out-of-range", str(error)))
        if refusals:
            tx.rollback_to(mark)
            return tuple(refusals)
        if place:
            tx.set_place(claim, place)
        return ()

    def set_seen(self, claim: Claim, state: int) -> None:
        """The claim was observed in a later state; budgets and policies that count running claims follow."""
        if self.budgets.healthy(claim):
            self.budgets.runs(self.tx, claim, False)
        self.tx.set_state(claim, state)
        if self.budgets.healthy(claim):
            self.budgets.runs(self.tx, claim, True)
        for policy in self.following:
            binding = claim.bindings[policy.slot] if policy.slot < len(claim.bindings) else None
            if binding is not None:
                policy.state_changed(self.tx, claim, binding)

    def settle(self) -> None:
        for policy in self.settling:
            policy.settle(self.tx)


def _has_check(policy: Policy) -> bool:
    """Whether ``check`` finds what ``charge`` would: it is the policy's own, or both are inherited."""
    return overrides(policy, Policy, "check") or not overrides(policy, Policy, "charge")
