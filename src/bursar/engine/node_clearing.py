"""What can clear a full node for a claim whose quotas find their victims by trial, worked out by arithmetic.

What a quota tree lacks is no sum of amounts, and a trial costs a transaction for every victim. What the node lacks is
known, though: whatever set is legal there, its members on the node clear the node. So

* a node that all together cannot clear is ruled out: claims of lower priority, and those that a refusing policy could
  name;
* the least set of lower priority that clears the node is the least of all, if that serves the quotas as well: by those
  of its members alone that the refusing policies could name, for the others have to leave for the node only;
* where every one of them must leave, any legal set holds them all, and does no less harm.

Order: lower priority first; among equals those that the refusing policy could name, as it orders them, then newest.
"""

from __future__ import annotations

from typing import Final, final

from bursar.engine.eligibility import EligibleVictims, Slack, relief_of
from bursar.engine.victim_sets import JudgedSets, VictimSetCheck, least_set
from bursar.ledger.claims import Binding, Claim
from bursar.policies.policy import Policy, PreemptionHooks, overrides
from bursar.policies.rights import ANY_STANDING, NEVER_NAMED, Contender, Row

_ANY_SET: Final = VictimSetCheck()


@final
class Clearing:
    """How one node can be cleared."""

    __slots__ = ("everybody", "least", "named")

    def __init__(self, least: list[Claim], named: list[Claim], everybody: list[Claim]) -> None:
        self.least: Final = least  # of lower priority; empty if these do not do, or their order is not known
        self.named: Final = named  # those of them that the quotas could name
        self.everybody: Final = everybody  # those that must leave in any case; empty if some can be spared


@final
class NodeClearing:
    """Clears nodes for one claim, as of when the search began."""

    __slots__ = ("claim", "judged", "refusing", "view")

    def __init__(self, claim: Claim, view: EligibleVictims, judged: JudgedSets) -> None:
        self.claim: Final = claim
        self.view: Final = view
        self.judged: Final = judged
        self.refusing: Final[list[tuple[Policy, Binding]]] = []  # the quotas that find victims by trial

    def takes_back(self) -> bool:
        """Whether a quota that refuses may name claims of any priority."""
        for policy, _ in self.refusing:
            if overrides(policy, PreemptionHooks, "standing"):
                return True
        return False

    def of(self, rows: list[Row], residents: dict[str, Claim]) -> Clearing | None:
        """None if the node cannot be cleared."""
        lower: list[Contender] = []
        named: list[Contender] = []
        standings: dict[str, int] = {}
        ordered = True
        slack = Slack(rows)
        for resident in residents.values():
            standing = self._standing(resident)
            below = resident.spec.priority < self.claim.spec.priority
            contender = Contender(resident, 0)
            contender.relief = relief_of(resident, rows)
            may_go = (below or standing != NEVER_NAMED) and max(contender.relief, default=0) > 0
            if not may_go or not self.view.admit(contender):
                if not slack.stays(resident):
                    return None
                continue
            standings[resident.uid] = standing
            (lower if below else named).append(contender)
            ordered = ordered and standing != ANY_STANDING and not contender.returning
        sums = [-row.amount for row in rows]
        for contender in (*lower, *named):
            for r in range(len(sums)):
                sums[r] += contender.relief[r]
        if min(sums, default=0) < 0:
            return None
        everybody = [] if _can_spare([*lower, *named], sums) else [one.claim for one in (*lower, *named)]
        least = self._least(lower, standings, rows) if ordered else []
        if ordered and not least and not named and not self.judged.cut:
            return None  # budgets do not let enough of them go
        return Clearing(least, [one for one in least if standings[one.uid] != NEVER_NAMED], everybody)

    def _standing(self, victim: Claim) -> int:
        """By the first policy that could name it."""
        found = NEVER_NAMED
        for policy, binding in self.refusing:
            found = policy.standing(self.claim, binding, victim)
            if found != NEVER_NAMED:
                return found
        return found

    def _least(self, lower: list[Contender], standings: dict[str, int], rows: list[Row]) -> list[Claim]:
        keyed = [(_key(one.claim, standings[one.claim.uid]), i) for i, one in enumerate(lower)]
        keyed.sort()
        self.judged.next_place()
        found = least_set(iter([lower[i] for _, i in keyed]), [row.amount for row in rows], self.judged, _ANY_SET)
        return [] if found is None else [one.claim for one in found]


def _key(claim: Claim, standing: int) -> tuple[int, int, int, int, str, str]:
    unnamed = 1 if standing == NEVER_NAMED else 0
    return (claim.spec.priority, unnamed, standing, -claim.created, claim.namespace, claim.name)


def _can_spare(contenders: list[Contender], sums: list[int]) -> bool:
    """Whether one of them may stay; ``sums`` is what they free beyond what is missing."""
    for contender in contenders:
        spare = True
        for r in range(len(sums)):
            spare = spare and contender.relief[r] <= sums[r]
        if spare:
            return True
    return False
