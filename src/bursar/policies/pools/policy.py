"""The pools policy: quota trees over node pools, each quota held to its runtime.

A claim belongs to one quota and is charged there and in every quota above it (``bindings``), if all of them have room
(``judging``). Its demand counts from the moment it is submitted, so it raises the runtime that it is then held to.

State: accounts (see ``books``) and the cells of the tables ``pools.*``. Everything else is derived.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast, final

from bursar.ledger.accounts import Account
from bursar.ledger.claims import Binding, Claim
from bursar.ledger.transactions import Transaction
from bursar.policies.base import Policy
from bursar.policies.checks import Check, Refusal
from bursar.policies.pools.bindings import COUNTED_AT, FIRM_AT, STRAY_AT, TREE_AT, Bindings, binding_of
from bursar.policies.pools.books import DEMAND, FIRM_DEMAND, STRAY_DEMAND, Books
from bursar.policies.pools.branch import Branch
from bursar.policies.pools.changing import KINDS, Changer
from bursar.policies.pools.explaining import explain_branch
from bursar.policies.pools.judging import MAX_RULE, RUNTIME_RULE, check
from bursar.policies.pools.names import DEFAULT, DEFAULT_TREE, NAME
from bursar.policies.pools.outputs import Writer
from bursar.policies.pools.revoking import Revoker
from bursar.policies.settings import Output, Revocation, Setting
from bursar.selectors import NodeNeeds
from bursar.vectors import EMPTY, Vector


@final
class PoolsPolicy(Policy):
    """Elastic quotas in trees, one tree for each pool of nodes."""

    def __init__(self) -> None:
        super().__init__(NAME, False, KINDS, True, True, True)
        self.books: Final = Books()
        self.revoker: Final = Revoker(self.books)
        self.writer: Final = Writer(self.books)
        self.bindings: Final = Bindings(self.books)

    # Settings

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        found: list[str] = []
        for claim in Changer(self.books, self.state, tx).apply(setting):
            old = binding_of(claim)
            new = self.bindings.of(self.state, claim)
            if old is None or new is None or old.mark != new.mark:
                found.append(claim.uid)
        return found

    def settle(self, tx: Transaction) -> None:
        if self.books.closing or self.books.orphans:
            Changer(self.books, self.state, tx).tidy()

    # What follows from the ledger

    def charged(self, claim: Claim, account: Account, cost: Vector, sign: int) -> None:
        self.books.charged(claim, account, cost, sign)

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        self.books.cell_changed(self.state, table, key, old, new)

    # One claim

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        return self.bindings.of(self.state, claim)

    def demand(self, tx: Transaction, claim: Claim, binding: Binding, wanted: bool) -> None:
        suffix = DEMAND
        if binding.data[STRAY_AT]:
            suffix = STRAY_DEMAND
        elif binding.data[FIRM_AT]:
            suffix = FIRM_DEMAND
        account = self.state.accounts[binding.accounts[1].name + suffix]
        cost = binding.costs[1] if binding.data[COUNTED_AT] else EMPTY
        if wanted:
            tx.charge(claim, (account,), (cost,))
        else:
            tx.release(claim, (account,), (cost,))

    def charge(self, tx: Transaction, claim: Claim, binding: Binding, forced: bool) -> Refusal | None:
        if not forced:
            refusal = check(self.books, binding, None)
            if refusal is not None:
                return refusal
        tx.charge(claim, binding.accounts, binding.costs)
        return None

    def recharge(self, tx: Transaction, claim: Claim, old: Binding, new: Binding, forced: bool) -> Refusal | None:
        mark = tx.savepoint()
        self.release(tx, claim, old)
        refusal = None if forced else check(self.books, new, old)
        if refusal is None:
            tx.charge(claim, new.accounts, new.costs)
        else:
            tx.rollback_to(mark)
        return refusal

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        """Only of the same quota, only of lower priority, and only who uses what is short."""
        branch = self.books.forest.branches[binding.accounts[1].name]
        if refusal.reason.startswith((f"{NAME}.{RUNTIME_RULE}.", f"{NAME}.{MAX_RULE}.")) and (
            branch.name != DEFAULT or self.books.options.default_preemption
        ):
            return self._victims(claim, branch, refusal.resource)
        return iter(())

    def _victims(self, claim: Claim, branch: Branch, resource: str) -> Iterator[Claim]:
        for candidate in branch.least_important_first():
            if candidate.spec.priority >= claim.spec.priority:
                return
            if candidate.uid in branch.members and candidate.spec.requests.amount(resource) > 0:
                yield candidate

    # Answers

    def explain(self, claim: Claim, binding: Binding) -> Check:
        branch = self.books.forest.branches[binding.accounts[1].name]
        refusal = None if claim.counts() else check(self.books, binding, None)
        return explain_branch(self.books, branch, binding, refusal)

    def due(self, now: int) -> list[Revocation]:
        return self.revoker.due(self.state, now)

    def next_due(self, now: int) -> int | None:
        return self.revoker.next_due(now)

    def outputs(self, now: int) -> list[Output]:
        return self.writer.outputs(self.state)

    def node_needs(self, claim: Claim, binding: Binding) -> NodeNeeds | None:
        """A claim of a tree runs on the nodes of the tree."""
        tree = cast("str", binding.data[TREE_AT])
        if tree not in self.books.needs:
            self.books.needs[tree] = self._tree_needs(tree)
        return self.books.needs[tree]

    def _tree_needs(self, tree: str) -> NodeNeeds | None:
        profiles = self.books.grounds.profiles_of(tree)
        if tree == DEFAULT_TREE or not profiles:
            return None
        terms = []
        for profile in profiles:
            if profile.requirements is None:
                continue
            term = profile.term()
            if term is None:
                return None  # it selects every node
            terms.append(term)
        return NodeNeeds({}, tuple(terms))
