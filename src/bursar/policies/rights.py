"""Whom a claim may displace: the terms in which a quota policy answers, and the engine searches.

A set of victims is *legal* or not as a whole: ``Rights.judge`` says so, and is the only place that does. The rest of
``Rights`` serves the search: it names contenders for one *way* to be in the right at a time, and gives for each what
limits that way puts on a set.

* a *row* is an amount that is missing in an account; evicting a claim relieves the rows of the accounts it counts in;
* a *way* may add rows of its own: what victims must free beside what the claim is short of (a quota that must end
  within its min);
* a *load* is what a victim takes of a common allowance (a disruption budget; what a quota has above its min).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import mypyc_attr

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account

# The topic of claims that may displace others by what a node is short of.
ROOM_TAKEN: Final = "room taken"

# Answers of ``standing`` that are no place in an order.
NEVER_NAMED: Final = -1
ANY_STANDING: Final = -2


@final
class Row:
    """An amount of one dimension that is missing in an account."""

    __slots__ = ("account", "amount", "dim")

    def __init__(self, account: Account, dim: int, amount: int) -> None:
        self.account: Final = account
        self.dim: Final = dim
        self.amount: Final = amount

    def __repr__(self) -> str:
        return f"Row({self.account.name}, {self.dim}, {self.amount})"


def missing_rows(account: Account, dims: list[int], wanted: list[int]) -> list[Row]:
    """The rows of amounts that do not fit an account beside what is used of it."""
    found: list[Row] = []
    for i in range(len(dims)):
        over = account.used.get(dims[i]) + wanted[i] - account.limits.get(dims[i])
        if wanted[i] > 0 and over > 0:
            found.append(Row(account, dims[i], over))
    return found


@final
class Shortage:
    """What the claim is short of at one place, with no claim evicted."""

    __slots__ = ("on_node", "place", "rows")

    def __init__(self, place: str, rows: list[Row], on_node: list[Row]) -> None:
        self.place: Final = place
        self.rows: Final = rows  # of quotas
        self.on_node: Final = on_node  # of the node


@final
class Allowance:
    """How much of something all victims together may take; a victim's load counts against it."""

    __slots__ = ("left", "name")

    def __init__(self, name: str, left: int) -> None:
        self.name: Final = name
        self.left: Final = left


@final
class Contender:
    """A claim that may be displaced in one way, with its class (worse is lower) and what it would take and free."""

    __slots__ = ("allowances", "claim", "loads", "member", "owner", "rank", "relief", "returning")

    def __init__(self, claim: Claim, rank: int, owner: str = "", member: object = None) -> None:
        self.claim: Final = claim
        self.rank: Final = rank
        self.owner: Final = owner  # breaks ties: the id of its quota
        self.member: Final = member  # the policy's own: where it stands in its quota
        self.allowances: list[Allowance] = []
        self.loads: list[int] = []
        self.relief: list[int] = []  # by row; the engine computes it
        self.returning: list[Claim] = []  # its own victims, which count again if it goes

    def load(self, allowance: Allowance, amount: int) -> None:
        self.allowances.append(allowance)
        self.loads.append(amount)


@mypyc_attr(allow_interpreted_subclasses=True)
class Rights:
    """What one claim may displace by the rules of one quota policy, as of when the search began.

    This base has the rule of nodes for claims without such a quota: priority decides, and there is one way.
    """

    def __init__(self, claim: Claim) -> None:
        self.claimant: Final = claim

    def ways(self) -> list[int]:
        """The ways to try. If one allows all that another allows, the other is left out."""
        return [0]

    def needs(self, way: int) -> list[Row]:
        """The rows that a way adds."""
        return []

    def everywhere(self, way: int, shortage: Shortage) -> Iterator[Contender]:
        """The contenders in the whole cluster that may relieve quotas, the least important first."""
        return iter(())

    def contender(self, way: int, victim: Claim, shortage: Shortage) -> Contender | None:
        """A claim on the node as a contender; None if the claimant may not displace it."""
        if victim.spec.priority >= self.claimant.spec.priority:
            return None
        return Contender(victim, 0)

    def precedes(self, one: Contender, other: Contender) -> bool:
        """Of two contenders alike in class, priority, age and owner, whether the first is the less important."""
        a, b = one.claim, other.claim
        return (a.namespace, a.name, a.uid) < (b.namespace, b.name, b.uid)

    def judge(self, victims: list[Claim], returning: list[Claim], shortage: Shortage) -> str:
        """Why the set is not legal, or "". ``returning`` are claims that count again when these victims leave."""
        for victim in victims:
            if victim.spec.priority >= self.claimant.spec.priority:
                return f"{victim.key} is no less important"
        return ""

    def vary_by_node(self) -> bool:
        """Whether claims may be of a worse class, or may be displaced at all, only on a node that is full."""
        return False

    def vary_where(self, lacking: list[Row]) -> bool:
        """Whether they do on a node that lacks this."""
        return False

    def may_help(self, slot: int, least: Claim) -> bool:
        """Whether any claim of a node may be a contender; ``least`` is the one of lowest priority there."""
        return least.spec.priority < self.claimant.spec.priority


_FEW: Final = 16


def _key(contender: Contender) -> tuple[int, int, int, str]:
    return (contender.rank, contender.claim.spec.priority, -contender.claim.created, contender.owner)


def in_order(rights: Rights, contenders: list[Contender]) -> list[Contender]:
    """Sorted in place, the least important first."""
    if len(contenders) > _FEW:
        contenders.sort(key=_key)  # all but ties
    for i in range(1, len(contenders)):
        moved = contenders[i]
        at = i
        while at > 0 and goes_before(rights, moved, contenders[at - 1]):
            contenders[at] = contenders[at - 1]
            at -= 1
        contenders[at] = moved
    return contenders


def goes_before(rights: Rights, one: Contender, other: Contender) -> bool:
    """Whether one contender is less important than another."""
    if one.rank != other.rank:
        return one.rank < other.rank
    mine, theirs = one.claim, other.claim
    if mine.spec.priority != theirs.spec.priority:
        return mine.spec.priority < theirs.spec.priority
    if mine.created != theirs.created:
        return mine.created > theirs.created
    if one.owner != other.owner:
        return one.owner < other.owner
    return rights.precedes(one, other)
