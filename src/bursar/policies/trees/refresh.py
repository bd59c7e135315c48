"""Refresh: another document takes the place of a tree's present one, and whoever sits in the tree is carried over.

A claim keeps its node if that is still its group or above it; otherwise it moves to its group, or to the root when the
group is gone; it is unallocated when nothing is left of the tree. Nobody is checked against quotas here: what ends up
over its quota is reported. Who stays keeps the stamp, who moves gets a new one, in the old order; requests are counted
anew from what the claims name. Sliding down is the end of the operation, as always.

Updates of the library's trees from their caches: one transaction for all of them, or a dry run.
"""

from __future__ import annotations

from typing import Final, cast, final

from bursar.ledger.claims import Binding, Claim
from bursar.ledger.transaction import Transaction
from bursar.policies.trees.library_ledger import TreeLedger
from bursar.policies.trees.model import SPEC, QuotaTreeModel, Seat, Trees, account_name
from bursar.policies.trees.records import (
    NAME,
    Entry,
    Layout,
    TreeBody,
    TreeNodeBody,
    entries,
    layout,
    regrouped,
    rows_of,
    tree_binding,
)
from bursar.policies.trees.tree_cache import TreeCache
from bursar.resources import UNLIMITED, Limits, dimension


@final
class Report:
    """What a refresh did."""

    __slots__ = ("dangling", "moved", "over", "root", "tree", "unallocated", "warnings")

    def __init__(
        self,
        tree: str,
        root: str,
        dangling: tuple[str, ...],
        moved: tuple[tuple[str, str, str], ...],
        unallocated: tuple[str, ...],
        over: tuple[tuple[str, str, int, int], ...],
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.tree: Final = tree
        self.root: Final = root  # "" when nothing is left of the tree
        self.dangling: Final = dangling
        self.moved: Final = moved  # (id, from, to)
        self.unallocated: Final = unallocated
        self.over: Final = over  # (node, resource, used, quota)
        self.warnings: Final = warnings

    @property
    def clean(self) -> bool:
        return bool(self.root) and not self.dangling

    def plain(self) -> dict[str, object]:
        return {
            "tree": self.tree,
            "root": self.root,
            "dangling": list(self.dangling),
            "moved": [list(move) for move in self.moved],
            "unallocated": list(self.unallocated),
            "over": [list(row) for row in self.over],
            "warnings": list(self.warnings),
        }


@final
class _Carried:
    """One seat on its way into the new tree."""

    __slots__ = ("changed", "entry", "place", "seat", "stays")

    def __init__(self, seat: Seat, entry: Entry, place: str, stays: bool, changed: bool) -> None:
        self.seat: Final = seat
        self.entry: Final = entry  # as it will be
        self.place: Final = place  # "" for none
        self.stays: Final = stays  # on the same node, whatever that is called now
        self.changed: Final = changed  # the seat or what it is read from


def refresh(trees: Trees, tx: Transaction, name: str, body: TreeBody, renames: dict[str, str]) -> tuple[str, ...]:
    """Put a document in force; returns the uids of claims that lost their seat. ``renames``: old name -> new name."""
    old = trees.by_name.get(name)
    found = layout(body)
    carried = [] if old is None else _carry(trees, old, body, found, renames)
    same_paths = old is not None and _paths(old) == _layout_paths(found)
    for one in carried:
        _take_out(trees, tx, name, one, same_paths)
    _open(trees, tx, name, body, found)
    tx.put(NAME, SPEC, name, body.cell())
    tree = trees.by_name[name]
    for one in carried:
        _bring_in(trees, tx, tree, one, same_paths)
    _close(tx, trees, name, old, tree)
    tree.freed.update(tree.nodes)
    trees.stir(tree)
    return tuple([one.seat.claim.uid for one in carried if not one.place])


def remove(trees: Trees, tx: Transaction, name: str) -> None:
    """The tree ends; whoever sits in it no longer does."""
    tree = trees.by_name[name]
    for uid in sorted(tree.seats):
        trees.leave(tx, tree, tree.seats[uid])
    tx.put(NAME, SPEC, name, None)
    for node in tree.nodes.values():
        tx.close_account(node.account)


def over_quota(tree: QuotaTreeModel) -> tuple[tuple[str, str, int, int], ...]:
    """(node, resource, used, quota) wherever more is used than the quota says."""
    found: list[tuple[str, str, int, int]] = []
    for name in sorted(tree.nodes):
        account = tree.nodes[name].account
        for resource, quota in account.limits.listed.items():
            used = account.used.get(dimension(resource).index)
            if quota != UNLIMITED and used > quota:
                found.append((name, resource, used, quota))
    return tuple(found)


def _carry(trees: Trees, old: QuotaTreeModel, body: TreeBody, found: Layout, renames: dict[str, str]) -> list[_Carried]:
    paths = _layout_paths(found)
    parents = {node.parent for node in found.order}
    recount = body.resources != old.body.resources
    carried: list[_Carried] = []
    for seat in sorted(old.seats.values(), key=_stamp):
        group = renames.get(seat.ask.group, seat.ask.group)
        node = renames.get(seat.node.name, seat.node.name)
        place = _place(group, node, found, paths, parents)
        origin = node if node in paths else seat.node.name
        trees.origins.setdefault((old.name, seat.claim.uid), origin)
        before = _entry_of(seat)
        entry = before if group == seat.ask.group and not recount else _new_entry(seat, before, group, body)
        changed = place != seat.node.name or entry != before
        carried.append(_Carried(seat, entry, place, place == node, changed))
    return carried


def _stamp(seat: Seat) -> int:
    return seat.stamp


def _place(group: str, node: str, found: Layout, paths: dict[str, tuple[str, ...]], parents: set[str]) -> str:
    if group not in paths:
        return found.root
    if group not in parents and node in paths[group]:
        return node
    return group


def _entry_of(seat: Seat) -> Entry:
    """The claim's entry for the tree in which it sits."""
    for entry in entries(tree_binding(seat.claim)):
        if entry[0] == seat.ask.tree:
            return entry
    raise ValueError(f"{seat.claim.uid} sits in {seat.ask.tree} without a binding to it")


def _new_entry(seat: Seat, before: Entry, group: str, body: TreeBody) -> Entry:
    """The same, with its group's new name, and counted anew from what the claim names."""
    counted = seat.ask.cost
    for row in rows_of(seat.claim):
        if row.tree == seat.ask.tree:
            counted = row.request.only(body.resources)
    ask = seat.ask
    return (ask.tree, group, ask.priority, ask.kind, ask.pinned, counted, before[6])


def _take_out(trees: Trees, tx: Transaction, tree: str, one: _Carried, same_paths: bool) -> None:
    seat = one.seat
    changed = one.changed
    if changed or not same_paths:
        tx.release(seat.claim, seat.node.accounts, seat.node.costs(seat.ask.cost))
    if changed:
        tx.put(NAME, trees.by_name[tree].table, seat.claim.uid, None)
        if one.place:
            _set_entry(trees, tx, seat.claim, one.entry)


def _bring_in(trees: Trees, tx: Transaction, tree: QuotaTreeModel, one: _Carried, same_paths: bool) -> None:
    if not one.place:
        return
    claim = one.seat.claim
    node = tree.nodes[one.place]
    changed = one.changed
    if changed and one.stays:
        tx.put(NAME, tree.table, claim.uid, (node.name, one.seat.stamp))
    elif changed:
        trees.arrive(tx, tree, claim.uid, node)
    if changed or not same_paths:
        tx.charge(claim, node.accounts, node.costs(tree.seats[claim.uid].ask.cost))


def _set_entry(trees: Trees, tx: Transaction, claim: Claim, new: Entry) -> None:
    """Replace the claim's entry for one tree in its binding."""
    data = tuple([new if entry[0] == new[0] else entry for entry in entries(tree_binding(claim))])
    replace_binding(tx, claim, trees.binding(data))


def replace_binding(tx: Transaction, claim: Claim, new: Binding) -> None:
    """Make sure that the claim has this binding of the policy: seats are read from it.

    When a claim is bound anew, the engine writes all bindings after the last policy has counted it. A claim that had
    no binding here keeps the new one in a free slot until then.
    """
    bindings = list(claim.bindings)
    slot = -1
    for i in range(len(bindings)):
        binding = bindings[i]
        if binding is not None and binding.policy == NAME:
            slot = i
            break
        if binding is None and slot < 0:
            slot = i
    if slot < 0:
        bindings.append(new)
    elif bindings[slot] is new:
        return
    else:
        bindings[slot] = new
    tx.set_bindings(claim, tuple(bindings))


def _paths(tree: QuotaTreeModel) -> dict[str, tuple[str, ...]]:
    return {node.name: (node.name, *[above.name for above in node.above]) for node in tree.nodes.values()}


def _layout_paths(found: Layout) -> dict[str, tuple[str, ...]]:
    paths: dict[str, tuple[str, ...]] = {}
    for node in found.order:
        paths[node.name] = (node.name, *paths[node.parent]) if node.parent else (node.name,)
    return paths


def _open(trees: Trees, tx: Transaction, tree: str, body: TreeBody, found: Layout) -> None:
    for node in found.order:
        name = account_name(tree, node.name)
        account = trees.state.accounts.get(name)
        if account is None:
            account = tx.open_account(NAME, name)
        tx.set_limits(account, _limits(body, node))


def _limits(body: TreeBody, node: TreeNodeBody) -> Limits:
    return Limits(body.limits(node))


def _close(tx: Transaction, trees: Trees, name: str, old: QuotaTreeModel | None, new: QuotaTreeModel) -> None:
    for node in () if old is None else old.nodes.values():
        if node.name not in new.nodes:
            tx.close_account(trees.state.accounts[account_name(name, node.name)])


@final
class Updater:
    """Puts caches in force."""

    __slots__ = ("book", "caches")

    def __init__(self, book: TreeLedger) -> None:
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
