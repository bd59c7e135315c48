"""The state of a ledger: claims, accounts, and cells in named tables, with a digest of all of it.

An account counts usage against limits, in two sums. ``used`` is what decisions count. ``busy`` is what is physically
taken: an evicted claim is no longer in ``used`` but stays in ``busy`` until it is gone. Only *physical* accounts (a
node, a GPU) keep ``busy``. ``topic`` is what waiting claims listen to: the account itself, or a wider topic that
several accounts share (all nodes), so that a change of any of them wakes the claims that it may help.

A cell holds what a policy must remember besides usage: a key and a plain immutable value (None, bool, int, str, tuples
of those) in a table of its own. Only the changes (``ledger.changes``) write any of this.

The digest is a pair of residues, kept by adding and taking what each change contributes:

* usage: linear, sum over accounts of (account x amounts charged), so it proves the sums, not just the claims;
* claims and cells: a non-linear mix of key and value, so that two values cannot be exchanged unnoticed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from bursar.ledger.claims import PENDING, Claim, ClaimSpec, plain_mark
from bursar.resources import NO_LIMITS, PRIME_A, PRIME_B, Limits, Tally, Vector, fingerprint, first_short, shortfall


@mypyc_attr(allow_interpreted_subclasses=True)
class Watcher:
    """Hears of every change of what it watches, whether done, undone or replayed.

    Policies keep derived state (indexes, sorted lists) by it, so that undo and replay need no code of their own.
    """

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        """``sign`` +1: the claim now counts in the account; -1: it no longer does."""

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        """A cell of a watched table changed; None stands for no cell."""

    def placed(self, claim: Claim, old: str, new: str) -> None:
        """A claim, of whatever policy, is at another place now; its charges may follow or precede this."""


@final
@mypyc_attr(acyclic=True)
class Account:
    """One place where usage is counted."""

    __slots__ = (
        "busy",
        "busy_a",
        "busy_b",
        "lane_a",
        "lane_b",
        "limits",
        "mark",
        "name",
        "opened",
        "physical",
        "policy",
        "topic",
        "used",
    )

    def __init__(self, policy: str, name: str, topic: str = "", physical: bool = False) -> None:
        self.policy: Final = policy
        self.name: Final = name  # unique in the ledger: <policy>/<whatever the policy says>
        self.topic: Final = topic or name
        self.physical: Final = physical
        self.used: Final = Tally()
        self.busy: Final = Tally()
        self.limits: Limits = NO_LIMITS
        self.opened: bool = False  # only accounts of the ledger can be charged
        # The mark stands for all that never changes; the lanes weigh what is used and what is busy in the digest.
        self.mark: Final[i64] = fingerprint(f"{len(policy)} {len(name)} {policy}{name}{self.topic} {physical}")
        busy_mark = fingerprint(f"busy {name}")
        self.lane_a: Final[i64] = self.mark % PRIME_A
        self.lane_b: Final[i64] = self.mark % PRIME_B
        self.busy_a: Final[i64] = busy_mark % PRIME_A
        self.busy_b: Final[i64] = busy_mark % PRIME_B

    def __repr__(self) -> str:
        return f"Account({self.name}, used {self.used.vector().show()}, limits {self.limits.show()})"

    def short_dimension(self, cost: Vector) -> int:
        """Index of the first requested dimension that does not fit, or -1."""
        return first_short(self.used, cost, self.limits)

    def missing(self, cost: Vector) -> Vector:
        """How much is missing for the cost, per requested dimension."""
        return shortfall(self.used, cost, self.limits)


def first_unfit(accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> int:
    """The position of the first account in which its cost does not fit, or -1."""
    for i, account in enumerate(accounts):
        if first_short(account.used, costs[i], account.limits) >= 0:
            return i
    return -1


_AMPLE: Final[i64] = 576460752303423488  # an eighth of the exact range


def near_overflow(accounts: tuple[Account, ...], costs: tuple[Vector, ...]) -> bool:
    """Whether charging the costs may leave the exact range. Only a charge itself finds out for sure."""
    for i, account in enumerate(accounts):
        sums = account.busy.sums if account.physical else account.used.sums
        cost = costs[i]
        for k in range(len(cost.dims)):
            dim = cost.dims[k]
            if cost.amounts[k] > _AMPLE or (dim < len(sums) and sums[dim] + cost.amounts[k] > _AMPLE):
                return True
    return False


_A: Final[i64] = 2147483647
_B: Final[i64] = 2147483629


@final
class Table:
    """Some cells of a policy, by key, and the mark of the table's name."""

    __slots__ = ("cells", "mark")

    def __init__(self, name: str) -> None:
        self.cells: Final[dict[str, object]] = {}
        self.mark: Final[i64] = plain_mark(name)


