"""Disruption budgets: how many claims of a set may be evicted at once; and the rules for victims of all policies.

A budget (Kubernetes' PodDisruptionBudget) selects claims of its namespace by label. An account holds two numbers for
it: ``expected``, the selected claims that exist, and ``healthy``, those that run and are not being evicted or revoked.
A claim may become a victim only while ``healthy`` stays above what the budget wants, without exception.

``VictimRules`` says of any claim whether another may displace it, and if not, why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast, final

from bursar.ledger.claims import RUNNING, Claim
from bursar.ledger.preemption_history import PreemptionHistory
from bursar.ledger.state import Account, State, Watcher
from bursar.ledger.transaction import Transaction
from bursar.policies.policy import EvictionRules, PreemptionHooks
from bursar.policies.results import Body, Setting
from bursar.resources import Vector, dimension, from_amounts
from bursar.selectors import Requirement, Selector

KIND: Final = "engine.Budget"
OPTIONS: Final = "engine.BudgetOptions"
POLICY: Final = "budgets"
_OPTION_TABLE: Final = "budgets.options"
_TABLE: Final = "budgets"
_EXPECTED: Final = from_amounts({"expected": 1})
_HEALTHY: Final = from_amounts({"healthy": 1})
_EXPECTED_DIM: Final = dimension("expected").index
_HEALTHY_DIM: Final = dimension("healthy").index


@final
@dataclass(frozen=True)
class BudgetBody(Body):
    """A budget as a setting: exactly one of the two bounds, absolute or in percent."""

    namespace: str
    selector: Selector
    min_available: int | None
    max_unavailable: int | None
    percent: bool


@final
@dataclass(frozen=True)
class BudgetOptions(Body):
    """Of the Configuration."""

    ignore_over_quota: bool  # budgets protect no claim that uses what its quota borrows


@final
class Budgets(Watcher):
    """All budgets of a ledger. Derived from the cells of the table ``budgets`` by the watcher callback."""

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self.by_namespace: Final[dict[str, dict[str, BudgetBody]]] = {}
        self.ignored: bool = False  # for claims that use what their quota borrows
        self.accounts: Final[dict[str, str]] = {}  # the name of a budget's account, by its key

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        if table == _OPTION_TABLE:
            self.ignored = new is not None
            return
        namespace = key.partition("/")[0]
        known = self.by_namespace.setdefault(namespace, {})
        if new is None:
            known.pop(key, None)
            self.accounts.pop(key, None)
            if not known:
                del self.by_namespace[namespace]
        else:
            known[key] = _from_cell(namespace, cast("tuple[object, ...]", new))
            self.accounts[key] = f"{POLICY}/{key}"

    def configure(self, tx: Transaction, setting: Setting) -> None:
        """A budget was created, changed or deleted, and is counted again; or the options changed."""
        if setting.kind == OPTIONS:
            ignored = isinstance(setting.body, BudgetOptions) and setting.body.ignore_over_quota
            tx.put(POLICY, _OPTION_TABLE, "", True if ignored else None)
            return
        name = f"{POLICY}/{setting.key}"
        account = self.state.accounts.get(name)
        if account is not None:
            self._count_all(tx, setting.key, account, False)
        body = setting.body
        if isinstance(body, BudgetBody):
            tx.put(POLICY, _TABLE, setting.key, _to_cell(body))
            opened = account if account is not None else tx.open_account(POLICY, name)
            self._count_all(tx, setting.key, opened, True)
        else:
            tx.put(POLICY, _TABLE, setting.key, None)
            if account is not None:
                tx.close_account(account)

    def _count_all(self, tx: Transaction, key: str, account: Account, present: bool) -> None:
        namespace = key.partition("/")[0]
        budget = self.by_namespace.get(namespace, {}).get(key)
        if budget is None:
            return
        for uid in sorted(self.state.claims):
            claim = self.state.claims[uid]
            if claim.namespace == namespace and budget.selector.matches(claim.spec.labels):
                _count(tx, claim, account, _EXPECTED, present)
                if self.healthy(claim):
                    _count(tx, claim, account, _HEALTHY, present)

    def exists(self, tx: Transaction, claim: Claim, present: bool) -> None:
        """The claim was submitted, or is gone."""
        if self.by_namespace:
            for account in self._accounts(claim):
                _count(tx, claim, account, _EXPECTED, present)

    def runs(self, tx: Transaction, claim: Claim, healthy: bool) -> None:
        """The claim began to run, or no longer counts as healthy."""
        if self.by_namespace:
            for account in self._accounts(claim):
                _count(tx, claim, account, _HEALTHY, healthy)

    def healthy(self, claim: Claim) -> bool:
        """Whether the claim runs and is neither displaced nor revoked."""
        if claim.state != RUNNING or claim.leaving:
            return False
        return self.state.cell("revoked", claim.uid) is None

    def forbids(self, claim: Claim) -> str:
        """The first budget that forbids to evict the claim now, which is not revoked; "" if none does."""
        budgets = self.by_namespace.get(claim.namespace)
        if budgets is None or claim.state != RUNNING or claim.leaving:
            return ""
        for key, budget in budgets.items():
            if budget.selector.matches(claim.spec.labels) and self.allowed(key, budget) < 1:
                return key
        return ""

    def allowed(self, key: str, budget: BudgetBody) -> int:
        """How many more of the budget's claims may be evicted now."""
        account = self.state.accounts[self.accounts[key]]
        expected = account.used.get(_EXPECTED_DIM)
        healthy = account.used.get(_HEALTHY_DIM)
        if budget.min_available is not None:
            wanted = _share(expected, budget.min_available) if budget.percent else budget.min_available
            return healthy - wanted
        maximum = budget.max_unavailable or 0
        unavailable = _share(expected, maximum) if budget.percent else maximum
        return healthy - (expected - unavailable)

    def _accounts(self, claim: Claim) -> list[Account]:
        found: list[Account] = []
        for key, budget in self.by_namespace.get(claim.namespace, {}).items():
            if budget.selector.matches(claim.spec.labels):
                found.append(self.state.accounts[self.accounts[key]])
        return found


