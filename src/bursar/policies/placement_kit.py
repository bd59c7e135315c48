"""What the placement policies share: node slots and arrays over them, bounded caches, and the counted claims of a node.

All of it is derived from the ledger's accounts and cells. The policies change it only from the ``Watcher`` callbacks,
which also fire on undo and replay, so after an undo it is what it was before.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final, TypeVar, final

from librt.vecs import append, vec
from mypy_extensions import i64, u8

from bursar.ledger.claims import Binding, Claim, ClaimSpec
from bursar.ledger.state import Account, Ordered
from bursar.ledger.transaction import Transaction
from bursar.objects.hami_register import PART_RESOURCES
from bursar.policies.results import Check
from bursar.resources import UNLIMITED, Limits, Tally, Vector, from_amounts

REMOVED: Final[tuple[object, ...]] = ()  # the cell of a deleted node or GPU on which claims still count
NOTHING: Final = Limits({}, True)
NOTHING_USED: Final = Tally()
ONE_POD: Final = from_amounts({"pods": 1})
CACHED: Final = 65_536
_UNLIMITED: Final[i64] = UNLIMITED

K = TypeVar("K")
V = TypeVar("V")


def remember(cache: dict[K, V], key: K, value: V, bound: int = CACHED) -> V:
    """Adds a value to a cache and returns it. A full cache is emptied first."""
    if len(cache) >= bound:
        cache.clear()
    cache[key] = value
    return value


SPECS_WEIGH: Final = 64 * 1024 * 1024  # bytes


@final
class SpecWeights:
    """How much the specs weigh that a cache keeps, which outlive their claims: users decide how large each is."""

    __slots__ = ("most", "total")

    def __init__(self, most: int = SPECS_WEIGH) -> None:
        self.most: Final = most
        self.total: int = 0

    def full(self, spec: ClaimSpec) -> bool:
        """Counts one more spec; returns whether the cache must be emptied first."""
        weight = spec.weight
        self.total += weight
        if self.total <= self.most:
            return False
        self.total = weight
        return True


@final
class NodeIndex:
    """A slot number for every node ever seen, which all placement policies share to index their arrays.

    A slot stays with its node, whether the node exists or not, so arrays only grow.

    ``version`` counts the changes of what ``PlacementPolicy.feasible`` depends on; policies note them in
    ``cell_changed``, so that undo and replay are changes, too.
    """

    def __init__(self) -> None:
        self.version: int = 0
        self.changed: Final[list[int]] = []  # by slot: the version at which the node changed last
        self.all_changed: int = 0  # the version at which any node may have changed last
        self.slots: Final[dict[str, int]] = {}
        self.names: Final[list[str]] = []
        self.sorted: vec[i64] = vec[i64]()
        self.offered: Final[dict[str, int]] = {}  # by resource: how many nodes have any of it
        self.shared: Final[dict[str, object]] = {}  # views of the ledger that several policies read, by name
        self.meant: Final[dict[str, str]] = {}  # by a name that no node has: the one that may be meant
        self.foreign: Final[set[str]] = {*PART_RESOURCES}  # resources that something else hands out than a node

    def __len__(self) -> int:
        return len(self.names)

    def node_changed(self, slot: int) -> None:
        """Other claims may fit the empty node than before."""
        self.version += 1
        self.changed[slot] = self.version

    def any_node_changed(self) -> None:
        """Other claims may fit any empty node than before."""
        self.version += 1
        self.all_changed = self.version

    def same_since(self, slot: int, version: int) -> bool:
        """Whether the same claims fit the empty node as at that version."""
        return self.all_changed <= version and self.changed[slot] <= version

    def offers(self, limits: Limits, sign: int) -> None:
        """A node with these amounts came (1) or went (-1)."""
        for name, amount in limits.listed.items():
            if amount > 0:
                count = self.offered.get(name, 0) + sign
                if count:
                    self.offered[name] = count
                else:
                    del self.offered[name]
        self.meant.clear()

    def ignore(self, names: tuple[str, ...]) -> None:
        """These resources, and those that are always known, are handed out by something else than a node."""
        self.foreign.clear()
        self.foreign.update(PART_RESOURCES)
        self.foreign.update(names)

    def misspelt(self, names: list[str], own: tuple[str, ...] = ()) -> str:
        """Which of these resources no node has, although one has a resource of nearly that name; "" if there is none.

        ``own`` are resources that exist without nodes. Names that differ in digits only (sizes of MIG slices) are not
        taken for each other.
        """
        found: list[str] = []
        for name in names if self.offered else []:
            if name not in self.offered and name not in own and name not in self.foreign:
                meant = self._meant(name, own)
                if meant:
                    found.append(f"no node has {name}: did you mean {meant}?")
        return "; ".join(found)

    def _meant(self, name: str, own: tuple[str, ...]) -> str:
        known = self.meant.get(name)
        if known is None:
            near = get_close_matches(name, sorted({*self.offered, *own}), 1, 0.82)
            known = near[0] if near and _letters(near[0]) != _letters(name) else ""
            self.meant[name] = known
        return known

    def slot(self, name: str) -> int:
        """The node's slot; a new name gets the next one."""
        found = self.slots.get(name)
        if found is None:
            found = len(self.names)
            self.slots[name] = found
            self.names.append(name)
            self.changed.append(self.version)
        return found

    def places(self) -> vec[i64]:
        """By slot, the position of its name among all names in order. Cached until a slot is added."""
        if len(self.sorted) != len(self.names):
            found = vec[i64]([0] * len(self.names))
            for place, name in enumerate(sorted(self.names)):
                found[self.slots[name]] = place
            self.sorted = found
        return self.sorted


