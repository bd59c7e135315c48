"""Whether a claim fits the quota of a GPU node, and what its idle GPUs keep back: one node, with all numbers.

A quota is exceeded when used + wanted is more than it, for a resource that the claim wants any of. A reserve is
touched when what all claims use, what is wanted, and the reserve of each idle GPU together are more than the node
has. Quotas are looked at first, in the order in which they are configured.
"""

from __future__ import annotations

from bursar.dimensions import Dimension, dimension
from bursar.ledger.accounts import Account
from bursar.limits import UNLIMITED
from bursar.policies.checks import Check, Refusal
from bursar.policies.crossquota.index import Index
from bursar.policies.crossquota.names import GPUS, NAME, PREFIX, QUOTA_REASON, RESERVE, RESERVE_REASON, TOPIC
from bursar.policies.crossquota.quotas import Facts
from bursar.vectors import EMPTY, Vector


def judge(index: Index, facts: Facts, wanted: Vector, had: Vector) -> list[Refusal]:
    """Everything that refuses the claim on this node, if it comes, or grows from ``had``."""
    if not facts.is_gpu_node():
        return []
    found: list[Refusal] = []
    account = index.state.accounts.get(PREFIX + facts.name)
    for quota in facts.quotas:
        resource = dimension(quota.resource)
        amount = wanted.get(resource.index)
        used = _used(account, resource)
        if amount > had.get(resource.index) and used + amount > quota.cap:
            found.append(_quota_refusal(facts, resource, amount, used, quota.cap, quota.source))
    for name in sorted(index.arguments.reserves):
        resource = dimension(name)
        if wanted.get(resource.index) > had.get(resource.index):
            refusal = _reserve_refusal(index, facts, resource, wanted.get(resource.index))
            if refusal is not None:
                found.append(refusal)
    return found


def first(index: Index, facts: Facts | None, wanted: Vector, had: Vector) -> Refusal | None:
    """The binding one of the refusals."""
    found = [] if facts is None else judge(index, facts, wanted, had)
    return found[0] if found else None


def _used(account: Account | None, resource: Dimension) -> int:
    return 0 if account is None else account.used.get(resource.index)


def _quota_refusal(facts: Facts, resource: Dimension, amount: int, used: int, cap: int, source: str) -> Refusal:
    show = resource.show
    note = (
        f"{resource.name} quota exceeded on GPU node {facts.name}: pods without a GPU use {show(used)} of "
        f"{show(cap)}, {show(amount)} more are wanted ({source})"
    )
    numbers = (show(amount), show(used), show(cap))
    return _refusal(QUOTA_REASON, note, PREFIX + facts.name, resource.name, numbers, facts.name)


def _reserve_refusal(index: Index, facts: Facts, resource: Dimension, amount: int) -> Refusal | None:
    cap = facts.allocatable.get(resource.index)
    account = index.state.accounts.get(PREFIX + facts.name + RESERVE)
    used = _used(account, resource)
    idle = max(facts.gpus - _used(account, dimension(GPUS)), 0)
    kept = idle * index.arguments.reserves[resource.name]
    if cap == UNLIMITED or used + amount + kept <= cap:
        return None
    show = resource.show
    note = (
        f"{idle} idle GPUs of node {facts.name} keep {show(kept)} {resource.name}: of {show(cap)} there are "
        f"{show(used)} in use, {show(amount)} more are wanted"
    )
    numbers = (show(amount), show(used), show(cap))
    return _refusal(RESERVE_REASON, note, PREFIX + facts.name + RESERVE, resource.name, numbers, facts.name)


def _refusal(reason: str, note: str, account: str, resource: str, numbers: tuple[str, str, str], place: str) -> Refusal:
    wanted, used, limit = numbers
    return Refusal(NAME, reason + resource, note, account, resource, wanted, used, limit, False, (TOPIC,), place)


def node_check(index: Index, facts: Facts, wanted: Vector, counted: bool) -> Check:
    """One node for people: for each resource its quota, what is used of it, and where the quota comes from."""
    account = index.state.accounts.get(PREFIX + facts.name)
    parts: list[str] = []
    for quota in facts.quotas:
        resource = dimension(quota.resource)
        cap = "unlimited" if quota.cap == UNLIMITED else resource.show(quota.cap)
        asked = "" if counted else f"{resource.show(wanted.get(resource.index))} wanted, "
        used = resource.show(_used(account, resource))
        parts.append(f"{resource.name} {asked}{used} of {cap} in use ({quota.source})")
    refusals = [] if counted else judge(index, facts, wanted, EMPTY)
    children = tuple([Check.of_refusal(refusal) for refusal in refusals])
    reason = refusals[0].reason if refusals else ""
    return Check(PREFIX + facts.name, not refusals, "; ".join([*parts, *facts.problems]), children, reason)


def survey(index: Index, wanted: Vector, shown: int) -> Check:
    """Where a claim without a place may go, over all nodes: GPU nodes by name, the first ``shown`` of them in full."""
    others = 0
    nodes: list[Facts] = []
    for facts in index.facts:
        if facts is None:
            continue
        if facts.is_gpu_node():
            nodes.append(facts)
        else:
            others += 1
    nodes.sort(key=_name)
    closed = [facts for facts in nodes if judge(index, facts, wanted, EMPTY)]
    children = [node_check(index, facts, wanted, False) for facts in nodes[:shown]]
    open_now = len(nodes) - len(closed)
    note = f"{open_now} of {len(nodes)} GPU nodes have quota for it, {others} nodes have no GPU and no quota"
    passed = open_now + others > 0
    return Check(NAME, passed, note, tuple(children), "" if passed or not closed else _reason(index, closed[0], wanted))


def _reason(index: Index, facts: Facts, wanted: Vector) -> str:
    refusal = first(index, facts, wanted, EMPTY)
    return "" if refusal is None else refusal.reason


def _name(facts: Facts) -> str:
    return facts.name
