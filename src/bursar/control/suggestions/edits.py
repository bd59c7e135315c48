"""Asking for less: the amounts that a pod asks for, and the largest ones with which it would get in now.

An amount is a *knob*: the fields of the manifest that say it, turned together. The largest amount is found by
bisection over tries: it gets in, and one unit more does not.

Raising quotas: which of them, and to what at least, so that a claim that waits gets in.

Which fields of which manifests hold the limit that a refusal names, for the policies whose manifests are known here.

A refusal names an account; the manifest behind it is found by the account's name. Where several quotas bind at the
same account, all that are too small are given. A policy that is not listed has no fields: its account is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from bursar.control.suggestions.trial import Attempt, Body, Edit, ManifestSource, Path, Raise, Trials, look_up, number
from bursar.ledger.claims import Claim
from bursar.policies.elastic import settings as elastic
from bursar.policies.gpus import worker
from bursar.policies.pools import settings as pools
from bursar.policies.results import Refusal
from bursar.quantity import QuantityError
from bursar.resources import dimension

_ANNOTATIONS = ("metadata", "annotations")
_ANNOTATED = (
    ("tflops", (worker.TFLOPS_REQUEST, worker.TFLOPS_LIMIT)),
    ("vram", (worker.VRAM_REQUEST, worker.VRAM_LIMIT)),
    ("gpus", (worker.GPU_COUNT,)),
)


@dataclass(frozen=True, slots=True)
class Knob:
    """One amount that pods ask for: where it stands in each of them, and how much it is."""

    resource: str
    fields: tuple[tuple[str, Path, int], ...]  # (pod, path, amount)

    @property
    def amount(self) -> int:
        return max(amount for _, _, amount in self.fields)

    def edits(self, least: int) -> tuple[Edit, ...]:
        """Nobody asks for more than that."""
        show = dimension(self.resource).show
        return tuple(
            Edit("Pod", pod, path, show(amount), show(least)) for pod, path, amount in self.fields if amount > least
        )


def knobs(tries: Trials) -> list[Knob]:
    """The amounts that the claims ask for: those that were refused, or all if no refusal says which."""
    found: dict[str, list[tuple[str, Path, int]]] = {}
    for claim in tries.unit:
        body = tries.pod(claim)
        for resource, fields in [] if body is None else _asked(claim, body):
            found.setdefault(resource, []).extend(fields)
    every = [Knob(resource, tuple(fields)) for resource, fields in sorted(found.items())]
    names = {refusal.resource.rpartition(".")[2] if "/" not in refusal.resource else refusal.resource
             for refusal in tries.refusals}  # fmt: skip
    refused = [knob for knob in every if knob.resource in names]
    return refused or every


def _asked(claim: Claim, body: Body) -> Iterator[tuple[str, list[tuple[str, Path, int]]]]:
    annotations = look_up(body, _ANNOTATIONS) or {}
    for resource, names in _ANNOTATED:
        fields: list[tuple[str, Path, int]] = [
            (claim.key, (*_ANNOTATIONS, name), amount)
            for name in names
            if name in annotations and (amount := _amount(resource, annotations[name])) is not None
        ]
        if fields:
            yield resource, fields
    yield from _of_containers(claim, body)


def _of_containers(claim: Claim, body: Body) -> Iterator[tuple[str, list[tuple[str, Path, int]]]]:
    """Of the container that asks for most of a resource."""
    largest: dict[str, tuple[int, int]] = {}
    fields: dict[tuple[str, int], list[tuple[str, Path, int]]] = {}
    for index in range(len(look_up(body, ("spec", "containers")) or ())):
        for side in ("requests", "limits"):
            path: Path = ("spec", "containers", index, "resources", side)
            for resource, value in (look_up(body, path) or {}).items():
                amount = _amount(resource, value)
                if amount is not None:
                    fields.setdefault((resource, index), []).append((claim.key, (*path, resource), amount))
                    largest[resource] = max(largest.get(resource, (0, 0)), (amount, -index))
    for resource, (_, index) in largest.items():
        yield resource, fields[resource, -index]


def _amount(resource: str, value: object) -> int | None:
    try:
        return dimension(resource).parse(value)
    except QuantityError:
        return None


def largest_each(tries: Trials, found: Sequence[Knob], guesses: dict[str, int]) -> Iterator[list[tuple[Knob, int]]]:
    """Each knob for itself, where turning it alone helps; else all of them together."""
    alone = False
    for knob in found:
        least = largest(tries, knob, (), guesses.get(knob.resource))
        if least is not None:
            alone = True
            yield [(knob, least)]
    if alone or len(found) < 2:
        return
    turned = {knob.resource: 1 for knob in found}
    for knob in found:
        others = tuple(edit for other in found if other is not knob for edit in other.edits(turned[other.resource]))
        least = largest(tries, knob, others, guesses.get(knob.resource), most=knob.amount)
        if least is None:
            return
        turned[knob.resource] = least
    yield [(knob, turned[knob.resource]) for knob in found if turned[knob.resource] < knob.amount]


def largest(
    tries: Trials, knob: Knob, others: tuple[Edit, ...], guess: int | None, most: int | None = None
) -> int | None:
    """The largest amount from one unit to ``most`` with which the claims get in; None: not even one unit does."""

    def admits(amount: int) -> bool:
        return tries.admits(Attempt((*others, *knob.edits(amount))))

    low, high = 1, knob.amount - 1 if most is None else most  # low gets in, above high nothing does
    if high < low or not admits(low):
        return None
    for probe in (guess, None if guess is None else guess + 1):  # a good guess is right at the edge
        if probe is not None and low < probe <= high:
            low, high = (probe, high) if admits(probe) else (low, probe - 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if admits(middle) else (low, middle - 1)
    return low


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


Find = Callable[[ManifestSource, Claim, Refusal], Iterator[Holder]]


def holders(desk: ManifestSource, claim: Claim, refusal: Refusal) -> list[Holder] | None:
    """The fields that hold what was refused; None: nobody here knows the manifests of that policy."""
    find = _FIND.get(refusal.policy)
    return None if find is None else list(find(desk, claim, refusal))


def _limits(desk: ManifestSource, claim: Claim, refusal: Refusal) -> Iterator[Holder]:
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


def _elastic(desk: ManifestSource, claim: Claim, refusal: Refusal) -> Iterator[Holder]:
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


def _pools(desk: ManifestSource, _claim: Claim, refusal: Refusal) -> Iterator[Holder]:
    name = refusal.account.split("/")[2] if refusal.account.count("/") >= 2 else ""
    side = "max" if refusal.reason.startswith("pools.max.") else "min"
    for body in desk.applied_all(pools.QUOTA_OBJECT):
        if look_up(body, ("metadata", "name")) == name:
            ceiling: Path = ("spec", "max", refusal.resource) if side == "min" else ()
            path = ("spec", side, refusal.resource)
            yield from _held(pools.QUOTA_OBJECT, body, path, refusal.resource, ceiling=ceiling)


def _trees(desk: ManifestSource, _claim: Claim, refusal: Refusal) -> Iterator[Holder]:
    tree, _, node = refusal.account.removeprefix("trees/").partition("/")
    body = desk.applied(_TREE, tree)
    if body is not None:
        yield from _held(_TREE, body, ("spec", "nodes", node, "quota", refusal.resource), refusal.resource)


def _physical(_desk: ManifestSource, _claim: Claim, _refusal: Refusal) -> Iterator[Holder]:
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


ROUNDS = 6

Raised = dict[tuple[str, str, Path], tuple[Holder, int]]
Accounts = dict[tuple[str, str], Raise]


def smallest_raise(tries: Trials) -> tuple[Attempt, str] | None:
    """The smallest raise of the quotas that refuse, until none does; and a sentence. None: that is not what it takes.

    Each round raises what refused in the one before: one quota may stand behind another.
    """
    raised: Raised = {}
    accounts: Accounts = {}
    for _ in range(ROUNDS):
        verdict = tries.attempt(_raising(tries, raised, accounts))
        if verdict.admitted:
            _smallest(tries, raised, accounts)
            found = _raising(tries, raised, accounts)
            return (found, _sentence(found)) if raised or accounts else None
        before = (dict(raised), dict(accounts))
        for refusal in verdict.refusals:
            _add(tries, refusal, raised, accounts)
        if before == (raised, accounts):
            return None
    return None


def _add(
    tries: Trials,
    refusal: Refusal,
    raised: Raised,
    accounts: Accounts,
) -> None:
    """Raise what refused to what is used and wanted together."""
    wanted, used = number(refusal.resource, refusal.requested), number(refusal.resource, refusal.used) or 0
    if wanted is None:
        return
    found = holders(tries.desk, tries.unit[0], refusal)
    if found is None:
        account = tries.engine.state.accounts.get(refusal.account)
        if account is not None and not account.physical and refusal.resource in account.limits.listed:
            accounts[refusal.account, refusal.resource] = Raise(refusal.account, refusal.resource, used + wanted)
        return
    for holder in found:
        place = (holder.kind, holder.key, holder.path)
        # A member of a group comes on top of those before it.
        known = raised[place][1] + wanted if place in raised else 0
        free = (number(refusal.resource, refusal.limit) or 0) - used
        target = max(holder.amount + wanted - free if holder.shared else used + wanted, known)
        if target > holder.amount:
            raised[place] = (holder, target)


def _smallest(tries: Trials, raised: Raised, accounts: Accounts) -> None:
    """Each of them as little as it can be, given the others."""
    for place, (holder, target) in list(raised.items()):
        low, high = holder.amount, target
        while low < high:
            middle = (low + high) // 2
            enough = tries.admits(_raising(tries, {**raised, place: (holder, middle)}, accounts))
            low, high = (low, middle) if enough else (middle + 1, high)
        if high > holder.amount:
            raised[place] = (holder, high)
        else:
            del raised[place]


def _sentence(wanted: Attempt) -> str:
    parts = [
        f"{edit.field} of {edit.kind.partition('.')[0]} {edit.key} from {edit.before or 0} to {edit.after}"
        for edit in wanted.edits
    ]
    parts.extend(
        f"{one.resource} of {one.account} to {dimension(one.resource).show(one.amount)}" for one in wanted.raised
    )
    return f"raise {', and '.join(parts)}"


def _raising(
    tries: Trials,
    raised: Raised,
    accounts: Accounts,
) -> Attempt:
    edits: list[Edit] = []
    for holder, target in raised.values():
        body = tries.desk.applied(holder.kind, holder.key)
        value = holder.value(target)
        if target > holder.amount:
            edits.append(Edit(holder.kind, holder.key, holder.path, look_up(body, holder.path), value))
        most = look_up(body, holder.ceiling) if holder.ceiling else None
        ceiling = None if most is None else number(holder.resource, most)
        if ceiling is not None and ceiling < target:
            edits.append(Edit(holder.kind, holder.key, holder.ceiling, most, value))
    return Attempt(tuple(edits), raised=tuple(accounts.values()))
