"""The operations of the library: allocate, undo, deallocate and update, each one transaction.

The caller holds the manager's lock. An operation does all it says, or raises and changes nothing.
"""

from __future__ import annotations

from bursar.ledger.claims import Claim
from bursar.policies.results import Refusal
from bursar.policies.trees.allocation import Allocator
from bursar.policies.trees.library_ledger import NORMAL, TreeLedger
from bursar.policies.trees.model import QuotaTreeModel
from bursar.policies.trees.records import NAME, TreeRequest, held_requests, renamed_spec
from bursar.policies.trees.refresh import over_quota, refresh
from bursar.policies.trees.refusals import group_refusal, quota_refusal, tree_check
from bursar.policies.trees.responses import AllocationResponse, QuotaError, Report, StaleTokenError, Token
from bursar.policies.trees.slide_down import slide_down
from bursar.policies.trees.tree_cache import TreeCache


def allocate_on_tree(book: TreeLedger, tree: str, consumer: str, trying: bool) -> AllocationResponse:
    """Allocate what the consumer requests of one tree."""
    book.tree(tree)
    claim = book.claim(consumer)
    requests = [request for request in book.requests(claim) if request.tree == tree]
    if not requests:
        raise QuotaError(f"the consumer {consumer} does not name the tree {tree}")
    return _allocate(book, claim, requests, (), "", trying)


def allocate_on_forest(book: TreeLedger, forest: str, consumer: str, trying: bool) -> AllocationResponse:
    """Allocate what the consumer requests of the trees of a forest; its other trees are skipped."""
    trees = book.forest(forest)
    claim = book.claim(consumer)
    requests = book.requests(claim)
    inside = [request for request in requests if request.tree in trees]
    skipped = tuple([request.tree for request in requests if request.tree not in trees])
    return _allocate(book, claim, inside, skipped, forest, trying)


def _allocate(
    book: TreeLedger, claim: Claim, requests: list[TreeRequest], skipped: tuple[str, ...], forest: str, trying: bool
) -> AllocationResponse:
    uid = claim.uid
    if trying and book.mode() != NORMAL:
        raise QuotaError("a try needs normal mode; the manager is in maintenance mode")
    _check(book, claim, requests)
    token = Token(uid) if trying else None
    if not requests:
        refusal = Refusal(NAME, "trees.outside", f"the consumer names no tree of the forest {forest}")
        return AllocationResponse(uid, False, refusals=(refusal,), skipped=skipped, token=token)
    before = dict(book.versions) if trying else {}
    operation = book.transaction("allocate", uid, forest)
    with operation:
        bound = book.bind(claim, requests, forest)
        attempt = book.allocate(claim, bound)
        if attempt.failed is not None:
            operation.abort()
            return _refused(book, claim, bound, attempt, attempt.failed, skipped, token)
    if token is not None:
        watched = {*_watched(book, bound, forest), *operation.trees}
        token.complete(operation.changes, watched, before, book.versions)
    places = tuple([(one.tree, book.trees.by_name[one.tree].allocations[uid].node.name) for one in bound])
    preempted = tuple([victim.claim.uid for victim in attempt.victims])
    warnings = _warnings(book, requests, bound)
    return AllocationResponse(uid, True, places, preempted, book.moves(uid), (), (), skipped, token, warnings)


def _check(book: TreeLedger, claim: Claim, requests: list[TreeRequest]) -> None:
    held = [request.tree for request in held_requests(claim)]
    for request in requests:
        if request.tree in held:
            raise QuotaError(f"the consumer {claim.uid} is allocated on the tree {request.tree} already")
        wrong = group_refusal(book.tree(request.tree), request.group)
        if wrong is not None and wrong.reason == "trees.unknown-group":
            raise QuotaError(f"the consumer {claim.uid}: {wrong.sentence()}")


def _warnings(book: TreeLedger, requests: list[TreeRequest], bound: list[TreeRequest]) -> tuple[str, ...]:
    """The requested resources that a tree does not count."""
    found: list[str] = []
    for i, request in enumerate(requests):
        if len(bound[i].cost) != len(request.cost):
            counted = book.tree(request.tree).body.resources
            names = [name for name in request.cost.names() if name not in counted]
            found.extend([f"the tree {request.tree} does not count {name}" for name in names])
    return tuple(found)


