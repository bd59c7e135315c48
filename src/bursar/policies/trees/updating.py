"""Updates of the library's trees from their caches: one transaction for all of them, or a dry run."""

from __future__ import annotations

from typing import Final, cast, final

from bursar.policies.trees.asks import entries, tree_binding
from bursar.policies.trees.book import Book
from bursar.policies.trees.cache import TreeCache
from bursar.policies.trees.consumer import regrouped
from bursar.policies.trees.refresh import Report, over_quota, refresh


@final
class Updater:
    """Puts caches in force."""

    __slots__ = ("book", "caches")

    def __init__(self, book: Book) -> None:
        self.book: Final = book
        self.caches: Final[dict[str, TreeCache]] = {}

    def update(self, names: list[str], dry_run: bool) -> list[Report]:
        """Put the caches of these trees in force; returns a report for each."""
        book = self.book
        bodies = {name: self.caches[name].body() for name in names}
        lost: dict[str, tuple[str, ...]] = {}
        try:
            book.ledger.begin()
            for name in names:
                renames = self.caches[name].renames()
                self._regroup(name, renames)
                lost[name] = refresh(book.trees, book.tx, name, bodies[name], renames)
            for name in names:
                for uid in lost[name]:
                    self._drop_out(name, uid)
            if dry_run:
                book.slide()
                return self._reports(names, lost)
            record = book.commit(("update", *names))
        finally:
            book.end()
        for name in names:
            self.caches[name].refreshed(bodies[name])
            book.versions[name] = record.seq  # an update counts as a change, whether it found one or not
        return self._reports(names, lost)

    def _regroup(self, tree: str, renames: dict[str, str]) -> None:
        """Consumers that name a renamed group name it by its new name from now on, allocated or not."""
        claims = self.book.ledger.state.claims
        for uid in sorted(claims) if renames else ():
            spec = regrouped(claims[uid], tree, renames)
            if spec is not None:
                self.book.tx.set_spec(claims[uid], spec)

    def _drop_out(self, tree: str, uid: str) -> None:
        """A consumer that lost its seat in one tree of a forest leaves all trees of the forest."""
        claim = self.book.claim(uid)
        held = entries(tree_binding(claim))
        for entry in held:
            if entry[0] == tree:
                forest = entry[6]
                both = [cast("str", other[0]) for other in held if forest and other[6] == forest]
                self.book.let_go(claim, both or [tree])

    def _reports(self, names: list[str], lost: dict[str, tuple[str, ...]]) -> list[Report]:
        moved: dict[str, list[tuple[str, str, str]]] = {}
        for move in self.book.moves(""):
            moved.setdefault(move.tree, []).append((move.consumer_id, move.source, move.target))
        return [self.report(name, lost[name], tuple(moved.get(name, []))) for name in names]

    def report(self, name: str, lost: tuple[str, ...] = (), moved: tuple[tuple[str, str, str], ...] = ()) -> Report:
        tree = self.book.tree(name)
        root = "" if tree.root is None else tree.root.name
        return Report(name, root, tree.dangling, moved, lost, over_quota(tree), tree.warnings())
