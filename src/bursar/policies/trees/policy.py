"""The trees policy of the engine: a claim counts in every quota tree that it names, or it does not run.

A pod names its group in tree T by the label ``quota.bursar.dev/T``; all trees that it names are its forest. The rules
are those of the library (``allocation``, ``slide_down``, ``refresh``). The engine decides for all policies which claims
may be displaced, and evicts the victims. So ``charge`` allocates a claim only if no other has to leave, and ``victims``
names those of a whole allocation, which is tried and rolled back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast, final

from bursar.ledger.claims import PENDING, Binding, Claim
from bursar.ledger.state import State
from bursar.ledger.transaction import Transaction
from bursar.objects.decode import or_nearest
from bursar.policies.placement_kit import NodeIndex
from bursar.policies.policy import NeedsSource, QuotaPolicy
from bursar.policies.results import Check, Output, Refusal, Setting, SettingError
from bursar.policies.rights import NEVER_NAMED
from bursar.policies.trees.allocation import Allocator, lowest_fit
from bursar.policies.trees.model import Trees
from bursar.policies.trees.preemption import needed_at_root
from bursar.policies.trees.records import (
    NAME,
    TreeBody,
    TreeRequest,
    bound_requests,
    names_trees,
    problem,
    spec_requests,
)
from bursar.policies.trees.refresh import refresh, remove, replace_binding
from bursar.policies.trees.refusals import group_refusal, quota_refusal, topics, tree_check
from bursar.policies.trees.slide_down import slide_down
from bursar.policies.trees.status import TreeStatusWriter
from bursar.policies.trees.tree_nodes import TreeAllocation, TreeNode

KIND: Final = "trees.QuotaTree"


@final
class TreesPolicy(QuotaPolicy):
    """Quota trees."""

    def __init__(self) -> None:
        super().__init__(NAME, (KIND,))
        self.trees: Trees = Trees(self.state)
        self.status: Final = TreeStatusWriter()

    def attach(self, state: State, nodes: NodeIndex, needs_of: NeedsSource | None = None) -> None:
        super().attach(state, nodes, needs_of)
        self.trees = Trees(state)
        self.status.touched = self.owner_rules.follow()

    def cell_changed(self, table: str, key: str, old: object, new: object) -> None:
        self.trees.cell_changed(table, key, old, new)
        self.status.touch(table, key)

    # Settings

    def configure(self, tx: Transaction, setting: Setting) -> list[str]:
        """Apply or remove a tree; returns the counted claims that name it and have no allocation in it."""
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
        return self._unallocated(name)

    def _unallocated(self, tree: str) -> list[str]:
        allocations = self.trees.by_name[tree].allocations
        found: list[str] = []
        for uid in sorted(self.state.claims):
            claim = self.state.claims[uid]
            if claim.counts() and uid not in allocations and tree in [request.tree for request in spec_requests(claim)]:
                found.append(uid)
        return found

    # One claim

    def concerns(self, claim: Claim) -> bool:
        return names_trees(claim)

    def bind(self, claim: Claim, place: str) -> Binding | Refusal | None:
        if not names_trees(claim):
            return None
        requests: list[TreeRequest] = []
        for request in spec_requests(claim):
            tree = self.trees.by_name.get(request.tree)
            if tree is None:
                note = f"there is no quota tree {request.tree}{or_nearest(request.tree, sorted(self.trees.by_name))}"
                return Refusal(NAME, "trees.unknown-tree", note, f"{NAME}/{request.tree}", permanent=True)
            wrong = group_refusal(tree, request.group)
            if wrong is not None:
                return wrong
            requests.append(request.changed(request.group, tree.counted(request.cost), ""))
        return self.trees.binding(requests) if requests else None

    def bind_anyway(self, claim: Claim, place: str, old: Binding | None) -> Binding | None:
        """It counts in the trees that know its group, and keeps its request of those that do not any more."""
        held = {request.tree: request for request in bound_requests(old)}
        requests: list[TreeRequest] = []
        for request in spec_requests(claim):
            tree = self.trees.by_name.get(request.tree)
            if tree is not None and group_refusal(tree, request.group) is None:
                requests.append(request.changed(request.group, tree.counted(request.cost), ""))
            elif request.tree in held:
                known = held[request.tree]
                cost = request.cost if tree is None else tree.counted(request.cost)
                requests.append(known.changed(known.group, cost, known.forest))
        return self.trees.binding(requests) if requests else None

    def charge(self, tx: Transaction, claim: Claim, binding: Binding, forced: bool) -> Refusal | None:
        mark = tx.savepoint()
        replace_binding(tx, claim, binding)
        requests = list(bound_requests(binding))
        if forced:
            for request in requests:
                self._force(tx, claim, request)
            return None
        gentle = Allocator(self.trees, tx, claim, False)
        if gentle.run(requests):
            return None
        whole = Allocator(self.trees, tx, claim)
        if not whole.run(requests):
            tx.rollback_to(mark)
            return self._refusal(requests, whole)
        if not whole.victims:
            return None
        tx.rollback_to(mark)
        return self._refusal(requests, gentle)

    def _refusal(self, requests: list[TreeRequest], attempt: Allocator) -> Refusal:
        """The refusal of the tree that refused. A change of any other tree of the claim may lead to other victims."""
        failed = cast("TreeRequest", attempt.failed)
        others: list[str] = []
        for request in requests:
            if request is not failed:
                others.extend(topics(self.trees.by_name[request.tree], request))
        return quota_refusal(attempt, failed).listening(tuple(others))

    def _force(self, tx: Transaction, claim: Claim, request: TreeRequest) -> None:
        """Charge the claim on the lowest node that fits; if none does, as high as it may borrow, over the quota."""
        tree = self.trees.by_name.get(request.tree)
        if tree is None or tree.root is None or claim.uid in tree.allocations:
            return
        group = tree.nodes.get(request.group)
        node = lowest_fit(group, request.cost)
        if node is None:
            node = tree.root if group is None else _highest(group)
        self.trees.enter(tx, tree, claim, request.cost, node)

    def release(self, tx: Transaction, claim: Claim, binding: Binding) -> None:
        self.trees.leave_all(tx, claim, [request.tree for request in bound_requests(binding)])

    def recharge(self, tx: Transaction, claim: Claim, old: Binding, new: Binding, forced: bool) -> Refusal | None:
        """Move the claim to another binding. Unchanged requests keep their node, and resized ones where they fit."""
        mark = tx.savepoint()
        before = {request.tree: request for request in bound_requests(old)}
        fresh: list[TreeRequest] = []
        resized: list[tuple[TreeRequest, TreeRequest, TreeAllocation]] = []
        for request in bound_requests(new):
            held = before.pop(request.tree, None)
            allocation = self.trees.allocation(request.tree, claim.uid)
            if held is None or allocation is None:
                fresh.append(request)
            elif held.entry() != request.entry():
                self.trees.leave_all(tx, claim, [request.tree])
                if held.group == request.group:
                    resized.append((request, held, allocation))
                else:
                    fresh.append(request)
        self.trees.leave_all(tx, claim, list(before))
        replace_binding(tx, claim, new)
        for request, held, allocation in resized:
            if forced or _fits_grown(allocation.node, request, held):
                tree = self.trees.by_name[request.tree]
                self.trees.enter(tx, tree, claim, request.cost, allocation.node, allocation.stamp)
            else:
                fresh.append(request)
        if forced:
            for request in fresh:
                self._force(tx, claim, request)
            return None
        attempt = Allocator(self.trees, tx, claim, False)
        if attempt.run(fresh):
            return None
        refusal = self._refusal(fresh, attempt)
        tx.rollback_to(mark)
        return refusal

    def needs_all(self, claim: Claim, binding: Binding, victims: list[Claim]) -> bool:
        """A claim counts in the root wherever it is, so what the root lacks can only be freed by claims that leave."""
        needed: set[str] = set()
        for request in bound_requests(binding):
            tree = self.trees.by_name.get(request.tree)
            if tree is not None and tree.root is not None:
                needed.update(needed_at_root(tree, tree.root, request.cost, victims))
        return len(needed) == len(victims)

    def victims(self, tx: Transaction, claim: Claim, binding: Binding, refusal: Refusal) -> Iterator[Claim]:
        """The victims of a whole allocation, which asks the engine in advance whom it lets go.

        One that the engine does not evict now is protected in the next: victims before it may have used up a budget.
        """
        protected: frozenset[str] = frozenset()
        known = -1
        while known < len(protected):
            known = len(protected)
            for victim in self._find_victims(tx, claim, binding, protected):
                yield victim
                if victim.counts():
                    protected |= {victim.uid}
                    break

    def node_victims_topics(self, claim: Claim) -> tuple[str, ...]:
        """A group that has room displaces no claim; once others took the room, it takes back what it lent."""
        bound = self.bind(claim, "")  # what it was bound to when it came may be of trees that were not there yet
        return self.topics_of(bound) if isinstance(bound, Binding) else ()

    def topics_of(self, binding: Binding) -> tuple[str, ...]:
        found: list[str] = []
        for request in bound_requests(binding):
            tree = self.trees.by_name.get(request.tree)
            found.extend(() if tree is None else topics(tree, request))
        return tuple(found)

    def over_quota(self, claim: Claim) -> bool:
        """Whether it sits above its group in a tree."""
        for request in bound_requests(claim.binding_of(NAME)):
            allocation = self.trees.allocation(request.tree, claim.uid)
            if allocation is not None and allocation.group is not allocation.node:
                return True
        return False

    def standing(self, claim: Claim, binding: Binding, victim: Claim) -> int:
        """The stamp of its allocation on the claim's path. Claims of other types, or elsewhere, never have to leave."""
        for request in bound_requests(binding):
            allocation = self.trees.allocation(request.tree, victim.uid)
            if allocation is None or allocation.request.kind != request.kind:
                continue
            group = self.trees.by_name[request.tree].nodes.get(request.group)
            at = -1 if group is None else group.depth - allocation.node.depth
            if group is not None and at >= 0 and (group if at == 0 else group.above[at - 1]) is allocation.node:
                return allocation.stamp
        return NEVER_NAMED

    def _find_victims(self, tx: Transaction, claim: Claim, binding: Binding, protected: frozenset[str]) -> list[Claim]:
        """The claims that a whole allocation would preempt; the allocation is rolled back."""
        mark = tx.savepoint()
        tx.set_bindings(claim, (binding,))
        attempt = Allocator(self.trees, tx, claim, True, self.eviction_rules, protected)
        attempt.run(list(bound_requests(binding)))
        tx.rollback_to(mark)
        return [victim.claim for victim in attempt.victims]

    def settle(self, tx: Transaction) -> None:
        slide_down(self.trees, tx)
        self.trees.origins.clear()

    # Answers

    def explain(self, claim: Claim, binding: Binding) -> Check:
        children: list[Check] = []
        waiting = claim.state == PENDING
        for request in bound_requests(binding):
            tree = self.trees.by_name.get(request.tree)
            allocation = self.trees.allocation(request.tree, claim.uid)
            if allocation is not None:
                children.append(
                    Check(f"tree {request.tree}", True, f"group {request.group}, counts on {allocation.node.name}")
                )
            elif tree is not None:
                passed = not waiting or lowest_fit(tree.nodes.get(request.group), request.cost) is not None
                children.append(tree_check(tree, request, passed))
        failed = [child for child in children if not child.passed]
        return Check(NAME, not failed, "", tuple(children))

    def outputs(self, now: int) -> list[Output]:
        return self.status.outputs(self.trees, self.nodes, self.owner_rules)


def _fits_grown(node: TreeNode, request: TreeRequest, held: TreeRequest) -> bool:
    """Whether the cost fits from the node up where it grew. What the claim held is released already."""
    for account in node.accounts:
        for dim in account.missing(request.cost).indices():
            if request.cost.get(dim) > held.cost.get(dim):
                return False
    return True


def _highest(group: TreeNode) -> TreeNode:
    """The highest node from which a claim of the group may borrow."""
    node = group
    while node.parent is not None and not node.hard:
        node = node.parent
    return node
