"""The classes of claims by a quota's min and share, how much is guaranteed, and which quota lends how much to which.

First fit against ``min``, in the order of the members, separates in-quota from over-quota. First fit against ``min`` +
guaranteed separates within-share from beyond-share. A claim that is passed over does not push those behind it over.

Lending is a convention, because no particular GPU changes hands. What borrowers use beyond their min is assigned to the
lenders in proportion to what each leaves unused, to the unit (largest remainder, ties by name). The rest has no lender;
there is one when borrowing is bounded by capacity, or after a min was lowered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from bursar.policies.elastic.member_order import Bucket, FirstFit, Member, MemberOrder, before
from bursar.policies.elastic.settings import BEYOND_SHARE, IN_MIN, WITHIN_SHARE

ANY_PRIORITY: Final = 2**40  # above every priority


@final
class Standing:
    """The classes of the members of one quota, given its share. It stays true of a moment while members leave."""

    __slots__ = ("inside", "share", "sharing", "used")

    def __init__(self, used: list[int], share: list[int], inside: FirstFit, sharing: FirstFit) -> None:
        self.used: Final = used
        self.share: Final = share  # min + guaranteed
        self.inside: Final = inside
        self.sharing: Final = sharing

    def rank(self, member: Member) -> int:
        if self.inside.takes(member):
            return IN_MIN
        return WITHIN_SHARE if self.sharing.takes(member) else BEYOND_SHARE

    def span(self, bucket: Bucket, rank: int) -> tuple[int, int]:
        """Where in a bucket the members of one class are."""
        inside = self.inside.end_in(bucket)
        if rank == IN_MIN:
            return (0, inside)
        sharing = max(inside, self.sharing.end_in(bucket))
        return (inside, sharing) if rank == WITHIN_SHARE else (sharing, len(bucket.members))


@final
class ClassQueue:
    """The preemptible members of one class of a quota below some priority: lower priority first, then newest.

    Members may leave meanwhile; the next one is then looked up again.
    """

    __slots__ = ("below", "edits", "ends", "order", "rank", "spans", "standing", "upcoming")

    def __init__(self, order: MemberOrder, standing: Standing, rank: int, below: int) -> None:
        self.order: Final = order
        self.standing: Final = standing
        self.rank: Final = rank
        self.below: Final = below
        self.spans: list[Bucket] = []  # of the lowest priority that has one left
        self.ends: list[tuple[int, int]] = []
        self.edits: int = order.edits
        self.upcoming: Member | None = self._from(None)

    def advance(self) -> Member | None:
        """The next one, and steps on."""
        found = self.upcoming
        if found is not None:
            self.upcoming = self._after(found)
        return found

    def _after(self, last: Member) -> Member | None:
        if self.edits != self.order.edits:
            self.edits = self.order.edits
            return self._from(last)
        for i in range(len(self.spans)):
            start, end = self.ends[i]
            if end > start and self.spans[i].members[end - 1] is last:
                self.ends[i] = (start, end - 1)
        found = self._newest()
        return self._from(last) if found is None else found

    def _newest(self) -> Member | None:
        best: Member | None = None
        for i in range(len(self.spans)):
            start, end = self.ends[i]
            if end > start:
                member = self.spans[i].members[end - 1]
                if best is None or before(best, member):
                    best = member
        return best

    def _from(self, last: Member | None) -> Member | None:
        """Fills the spans of the next priority after the last one taken."""
        found: dict[int, list[Bucket]] = {}
        for shape in self.order.shapes.values():
            for bucket in shape.buckets.values():
                if bucket.preemptible and bucket.priority < self.below:
                    found.setdefault(bucket.priority, []).append(bucket)
        for priority in sorted(found):
            if last is None or priority >= last.priority:
                self.spans = found[priority]
                self.ends = [self._end(bucket, last) for bucket in self.spans]
                newest = self._newest()
                if newest is not None:
                    return newest
        return None

    def _end(self, bucket: Bucket, last: Member | None) -> tuple[int, int]:
        start, end = self.standing.span(bucket, self.rank)
        if last is not None and last.priority == bucket.priority:
            end = min(end, bucket.position(last))
        return (start, end)


def first_victim(inside: FirstFit) -> tuple[int, int] | None:
    """The priority and age of the over-quota member that would have to go first, whatever the share is."""
    found: tuple[int, int] | None = None
    for shape in inside.firsts:
        for bucket in shape.buckets.values():
            if bucket.preemptible and inside.end_in(bucket) < len(bucket.members):
                key = (bucket.priority, -bucket.members[-1].created)
                if found is None or key < found:
                    found = key
    return found


def guaranteed(pool: int, floor: int, total: int) -> int:
    """The over-quota of one dimension that a quota is guaranteed; the remainder of the division is not guaranteed."""
    return pool * floor // total if total > 0 else 0


@final
@dataclass
class Loan:
    """An amount of one dimension that one quota uses of the min of another; without a lender, of spare capacity."""

    lender: str
    borrower: str
    amount: int


def loans(standing: dict[str, tuple[int, int]]) -> list[Loan]:
    """The loans of one dimension from (min, used) by name of quota, sorted by borrower, then lender."""
    idle = {name: least - used for name, (least, used) in sorted(standing.items()) if used < least}
    needs = {name: used - least for name, (least, used) in sorted(standing.items()) if used > least}
    total = sum(needs.values())
    left = divide(min(total, sum(idle.values())), idle)
    found: list[Loan] = []
    for borrower, need in needs.items():
        lent = divide(min(need, sum(left.values())), left)
        for lender, amount in lent.items():
            left[lender] -= amount
            if amount:
                found.append(Loan(lender, borrower, amount))
        beyond = need - sum(lent.values())
        if beyond:
            found.append(Loan("", borrower, beyond))
    return found


def divide(amount: int, weights: dict[str, int]) -> dict[str, int]:
    """The amount in proportion to the weights, to the unit; no part exceeds its weight if the sum is enough."""
    total = sum(weights.values())
    if total == 0:
        return dict.fromkeys(weights, 0)
    parts = {name: amount * weight // total for name, weight in weights.items()}
    missing = amount - sum(parts.values())
    by_remainder = sorted(weights, key=lambda name: (-(amount * weights[name] % total), name))
    for name in by_remainder[:missing]:
        parts[name] += 1
    return parts
