"""The state of a ledger: claims, accounts, and cells in named tables, with a digest of all of it.

A cell is whatever a policy must remember besides usage: a key and a plain immutable value (None, bool, int, str,
tuples of those) in a table of its own. Nothing here is changed directly: the changes beside it are the only writers.

The digest is a pair of residues, kept by adding and taking what each change contributes:

* usage: linear, sum over accounts of (account x amounts charged), so it proves the sums, not just the claims;
* claims and cells: a non-linear mix of key and value, so that two values cannot be exchanged unnoticed.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from bursar.ledger.accounts import Account, Watcher
from bursar.ledger.claims import Claim
from bursar.ledger.marks import plain_mark
from bursar.vectors import Vector

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
    """Everything a ledger knows. The order of the dictionaries has no meaning."""

    __slots__ = ("accounts", "charge_watchers", "claims", "lane_a", "lane_b", "tables", "watchers")

    def __init__(self) -> None:
        self.claims: Final[dict[str, Claim]] = {}
        self.accounts: Final[dict[str, Account]] = {}
        self.tables: Final[dict[str, Table]] = {}
        self.watchers: Final[dict[str, Watcher]] = {}  # by policy: hears of its tables
        self.charge_watchers: Final[dict[str, Watcher]] = {}  # those of them that also listen to charges
        self.lane_a: i64 = 0
        self.lane_b: i64 = 0

    @property
    def digest(self) -> int:
        """One number for the whole state: equal states have equal digests, whatever led to them."""
        return self.lane_a * _B + self.lane_b

    def account(self, name: str) -> Account:
        return self.accounts[name]

    def cell(self, table: str, key: str) -> object:
        found = self.tables.get(table)
        return None if found is None else found.cells.get(key)

    def cells(self, table: str) -> dict[str, object]:
        """The cells of a table; read only."""
        found = self.tables.get(table)
        return {} if found is None else found.cells

    def table(self, name: str) -> Table:
        """The table of that name; the first change of a cell makes it."""
        found = self.tables.get(name)
        if found is None:
            found = Table(name)
            self.tables[name] = found
        return found

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
