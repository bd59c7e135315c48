"""The trees policy of the engine: a claim counts in every quota tree that it names, or it does not run.

A pod names its group in tree T by the label ``quota.bursar.dev/T``; all trees that it names are its forest. The rules
are those of the library (``plan``, ``sliding``, ``refresh``); what the engine decides for all policies is the engine's:
who may be displaced at all, and what becomes of victims. So ``charge`` seats a claim only if nobody has to leave, and
``victims`` names those of a whole plan, tried and taken back.

Why a tree said no: the refusal with its numbers, and the checks of every node on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast, final

from bursar.ledger.claims import PENDING, Binding, Claim
from bursar.ledger.state import State
from bursar.ledger.transaction import Transaction
from bursar.policies.node_slots import NodeIndex
from bursar.policies.policy import NeedsSource, QuotaPolicy
from bursar.policies.results import Check, Output, Refusal, Setting, SettingError
from bursar.policies.trees.allocation import Allocation, Bar, lowest_fit
from bursar.policies.trees.model import QuotaTreeModel, TreeNode, Trees, account_name
from bursar.policies.trees.records import NAME, Ask, TreeBody, entries, entry_of, names_trees, problem, rows_of
from bursar.policies.trees.refresh import refresh, remove, replace_binding
from bursar.policies.trees.slide_down import slide_down
from bursar.policies.trees.status import Statuses
from bursar.resources import UNLIMITED, dimension_at


def unknown_tree(tree: str) -> Refusal:
    return Refusal(NAME, "trees.unknown-tree", f"there is no quota tree {tree}", f"{NAME}/{tree}", permanent=True)


def unknown_group(tree: str, group: str) -> Refusal:
    note = f"the quota tree {tree} has no group {group}"
    return Refusal(NAME, "trees.unknown-group", note, account_name(tree, group), permanent=True)


def inner_group(tree: str, group: str) -> Refusal:
    note = f"{group} is not a leaf of the quota tree {tree}: a group is one"
    return Refusal(NAME, "trees.inner-group", note, account_name(tree, group), permanent=True)


def misplaced(tree: QuotaTreeModel, group: str) -> Refusal | None:
    """What is wrong with a group, if anything is."""
    node = tree.nodes.get(group)
    if node is None:
        return unknown_group(tree.name, group)
    return None if node.leaf else inner_group(tree.name, group)


def quota_refusal(tree: QuotaTreeModel, ask: Ask, last: TreeNode | None) -> Refusal:
    """The refusal of a claim that found no place: the first node on its way that is short."""
    group = tree.nodes[ask.group]
    if not group.leaf:
        return inner_group(tree.name, ask.group)
    node = _first_short(group, ask, last)
    dim = node.account.short_dimension(ask.cost)
    if dim < 0:
        note = f"node {node.name} of tree {tree.name} could not be cleared for {ask.group}"
        return Refusal(NAME, "trees.quota", note, node.account.name, topics=topics(tree, ask))
    resource = dimension_at(dim)
    limit = node.account.limits.get(dim)
    return Refusal(
        NAME,
        f"trees.quota.{resource.name}",
        "",
        node.account.name,
        resource.name,
        resource.show(ask.cost.get(dim)),
        resource.show(node.account.used.get(dim)),
        "unlimited" if limit == UNLIMITED else resource.show(limit),
        False,
        topics(tree, ask),
    )


def _first_short(group: TreeNode, ask: Ask, last: TreeNode | None) -> TreeNode:
    """The node where the climb ended, unless it has room: then the first below it that has none."""
    if last is not None and not last.fits(ask.cost):
        return last
    node: TreeNode | None = group
    while node is not None:
        if not node.fits(ask.cost):
            return node
        node = node.parent
    return group if last is None else last


def topics(tree: QuotaTreeModel, ask: Ask) -> tuple[str, ...]:
    """A change of any node on the claim's way may help it."""
    group = tree.nodes.get(ask.group)
    return () if group is None else tuple([account.topic for account in group.accounts])


def checks_of(trees: Trees, asks: list[Ask], failed: str) -> tuple[Check, ...]:
    """A check for each tree, with one for each node on the way; ``failed`` is the tree that refused."""
    return tuple([tree_check(trees.by_name[ask.tree], ask, ask.tree != failed) for ask in asks])


