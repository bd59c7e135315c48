"""The claims of one quota in their order, and which of them fit first against some caps.

The order: non-preemptible first, higher priority (unless the quota is ordered by creation), older, smaller request,
then by name. A first fit against some caps takes each claim that fits together with those taken before it. The sum
only grows, so once a claim does not fit, no later one of the same amounts does. A first fit is therefore known by one
claim for each amounts in use: the first of them that does not fit.

Claims of the same priority, preemptibility and amounts share a bucket. Buckets whose level fits as a whole are taken
by their sums; in the level where something first does not fit, the place is found by halving. A first fit costs the
number of buckets and the logarithm of their sizes, not the number of claims.
"""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.resources import Vector

_PREEMPTIBLE: Final = 2**40  # above every priority
OrderKey = tuple[object, ...]


@final
class Shape:
    """Claims that take the same amounts of the quota's dimensions, whatever their priority."""

    __slots__ = ("amounts", "buckets")

    def __init__(self, amounts: list[int]) -> None:
        self.amounts: Final = amounts
        self.buckets: Final[dict[int, Bucket]] = {}  # by mark of priority and preemptibility


@final
class Measure:
    """One cost in the quota's terms."""

    __slots__ = ("amounts", "cost", "listed", "shape", "size")

    def __init__(self, cost: Vector, shape: Shape, listed: Vector, size: OrderKey) -> None:
        self.cost: Final = cost  # one object for all equal ones
        self.shape: Final = shape
        self.amounts: Final = shape.amounts  # aligned with the quota's dimensions
        self.listed: Final = listed  # the cost in the dimensions that min lists
        self.size: Final = size  # sorts smaller requests first


@final
class Member:
    """A counted claim of a quota: what it takes of each dimension that min lists, and its place in the order."""

    __slots__ = ("claim", "created", "level", "mark", "measure", "priority", "shape")

    def __init__(self, claim: Claim, measure: Measure, level: int) -> None:
        self.claim: Final = claim
        self.measure: Final = measure
        self.shape: Final = measure.shape
        self.created: Final[int] = claim.created
        self.priority: Final[int] = claim.spec.priority
        self.mark: Final[int] = claim.spec.priority * 2 + (1 if claim.spec.preemptible else 0)
        self.level: Final[int] = level


def before(one: Member, other: Member) -> bool:
    """Whether one member stands before the other in the order of their quota."""
    if one.level != other.level:
        return one.level < other.level
    if one.created != other.created:
        return one.created < other.created
    if one.measure is not other.measure and one.measure.size != other.measure.size:
        return one.measure.size < other.measure.size
    mine, theirs = one.claim, other.claim
    if mine.namespace != theirs.namespace:
        return mine.namespace < theirs.namespace
    if mine.name != theirs.name:
        return mine.name < theirs.name
    return mine.uid < theirs.uid


@final
class Bucket:
    """Members of one shape, priority and preemptibility, in order."""

    __slots__ = ("level", "members", "preemptible", "priority", "shape")

    def __init__(self, member: Member) -> None:
        self.shape: Final = member.shape
        self.level: Final[int] = member.level
        self.priority: Final[int] = member.priority
        self.preemptible: Final[bool] = member.mark % 2 == 1
        self.members: Final[list[Member]] = [member]

    def position(self, member: Member) -> int:
        """How many members stand before that one."""
        members = self.members
        low = 0
        high = len(members)
        if high and before(members[high - 1], member):
            return high  # the newest is asked for most often
        while low < high:
            middle = (low + high) // 2
            if before(members[middle], member):
                low = middle + 1
            else:
                high = middle
        return low

    def end_of(self, first: Member | None) -> int:
        """How many members stand before the first one that a first fit does not take; None: it takes all."""
        return len(self.members) if first is None else self.position(first)


@final
class FirstFit:
    """What first fit against some caps takes: of each shape, the members before the first that does not fit."""

    __slots__ = ("caps", "firsts")

    def __init__(self, caps: list[int], firsts: dict[Shape, Member]) -> None:
        self.caps: Final = caps
        self.firsts: Final = firsts

    def takes(self, member: Member) -> bool:
        first = self.firsts.get(member.shape)
        return first is None or before(member, first)

    def end_in(self, bucket: Bucket) -> int:
        """How many members of the bucket it takes."""
        return bucket.end_of(self.firsts.get(bucket.shape))