def _letters(name: str) -> str:
    return "".join([letter for letter in name if not letter.isdigit()])


@final
class LimitColumn:
    """One resource over all slots: the limit, and what is left of it, negative where more was forced there.

    Where the limit is ``UNLIMITED``, so is what is left.
    """

    __slots__ = ("absent", "caps", "dim", "free")

    def __init__(self, dim: int, size: int, absent: int = 0) -> None:
        self.dim: Final = dim
        self.absent: Final[i64] = absent  # the limit of a slot that was never set
        self.caps: vec[i64] = vec[i64]()
        self.free: vec[i64] = vec[i64]()
        self.reach(size)

    def reach(self, size: int) -> None:
        """Makes room for slots below ``size``."""
        while len(self.free) < size:
            self.caps = append(self.caps, self.absent)
            self.free = append(self.free, self.absent)

    def set_slot(self, slot: int, cap: int, used: int) -> None:
        self.caps[slot] = cap
        self.free[slot] = cap if cap == UNLIMITED else cap - used

    def shift(self, slot: i64, amount: i64) -> None:
        """So much more is used."""
        free = self.free
        if free[slot] != _UNLIMITED:
            free[slot] = free[slot] - amount


@final
class SlotMask:
    """The mask that a filter works on: one byte a slot, 0 where the node is ruled out."""

    def __init__(self) -> None:
        self.open: vec[u8] = vec[u8]()
        self.count: i64 = 0  # slots that the mask and the columns both have

    def reach(self, size: int) -> None:
        while len(self.open) < size:
            self.open = append(self.open, u8(0))

    def load(self, mask: bytearray) -> None:
        seen = bytes(mask)
        slots = self.open
        count: i64 = min(len(slots), len(seen))
        for i in range(count):
            slots[i] = 1 if seen[i] != 0 else 0
        self.count = count

    def store(self, mask: bytearray) -> None:
        count = self.count
        mask[:count] = self.open if count == len(self.open) else self.open[:count]

    def keep(self, allowed: bytes) -> None:
        """Rules out the slots that are 0 in another mask."""
        slots = self.open
        count = self.count
        for i in range(count):
            if allowed[i] == 0:
                slots[i] = 0

    def require(self, room: vec[i64], wanted: i64) -> None:
        """Rules out the slots that have less room than is wanted."""
        slots = self.open
        count = self.count
        for i in range(count):
            if room[i] < wanted:
                slots[i] = 0


