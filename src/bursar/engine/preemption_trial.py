"""Victims by trial, for refusals that amounts do not explain: a quota tree, parts of GPUs, host ports.

While a policy refuses, the first one that does names the next victim; the victim leaves in every policy and the claim
is tried again. If quota and node both refuse, victims on that node come first, so that the same ones serve both. Of
those that were chosen, all that can be spared are spared, the last chosen first. That goes by halves: a half that is
not needed at all costs one attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from bursar.engine.charging import Core
from bursar.engine.eligibility import EligibleVictims, eligible, relief_of
from bursar.engine.eviction import begin_eviction
from bursar.ledger.claims import Binding, Claim
from bursar.policies.policy import PlacementPolicy, Policy
from bursar.policies.results import Refusal
from bursar.policies.rights import Contender, Rights, Row, Shortage, in_order

Candidates = Iterator[Claim]


@final
class Trial:
    """One run for one place and one way to be in the right."""

    __slots__ = (
        "candidates",
        "claim",
        "core",
        "governed",
        "local_only",
        "named",
        "place",
        "quota_rows",
        "reason",
        "rights",
        "shortage",
        "way",
        "worst",
    )

    def __init__(
        self, core: Core, claim: Claim, rights: Rights, governed: str, way: int, place: str, quota_rows: list[Row]
    ) -> None:
        self.core: Final = core
        self.claim: Final = claim
        self.rights: Final = rights
        self.governed: Final = governed  # the policy that gave the rights, "" for priority
        self.way: Final = way
        self.place: Final = place
        self.quota_rows: Final = quota_rows
        self.shortage: Shortage = Shortage(place, quota_rows, [])
        self.candidates: Candidates = iter(())
        self.reason: str = ""
        self.local_only: bool = False
        self.named: Final[dict[str, int]] = {}  # by uid: the class of those that the rights named
        self.worst: int = 0

    def run(self) -> list[Claim] | None:
        """The victims, the least important first; None if there are none that do. Leaves the transaction as it was."""
        mark = self.core.tx.savepoint()
        chosen: list[Claim] = []
        enough = self._for_needs(chosen) and self._until_it_fits(chosen)
        self.core.eviction_rules.only_at = ""
        self.core.tx.rollback_to(mark)
        if not enough:
            return None
        kept = chosen if self._needs_all(chosen) else self._spared(chosen)
        if not makes_room(self.core, self.claim, self.place, kept):
            return None
        self.worst = max([self.named.get(victim.uid, 0) for victim in kept], default=0)
        return kept if self._is_legal(kept) else None

    def _is_legal(self, victims: list[Claim]) -> bool:
        """Judged for those that the rights named; others answer to the policies that named them."""
        ours = [victim for victim in victims if victim.uid in self.named]
        if not ours and not self.rights.needs(self.way):
            return True
        view = EligibleVictims(self.core, self.claim)
        contenders = [Contender(victim, 0) for victim in victims]
        for contender in contenders:
            view.admit(contender)
        return not self.rights.judge(ours, view.returning(contenders), self.shortage)

    # Growing

    def _for_needs(self, chosen: list[Claim]) -> bool:
        """Victims of the claim's own quota that must leave in any case."""
        rows = self.rights.needs(self.way)
        left = [row.amount for row in rows]
        if not rows:
            return True
        for contender in self.rights.everywhere(self.way, Shortage(self.place, [], [])):
            relief = relief_of(contender.claim, rows)
            if max(relief) > 0 and eligible(self.core, self.claim, contender.claim):
                self._take(contender.claim, contender.rank, chosen)
                left = [left[r] - relief[r] for r in range(len(rows))]
                if max(left) <= 0:
                    return True
        return False

    def _take(self, victim: Claim, rank: int, chosen: list[Claim]) -> None:
        if rank >= 0:
            self.named[victim.uid] = rank
        begin_eviction(self.core, victim)
        chosen.append(victim)

    def _until_it_fits(self, chosen: list[Claim]) -> bool:
        """Twice as many victims each time the same refusal stays. Those too many come last, and are spared again."""
        count = 1
        while True:
            refusals = self.core.attempt(self.claim, self.place, False)
            if not refusals:
                return True
            count = 2 * count if refusals[0].reason == self.reason else 1
            victim = self._next(refusals)
            if victim is None:
                return False
            left = count
            while victim is not None:
                begin_eviction(self.core, victim)
                chosen.append(victim)
                left -= 1
                victim = self._pull() if left else None

    def _next(self, refusals: tuple[Refusal, ...]) -> Claim | None:
        """The next victim for the binding refusal, from the policy that refused."""
        refusal = refusals[0]
        if refusal.permanent:
            return None
        if refusal.reason != self.reason:
            placing = {policy.name for policy in self.core.placing}
            mixed = refusal.policy not in placing and any(r.policy in placing for r in refusals)
            self.local_only = mixed and bool(self.place)
            self._ask(refusal)
        found = self._pull()
        if found is None:
            # The list may have been made for a state that is past: ask once more, now without preference.
            self.local_only = False
            self._ask(refusal)
            found = self._pull()
        return found

    def _ask(self, refusal: Refusal) -> None:
        self.reason = refusal.reason
        self.candidates = iter(())
        core = self.core
        core.eviction_rules.only_at = self.place if self.local_only else ""
        for policy in core.policies:
            if policy.name == refusal.policy:
                bound = policy.bind(self.claim, self.place)
                if isinstance(bound, Binding):
                    self.candidates = self._named_by(policy, bound, refusal)

    def _named_by(self, policy: Policy, binding: Binding, refusal: Refusal) -> Candidates:
        """The rights name victims where their own policy refuses, and on a node where that leaves it to them."""
        if policy.name == self.governed:
            return self._by_rights(policy.missing_in_accounts(binding))
        if self.governed and isinstance(policy, PlacementPolicy):
            there = policy.victims_on_node(self.core.tx, self.claim, binding, refusal)
            if there is not None:
                self.shortage = Shortage(self.place, self.quota_rows, policy.missing_in_accounts(binding))
                return self._on_node(there)
        return policy.victims(self.core.tx, self.claim, binding, refusal)

    def _by_rights(self, rows: list[Row]) -> Candidates:
        for contender in self.rights.everywhere(self.way, self.shortage):
            if max(relief_of(contender.claim, rows), default=0) > 0:
                self.named[contender.claim.uid] = contender.rank
                yield contender.claim

    def _on_node(self, there: list[Claim]) -> Candidates:
        found: list[Contender] = []
        for claim in there:
            contender = self.rights.contender(self.way, claim, self.shortage)
            if contender is not None:
                found.append(contender)
        for contender in in_order(self.rights, found):
            self.named[contender.claim.uid] = contender.rank
            yield contender.claim

    def _pull(self) -> Claim | None:
        for victim in self.candidates:
            if eligible(self.core, self.claim, victim):
                return victim
        return None

    # Sparing

    def _needs_all(self, chosen: list[Claim]) -> bool:
        for policy in self.core.policies:
            bound = policy.bind(self.claim, self.place)
            if isinstance(bound, Binding) and policy.needs_all(self.claim, bound, chosen):
                return True
        return False

    def _spared(self, chosen: list[Claim]) -> list[Claim]:
        """Leave out those that the claim does not need.

        Displacing a held claim lets its own victims back in, so sparing one can make another needless: passes are
        repeated until none can be spared.
        """
        kept = chosen
        while True:
            before = len(kept)
            kept = self._needed_of(kept, [])
            if len(kept) == before or not kept:
                return kept

    def _needed_of(self, part: list[Claim], others: list[Claim]) -> list[Claim]:
        """Those of a part that are needed; ``others`` have left already."""
        if self._fits(others):
            return []
        if len(part) <= 1:
            return part
        core = self.core
        half = len(part) // 2
        mark = core.tx.savepoint()
        evict(core, part[:half])
        upper = self._needed_of(part[half:], [*others, *part[:half]])
        core.tx.rollback_to(mark)
        evict(core, upper)
        lower = self._needed_of(part[:half], [*others, *upper])
        core.tx.rollback_to(mark)
        return [*lower, *upper]

    def _fits(self, left: list[Claim]) -> bool:
        rows = self.rights.needs(self.way)
        sums = [-row.amount for row in rows]
        if rows:
            for claim in left:
                relief = relief_of(claim, rows)
                for r in range(len(rows)):
                    sums[r] += relief[r]
        if min(sums, default=0) < 0:
            return False
        mark = self.core.tx.savepoint()
        refusals = self.core.attempt(self.claim, self.place, False)
        self.core.tx.rollback_to(mark)
        return not refusals


def evict(core: Core, victims: list[Claim]) -> None:
    """Evict them, except those that do not count (again) because others went before."""
    for victim in victims:
        if victim.counts():
            begin_eviction(core, victim)


def makes_room(core: Core, claim: Claim, place: str, victims: list[Claim]) -> bool:
    """Whether the claim fits at the place once the victims have left; leaves the transaction as it was."""
    mark = core.tx.savepoint()
    evict(core, victims)
    refusals = core.attempt(claim, place, False)
    core.tx.rollback_to(mark)
    return not refusals
