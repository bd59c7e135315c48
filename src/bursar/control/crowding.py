"""Who is still in the way of a claim in its quotas, although decisions count them no longer.

A victim may be larger than what its claimant needs, and decisions give the rest to others at once. But a pod counts
until it is gone: so others start only when what really runs (all that counts, without those that are held, with those
that are leaving) stays within every limit of theirs. Nodes and GPUs see to that themselves; this is about quotas.

Whoever hears of commits keeps it in step with the ledger, so that a look costs the same however many leave, are held
or are kept from starting: they may be many at once, and each decision is followed by a look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bursar.ledger.accounts import Account
from bursar.ledger.claims import HELD, Claim
from bursar.vectors import Vector

Spot = tuple[Account, int]
"""An account, and the dimension in which too much runs."""


class _Sums:
    """Of one account: who is leaving it, and by dimension what they and those that are held cost there."""

    __slots__ = ("held", "leavers", "leaving")

    def __init__(self) -> None:
        self.leavers: set[str] = set()  # uids
        self.leaving: Counter[int] = Counter()
        self.held: Counter[int] = Counter()


class Crowd:
    """Those that leave, those that are held, and those that are kept from starting."""

    def __init__(self) -> None:
        self._sums: dict[Account, _Sums] = {}
        self._known: dict[str, tuple[bool, list[tuple[Account, Vector]]]] = {}  # by uid: whether it leaves; its costs
        self._kept: dict[Spot, dict[str, Claim]] = {}
        self._spot_of: dict[str, Spot] = {}  # by uid of those that are kept from starting

    # Who leaves and who is held

    def __contains__(self, uid: str) -> bool:
        return uid in self._known

    def take(self, claim: Claim) -> None:
        """The claim leaves, is held, or does neither now."""
        self.forget(claim.uid)
        if claim.leaving or claim.state == HELD:
            costs = list(_quota_costs(claim))
            self._known[claim.uid] = claim.leaving, costs
            for account, cost in costs:
                self._count(account, cost, claim.uid, claim.leaving, 1)

    def forget(self, uid: str) -> None:
        leaves, costs = self._known.pop(uid, (False, []))
        for account, cost in costs:
            self._count(account, cost, uid, leaves, -1)

    def _count(self, account: Account, cost: Vector, uid: str, leaves: bool, sign: int) -> None:
        sums = self._sums.setdefault(account, _Sums())
        amounts = sums.leaving if leaves else sums.held
        for dim in cost.indices():
            amounts[dim] += sign * cost.get(dim)
            if not amounts[dim]:
                del amounts[dim]
        if leaves:
            (sums.leavers.add if sign > 0 else sums.leavers.discard)(uid)
        if not (sums.leavers or sums.leaving or sums.held):
            del self._sums[account]

    # Who is kept from starting

    def spot(self, claim: Claim) -> Spot | None:
        """Where too much runs for the claim to start; nearly always nowhere."""
        return next(self._spots(claim), None)

    def in_the_way(self, claim: Claim) -> list[str]:
        """The uids of claims that must be gone before this one may start."""
        found: set[str] = set()
        for account, _ in self._spots(claim):
            found |= self._sums[account].leavers
        return sorted(found)

    def _spots(self, claim: Claim) -> Iterator[Spot]:
        if self._sums:
            for account, cost in _quota_costs(claim):
                if account in self._sums:
                    yield from ((account, dim) for dim in cost.indices() if self._exceeded(account, dim))

    def _exceeded(self, account: Account, dim: int) -> bool:
        sums = self._sums.get(account)
        if sums is None or sums.leaving[dim] <= 0:
            return False
        return account.used.get(dim) + sums.leaving[dim] - sums.held[dim] > account.limits.get(dim)

    def keep(self, claim: Claim, spot: Spot) -> None:
        """The claim does not start before its way is free there."""
        self.let_go(claim.uid)
        self._kept.setdefault(spot, {})[claim.uid] = claim
        self._spot_of[claim.uid] = spot

    def let_go(self, uid: str) -> None:
        """The claim is not to start, or starts."""
        spot = self._spot_of.pop(uid, None)
        if spot is not None:
            claims = self._kept[spot]
            del claims[uid]
            if not claims:
                del self._kept[spot]

    def freed(self) -> list[Claim]:
        """Claims whose way is free where they were kept; they may be kept elsewhere."""
        found: list[Claim] = []
        for spot in [spot for spot in self._kept if not self._exceeded(*spot)]:
            found.extend(self._kept[spot].values())
        for claim in found:
            self.let_go(claim.uid)
        return found

    def keeps(self, uid: str) -> bool:
        return uid in self._spot_of

    def kept(self) -> list[Claim]:
        """Those that are kept from starting."""
        return [claim for claims in self._kept.values() for claim in claims.values()]


def _quota_costs(claim: Claim) -> Iterator[tuple[Account, Vector]]:
    for binding in claim.bindings:
        if binding is not None:
            for account, cost in zip(binding.accounts, binding.costs, strict=True):
                if not account.physical:
                    yield account, cost
