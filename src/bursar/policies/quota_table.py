"""What a policy shows of its quotas and GPUs, in one form for all dialects.

A row has used, min, max, runtime and borrowed amounts, each in the exact units of its resource. The server computes
what is lent from them, the same way for every policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bursar.ledger.claims import Claim
from bursar.ledger.state import Account
from bursar.policies.results import Check
from bursar.quantity import QuantityError
from bursar.resources import dimension


@dataclass
class QuotaFigures:
    """The amounts of one resource; None where the quota has no such amount."""

    used: int = 0
    min: int | None = None
    max: int | None = None
    runtime: int | None = None
    borrowed: int | None = None
    idle: int | None = None
    lent: int | None = None

    def sentence(self, show: Callable[[int], str]) -> str:
        """The amounts that the quota has."""
        parts = [
            f"{show(self.used)} of {show(self.max)} in use" if self.max is not None else f"{show(self.used)} in use"
        ]
        named = (("min", self.min), ("runtime", self.runtime), ("borrows", self.borrowed), ("lends", self.lent))
        parts += [f"{name} {show(amount)}" for name, amount in named if amount or (amount == 0 and name == "min")]
        return ", ".join(parts)


@dataclass
class QuotaRecord:
    """One quota: a row of `get quotas`."""

    policy: str
    kind: str
    namespace: str
    name: str
    node: str = ""
    parent: str = ""
    tree: str = ""
    resources: dict[str, QuotaFigures] = field(default_factory=dict)
    message: str = ""
    account: str = ""  # of the ledger, where claims can be listed by the name of the quota

    @staticmethod
    def of_account(account: Account, kind: str, key: str) -> QuotaRecord:
        """The row of an object whose limits are those of one account."""
        namespace, _, name = key.rpartition("/")
        row = QuotaRecord(account.policy, kind, namespace, name, account=account.name)
        for resource, most in account.limits.listed.items():
            row.resources[resource] = QuotaFigures(account.used.amount(resource), max=most)
        return row

    @property
    def lends_in(self) -> str:
        """Names the quotas that lend to each other: those of a policy and tree."""
        return f"{self.policy} {self.tree}"

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def label(self) -> str:
        """Names the quota for people."""
        return f"{self.key}:{self.node}" if self.node else self.key

    @property
    def short_label(self) -> str:
        """The same without its namespace."""
        return f"{self.name}:{self.node}" if self.node else self.name

    @property
    def forms(self) -> set[str]:
        """What people may call it by: as tables, changes, checks or reasons print it."""
        short = self.kind.partition(".")[0]
        named = {f"{kind}/{name}" for kind in (self.kind, short) for name in (self.label, self.key)}
        return {self.label, self.key, self.name, self.short_label, self.account, *named} - {""}

    @property
    def subject(self) -> str:
        """Names the quota with its kind."""
        return f"{self.kind.partition('.')[0]} {self.label}"

    @property
    def exceeded(self) -> bool:
        return any(not check.passed for _, check in self.checks())

    def checks(self) -> list[tuple[str, Check]]:
        """Each resource and what the quota has of it, sorted by name."""
        found: list[tuple[str, Check]] = []
        for name, figures in sorted(self.resources.items()):
            passed = figures.max is None or figures.used <= figures.max
            found.append((name, Check(name, passed, figures.sentence(dimension(name).show))))
        return found

    def fill(self, figure: str, amounts: Mapping[str, Any] | None) -> None:
        """Set used, min, max or runtime of each resource, from amounts as manifests and statuses have them."""
        for resource, value in (amounts or {}).items():
            if value is not None:
                figures = self.resources.setdefault(resource, QuotaFigures())
                setattr(figures, figure, _parse(resource, value))

    def borrow(self) -> None:
        """Count usage above min as borrowed, and min above usage as idle."""
        for figures in self.resources.values():
            if figures.min is not None:
                figures.borrowed = max(0, figures.used - figures.min)
                figures.idle = max(0, figures.min - figures.used)


def _parse(resource: str, value: object) -> int:
    try:
        return dimension(resource).parse(value)
    except QuantityError:  # only a status of an older format can be unreadable: manifests were checked
        return 0


@dataclass
class GpuRecord:
    """One GPU: a row of `get gpus`. Claims whose binding has the account use it."""

    name: str
    node: str
    model: str
    capacity: dict[str, str]
    account: str
    uuid: str = ""  # where a driver publishes it


ReadQuota = Callable[[QuotaRecord, Mapping[str, Any], Mapping[str, Any]], None]
"""(row, manifest, what Bursar wrote: status, labels, annotations) -> None; fills in the row."""


@dataclass
class QuotaTable:
    """How a policy's quotas and claims appear in lists. Functions get the policy of the engine as their first
    argument, and are called under the lock of the cluster; those in ``objects`` need no lock.
    """

    objects: Mapping[str, ReadQuota] = field(default_factory=dict)  # by kind name: one row for each object
    rows: Callable[[Any], Iterable[QuotaRecord]] | None = None  # rows that no single object has
    accounts: Callable[[Any, Claim], Iterable[Account]] | None = None  # that govern a claim, and that no binding lists
    borrowers: Callable[[Any], set[str]] | None = None  # uids of claims that use what others lend
    over_quota: tuple[str, str] | None = None  # the label and value that the policy writes on pods that borrow
    explain: Callable[[Any, QuotaRecord], Check | None] | None = None  # why a quota has what it has
    called: Callable[[Any, Account], str] | None = None  # what people call an account's quota; empty: it is internal
    gpus: Callable[[Any], Iterable[GpuRecord]] | None = None
    requests: Callable[[Mapping[str, str], Mapping[str, str]], dict[str, str]] | None = None
    """(labels, annotations) of a pod -> what it requests by these, for people."""