def _refused(
    book: TreeLedger,
    claim: Claim,
    bound: list[TreeRequest],
    attempt: Allocator,
    failed: TreeRequest,
    skipped: tuple[str, ...],
    token: Token | None,
) -> AllocationResponse:
    refusal = quota_refusal(attempt, failed)
    checks = tuple(
        [tree_check(book.tree(one.tree), one, one is not failed, refusal if one is failed else None) for one in bound]
    )
    return AllocationResponse(claim.uid, False, (), (), (), (refusal,), checks, skipped, token)


# Undo


def _watched(book: TreeLedger, bound: list[TreeRequest], via: str) -> set[str]:
    """All trees of the forests that these requests concern: a change of any of them makes the token stale."""
    names: set[str] = set()
    for request in bound:
        forest = via or book.forest_of(request.tree)
        names.add(request.tree)
        names.update(book.forest(forest) if forest else ())
    return names


def undo(book: TreeLedger, token: Token) -> None:
    """Undo a try by a transaction of its own; refused if that would not be exact."""
    if token.used:
        raise StaleTokenError(f"the try of {token.consumer_id} was undone already")
    for name in sorted(token.after):
        if book.versions.get(name, 0) != token.after[name]:
            raise StaleTokenError(f"the tree {name} changed since the try of {token.consumer_id}")
    if not book.is_as_left(token.changes):
        raise StaleTokenError(f"consumers that the try of {token.consumer_id} concerns changed since")
    if token.changes:
        with book.transaction("undo", token.consumer_id) as tx:
            tx.undo(token.changes)
        book.versions.update(token.before)
    token.used = True


# Release


def deallocate(book: TreeLedger, consumer: str, trees: list[str], forest: str) -> bool:
    """Release the consumer from these trees; False if there are none."""
    if not trees:
        return False
    claim = book.claim(consumer)
    with book.transaction("deallocate", consumer, forest):
        book.release(claim, trees)
        if not claim.bindings:
            book.history.departed(claim, False)
    return True


# Update


def update(book: TreeLedger, caches: dict[str, TreeCache], names: list[str], dry_run: bool) -> list[Report]:
    """Put the caches of these trees in force; a dry run only reports what that would do."""
    bodies = {name: caches[name].body() for name in names}
    lost: dict[str, tuple[str, ...]] = {}
    operation = book.transaction("update", *names)
    with operation as tx:
        for name in names:
            renames = caches[name].renames()
            _rename_groups(book, name, renames)
            lost[name] = refresh(book.trees, tx, name, bodies[name], renames)
        for name in names:
            for uid in lost[name]:
                _release_all(book, name, uid)
        if dry_run:
            slide_down(book.trees, tx)
            reports = _reports(book, lost)
            operation.abort()
            return reports
    for name in names:
        caches[name].refreshed(bodies[name])
        book.versions[name] = book.ledger.version  # an update counts as a change even if it found none
    return _reports(book, lost)


def _rename_groups(book: TreeLedger, tree: str, renames: dict[str, str]) -> None:
    """Let the consumers that name a renamed group name it by its new name, allocated or not."""
    claims = book.ledger.state.claims
    for uid in sorted(claims) if renames else ():
        spec = renamed_spec(claims[uid], tree, renames)
        if spec is not None:
            book.tx.set_spec(claims[uid], spec)


def _release_all(book: TreeLedger, tree: str, uid: str) -> None:
    """Release a consumer that lost its allocation in one tree from all trees of the forest that it was allocated on."""
    claim = book.claim(uid)
    for request in held_requests(claim):
        if request.tree == tree:
            book.release(claim, book.held_through(uid, request.forest) if request.forest else [tree])


def _reports(book: TreeLedger, lost: dict[str, tuple[str, ...]]) -> list[Report]:
    moved: dict[str, list[tuple[str, str, str]]] = {}
    for move in book.moves():
        moved.setdefault(move.tree, []).append((move.consumer_id, move.source, move.target))
    return [report(book.tree(name), tuple(moved.get(name, [])), uids) for name, uids in lost.items()]


def report(tree: QuotaTreeModel, moved: tuple[tuple[str, str, str], ...], lost: tuple[str, ...]) -> Report:
    root = "" if tree.root is None else tree.root.name
    return Report(tree.name, root, tree.dangling, moved, lost, over_quota(tree), tree.warnings())
