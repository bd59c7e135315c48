"""QuotaManager: quota trees and forests as a library of its own."""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock
from typing import Final, final

from bursar.ledger.journal import Journal
from bursar.policies.trees.api import Plain, check_tree_name, parse, tree_from
from bursar.policies.trees.library_ledger import FORESTS, MAINTENANCE, MANAGER, NORMAL, TreeLedger
from bursar.policies.trees.operations import (
    allocate_on_forest,
    allocate_on_tree,
    deallocate,
    report,
    undo,
    update,
)
from bursar.policies.trees.records import DEFAULT_RESOURCES, NAME, ConsumerInfo, TreeBody, held_requests
from bursar.policies.trees.refresh import refresh, remove
from bursar.policies.trees.responses import AllocationResponse, NodeState, QuotaError, Report, Token, states_of
from bursar.policies.trees.tree_cache import TreeCache


@final
class QuotaManager:
    """Quota trees, forests and consumers, for callers on many threads.

    Every call takes the manager's lock and does all it says, or raises and changes nothing. A refusal by quota is an
    answer (``AllocationResponse.allocated`` is False); ``QuotaError`` is for calls that make no sense.

    A new manager is in maintenance mode: allocations are forced onto the consumers' groups, over quota if need be.
    ``set_mode(NORMAL)`` starts the rules. With ``journaled`` the manager keeps a journal, which ``replay`` repeats.
    """

    def __init__(self, journaled: bool = False) -> None:
        self._lock: Final = RLock()
        self._book: Final = TreeLedger(journaled)
        self._caches: Final[dict[str, TreeCache]] = {}

    def __repr__(self) -> str:
        with self._lock:
            mode = "normal" if self._book.mode() == NORMAL else "maintenance"
            consumers = len(self._book.ledger.state.claims)
            return f"QuotaManager({mode} mode, trees {self.get_tree_names()}, {consumers} consumers)"

    # Management

    def atomic(self) -> RLock:
        """The manager's lock, to hold over several calls: ``with manager.atomic(): ...``."""
        return self._lock

    def get_mode(self) -> int:
        """NORMAL or MAINTENANCE."""
        with self._lock:
            return self._book.mode()

    def set_mode(self, mode: int) -> None:
        """Set the mode to NORMAL or MAINTENANCE. What is allocated stays allocated."""
        if mode not in (NORMAL, MAINTENANCE):
            raise QuotaError(f"{mode!r} is no mode: it is NORMAL ({NORMAL}) or MAINTENANCE ({MAINTENANCE})")
        with self._lock, self._book.transaction("mode", mode) as tx:
            tx.put(NAME, MANAGER, "mode", mode)

    def get_tree_names(self) -> list[str]:
        """The names of all trees, sorted."""
        with self._lock:
            return sorted(self._book.trees.by_name)

    def get_forest_names(self) -> list[str]:
        """The names of all forests, sorted."""
        with self._lock:
            return sorted(self._book.ledger.state.cells(FORESTS))

    def get_forest_tree_names(self) -> dict[str, list[str]]:
        """The names of the trees of each forest, sorted."""
        with self._lock:
            return {name: list(self._book.forest(name)) for name in self.get_forest_names()}

    def get_all_consumer_ids(self) -> list[str]:
        """The ids of all consumers, allocated or not, sorted."""
        with self._lock:
            return sorted(self._book.ledger.state.claims)

    @property
    def journal(self) -> Journal:
        """The journal; it has records only if the manager was made with ``journaled``."""
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
        """Repeat the lines of a journal on a new manager; returns how many there were."""
        with self._lock:
            count = 0
            for _ in self._book.ledger.replay(lines):
                count += 1
            for name, tree in self._book.trees.by_name.items():
                self._caches[name] = TreeCache(name, tree.body, self._lock)
            return count

    # Consumers

    def add_consumer(self, info: ConsumerInfo) -> None:
        """Add a consumer. It is not allocated yet, and need not name trees that exist."""
        if not info.rows:
            raise QuotaError(f"the consumer {info.id} names no tree")
        with self._lock:
            if info.id in self._book.ledger.state.claims:
                raise QuotaError(f"there is a consumer {info.id} already")
            claim = info.claim()
            with self._book.transaction("add-consumer", info.id) as tx:
                tx.add_claim(claim)
            self._book.requests(claim)

    def remove_consumer(self, consumer_id: str) -> None:
        """Remove a consumer that is not allocated.

        If it was preempted and comes back under its id, it still may not displace the one that preempted it.
        """
        with self._lock:
            claim = self._book.claim(consumer_id)
            if claim.bindings:
                trees = ", ".join([request.tree for request in held_requests(claim)])
                raise QuotaError(f"the consumer {consumer_id} is allocated on {trees}")
            with self._book.transaction("remove-consumer", consumer_id) as tx:
                self._book.history.departed(claim, True)  # its owner released it when it was deallocated
                tx.drop_claim(claim)
            self._book.parsed.pop(consumer_id, None)

    # Trees

    def add_tree_by_name(self, tree_name: str) -> Report:
        """Add an empty tree, to be filled through its cache."""
        check_tree_name(tree_name, "name")
        return self._add_tree(tree_name, TreeBody(DEFAULT_RESOURCES, {}))

    def add_tree_from_string(self, text: str) -> Report:
        """Add a tree from a JSON or YAML document of kind QuotaTree."""
        return self.add_tree_from_struct(parse(text))

    def add_tree_from_struct(self, tree: Plain) -> Report:
        """Add a tree from the plain data of a QuotaTree."""
        name, body = tree_from(tree)
        return self._add_tree(name, body)

    def _add_tree(self, name: str, body: TreeBody) -> Report:
        with self._lock:
            if name in self._book.trees.by_name:
                raise QuotaError(f"there is a tree {name} already")
            with self._book.transaction("add-tree", name) as tx:
                refresh(self._book.trees, tx, name, body, {})
            self._caches[name] = TreeCache(name, body, self._lock)
            return report(self._book.tree(name), (), ())

    def delete_tree(self, tree_name: str) -> None:
        """Delete a tree that is in no forest and on which no consumer is allocated."""
        with self._lock:
            tree = self._book.tree(tree_name)
            if tree.allocations:
                raise QuotaError(f"the tree {tree_name} is in use: {len(tree.allocations)} consumers are allocated")
            forest = self._book.forest_of(tree_name)
            if forest:
                raise QuotaError(f"the tree {tree_name} belongs to the forest {forest}")
            with self._book.transaction("delete-tree", tree_name) as tx:
                remove(self._book.trees, tx, tree_name)
            del self._caches[tree_name]

    def get_tree_cache(self, tree_name: str) -> TreeCache:
        """The editable copy of a tree; ``update_tree`` puts it in force."""
        with self._lock:
            self._book.tree(tree_name)
            return self._caches[tree_name]

    def get_tree_state(self, tree_name: str) -> dict[str, NodeState]:
        """The present state of each node by name, parents before their children."""
        with self._lock:
            return states_of(self._book.tree(tree_name))

    # Allocation on one tree

    def allocate(self, tree_name: str, consumer_id: str) -> AllocationResponse:
        """Allocate a consumer on one tree that it names."""
        with self._lock:
            return allocate_on_tree(self._book, tree_name, consumer_id, False)

    def try_allocate(self, tree_name: str, consumer_id: str) -> AllocationResponse:
        """As ``allocate``; the response's token undoes it."""
        with self._lock:
            return allocate_on_tree(self._book, tree_name, consumer_id, True)

    def undo_allocate(self, token: Token) -> None:
        """Undo a try exactly: once, and only while the trees are as it left them (else ``StaleTokenError``)."""
        with self._lock:
            undo(self._book, token)

    def deallocate(self, tree_name: str, consumer_id: str) -> bool:
        """Release a consumer from one tree; False if it is not allocated there."""
        with self._lock:
            self._book.tree(tree_name)
            claim = self._book.ledger.state.claims.get(consumer_id)
            held = [] if claim is None else [one for one in held_requests(claim) if one.tree == tree_name]
            if held and held[0].forest:
                raise QuotaError(f"the consumer {consumer_id} is allocated on the forest {held[0].forest}")
            return deallocate(self._book, consumer_id, [one.tree for one in held], "")

    def is_allocated(self, tree_name: str, consumer_id: str) -> bool:
        """Whether the consumer is allocated on the tree, by itself or through a forest."""
        with self._lock:
            return consumer_id in self._book.tree(tree_name).allocations

    # Updates

    def update_tree(self, tree_name: str, dry_run: bool = False) -> Report:
        """Put the tree's cache in force; a dry run only reports what that would do."""
        with self._lock:
            self._book.tree(tree_name)
            return update(self._book, self._caches, [tree_name], dry_run)[0]

    def update_forest(self, forest_name: str, dry_run: bool = False) -> list[Report]:
        """Put the caches of all trees of a forest in force, in one transaction."""
        with self._lock:
            return update(self._book, self._caches, list(self._book.forest(forest_name)), dry_run)

    def update_all(self, dry_run: bool = False) -> list[Report]:
        """Put the caches of all trees in force, in one transaction."""
        with self._lock:
            return update(self._book, self._caches, self.get_tree_names(), dry_run)

    # Forests

    def add_forest(self, forest_name: str) -> None:
        """Add a forest without trees."""
        if not forest_name or not forest_name.isprintable():
            raise QuotaError(f"{forest_name!r:.60} is not the name of a forest")
        with self._lock:
            if self._book.ledger.state.cell(FORESTS, forest_name) is not None:
                raise QuotaError(f"there is a forest {forest_name} already")
            self._set_forest(forest_name, ())

    def delete_forest(self, forest_name: str) -> None:
        """Delete a forest on which no consumer is allocated; its trees stay."""
        with self._lock:
            self._check_unused(forest_name, self._book.forest(forest_name))
            self._set_forest(forest_name, None)

    def add_tree_to_forest(self, forest_name: str, tree_name: str) -> None:
        """Add a tree to a forest; a tree belongs to one forest at most."""
        with self._lock:
            trees = self._book.forest(forest_name)
            self._book.tree(tree_name)
            present = self._book.forest_of(tree_name)
            if present:
                raise QuotaError(f"the tree {tree_name} belongs to the forest {present} already")
            self._set_forest(forest_name, tuple(sorted((*trees, tree_name))))

    def delete_tree_from_forest(self, forest_name: str, tree_name: str) -> None:
        """Take a tree out of a forest, if no consumer is allocated on it through the forest."""
        with self._lock:
            trees = self._book.forest(forest_name)
            if tree_name not in trees:
                raise QuotaError(f"the forest {forest_name} has no tree {tree_name}")
            self._check_unused(forest_name, (tree_name,))
            self._set_forest(forest_name, tuple([tree for tree in trees if tree != tree_name]))

    def allocate_forest(self, forest_name: str, consumer_id: str) -> AllocationResponse:
        """Allocate a consumer on all trees that both it and the forest name, or on none."""
        with self._lock:
            return allocate_on_forest(self._book, forest_name, consumer_id, False)

    def try_allocate_forest(self, forest_name: str, consumer_id: str) -> AllocationResponse:
        """As ``allocate_forest``; the response's token undoes it."""
        with self._lock:
            return allocate_on_forest(self._book, forest_name, consumer_id, True)

    def undo_allocate_forest(self, token: Token) -> None:
        """The same as ``undo_allocate``."""
        self.undo_allocate(token)

    def deallocate_forest(self, forest_name: str, consumer_id: str) -> bool:
        """Release a consumer from all trees of a forest; False if it is not allocated on the forest."""
        with self._lock:
            self._book.forest(forest_name)
            return deallocate(self._book, consumer_id, self._book.held_through(consumer_id, forest_name), forest_name)

    def is_allocated_forest(self, forest_name: str, consumer_id: str) -> bool:
        """Whether the consumer is allocated on the forest."""
        with self._lock:
            self._book.forest(forest_name)
            return bool(self._book.held_through(consumer_id, forest_name))

    def _check_unused(self, forest: str, trees: tuple[str, ...]) -> None:
        for name in trees:
            for allocation in self._book.tree(name).allocations.values():
                if allocation.request.forest == forest:
                    raise QuotaError(f"the forest {forest} is in use: {allocation.claim.uid} is allocated on it")

    def _set_forest(self, name: str, trees: tuple[str, ...] | None) -> None:
        with self._book.transaction("forest", name) as tx:
            tx.put(NAME, FORESTS, name, trees)
