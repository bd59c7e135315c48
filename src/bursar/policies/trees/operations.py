"""Allocation, deallocation, try and undo for the library: one transaction each, under the manager's lock."""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.claims import Claim
from bursar.ledger.journal import Record
from bursar.policies.results import Refusal
from bursar.policies.trees.allocation import Allocation
from bursar.policies.trees.library_ledger import MANAGER, TreeLedger
from bursar.policies.trees.policy import checks_of, misplaced, quota_refusal
from bursar.policies.trees.records import NAME, Ask, Row, entries, held_trees, tree_binding
from bursar.policies.trees.responses import AllocationResponse, QuotaError, StaleTokenError, Token

NORMAL: Final = 0
MAINTENANCE: Final = 1


@final
class TreeOperations:
    """Serves consumers out of one book."""

    __slots__ = ("book",)

    def __init__(self, book: TreeLedger) -> None:
        self.book: Final = book

    def mode(self) -> int:
        found = self.book.ledger.state.cell(MANAGER, "mode")
        return MAINTENANCE if found is None else cast("int", found)

    # Allocating

    def allocate_on_tree(self, tree_name: str, consumer_id: str, trying: bool) -> AllocationResponse:
        """Serve what the consumer asks of one tree."""
        self.book.tree(tree_name)
        claim = self.book.claim(consumer_id)
        rows = [row for row in self.book.rows(claim) if row.tree == tree_name]
        if not rows:
            raise QuotaError(f"the consumer {consumer_id} does not name the tree {tree_name}")
        return self._allocate(claim, rows, (), "", trying)

    def allocate_on_forest(self, forest_name: str, consumer_id: str, trying: bool) -> AllocationResponse:
        """Serve what the consumer asks of the trees of a forest; its other trees are skipped."""
        trees = self.book.forest(forest_name)
        claim = self.book.claim(consumer_id)
        rows = self.book.rows(claim)
        inside = [row for row in rows if row.tree in trees]
        skipped = tuple([row.tree for row in rows if row.tree not in trees])
        return self._allocate(claim, inside, skipped, forest_name, trying)

    def _allocate(
        self, claim: Claim, rows: list[Row], skipped: tuple[str, ...], via: str, trying: bool
    ) -> AllocationResponse:
        book = self.book
        if trying and self.mode() != NORMAL:
            raise QuotaError("a try needs normal mode; the manager is in maintenance mode")
        self._check(claim, rows)
        token = Token(claim.uid, (), {}, {}) if trying else None
        if not rows:
            note = f"the consumer names no tree of the forest {via}"
            refusals = (Refusal(NAME, "trees.outside", note),)
            return AllocationResponse(claim.uid, False, refusals=refusals, skipped=skipped, token=token)
        before = dict(book.versions) if trying else {}
        plan: Allocation | None = None
        try:
            book.ledger.begin()
            asks = book.hold(claim, rows, via)
            if self.mode() == MAINTENANCE:
                book.force(claim, asks)
            else:
                plan = book.allocate(claim, asks)
                if plan.failed is not None:
                    return self._refused(claim, asks, plan, plan.failed, skipped, token)
            record = book.commit(("allocate", claim.uid, via))
        finally:
            book.end()
        if trying:
            watched = {*self._watched(asks, via), *book.touched(record.changes)}
            token = self._token(claim, record, watched, before)
        return self._allocated(claim, asks, plan, skipped, token, self._ignored(rows, asks))

    def _ignored(self, rows: list[Row], asks: list[Ask]) -> tuple[str, ...]:
        found: list[str] = []
        for i, row in enumerate(rows):
            if len(asks[i].cost) == len(row.request):
                continue  # all of it is counted
            names = self.book.trees.by_name[row.tree].counted(row.request).ignored
            found.extend([f"the tree {row.tree} does not count {name}" for name in names])
        return tuple(found)

    def _check(self, claim: Claim, rows: list[Row]) -> None:
        held = held_trees(claim)
        for row in rows:
            if row.tree in held:
                raise QuotaError(f"the consumer {claim.uid} is allocated on the tree {row.tree} already")
            wrong = misplaced(self.book.tree(row.tree), row.group)
            if wrong is not None and wrong.reason == "trees.unknown-group":
                raise QuotaError(f"the consumer {claim.uid}: {wrong.sentence()}")

    def _allocated(
        self,
        claim: Claim,
        asks: list[Ask],
        plan: Allocation | None,
        skipped: tuple[str, ...],
        token: Token | None,
        warnings: tuple[str, ...],
    ) -> AllocationResponse:
        places: list[tuple[str, str]] = []
        for ask in asks:
            seat = self.book.trees.seat(ask.tree, claim.uid)
            places.append((ask.tree, "" if seat is None else seat.node.name))
        gone = () if plan is None else tuple([departure.claim.uid for departure in plan.departed])
        moves = self.book.moves(claim.uid)
        return AllocationResponse(claim.uid, True, tuple(places), gone, moves, (), (), skipped, token, warnings)

    def _refused(
        self,
        claim: Claim,
        asks: list[Ask],
        plan: Allocation,
        failed: Ask,
        skipped: tuple[str, ...],
        token: Token | None,
    ) -> AllocationResponse:
        self.book.end()
        self.book.trees.origins.clear()
        refusal = quota_refusal(self.book.tree(failed.tree), failed, plan.last)
        checks = checks_of(self.book.trees, asks, failed.tree)
        return AllocationResponse(claim.uid, False, (), (), (), (refusal,), checks, skipped, token)

    # Undoing

    def _watched(self, asks: list[Ask], via: str) -> set[str]:
        """All trees of the forests that these asks concern: a change of any of them spoils the token."""
        names: set[str] = set()
        for ask in asks:
            forest = via or self.book.forest_of(ask.tree)
            names.add(ask.tree)
            names.update(self.book.forest(forest) if forest else ())
        return names

    def _token(self, claim: Claim, record: Record, watched: set[str], before: dict[str, int]) -> Token:
        versions = self.book.versions
        old = {name: before.get(name, 0) for name in watched}
        return Token(claim.uid, record.changes, old, {name: versions.get(name, 0) for name in watched})

    def undo(self, token: Token) -> None:
        """Take a try back, as a transaction of its own; refused when that would not be exact."""
        book = self.book
        if token.used:
            raise StaleTokenError(f"the try of {token.consumer_id} was undone already")
        for name in sorted(token.after):
            if book.versions.get(name, 0) != token.after[name]:
                raise StaleTokenError(f"the tree {name} changed since the try of {token.consumer_id}")
        if not book.is_as_left(token.changes):
            raise StaleTokenError(f"consumers that the try of {token.consumer_id} concerns changed since")
        if token.changes:
            try:
                book.ledger.begin()
                book.invert(token.changes)
                book.commit(("undo", token.consumer_id))
            finally:
                book.end()
            book.versions.update(token.before)
        token.used = True

    # Releasing

    def deallocate(self, claim: Claim | None, forest: str, tree: str) -> bool:
        """Release the consumer from a forest, or from one tree that it holds by itself; False if it holds none."""
        if claim is None:
            return False
        held = [
            cast("str", entry[0])
            for entry in entries(tree_binding(claim))
            if entry[6] == forest and (forest or entry[0] == tree)
        ]
        if not held:
            return False
        book = self.book
        try:
            book.ledger.begin()
            book.let_go(claim, held)
            if not claim.bindings:
                book.lineages.departed(claim, False)
            book.commit(("deallocate", claim.uid, forest))
        finally:
            book.end()
        book.trees.origins.clear()
        return True