@final
class VictimRules(EvictionRules):
    """Who may be a victim at all: counted, preemptible, not of the claimant's gang, allowed by disruption budgets, and
    not barred by preemption history.
    """

    def __init__(self, state: State, budgets: Budgets, history: PreemptionHistory) -> None:
        self.state: Final = state
        self.budgets: Final = budgets
        self.history: Final = history
        self.lending: list[PreemptionHooks] = []  # policies that know who uses what is borrowed
        self.lenient: bool = False  # to find out who would leave if no claim were protected
        self.only_at: str = ""  # while set, only claims on that node may go: the search looks there first
        self.blocked: int = 0  # how often a claim was, since a search began
        self.words: Final[dict[str, str]] = {}  # by budget: thousands of claims are refused alike

    def protection(self, victim: Claim) -> str:
        """Why the claim may not be evicted for any other; "" if it may."""
        if not victim.counts():
            return "does not count"
        if self.state.cell("revoked", victim.uid) is not None:
            return "is being evicted already"
        if self.lenient:
            return ""
        if not victim.spec.preemptible:
            return "is not preemptible"
        if self.state.cell("spared", victim.uid) is not None:
            return "could not be evicted"
        budget = self.budgets.forbids(victim) if self.shielded(victim) else ""
        return self._by_budget(budget) if budget else ""

    def shielded(self, victim: Claim) -> bool:
        """Whether disruption budgets hold for the claim."""
        return not self.budgets.ignored or not any(policy.over_quota(victim) for policy in self.lending)

    def _by_budget(self, budget: str) -> str:
        found = self.words.get(budget)
        if found is None:
            self.words.clear()
            found = f"is protected by the disruption budget {budget}"
            self.words[budget] = found
        return found

    def obstacle(self, claim: Claim, victim: Claim) -> str:
        if victim.uid == claim.uid:
            return "is the same claim"
        if self.only_at and victim.place != self.only_at:
            return "is elsewhere"
        protection = self.protection(victim)
        if protection:
            self.blocked += 1
            return protection
        group = claim.spec.group
        if group and victim.spec.group == group and victim.namespace == claim.namespace:
            return "belongs to the same gang"
        if self.lenient or not self.history.barred(claim.uid, victim.uid):
            return ""
        self.blocked += 1
        return "displaced it before"


def _count(tx: Transaction, claim: Claim, account: Account, what: Vector, present: bool) -> None:
    if present:
        tx.charge(claim, (account,), (what,))
    else:
        tx.release(claim, (account,), (what,))


def _share(expected: int, percent: int) -> int:
    """Percent of the expected claims, rounded up as Kubernetes does."""
    return -(-expected * percent // 100)


def _to_cell(body: BudgetBody) -> tuple[object, ...]:
    requirements = tuple([(r.key, r.operator, r.values) for r in body.selector.requirements])
    return (requirements, body.min_available, body.max_unavailable, body.percent)


def _from_cell(namespace: str, cell: tuple[object, ...]) -> BudgetBody:
    rows = cast("tuple[tuple[str, str, tuple[str, ...]], ...]", cell[0])
    selector = Selector(tuple([Requirement(key, operator, values) for key, operator, values in rows]))
    minimum = cast("int | None", cell[1])
    maximum = cast("int | None", cell[2])
    return BudgetBody(namespace, selector, minimum, maximum, bool(cell[3]))
