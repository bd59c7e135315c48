"""Suggested edits: the largest requests with which a pod would be admitted, and the smallest raise of its quotas.

A request is a *knob*: the fields of the manifests that hold it, edited together. Bisection over trials finds the
largest amount that is admitted. Plugins state which fields hold requests and limits; where a policy states none, the
limit of its account is raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bursar.control.suggestions.trial import Attempt, Edit, Raise, Trials, number
from bursar.ledger.claims import Claim
from bursar.policies.fix_fields import LimitField, Path, look_up
from bursar.policies.plugin import Registry
from bursar.policies.results import Refusal
from bursar.quantity import QuantityError
from bursar.resources import dimension

_ANNOTATIONS = ("metadata", "annotations")


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
        for resource, fields in [] if body is None else _asked(tries.registry, claim, body):
            found.setdefault(resource, []).extend(fields)
    every = [Knob(resource, tuple(fields)) for resource, fields in sorted(found.items())]
    names = {refusal.resource.rpartition(".")[2] if "/" not in refusal.resource else refusal.resource
             for refusal in tries.refusals}  # fmt: skip
    refused = [knob for knob in every if knob.resource in names]
    return refused or every


def _asked(
    registry: Registry, claim: Claim, body: Mapping[str, Any]
) -> Iterator[tuple[str, list[tuple[str, Path, int]]]]:
    annotations = look_up(body, _ANNOTATIONS) or {}
    for resource, names in (pair for plugin in registry for pair in plugin.fixes.requests.items()):
        fields: list[tuple[str, Path, int]] = [
            (claim.key, (*_ANNOTATIONS, name), amount)
            for name in names
            if name in annotations and (amount := _amount(resource, annotations[name])) is not None
        ]
        if fields:
            yield resource, fields
    yield from _of_containers(claim, body)


def _of_containers(claim: Claim, body: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, Path, int]]]]:
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


def limit_fields(tries: Trials, refusal: Refusal) -> list[LimitField] | None:
    """The fields that hold the limit that refused, or None if the policy states none."""
    for plugin in tries.registry:
        if plugin.name == refusal.policy and plugin.fixes.limits is not None:
            return list(plugin.fixes.limits(tries.desk, tries.unit[0], refusal))
    return None


ROUNDS = 6

Raised = dict[tuple[str, str, Path], tuple[LimitField, int]]
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
    found = limit_fields(tries, refusal)
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
        body = tries.desk.get(holder.kind, holder.key)
        value = holder.value(target)
        if target > holder.amount:
            edits.append(Edit(holder.kind, holder.key, holder.path, look_up(body, holder.path), value))
        most = look_up(body, holder.ceiling) if holder.ceiling else None
        ceiling = None if most is None else number(holder.resource, most)
        if ceiling is not None and ceiling < target:
            edits.append(Edit(holder.kind, holder.key, holder.ceiling, most, value))
    return Attempt(tuple(edits), raised=tuple(accounts.values()))
