"""QuotaManager: quota trees and forests as a library of its own, for callers on many threads.

Every call takes the manager's lock, runs one transaction, and either does all it says or raises and changes nothing.
Refusal by quota is an answer (``AllocationResponse.allocated`` is False); ``QuotaError`` is for calls that make no
sense. ``with manager.atomic():`` holds the lock over several calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock
from typing import Final, final

from bursar.ledger.journal import Journal
from bursar.policies.trees.api import Plain, check_tree_name, parse, tree_from
from bursar.policies.trees.library_ledger import FORESTS, MANAGER, TreeLedger
from bursar.policies.trees.operations import MAINTENANCE, NORMAL, TreeOperations
from bursar.policies.trees.records import (
    DEFAULT_RESOURCES,
    NAME,
    ConsumerInfo,
    TreeBody,
    entries,
    held_trees,
    tree_binding,
)
from bursar.policies.trees.refresh import Report, Updater, refresh, remove
from bursar.policies.trees.responses import AllocationResponse, NodeState, QuotaError, Token, states_of
from bursar.policies.trees.tree_cache import TreeCache


@final
class QuotaManager:
    """Trees, forests and consumers. A new manager is in maintenance mode: allocations are forced onto the groups."""

    def __init__(self, journaled: bool = False) -> None:
        self._lock: Final = RLock()
        self._book: Final = TreeLedger(journaled)
        self._desk: Final = TreeOperations(self._book)
        self._updater: Final = Updater(self._book)

    # Management

    def atomic(self) -> RLock:
        """The manager's lock, to hold over several calls: ``with manager.atomic(): ...``."""
        return self._lock

    def get_mode(self) -> int:
        with self._lock:
            return self._desk.mode()

    def set_mode(self, mode: int) -> None:
        if mode not in (NORMAL, MAINTENANCE):
            raise QuotaError(f"{mode!r} is no mode: it is NORMAL ({NORMAL}) or MAINTENANCE ({MAINTENANCE})")
        with self._lock:
            try:
                self._book.ledger.begin().put(NAME, MANAGER, "mode", mode)
                self._book.commit(("mode", mode))
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
                self._updater.caches[name] = TreeCache(name, tree.body, self._lock)
            return count

    # Consumers

    def add_consumer(self, info: ConsumerInfo) -> None:
        if not info.rows:
            raise QuotaError(f"the consumer {info.id} names no tree")
        with self._lock:
            if info.id in self._book.ledger.state.claims:
                raise QuotaError(f"there is a consumer {info.id} already")
            try:
                claim = info.claim()
                self._book.ledger.begin().add_claim(claim)
                self._book.commit(("add-consumer", info.id))
                self._book.rows(claim)
            finally:
                self._book.end()

    def remove_consumer(self, consumer_id: str) -> None:
        with self._lock:
            claim = self._book.claim(consumer_id)
            if claim.bindings:
                raise QuotaError(f"the consumer {consumer_id} is allocated on {', '.join(held_trees(claim))}")
            try:
                tx = self._book.ledger.begin()
                self._book.lineages.departed(claim, False)
                tx.drop_claim(claim)
                self._book.parsed.pop(consumer_id, None)
                self._book.commit(("remove-consumer", consumer_id))
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
                self._book.commit(("add-tree", name))
            finally:
                self._book.end()
            self._updater.caches[name] = TreeCache(name, body, self._lock)
            return self._updater.report(name)

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
                self._book.commit(("delete-tree", tree_name))
            finally:
                self._book.end()
            del self._updater.caches[tree_name]

    def get_tree_cache(self, tree_name: str) -> TreeCache:
        with self._lock:
            self._book.tree(tree_name)
            return self._updater.caches[tree_name]

    def get_tree_state(self, tree_name: str) -> dict[str, NodeState]:
        """Every node by name, parents before their children, as it is now."""
        with self._lock:
            return states_of(self._book.tree(tree_name))

    # Allocation on one tree

    def allocate(self, tree_name: str, consumer_id: str) -> AllocationResponse:
        with self._lock:
            return self._desk.allocate_on_tree(tree_name, consumer_id, False)

    def try_allocate(self, tree_name: str, consumer_id: str) -> AllocationResponse:
        """As ``allocate``; the response's token takes it back."""
        with self._lock:
            return self._desk.allocate_on_tree(tree_name, consumer_id, True)

    def undo_allocate(self, token: Token) -> None:
        """Take a try back: exactly, once, and only while the trees are as it left them."""
        with self._lock:
            self._desk.undo(token)

    def deallocate(self, tree_name: str, consumer_id: str) -> bool:
        """False if the consumer is not allocated there."""
        with self._lock:
            self._book.tree(tree_name)
            claim = self._book.ledger.state.claims.get(consumer_id)
            for entry in () if claim is None else entries(tree_binding(claim)):
                if entry[0] == tree_name and entry[6]:
                    raise QuotaError(f"the consumer {consumer_id} is allocated on the forest {entry[6]}")
            return self._desk.deallocate(claim, "", tree_name)

    def is_allocated(self, tree_name: str, consumer_id: str) -> bool:
        with self._lock:
            return consumer_id in self._book.tree(tree_name).seats

    # Updates

    def update_tree(self, tree_name: str, dry_run: bool = False) -> Report:
        """Put the tree's cache in force; a dry run only reports what that would do."""
        with self._lock:
            self._book.tree(tree_name)
            return self._updater.update([tree_name], dry_run)[0]

    def update_forest(self, forest_name: str, dry_run: bool = False) -> list[Report]:
        with self._lock:
            return self._updater.update(list(self._book.forest(forest_name)), dry_run)

    def update_all(self, dry_run: bool = False) -> list[Report]:
        with self._lock:
            return self._updater.update(self.get_tree_names(), dry_run)

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
            return self._desk.allocate_on_forest(forest_name, consumer_id, False)

    def try_allocate_forest(self, forest_name: str, consumer_id: str) -> AllocationResponse:
        with self._lock:
            return self._desk.allocate_on_forest(forest_name, consumer_id, True)

    def undo_allocate_forest(self, token: Token) -> None:
        self.undo_allocate(token)

    def deallocate_forest(self, forest_name: str, consumer_id: str) -> bool:
        """False if the consumer is not allocated on the forest."""
        with self._lock:
            self._book.forest(forest_name)
            return self._desk.deallocate(self._book.ledger.state.claims.get(consumer_id), forest_name, "")

    def is_allocated_forest(self, forest_name: str, consumer_id: str) -> bool:
        with self._lock:
            self._book.forest(forest_name)
            claim = self._book.ledger.state.claims.get(consumer_id)
            return claim is not None and forest_name in [entry[6] for entry in entries(tree_binding(claim))]

    def _check_unused(self, forest: str, trees: tuple[str, ...]) -> None:
        for name in trees:
            for seat in self._book.tree(name).seats.values():
                for entry in entries(tree_binding(seat.claim)):
                    if entry[6] == forest:
                        raise QuotaError(f"the forest {forest} is in use: {seat.claim.uid} is allocated on it")

    def _set_forest(self, name: str, trees: tuple[str, ...] | None) -> None:
        try:
            self._book.ledger.begin().put(NAME, FORESTS, name, trees)
            self._book.commit(("forest", name))
        finally:
            self._book.end()
