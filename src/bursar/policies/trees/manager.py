"""QuotaManager: quota trees and forests as a library of its own, for callers on many threads.

Every call takes the manager's lock, runs one transaction, and either does all it says or raises and changes nothing.
Refusal by quota is an answer (``AllocationResponse.allocated`` is False); ``QuotaError`` is for calls that make no
sense. ``with manager.atomic():`` holds the lock over several calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock
from typing import Final, cast, final

from bursar.ledger import lineage
from bursar.ledger.claims import Claim
from bursar.ledger.journal import Journal, Record
from bursar.policies.checks import Check, Refusal
from bursar.policies.trees.asks import NAME, Ask, Row, entries, held_trees, rows_of, tree_binding
from bursar.policies.trees.bodies import DEFAULT_RESOURCES, TreeBody
from bursar.policies.trees.book import FORESTS, MANAGER, Book
from bursar.policies.trees.cache import TreeCache
from bursar.policies.trees.consumer import ConsumerInfo, regrouped
from bursar.policies.trees.documents import Plain, parse, tree_from
from bursar.policies.trees.kinds import check_tree_name
from bursar.policies.trees.plan import Plan
from bursar.policies.trees.refresh import Report, over_quota, refresh, remove
from bursar.policies.trees.refusing import checks_of, misplaced, quota_refusal
from bursar.policies.trees.responses import AllocationResponse, NodeState, QuotaError, StaleTokenError, Token
from bursar.policies.trees.tree import Tree

NORMAL: Final = 0
MAINTENANCE: Final = 1
_MODES: Final = ("normal", "maintenance")


@final
class QuotaManager:
    """Trees, forests and consumers. A new manager is in maintenance mode: allocations are forced onto the groups."""

    def __init__(self, journaled: bool = False) -> None:
        self._book: Final = Book()
        self._lock: Final = RLock()
        self._caches: Final[dict[str, TreeCache]] = {}
        self._journaled: Final = journaled

    # Management

    def atomic(self) -> RLock:
        """The manager's lock, to hold over several calls: ``with manager.atomic(): ...``."""
        return self._lock

    def get_mode(self) -> int:
        with self._lock:
            return self._mode()

    def set_mode(self, mode: int) -> None:
        if mode not in (NORMAL, MAINTENANCE):
            raise QuotaError(f"{mode!r} is no mode: it is NORMAL ({NORMAL}) or MAINTENANCE ({MAINTENANCE})")
        with self._lock:
            try:
                self._book.ledger.begin().put(NAME, MANAGER, "mode", mode)
                self._commit(("mode", mode))
            finally:
                self._book.end()

    def get_tree_names(self) -> list[str]:
        with self._lock:
            return sorted(self._book.trees.by_name)

    def get_forest_names(self) -> list[str]:
        with self._lock:
            return sorted(self._book.ledger.state.cells(FORESTS))

    def get_forest_tree_names(self) -> dict[str, list[str]]:
        with self._lock:
            return {name: list(self._book.forest(name)) for name in self.get_forest_names()}

    def get_all_consumer_ids(self) -> list[str]:
        with self._lock:
            return sorted(self._book.ledger.state.claims)

    @property
    def journal(self) -> Journal:
        """The records of all that was done, if the manager was made with ``journaled``."""
        return self._book.ledger.journal

    @property
    def digest(self) -> int:
        """One number for the whole state."""
        with self._lock:
            return self._book.ledger.digest

    def plain(self) -> dict[str, object]:
        """The whole state as plain data: equal if and only if nothing differs."""
        with self._lock:
            return self._book.ledger.state.plain()

    def replay(self, lines: Iterable[bytes]) -> int:
        """Repeat a journal on a new manager; returns how many records."""
        with self._lock:
            count = 0
            for _ in self._book.ledger.replay(lines):
                count += 1
            for name, tree in self._book.trees.by_name.items():
                self._caches[name] = TreeCache(name, tree.body, self._lock)
            return count

    # Consumers

    def add_consumer(self, info: ConsumerInfo) -> None:
        if not info.rows:
            raise QuotaError(f"the consumer {info.id} names no tree")
        with self._lock:
            if info.id in self._book.ledger.state.claims:
                raise QuotaError(f"there is a consumer {info.id} already")
            try:
                self._book.ledger.begin().add_claim(info.claim())
                self._commit(("add-consumer", info.id))
            finally:
                self._book.end()

    def remove_consumer(self, consumer_id: str) -> None:
        with self._lock:
            claim = self._book.claim(consumer_id)
            if claim.bindings:
                raise QuotaError(f"the consumer {consumer_id} is allocated on {', '.join(held_trees(claim))}")
            try:
                tx = self._book.ledger.begin()
                lineage.departed(tx, claim, False)
                tx.drop_claim(claim)
                self._commit(("remove-consumer", consumer_id))
            finally:
                self._book.end()

    # Trees

    def add_tree_by_name(self, tree_name: str) -> Report:
        """An empty tree, to be filled through its cache."""
        check_tree_name(tree_name, "name")
        return self._add_tree(tree_name, TreeBody(DEFAULT_RESOURCES, {}))

    def add_tree_from_string(self, text: str) -> Report:
        return self.add_tree_from_struct(parse(text))

    def add_tree_from_struct(self, tree: Plain) -> Report:
        name, body = tree_from(tree)
        return self._add_tree(name, body)

    def _add_tree(self, name: str, body: TreeBody) -> Report:
        with self._lock:
            if name in self._book.trees.by_name:
                raise QuotaError(f"there is a tree {name} already")
            try:
                refresh(self._book.trees, self._book.ledger.begin(), name, body, {})
                self._commit(("add-tree", name))
            finally:
                self._book.end()
            self._caches[name] = TreeCache(name, body, self._lock)
            return self._report(name, ())

    def delete_tree(self, tree_name: str) -> None:
        with self._lock:
            tree = self._book.tree(tree_name)
            if tree.seats:
                raise QuotaError(f"the tree {tree_name} is in use: {len(tree.seats)} consumers are allocated")
            forest = self._book.forest_of(tree_name)
            if forest:
                raise QuotaError(f"the tree {tree_name} belongs to the forest {forest}")
            try:
                remove(self._book.trees, self._book.ledger.begin(), tree_name)
                self._commit(("delete-tree", tree_name))
            finally:
                self._book.end()
            del self._caches[tree_name]

    def get_tree_cache(self, tree_name: str) -> TreeCache:
        with self._lock:
            self._book.tree(tree_name)
            return self._caches[tree_name]

    def get_tree_state(self, tree_name: str) -> dict[str, NodeState]:
        """Every node by name, parents before their children, as it is now."""
        with self._lock:
            return _states(self._book.tree(tree_name))

    # Allocation on one tree

    def allocate(self, tree_name: str, consumer_id: str) -> AllocationResponse:
        with self._lock:
            return self._allocate(consumer_id, self._row(tree_name, consumer_id), (), "", False)

    def try_allocate(self, tree_name: str, consumer_id: str) -> AllocationResponse:
        """As ``allocate``; the response's token takes it back."""
        with self._lock:
            self._check_trying()
            return self._allocate(consumer_id, self._row(tree_name, consumer_id), (), "", True)

    def undo_allocate(self, token: Token) -> None:
        self._undo(token)

    def deallocate(self, tree_name: str, consumer_id: str) -> bool:
        """False if the consumer is not allocated there."""
        with self._lock:
            self._book.tree(tree_name)
            claim = self._book.ledger.state.claims.get(consumer_id)
            for entry in () if claim is None else entries(tree_binding(claim)):
                if entry[0] == tree_name and entry[6]:
                    raise QuotaError(f"the consumer {consumer_id} is allocated on the forest {entry[6]}")
            return self._deallocate(claim, "", tree_name)

    def is_allocated(self, tree_name: str, consumer_id: str) -> bool:
        with self._lock:
            return consumer_id in self._book.tree(tree_name).seats

    # Updates

    def update_tree(self, tree_name: str, dry_run: bool = False) -> Report:
        """Put the tree's cache in force; a dry run only reports what that would do."""
        with self._lock:
            self._book.tree(tree_name)
            return self._update([tree_name], dry_run)[0]

    def update_forest(self, forest_name: str, dry_run: bool = False) -> list[Report]:
        with self._lock:
            return self._update(list(self._book.forest(forest_name)), dry_run)

    def update_all(self, dry_run: bool = False) -> list[Report]:
        with self._lock:
            return self._update(self.get_tree_names(), dry_run)

    # Forests

    def add_forest(self, forest_name: str) -> None:
        if not forest_name or not forest_name.isprintable():
            raise QuotaError(f"{forest_name!r:.60} is not the name of a forest")
        with self._lock:
            if self._book.ledger.state.cell(FORESTS, forest_name) is not None:
                raise QuotaError(f"there is a forest {forest_name} already")
            self._set_forest(forest_name, ())

    def delete_forest(self, forest_name: str) -> None:
        with self._lock:
            self._check_unused(forest_name, self._book.forest(forest_name))
            self._set_forest(forest_name, None)

    def add_tree_to_forest(self, forest_name: str, tree_name: str) -> None:
        with self._lock:
            trees = self._book.forest(forest_name)
            self._book.tree(tree_name)
            present = self._book.forest_of(tree_name)
            if present:
                raise QuotaError(f"the tree {tree_name} belongs to the forest {present} already")
            self._set_forest(forest_name, tuple(sorted((*trees, tree_name))))

    def delete_tree_from_forest(self, forest_name: str, tree_name: str) -> None:
        with self._lock:
            trees = self._book.forest(forest_name)
            if tree_name not in trees:
                raise QuotaError(f"the forest {forest_name} has no tree {tree_name}")
            self._check_unused(forest_name, (tree_name,))
            self._set_forest(forest_name, tuple([tree for tree in trees if tree != tree_name]))

    def allocate_forest(self, forest_name: str, consumer_id: str) -> AllocationResponse:
        with self._lock:
            rows, skipped = self._forest_rows(forest_name, consumer_id)
            return self._allocate(consumer_id, rows, skipped, forest_name, False)

    def try_allocate_forest(self, forest_name: str, consumer_id: str) -> AllocationResponse:
        with self._lock:
            self._check_trying()
            rows, skipped = self._forest_rows(forest_name, consumer_id)
            return self._allocate(consumer_id, rows, skipped, forest_name, True)

    def undo_allocate_forest(self, token: Token) -> None:
        self._undo(token)

    def deallocate_forest(self, forest_name: str, consumer_id: str) -> bool:
        """False if the consumer is not allocated on the forest."""
        with self._lock:
            self._book.forest(forest_name)
            return self._deallocate(self._book.ledger.state.claims.get(consumer_id), forest_name, "")

    def is_allocated_forest(self, forest_name: str, consumer_id: str) -> bool:
        with self._lock:
            self._book.forest(forest_name)
            claim = self._book.ledger.state.claims.get(consumer_id)
            return claim is not None and forest_name in [entry[6] for entry in entries(tree_binding(claim))]

    # How it is done

    def _mode(self) -> int:
        found = self._book.ledger.state.cell(MANAGER, "mode")
        return MAINTENANCE if found is None else cast("int", found)

    def _check_trying(self) -> None:
        if self._mode() != NORMAL:
            raise QuotaError("a try needs normal mode; the manager is in maintenance mode")

    def _commit(self, cause: tuple[object, ...]) -> Record:
        record = self._book.commit(cause)
        if not self._journaled:
            self._book.ledger.journal.records.clear()
        return record

    def _row(self, tree_name: str, consumer_id: str) -> list[Row]:
        self._book.tree(tree_name)
        rows = [row for row in rows_of(self._book.claim(consumer_id)) if row.tree == tree_name]
        if not rows:
            raise QuotaError(f"the consumer {consumer_id} does not name the tree {tree_name}")
        return rows

    def _forest_rows(self, forest_name: str, consumer_id: str) -> tuple[list[Row], tuple[str, ...]]:
        trees = self._book.forest(forest_name)
        rows = rows_of(self._book.claim(consumer_id))
        return [row for row in rows if row.tree in trees], tuple([row.tree for row in rows if row.tree not in trees])

    def _allocate(
        self, consumer_id: str, rows: list[Row], skipped: tuple[str, ...], via: str, trying: bool
    ) -> AllocationResponse:
        claim = self._book.claim(consumer_id)
        forced = self._mode() == MAINTENANCE
        self._check_rows(claim, rows, forced)
        if not rows:
            note = f"the consumer names no tree of the forest {via}"
            return self._refused(claim, (Refusal(NAME, "trees.outside", note),), (), skipped, trying)
        asks = [self._book.ask(row) for row in rows]
        before = self._versions(asks, via)
        try:
            self._book.ledger.begin()
            plan: Plan | None = None
            if forced:
                self._book.force(claim, asks, via)
            else:
                plan = self._book.allocate(claim, asks, via)
                if plan.failed is not None:
                    return self._no_room(claim, asks, plan, skipped, trying)
            record = self._commit(("allocate", consumer_id, via))
        finally:
            self._book.end()
        token = self._token(claim, record, before) if trying else None
        return self._allocated(claim, asks, plan, skipped, token)

    def _check_rows(self, claim: Claim, rows: list[Row], forced: bool) -> None:
        held = held_trees(claim)
        for row in rows:
            if row.tree in held:
                raise QuotaError(f"the consumer {claim.uid} is allocated on the tree {row.tree} already")
            wrong = misplaced(self._book.tree(row.tree), row.group)
            if wrong is not None and (wrong.reason == "trees.unknown-group"):
                raise QuotaError(f"the consumer {claim.uid}: {wrong.sentence()}")

    def _versions(self, asks: list[Ask], via: str) -> dict[str, int]:
        """The versions of all trees that a token of these asks watches."""
        names: set[str] = set()
        for ask in asks:
            forest = via or self._book.forest_of(ask.tree)
            names.add(ask.tree)
            names.update(self._book.forest(forest) if forest else ())
        return {name: self._book.versions[name] for name in sorted(names)}

    def _allocated(
        self, claim: Claim, asks: list[Ask], plan: Plan | None, skipped: tuple[str, ...], token: Token | None
    ) -> AllocationResponse:
        places: list[tuple[str, str]] = []
        for ask in asks:
            seat = self._book.trees.seat(ask.tree, claim.uid)
            places.append((ask.tree, "" if seat is None else seat.node.name))
        gone = () if plan is None else tuple([departure.claim.uid for departure in plan.departed])
        moves = self._book.moves(claim.uid)
        return AllocationResponse(claim.uid, True, tuple(places), gone, moves, (), (), skipped, token)

    def _no_room(
        self, claim: Claim, asks: list[Ask], plan: Plan, skipped: tuple[str, ...], trying: bool
    ) -> AllocationResponse:
        failed = cast("Ask", plan.failed)
        self._book.end()
        self._book.trees.origins = {}
        refusal = quota_refusal(self._book.tree(failed.tree), failed, plan.last)
        checks = checks_of(self._book.trees, asks, failed.tree)
        return self._refused(claim, (refusal,), checks, skipped, trying)

    def _refused(
        self,
        claim: Claim,
        refusals: tuple[Refusal, ...],
        checks: tuple[Check, ...],
        skipped: tuple[str, ...],
        trying: bool,
    ) -> AllocationResponse:
        token = Token(claim.uid, (), {}, {}) if trying else None
        return AllocationResponse(claim.uid, False, (), (), (), refusals, checks, skipped, token)

    def _token(self, claim: Claim, record: Record, before: dict[str, int]) -> Token:
        after = {name: self._book.versions[name] for name in before}
        return Token(claim.uid, record.changes, before, after)

    def _undo(self, token: Token) -> None:
        with self._lock:
            if token.used:
                raise StaleTokenError(f"the try of {token.consumer_id} was undone already")
            for name, version in token.after.items():
                if self._book.versions.get(name) != version:
                    raise StaleTokenError(f"the tree {name} changed since the try of {token.consumer_id}")
            if not self._book.is_as_left(token.changes):
                raise StaleTokenError(f"consumers that the try of {token.consumer_id} concerns changed since")
            if token.changes:
                try:
                    self._book.ledger.begin()
                    self._book.invert(token.changes)
                    self._commit(("undo", token.consumer_id))
                finally:
                    self._book.end()
                self._book.versions.update(token.before)
            token.used = True

    def _deallocate(self, claim: Claim | None, forest: str, tree: str) -> bool:
        """Release the consumer from a forest, or from one tree that it holds by itself."""
        if claim is None:
            return False
        held = [
            cast("str", entry[0])
            for entry in entries(tree_binding(claim))
            if entry[6] == forest and (forest or entry[0] == tree)
        ]
        if not held:
            return False
        try:
            tx = self._book.ledger.begin()
            self._book.let_go(claim, held)
            if not claim.bindings:
                lineage.departed(tx, claim, False)
            self._commit(("deallocate", claim.uid, forest))
        finally:
            self._book.end()
        self._book.trees.origins = {}
        return True

    def _check_unused(self, forest: str, trees: tuple[str, ...]) -> None:
        for name in trees:
            for seat in self._book.tree(name).seats.values():
                for entry in entries(tree_binding(seat.claim)):
                    if entry[6] == forest:
                        raise QuotaError(f"the forest {forest} is in use: {seat.claim.uid} is allocated on it")

    def _set_forest(self, name: str, trees: tuple[str, ...] | None) -> None:
        try:
            self._book.ledger.begin().put(NAME, FORESTS, name, trees)
            self._commit(("forest", name))
        finally:
            self._book.end()

    def _update(self, names: list[str], dry_run: bool) -> list[Report]:
        """Put the caches of these trees in force, in one transaction."""
        book = self._book
        bodies = {name: self._caches[name].body() for name in names}
        try:
            book.ledger.begin()
            lost: dict[str, tuple[str, ...]] = {}
            for name in names:
                self._regroup(name, self._caches[name].renames())
                lost[name] = refresh(book.trees, book.tx, name, bodies[name], self._caches[name].renames())
            for name in names:
                for uid in lost[name]:
                    self._drop_out(name, uid)
            if dry_run:
                book.slide()
                return self._reports(names, lost)
            self._commit(("update", *names))
        finally:
            book.end()
        for name in names:
            self._caches[name].refreshed(bodies[name])
        return self._reports(names, lost)

    def _regroup(self, tree: str, renames: dict[str, str]) -> None:
        """Consumers that name a renamed group name it by its new name from now on, allocated or not."""
        claims = self._book.ledger.state.claims
        for uid in sorted(claims) if renames else ():
            spec = regrouped(claims[uid], tree, renames)
            if spec is not None:
                self._book.tx.set_spec(claims[uid], spec)

    def _drop_out(self, tree: str, uid: str) -> None:
        """A consumer that lost its seat in one tree of a forest leaves all trees of the forest."""
        claim = self._book.claim(uid)
        held = entries(tree_binding(claim))
        for entry in held:
            if entry[0] == tree:
                forest = entry[6]
                both = [cast("str", other[0]) for other in held if forest and other[6] == forest]
                self._book.let_go(claim, both or [tree])

    def _reports(self, names: list[str], lost: dict[str, tuple[str, ...]]) -> list[Report]:
        moved: dict[str, list[tuple[str, str, str]]] = {}
        for move in self._book.moves(""):
            moved.setdefault(move.tree, []).append((move.consumer_id, move.source, move.target))
        return [self._report(name, lost[name], tuple(moved.get(name, []))) for name in names]

    def _report(self, name: str, lost: tuple[str, ...], moved: tuple[tuple[str, str, str], ...] = ()) -> Report:
        tree = self._book.tree(name)
        root = "" if tree.root is None else tree.root.name
        return Report(name, root, tree.dangling, moved, lost, over_quota(tree), tree.warnings())


def _states(tree: Tree) -> dict[str, NodeState]:
    found: dict[str, NodeState] = {}
    for name, node in tree.nodes.items():
        sitting = sorted([(seat.stamp, seat.claim.uid) for seat in tree.seated(node)])
        account = node.account
        parent = "" if node.parent is None else node.parent.name
        ids = tuple([uid for _, uid in sitting])
        found[name] = NodeState(name, parent, node.hard, account.limits.show(), account.used.vector().show(), ids)
    return found
