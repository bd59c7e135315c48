"""Runtime coming down: one branch distributes what it has among its children.

All of them are looked at together, but only in the resources in which an input differs from the one used last: a change
that was taken back in between costs nothing. The arithmetic is that of ``rounds``, or of ``sharing`` where numbers are
too large for it.
"""

from __future__ import annotations

from mypy_extensions import i64

from bursar.policies.pools.branch import Branch
from bursar.policies.pools.rounds import Sharing
from bursar.policies.pools.sharing import Trace, distribute


def share_out(branch: Branch) -> list[Branch]:
    """Distribute what it has among its children; returns those whose runtime changed."""
    changed: list[Branch] = []
    for slot in stale_slots(branch):
        _share_slot(branch, slot, changed)
    for child in branch.touches:
        child.touched = False
    branch.touches.clear()
    branch.whole = False
    branch.stale = False
    return changed


def stale_slots(branch: Branch) -> list[int]:
    """In which resources it must distribute anew."""
    if branch.whole:
        return list(range(len(branch.own)))
    found: list[int] = []
    for slot in range(len(branch.own)):
        differs = branch.shared[slot] != branch.runtime[slot]
        if not differs:
            for child in branch.touches:
                if child.seen_lim[slot] != child.lim[slot] or int(child.seen_base[slot]) != child.base(slot):
                    differs = True
                    break
        if differs:
            found.append(slot)
    return found


def _share_slot(branch: Branch, number: int, changed: list[Branch]) -> None:
    slot = i64(number)
    sharing = Sharing()
    total = branch.runtime[slot]
    branch.shared[slot] = total
    for child in branch.children:
        lim = child.lim[slot]
        base = child.minima[slot]
        kept = child.guaranteed[slot]
        if kept > base:  # noqa: PLR1730 - max() of 64-bit integers boxes them
            base = kept
        child.seen_lim[slot] = lim
        child.seen_base[slot] = base
        sharing.add(lim, lim if child.lends and lim < base else base, child.weights[slot])
    if not sharing.fits(total) or not sharing.run(total):
        _share_huge(branch, number, changed)
        return
    branch.scaled[number] = total < sharing.needed
    grants = sharing.grants
    for at, child in enumerate(branch.children):
        if child.runtime[slot] != grants[at]:
            child.runtime[slot] = grants[at]
            _note(child, changed)


def _share_huge(branch: Branch, slot: int, changed: list[Branch]) -> None:
    """The same in integers of any size."""
    trace = Trace()
    children = branch.children
    found = distribute(
        int(branch.runtime[slot]),
        [int(child.lim[slot]) for child in children],
        [child.base(slot) for child in children],
        [int(child.weights[slot]) for child in children],
        [child.lends for child in children],
        trace,
    )
    branch.scaled[slot] = trace.scaled
    for i in range(len(children)):
        if int(children[i].runtime[slot]) != found[i]:
            children[i].runtime[slot] = i64(found[i])
            _note(children[i], changed)


def _note(child: Branch, changed: list[Branch]) -> None:
    if not child.moved:
        child.moved = True
        changed.append(child)
