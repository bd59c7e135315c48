"""Who may be a victim at all, whatever the policies say.

A claim may be evicted if it counts, is preemptible, is not revoked or spared already, and its disruption budgets allow
it. It may be evicted *for a claimant* if it is not of the claimant's gang and preemption history does not bar it.
"""

from __future__ import annotations

from typing import Final, final

from bursar.engine.charging import Core
from bursar.engine.disruption_budgets import BudgetBody
from bursar.engine.eviction import holders
from bursar.ledger.claims import HELD, TERMINATING, Claim, ClaimSpec
from bursar.ledger.preemption_history import lineage_of
from bursar.policies.rights import Allowance, Contender, Row


def may_take(core: Core, victim: Claim) -> bool:
    """Whether a claim may be evicted at all, for any other claim."""
    return not core.eviction_rules.protection(victim)


def eligible(core: Core, claim: Claim, victim: Claim) -> bool:
    """Whether the engine lets this claim displace that one now."""
    return not core.eviction_rules.obstacle(claim, victim)


def _related(core: Core, claim: Claim, victim: Claim) -> bool:
    """Whether it is the claim itself, one of its gang, or one that displaced it."""
    if victim.uid == claim.uid:
        return True
    group = claim.spec.group
    if group and victim.spec.group == group and victim.namespace == claim.namespace:
        return True
    return core.history.barred(claim.uid, victim.uid)


@final
class EligibleVictims:
    """The eligible victims of one claim, with what they take of disruption budgets. None is evicted meanwhile."""

    __slots__ = ("allowances", "claim", "core", "matching", "related", "revoked", "spared")

    def __init__(self, core: Core, claim: Claim) -> None:
        self.core: Final = core
        self.claim: Final = claim
        # Whether others may be related to it: it has a gang, or was displaced.
        state = core.ledger.state
        history = state.cell("displaced", lineage_of(state, claim.uid))
        self.related: Final = bool(claim.spec.group) or history is not None
        self.revoked: Final = core.ledger.state.cells("revoked")
        self.spared: Final = core.ledger.state.cells("spared")
        self.matching: Final[dict[tuple[ClaimSpec, str], list[Allowance]]] = {}
        self.allowances: Final[dict[str, Allowance]] = {}

    def admit(self, contender: Contender) -> bool:
        """Whether the contender is eligible; adds its loads on disruption budgets, and who returns if it leaves."""
        self.core.time.step()
        victim = contender.claim
        rules = self.core.eviction_rules
        if rules.lenient:
            if rules.obstacle(self.claim, victim):
                return False
        elif not self._may_go(contender, victim):
            rules.blocked += 1
            return False
        if victim.state == HELD:
            contender.returning = self._returning(victim)
        return True

    def _may_go(self, contender: Contender, victim: Claim) -> bool:
        if not victim.spec.preemptible or not victim.counts():
            return False
        if victim.uid in self.revoked or victim.uid in self.spared or victim is self.claim:
            return False
        if self.related and _related(self.core, self.claim, victim):
            return False
        budgets = self.core.budgets
        if budgets.by_namespace and budgets.healthy(victim) and self.core.eviction_rules.shielded(victim):
            for allowance in self.budgets_of(victim):
                if allowance.left < 1:
                    return False
                contender.load(allowance, 1)
        return True

    def budgets_of(self, victim: Claim) -> list[Allowance]:
        key = (victim.spec, victim.namespace)
        found = self.matching.get(key)
        if found is None:
            known = self.core.budgets.by_namespace.get(victim.namespace, {})
            found = [
                self._allowance(name, budget)
                for name, budget in known.items()
                if budget.selector.matches(victim.spec.labels)
            ]
            self.matching[key] = found
        return found

    def _allowance(self, name: str, budget: BudgetBody) -> Allowance:
        found = self.allowances.get(name)
        if found is None:
            found = Allowance(f"budget {name}", self.core.budgets.allowed(name, budget))
            self.allowances[name] = found
        return found

    def _returning(self, held: Claim) -> list[Claim]:
        """The victims of a held claim that keep their place if it goes. They may have other holders."""
        found: list[Claim] = []
        for uid in held.waits_for:
            other = self.core.ledger.state.claims.get(uid)
            if other is not None and other.leaving and other.state != TERMINATING and uid not in self.revoked:
                found.append(other)
        return found

    def returning(self, chosen: list[Contender]) -> list[Claim]:
        """Who counts again when all of the chosen leave: victims of held ones for which no other claim waits."""
        found: dict[str, Claim] = {}
        held = [contender for contender in chosen if contender.returning]
        if not held:
            return []
        gone = {contender.claim.uid for contender in chosen}
        for contender in held:
            for other in contender.returning:
                waiting = [uid for uid in holders(self.core, other.uid) if uid not in gone]
                if not waiting:
                    found[other.uid] = other
        return list(found.values())


def exhausted_budgets(core: Core, claim: Claim, victims: list[Claim]) -> list[str]:
    """Which disruption budgets let some of these claims go, but not all of them."""
    view = EligibleVictims(core, claim)
    loads: dict[str, list[str]] = {}
    for victim in victims:
        if core.budgets.healthy(victim) and core.eviction_rules.shielded(victim):
            for allowance in view.budgets_of(victim):
                loads.setdefault(allowance.name, []).append(victim.key)
    found: list[str] = []
    for allowance in view.allowances.values():
        keys = loads.get(allowance.name, [])
        if len(keys) > allowance.left:
            found.append(f"{' and '.join(keys)}, of which the disruption {allowance.name} lets {allowance.left} go")
    return found


def relief_of(claim: Claim, rows: list[Row]) -> list[int]:
    """What each row gains if the claim stops counting."""
    found = [0] * len(rows)
    for binding in claim.bindings:
        if binding is None:
            continue
        accounts = binding.accounts
        for i in range(len(accounts)):
            account = accounts[i]
            for r in range(len(rows)):
                if rows[r].account is account:
                    found[r] += binding.costs[i].get(rows[r].dim)
    return found


@final
class Slack:
    """How much of each row may stay on a node beside what is cleared; a node where more stays cannot be cleared.

    The claims that stay are often few and old, so a look at these rules out most nodes.
    """

    __slots__ = ("left", "rows")

    def __init__(self, rows: list[Row]) -> None:
        self.rows: Final = rows
        self.left: Final = [row.account.used.get(row.dim) - row.amount for row in rows]

    def stays(self, claim: Claim) -> bool:
        """The claim stays; returns whether the node can still be cleared."""
        if not claim.counts():
            return True
        relief = relief_of(claim, self.rows)
        for r in range(len(relief)):
            self.left[r] -= relief[r]
            if relief[r] > 0 and self.left[r] < 0:
                return False
        return True