@final
class MemberOrder:
    """All members of a quota, by bucket."""

    __slots__ = ("by_priority", "edits", "everything", "floor", "kept", "levels", "shapes", "stale_levels")

    def __init__(self, floor: list[int], by_priority: bool) -> None:
        self.floor: Final = floor
        self.by_priority: Final = by_priority
        self.shapes: Final[dict[tuple[int, ...], Shape]] = {}
        self.everything: Final = FirstFit(floor, {})  # takes all
        self.levels: list[list[Bucket]] = []
        self.stale_levels: bool = False
        self.kept: list[FirstFit] = []  # the last one against min, and the last against another cap
        self.edits: int = 0  # tells queues that their position may be off

    def shape(self, amounts: list[int]) -> Shape:
        key = tuple(amounts)
        found = self.shapes.get(key)
        if found is None:
            found = Shape(amounts)
            self.shapes[key] = found
        return found

    def drop_unused_shapes(self) -> None:
        for key in [key for key, shape in self.shapes.items() if not shape.buckets]:
            del self.shapes[key]

    def member(self, claim: Claim, measure: Measure) -> Member:
        spec = claim.spec
        level = _PREEMPTIBLE if spec.preemptible else 0
        return Member(claim, measure, level - spec.priority if self.by_priority else level)

    # Coming and going

    def add(self, member: Member) -> None:
        if self.kept:
            self._disturb(member)
        self.insert(member)

    def remove(self, member: Member) -> None:
        self.take_out(member)
        if self.kept:
            self._disturb(member)

    def _disturb(self, member: Member) -> None:
        """A first fit stays as it is when a member comes or goes that it does not take."""
        for fit in self.kept:
            if fit.takes(member):
                self.kept = [fit for fit in self.kept if not fit.takes(member)]
                return

    def insert(self, member: Member) -> None:
        """Adds a member for a while: the kept first fits are those without it."""
        buckets = member.shape.buckets
        bucket = buckets.get(member.mark)
        if bucket is None:
            buckets[member.mark] = Bucket(member)
            self.stale_levels = True
        else:
            at = bucket.position(member)
            if at == len(bucket.members):
                bucket.members.append(member)
            else:
                bucket.members.insert(at, member)
        self.edits += 1

    def take_out(self, member: Member) -> None:
        """The inverse of ``insert``."""
        bucket = member.shape.buckets[member.mark]
        del bucket.members[bucket.position(member)]
        self.edits += 1
        if not bucket.members:
            del member.shape.buckets[member.mark]
            self.stale_levels = True

    # Reading

    def by_level(self) -> list[list[Bucket]]:
        """The buckets of each level, in the order of levels."""
        if self.stale_levels:
            self.stale_levels = False
            found: dict[int, list[Bucket]] = {}
            for shape in self.shapes.values():
                for bucket in shape.buckets.values():
                    found.setdefault(bucket.level, []).append(bucket)
            self.levels = [found[level] for level in sorted(found)]
        return self.levels

    def has_preemptible_below(self, priority: int) -> bool:
        """Whether any member of lower priority may be preempted."""
        for shape in self.shapes.values():
            for bucket in shape.buckets.values():
                if bucket.priority < priority and bucket.preemptible:
                    return True
        return False

    def members(self) -> list[Member]:
        """All members: for tests and answers, not for decisions."""
        found: list[Member] = []
        for level in self.by_level():
            ends = [(bucket, len(bucket.members)) for bucket in level]
            found.extend(reversed(merged_backwards([(bucket, 0, end) for bucket, end in ends])))
        return found

    def first_fit(self, caps: list[int]) -> FirstFit:
        """First fit against some caps; kept while it stays true."""
        for known in self.kept:
            if known.caps == caps:
                return known
        found = self.compute_first_fit(caps)
        floor = self.floor
        self.kept = [known for known in self.kept if (known.caps == floor) != (caps == floor)]
        self.kept.append(found)
        return found

    def compute_first_fit(self, caps: list[int]) -> FirstFit:
        firsts: dict[Shape, Member] = {}
        sums = [0] * len(caps)
        for level in self.by_level():
            going = [bucket for bucket in level if bucket.shape not in firsts]
            if len(firsts) == len(self.shapes):
                break
            if not _take_all(sums, going, caps):
                _fit_level(going, sums, caps, firsts)
        return FirstFit(caps, firsts)

    def between(self, old: FirstFit | None, new: FirstFit) -> list[Member]:
        """The members that one of two first fits takes and the other does not; no old one took all."""
        found: list[Member] = []
        if old is new:
            return found
        shapes = list(new.firsts)
        if old is not None:
            shapes.extend([shape for shape in old.firsts if shape not in new.firsts])
        for shape in shapes:
            here = new.firsts.get(shape)
            there = None if old is None else old.firsts.get(shape)
            if here is there:
                continue
            for bucket in shape.buckets.values():
                one, other = bucket.end_of(here), bucket.end_of(there)
                found.extend(bucket.members[min(one, other) : max(one, other)])
        return found