@final
class State:
    """All content of a ledger. The order of the dictionaries has no meaning."""

    __slots__ = (
        "accounts",
        "charge_watchers",
        "claims",
        "gangs",
        "lane_a",
        "lane_b",
        "namespaces",
        "pending",
        "place_watchers",
        "tables",
        "watchers",
    )

    def __init__(self) -> None:
        self.claims: Final[dict[str, Claim]] = {}
        self.namespaces: Final[dict[str, int]] = {}  # how many claims each of them has
        self.pending: Final[dict[tuple[ClaimSpec, str], dict[str, Claim]]] = {}  # pending claims by spec and namespace
        self.gangs: Final[dict[str, dict[str, Claim]]] = {}  # all members, by the name of the gang
        self.accounts: Final[dict[str, Account]] = {}
        self.tables: Final[dict[str, Table]] = {}
        self.watchers: Final[dict[str, Watcher]] = {}  # by policy: hears of its tables
        self.charge_watchers: Final[dict[str, Watcher]] = {}  # those of them that also listen to charges
        self.place_watchers: Final[dict[str, Watcher]] = {}  # those that listen to places
        self.lane_a: i64 = 0
        self.lane_b: i64 = 0

    @property
    def digest(self) -> int:
        """One number for the whole state: equal states have equal digests, whatever led to them."""
        return self.lane_a * _B + self.lane_b

    def put_claim(self, claim: Claim) -> None:
        self.claims[claim.uid] = claim
        self.namespaces[claim.namespace] = self.namespaces.get(claim.namespace, 0) + 1
        self._waits(claim, True)
        self._joins(claim, True)

    def take_claim(self, claim: Claim) -> None:
        self._waits(claim, False)
        self._joins(claim, False)
        del self.claims[claim.uid]
        left = self.namespaces[claim.namespace] - 1
        if left:
            self.namespaces[claim.namespace] = left
        else:
            del self.namespaces[claim.namespace]

    def set_state(self, claim: Claim, state: int) -> None:
        """The claim moves on in its life."""
        self._waits(claim, False)
        claim.state = state
        self._waits(claim, True)

    def set_spec(self, claim: Claim, spec: ClaimSpec) -> None:
        """The claim asks for something else."""
        self._waits(claim, False)
        self._joins(claim, False)
        claim.spec = spec
        self._waits(claim, True)
        self._joins(claim, True)

    def set_place(self, claim: Claim, place: str) -> None:
        """The claim is at another place."""
        old = claim.place
        claim.place = place
        for watcher in self.place_watchers.values():
            watcher.placed(claim, old, place)

    def _waits(self, claim: Claim, listed: bool) -> None:
        if claim.state != PENDING:
            return
        key = (claim.spec, claim.namespace)
        if listed:
            self.pending.setdefault(key, {})[claim.uid] = claim
            return
        alike = self.pending[key]
        del alike[claim.uid]
        if not alike:
            del self.pending[key]

    def _joins(self, claim: Claim, listed: bool) -> None:
        gang = claim.spec.group
        if not gang:
            return
        if listed:
            self.gangs.setdefault(gang, {})[claim.uid] = claim
            return
        del self.gangs[gang][claim.uid]
        if not self.gangs[gang]:
            del self.gangs[gang]

    def account(self, name: str) -> Account:
        return self.accounts[name]

    def cell(self, table: str, key: str) -> object:
        found = self.tables.get(table)
        return None if found is None else found.cells.get(key)

    def cells(self, table: str) -> dict[str, object]:
        """The cells of a table; read only."""
        found = self.tables.get(table)
        return {} if found is None else found.cells

    def digest_usage(self, account: Account, cost: Vector, used: i64, busy: i64) -> None:
        """``used`` and ``busy``: how many times the cost was added to the two sums of the account."""
        a = (used * account.lane_a + busy * account.busy_a) % _A
        b = (used * account.lane_b + busy * account.busy_b) % _B
        self.lane_a = (self.lane_a + a * cost.lane_a) % _A
        self.lane_b = (self.lane_b + b * cost.lane_b) % _B

    def digest_pair(self, key: i64, kind: i64, value: i64, sign: i64) -> None:
        """Add (``sign`` 1) or take (-1) one value of one kind under a key; key and value are marks."""
        va = value % _A
        vb = value % _B
        a = (key % _A * 48271 + kind * 69621 + va) % _A
        b = (key % _B * 40692 + kind * 39373 + vb) % _B
        a = (a * a % _A * 16807 + va * a) % _A
        b = (b * b % _B * 30845 + vb * b) % _B
        self.lane_a = (self.lane_a + sign * a) % _A
        self.lane_b = (self.lane_b + sign * b) % _B

    def plain(self) -> dict[str, object]:
        """The state as sorted plain data: for snapshots, comparisons and tests."""
        return {
            "claims": [_plain_claim(self.claims[uid]) for uid in sorted(self.claims)],
            "accounts": [_plain_account(self.accounts[name]) for name in sorted(self.accounts)],
            "tables": {
                name: dict(sorted(self.cells(name).items())) for name in sorted(self.tables) if self.cells(name)
            },
        }