@final
class BindingCache:
    """One binding for all claims that request the same on the same node: a million claims share a few thousand."""

    def __init__(self, bound: int = CACHED) -> None:
        self.bound: Final = bound
        self.bindings: Final[dict[Vector, dict[Account, Binding]]] = {}  # accounts are compared by identity
        self.size: int = 0

    def clear(self) -> None:
        self.bindings.clear()
        self.size = 0

    def find(self, account: Account, requests: Vector) -> Binding | None:
        found = self.bindings.get(requests)
        return None if found is None else found.get(account)

    def add(self, account: Account, requests: Vector, binding: Binding) -> Binding:
        if self.size >= self.bound:
            self.clear()
        self.size += 1
        self.bindings.setdefault(requests, {})[account] = binding
        return binding


@final
class Residents:
    """The counted claims of one account. Their order is built when a search for victims first asks for it."""

    __slots__ = ("claims", "least", "least_known", "order")

    def __init__(self) -> None:
        self.claims: Final[dict[str, Claim]] = {}
        self.order: Ordered | None = None
        self.least: Claim | None = None  # the one of lowest priority, the newest of several
        self.least_known: bool = True

    def add(self, claim: Claim) -> None:
        self.claims[claim.uid] = claim
        if self.least_known and (self.least is None or _goes_first(claim, self.least)):
            self.least = claim
        if self.order is not None:
            self.order.add(_importance(claim))

    def remove(self, claim: Claim) -> None:
        del self.claims[claim.uid]
        if claim is self.least:
            self.least = None
            self.least_known = False
        if self.order is not None:
            try:
                self.order.remove(_importance(claim))
            except KeyError:
                self.order = None  # its priority changed while it counted here: sort again when asked

    def least_important(self) -> Claim | None:
        """The claim of lowest priority, the newest of several; None if there is none."""
        if not self.least_known:
            self.least_known = True
            for claim in self.claims.values():
                if self.least is None or _goes_first(claim, self.least):
                    self.least = claim
        return self.least

    def least_important_first(self) -> list[Claim]:
        if self.order is None:
            self.order = Ordered()
            for claim in self.claims.values():
                self.order.add(_importance(claim))
        return [self.claims[str(key[-1])] for key in self.order.keys()]  # noqa: SIM118 it is no mapping


def _goes_first(one: Claim, other: Claim) -> bool:
    if one.spec.priority != other.spec.priority:
        return one.spec.priority < other.spec.priority
    return one.created > other.created


def _importance(claim: Claim) -> tuple[object, ...]:
    """Sorts the least important first: lower priority, then newer, then by name."""
    return (claim.spec.priority, -claim.created, claim.namespace, claim.name, claim.uid)


def is_empty(account: Account) -> bool:
    """Whether nothing counts in the account, and no claim that is being evicted still holds it physically."""
    return not account.used.vector() and not account.busy.vector()


def close_if_empty(tx: Transaction, policy: str, table: str, key: str, accounts: list[Account]) -> bool:
    """Drops the cell and the accounts of a deleted node or GPU once they are empty; returns whether they were."""
    for account in accounts:
        if not is_empty(account):
            return False
    tx.put(policy, table, key, None)
    for account in accounts:
        tx.close_account(account)
    return True


def counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def checks_by_reason(counts: dict[str, int], noun: str) -> list[Check]:
    """A failed check for each reason, with the number of nodes or GPUs: most first, then by reason."""
    ranked = sorted([(-count, reason) for reason, count in counts.items()])
    return [Check(counted(-less, noun), False, "", (), reason) for less, reason in ranked]
