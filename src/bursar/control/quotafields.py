"""Which fields of which manifests hold the limit that a refusal names, for the policies whose manifests are known here.

A refusal names an account; the manifest behind it is found by the account's name. Where several quotas bind at the
same account, all that are too small are given. A policy that is not listed has no fields: its account is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from bursar.control.edits import Path, look_up
from bursar.control.trying import Desk
from bursar.dimensions import dimension
from bursar.ledger.claims import Claim
from bursar.policies.checks import Refusal
from bursar.policies.elastic import names as elastic
from bursar.policies.pools import names as pools
from bursar.quantity import QuantityError

_GPU_QUOTA = "GPUResourceQuota.tensor-fusion.ai"
_TREE = "QuotaTree.bursar.dev"


@dataclass(frozen=True, slots=True)
class Holder:
    """A field of a manifest that holds a limit, what it says now, and what must not be less than it."""

    kind: str
    key: str
    path: Path
    resource: str
    amount: int
    whole: bool = False  # a plain number, not a quantity
    ceiling: Path = ()  # another field of the object that has to be at least as large, if it is there
    shared: bool = False  # what refused is a sum to which this field adds

    def value(self, amount: int) -> object:
        return amount if self.whole else dimension(self.resource).show(amount)


Find = Callable[[Desk, Claim, Refusal], Iterator[Holder]]


def holders(desk: Desk, claim: Claim, refusal: Refusal) -> list[Holder] | None:
    """The fields that hold what was refused; None: nobody here knows the manifests of that policy."""
    find = _FIND.get(refusal.policy)
    return None if find is None else list(find(desk, claim, refusal))


def _limits(desk: Desk, claim: Claim, refusal: Refusal) -> Iterator[Holder]:
    single = refusal.reason.startswith("single.")
    side, _, resource = refusal.resource.partition(".")
    path: Path
    if refusal.resource == "workers":
        path, resource, whole = ("spec", "total", "maxWorkers"), "workers", True
    elif refusal.resource == "gpus":
        path, resource, whole = ("spec", "single", "maxGPUCount"), "gpus", True
    elif single:
        path, whole = ("spec", "single", f"max{side.capitalize()}", resource), False
    else:
        path, whole = ("spec", "total", side, resource), False
    for body in desk.applied_all(_GPU_QUOTA):
        if look_up(body, ("metadata", "namespace")) == claim.namespace:
            yield from _held(_GPU_QUOTA, body, path, resource, whole=whole)


def _elastic(desk: Desk, claim: Claim, refusal: Refusal) -> Iterator[Holder]:
    account = refusal.account
    if account == elastic.TOTAL:
        account = _own_account(claim, elastic.NAME)
    id_, _, suffix = account.removeprefix(elastic.PREFIX).partition("#")
    kind, _, key = id_.partition("/")
    side = "max" if refusal.account != elastic.TOTAL and not suffix else "min"
    body = desk.applied(f"{kind}.{elastic.GROUP}", key)
    if body is not None:
        ceiling: Path = ("spec", "max", refusal.resource) if side == "min" else ()
        path = ("spec", side, refusal.resource)
        for holder in _held(f"{kind}.{elastic.GROUP}", body, path, refusal.resource, ceiling=ceiling):
            yield replace(holder, shared=refusal.account == elastic.TOTAL)


def _pools(desk: Desk, _claim: Claim, refusal: Refusal) -> Iterator[Holder]:
    name = refusal.account.split("/")[2] if refusal.account.count("/") >= 2 else ""
    side = "max" if refusal.reason.startswith("pools.max.") else "min"
    for body in desk.applied_all(pools.QUOTA_OBJECT):
        if look_up(body, ("metadata", "name")) == name:
            ceiling: Path = ("spec", "max", refusal.resource) if side == "min" else ()
            path = ("spec", side, refusal.resource)
            yield from _held(pools.QUOTA_OBJECT, body, path, refusal.resource, ceiling=ceiling)


def _trees(desk: Desk, _claim: Claim, refusal: Refusal) -> Iterator[Holder]:
    tree, _, node = refusal.account.removeprefix("trees/").partition("/")
    body = desk.applied(_TREE, tree)
    if body is not None:
        yield from _held(_TREE, body, ("spec", "nodes", node, "quota", refusal.resource), refusal.resource)


def _physical(_desk: Desk, _claim: Claim, _refusal: Refusal) -> Iterator[Holder]:
    """Nodes and GPUs have what they have."""
    return iter(())


def _held(
    kind: str, body: dict[str, object], path: Path, resource: str, *, whole: bool = False, ceiling: Path = ()
) -> Iterator[Holder]:
    value = look_up(body, path)
    namespace, name = look_up(body, ("metadata", "namespace")), look_up(body, ("metadata", "name"))
    if value is None and path[1] != "min":
        return  # what is not listed is not limited
    try:
        amount = 0 if value is None else int(value) if whole else dimension(resource).parse(value)
    except QuantityError:
        return
    yield Holder(kind, f"{namespace}/{name}" if namespace else name, path, resource, amount, whole, ceiling)


def _own_account(claim: Claim, policy: str) -> str:
    for binding in claim.bindings:
        if binding is not None and binding.policy == policy:
            return binding.accounts[0].name
    return ""


_FIND: dict[str, Find] = {
    "limits": _limits,
    "elastic": _elastic,
    "pools": _pools,
    "trees": _trees,
    "nodes": _physical,
    "gpus": _physical,
    "crossquota": _physical,
}