def _plain_claim(claim: Claim) -> dict[str, object]:
    return {
        "claim": claim.record(),
        "state": claim.state,
        "place": claim.place,
        "leaving": claim.leaving,
        "waitsFor": list(claim.waits_for),
        "bindings": [None if b is None else b.record() for b in claim.bindings],
    }


def _plain_account(account: Account) -> dict[str, object]:
    return {
        "account": [account.policy, account.name, account.topic, account.physical],
        "used": account.used.vector().pairs(),
        "busy": account.busy.vector().pairs(),
        "limits": [account.limits.listed, account.limits.stock],
    }


_CHUNK: Final = 512


@final
class Ordered:
    """Keys in ascending order, for policies that ask for the next claim.

    Keys are tuples of integers and strings that end with the claim's uid, so no two are equal. Removing a claim and
    adding it again gives the same order, which makes a rollback exact. Adding, removing and finding cost O(log n)
    comparisons plus a shift inside one chunk of at most ``_CHUNK`` keys.
    """

    __slots__ = ("chunks", "edits", "size", "tops")

    def __init__(self) -> None:
        self.chunks: list[list[tuple[object, ...]]] = []
        self.tops: list[tuple[object, ...]] = []  # the largest key of each chunk
        self.size: int = 0
        self.edits: int = 0  # tells iterators that their position may be off

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        """Ascending. Keys may be added and removed meanwhile: the next larger key at that moment follows."""
        at = 0
        inside = 0
        edits = self.edits
        while at < len(self.chunks):
            if inside >= len(self.chunks[at]):
                at += 1
                inside = 0
                continue
            key = self.chunks[at][inside]
            yield key
            inside += 1
            if edits != self.edits:
                edits = self.edits
                at = bisect_left(self.tops, key)
                inside = bisect_right(self.chunks[at], key) if at < len(self.chunks) else 0

    def keys(self) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for chunk in self.chunks:
            found.extend(chunk)
        return found

    def add(self, key: tuple[object, ...]) -> None:
        if not self.chunks:
            self.chunks.append([key])
            self.tops.append(key)
            self._edited(1)
            return
        at = len(self.tops) - 1
        if key > self.tops[at]:  # the newest of the most common kind: often the last one
            chunk = self.chunks[at]
            chunk.append(key)
        else:
            at = bisect_left(self.tops, key)
            chunk = self.chunks[at]
            inside = bisect_left(chunk, key)
            if chunk[inside] == key:
                raise ValueError(f"{key!r} is there already")
            chunk.insert(inside, key)
        self._edited(1)
        if len(chunk) > _CHUNK:
            half = len(chunk) // 2
            self.chunks.insert(at + 1, chunk[half:])
            self.tops.insert(at, chunk[half - 1])
            del chunk[half:]
            at += 1
        self.tops[at] = self.chunks[at][-1]

    def _edited(self, by: int) -> None:
        self.size += by
        self.edits += 1

    def remove(self, key: tuple[object, ...]) -> None:
        at = 0
        inside = 0
        chunk = self.chunks[0] if self.chunks else []
        if not chunk or chunk[0] != key:  # who is next is asked for most often, and then taken out
            at = bisect_left(self.tops, key)
            chunk = self.chunks[at] if at < len(self.chunks) else []
            inside = bisect_left(chunk, key)
            if inside >= len(chunk) or chunk[inside] != key:
                raise KeyError(key)
        del chunk[inside]
        self._edited(-1)
        if chunk:
            self.tops[at] = chunk[-1]
        else:
            del self.chunks[at]
            del self.tops[at]