def _take_all(sums: list[int], buckets: list[Bucket], caps: list[int]) -> bool:
    """Add whole buckets to the sums if all of them fit."""
    after = list(sums)
    for bucket in buckets:
        count = len(bucket.members)
        amounts = bucket.shape.amounts
        for k in range(len(after)):
            after[k] += count * amounts[k]
    if not _within(after, sums, caps):
        return False
    for k in range(len(after)):
        sums[k] = after[k]
    return True


def _within(after: list[int], sums: list[int], caps: list[int]) -> bool:
    for k in range(len(caps)):
        if after[k] > caps[k] and after[k] > sums[k]:
            return False
    return True


def _fit_level(buckets: list[Bucket], sums: list[int], caps: list[int], firsts: dict[Shape, Member]) -> None:
    """Fit the members of one level, of which not all fit."""
    going = buckets
    starts = [0] * len(going)
    while going:
        stopped = _advance(going, starts, sums, caps)
        if stopped is None:
            return
        firsts[stopped.shape] = stopped
        left = [i for i in range(len(going)) if going[i].shape is not stopped.shape]
        going, starts = [going[i] for i in left], [starts[i] for i in left]


def _advance(going: list[Bucket], starts: list[int], sums: list[int], caps: list[int]) -> Member | None:
    """Take members in order from the starts on, until the first that does not fit; None if all do."""
    ends = [len(bucket.members) for bucket in going]
    while True:
        widest = 0
        for i in range(len(going)):
            if ends[i] - starts[i] > ends[widest] - starts[widest]:
                widest = i
        if ends[widest] <= starts[widest]:
            return None
        pivot = going[widest].members[(starts[widest] + ends[widest]) // 2]
        marks = [min(ends[i], max(starts[i], going[i].position(pivot))) for i in range(len(going))]
        after = list(sums)
        for i in range(len(going)):
            count = marks[i] - starts[i]
            amounts = going[i].shape.amounts
            for k in range(len(after)):
                after[k] += count * amounts[k]
        if not _within(after, sums, caps):
            ends = marks
            continue
        for k in range(len(after)):
            sums[k] = after[k]
        for i in range(len(going)):
            starts[i] = marks[i]
        if not _fits(sums, pivot.shape.amounts, caps):
            return pivot
        for k in range(len(sums)):
            sums[k] += pivot.shape.amounts[k]
        starts[widest] += 1


def _fits(sums: list[int], amounts: list[int], caps: list[int]) -> bool:
    for k in range(len(caps)):
        if amounts[k] > 0 and sums[k] + amounts[k] > caps[k]:
            return False
    return True


def merged_backwards(spans: list[tuple[Bucket, int, int]]) -> list[Member]:
    """The members of some spans of buckets, the last in order first."""
    ends = [end for _, _, end in spans]
    found: list[Member] = []
    while True:
        best: Member | None = None
        at = -1
        for i in range(len(spans)):
            bucket, start, _ = spans[i]
            if ends[i] > start:
                last = bucket.members[ends[i] - 1]
                if best is None or before(best, last):
                    best, at = last, i
        if best is None:
            return found
        found.append(best)
        ends[at] -= 1