def tree_check(tree: QuotaTreeModel, ask: Ask, passed: bool) -> Check:
    children: list[Check] = []
    node = tree.nodes.get(ask.group)
    while node is not None:
        short = node.account.short_dimension(ask.cost)
        refusal = None if short < 0 else Refusal(NAME, f"trees.quota.{dimension_at(short).name}")
        check = Check.of_account(node.account, ask.cost, refusal)
        kind = "hard" if node.hard else "soft"
        note = f"{kind}; {check.note}" if check.note else kind
        children.append(Check(node.name, check.passed, note, (), check.reason))
        node = node.parent
    return Check(f"tree {tree.name}", passed, f"group {ask.group}", tuple(children))


KIND: Final = "trees.QuotaTree"


@final
class _Refused(Bar):
    """Claims that the engine did not let go."""

    def __init__(self) -> None:
        self.uids: Final[set[str]] = set()

    def forbids(self, claimant: Claim, victim: Claim) -> bool:
        return victim.uid in self.uids


_NOBODY: Final = _Refused()


@final
class TreesPolicy(QuotaPolicy):
    """Quota trees."""

    def __init__(self) -> None:
        super().__init__(NAME, (KIND,))
        self.trees: Trees = Trees(self.state)
        self.statuses: Final = Statuses()

    def attach(self, state: State, nodes: NodeIndex, needs_of: NeedsSource | None = None) -> None:
        super().attach(state, nodes, needs_of)
        self.trees = Trees(state)

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        self.trees.cell_changed(table, key, old, new)
        self.statuses.touch(table, key)

    # Settings

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        """A tree came, changed or went. Returns the counted claims that name it and have no seat in it."""
        body = setting.body
        name = setting.key
        if body is None:
            if name in self.trees.by_name:
                remove(self.trees, tx, name)
            return []
        if not isinstance(body, TreeBody):
            raise SettingError(f"QuotaTree {name}", "", "is no quota tree")
        node, what = problem(body)
        if what:
            raise SettingError(f"QuotaTree {name}", f"spec.nodes.{node}", what)
        refresh(self.trees, tx, name, body, {})
        return self._unseated(name)

    def _unseated(self, tree: str) -> list[str]:
        seats = self.trees.by_name[tree].seats
        found: list[str] = []
        for uid in sorted(self.state.claims):
            claim = self.state.claims[uid]
            if claim.counts() and uid not in seats and tree in [row.tree for row in rows_of(claim)]:
                found.append(uid)
        return found

    # One claim

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        if not names_trees(claim):
            return None
        data: list[tuple[object, ...]] = []
        for row in rows_of(claim):
            tree = self.trees.by_name.get(row.tree)
            if tree is None:
                return unknown_tree(row.tree)
            wrong = misplaced(tree, row.group)
            if wrong is not None:
                return wrong
            data.append(entry_of(row, tree.counted(row.request), ""))
        return self.trees.binding(tuple(data)) if data else None

    def _asks(self, binding: Binding) -> list[Ask]:
        return list(self.trees.asks(binding))

    def charge(self, tx: Transaction, claim: Claim, binding: Binding, forced: bool) -> Refusal | None:
        mark = tx.savepoint()
        replace_binding(tx, claim, binding)
        asks = self._asks(binding)
        if forced:
            for ask in asks:
                self._force(tx, claim, ask)
            return None
        gentle = Allocation(self.trees, tx, claim, False, _NOBODY)
        if gentle.run(asks):
            return None
        whole = Allocation(self.trees, tx, claim, True, _NOBODY)
        if whole.run(asks) and not whole.departed:
            return None
        tx.rollback_to(mark)
        return self._refusal(asks, cast("Ask", gentle.failed), gentle.last)

    def _refusal(self, asks: list[Ask], failed: Ask, last: TreeNode | None) -> Refusal:
        """Of the tree that refused; a change of any tree of the claim may help it to other victims."""
        found = quota_refusal(self.trees.by_name[failed.tree], failed, last)
        wider = list(found.topics)
        for ask in asks:
            if ask is not failed:
                wider.extend(topics(self.trees.by_name[ask.tree], ask))
        return Refusal(
            NAME,
            found.reason,
            found.note,
            found.account,
            found.resource,
            found.requested,
            found.used,
            found.limit,
            found.permanent,
            tuple(wider),
        )

    def _force(self, tx: Transaction, claim: Claim, ask: Ask) -> None:
        """Count it where it fits lowest; where it fits nowhere, as high as it may borrow, over the quota."""
        tree = self.trees.by_name.get(ask.tree)
        if tree is None or tree.root is None or claim.uid in tree.seats:
            return
        group = tree.nodes.get(ask.group)
        node = lowest_fit(group, ask.cost)
        if node is None:
            node = tree.root if group is None else _highest(group)
        self.trees.enter(tx, tree, claim, ask.cost, node)

    def release(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        for name in [cast("str", entry[0]) for entry in entries(binding)]:
            tree = self.trees.by_name.get(name)
            seat = None if tree is None else tree.seats.get(claim.uid)
            if tree is not None and seat is not None:
                self.trees.leave(tx, tree, seat)

    def recharge(self, tx: Transaction, claim: Claim, old: Binding, new: Binding, forced: bool) -> Refusal | None:
        """Another binding: what did not change keeps its seat, what only shrinks or fits keeps its node."""
        mark = tx.savepoint()
        refusal: Refusal | None = None
        kept = {entry[0]: entry for entry in entries(old)}
        fresh: list[Ask] = []
        resized: list[tuple[QuotaTreeModel, Ask, TreeNode, int]] = []
        for ask, entry in zip(self._asks(new), entries(new), strict=True):
            before = kept.pop(entry[0], None)
            tree = self.trees.by_name.get(ask.tree)
            seat = None if tree is None else tree.seats.get(claim.uid)
            if seat is None or before is None or tree is None:
                fresh.append(ask)
            elif before != entry:
                self.trees.leave(tx, tree, seat)
                if before[1] == entry[1]:
                    resized.append((tree, ask, seat.node, seat.stamp))
                else:
                    fresh.append(ask)
        self._leave_all(tx, claim, [str(name) for name in kept])
        replace_binding(tx, claim, new)
        for tree, ask, node, stamp in resized:
            if forced or self._fits_grown(node, ask, old):
                self.trees.resume(tx, tree, claim, ask.cost, node, stamp)
            else:
                fresh.append(ask)
        if forced:
            for ask in fresh:
                self._force(tx, claim, ask)
        elif fresh:
            plan = Allocation(self.trees, tx, claim, False, _NOBODY)
            if not plan.run(fresh):
                refusal = self._refusal(fresh, cast("Ask", plan.failed), plan.last)
                tx.rollback_to(mark)
        return refusal

    def _leave_all(self, tx: Transaction, claim: Claim, names: list[str]) -> None:
        for name in names:
            tree = self.trees.by_name.get(name)
            seat = None if tree is None else tree.seats.get(claim.uid)
            if tree is not None and seat is not None:
                self.trees.leave(tx, tree, seat)

    def _fits_grown(self, node: TreeNode, ask: Ask, old: Binding) -> bool:
        """Whether the new cost fits from the node up, in the dimensions in which it grew; the old one is released."""
        before = [one.cost for one in self._asks(old) if one.tree == ask.tree]
        for account in node.accounts:
            for dim in account.missing(ask.cost).indices():
                if ask.cost.get(dim) > before[0].get(dim):
                    return False
        return True

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        """The victims of a whole plan; one that the engine does not let go is left out of the next."""
        held = _Refused()
        known = -1
        while known < len(held.uids):
            known = len(held.uids)
            for victim in self._plan_victims(tx, claim, binding, held):
                yield victim
                if victim.counts():
                    held.uids.add(victim.uid)
                    break

    def _plan_victims(self, tx: Transaction, claim: Claim, binding: Binding, held: _Refused) -> list[Claim]:
        """Whom a whole plan would preempt; the plan is taken back."""
        mark = tx.savepoint()
        tx.set_bindings(claim, (binding,))
        plan = Allocation(self.trees, tx, claim, True, held)
        plan.run(self._asks(binding))
        tx.rollback_to(mark)
        return [departure.claim for departure in plan.departed]

    def settle(self, tx: Transaction) -> None:
        if self.trees.restless:
            slide_down(self.trees, tx)
        self.trees.origins.clear()

    # Answers

    def explain(self, claim: Claim, binding: Binding) -> Check:
        children: list[Check] = []
        waiting = claim.state == PENDING
        for ask in self._asks(binding):
            tree = self.trees.by_name.get(ask.tree)
            seat = None if tree is None else tree.seats.get(claim.uid)
            if seat is not None:
                children.append(Check(f"tree {ask.tree}", True, f"group {ask.group}, sits on {seat.node.name}"))
            elif tree is not None:
                group = tree.nodes.get(ask.group)
                passed = not waiting or (group is not None and lowest_fit(group, ask.cost) is not None)
                children.append(tree_check(tree, ask, passed))
        failed = [child for child in children if not child.passed]
        return Check(NAME, not failed, "", tuple(children))

    def outputs(self, now: int) -> list[Output]:
        return self.statuses.outputs(self.trees)


def _highest(group: TreeNode) -> TreeNode:
    """The highest node that a claim of the group may borrow from."""
    node = group
    while node.parent is not None and not node.hard:
        node = node.parent
    return node
