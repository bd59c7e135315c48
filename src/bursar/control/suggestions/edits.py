"""Suggested edits: the largest requests with which a pod would be admitted, and the smallest raise of its quotas.

A request may stand in several fields, which are edited together. Bisection over trials finds the largest amount that is
admitted. Plugins state which fields hold requests and limits. Where a policy states none, its account is raised.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from bursar.control.suggestions.trial import Attempt, Edit, Raise, Trials, number
from bursar.ledger.claims import Claim
from bursar.policies.fix_fields import LimitField, Path, look_up
from bursar.policies.plugin import Registry
from bursar.policies.results import Refusal
from bursar.resources import dimension

RequestField = tuple[str, Path, int]  # (pod, path, amount)


@dataclass(frozen=True, slots=True)
class RequestedAmount:
    """One amount that pods request, and the fields that hold it."""

    resource: str
    fields: tuple[RequestField, ...]

    @property
    def amount(self) -> int:
        return max(amount for _, _, amount in self.fields)

    def edits(self, least: int) -> tuple[Edit, ...]:
        """Reduce every request above ``least`` to it."""
        return tuple(
            Edit("Pod", pod, path, self.show(amount), self.show(least))
            for pod, path, amount in self.fields
            if amount > least
        )

    def show(self, amount: int) -> str:
        return dimension(self.resource).show(amount)


def requested_amounts(trials: Trials) -> list[RequestedAmount]:
    """The requests of the claims: of the resources that were refused, or all if no refusal names one."""
    found: dict[str, list[RequestField]] = {}
    for claim in trials.entry:
        body = trials.pod(claim)
        for resource, fields in [] if body is None else _asked(trials.registry, claim, body):
            found.setdefault(resource, []).extend(fields)
    every = [RequestedAmount(resource, tuple(fields)) for resource, fields in sorted(found.items()) if fields]
    named = [refusal.resource for refusal in trials.refusals]
    names = {resource if "/" in resource else resource.rpartition(".")[2] for resource in named}
    return [asked for asked in every if asked.resource in names] or every


def _asked(registry: Registry, claim: Claim, body: Mapping[str, Any]) -> Iterator[tuple[str, list[RequestField]]]:
    """The annotations that hold requests, then the fields of the container that requests most of a resource."""
    for resource, names in (pair for plugin in registry for pair in plugin.fixes.requests.items()):
        yield resource, _amounts(claim, body, resource, [("metadata", "annotations", name) for name in names])
    count = len(look_up(body, ("spec", "containers")) or ())
    sides: list[Path] = [
        ("spec", "containers", index, "resources", side) for index in range(count) for side in ("requests", "limits")
    ]
    for resource in dict.fromkeys(name for side in sides for name in look_up(body, side) or ()):
        fields = _amounts(claim, body, resource, [(*side, resource) for side in sides])
        if fields:
            container = max(fields, key=itemgetter(2))[1][:3]
            yield resource, [field for field in fields if field[1][:3] == container]


def _amounts(claim: Claim, body: Mapping[str, Any], resource: str, paths: Iterable[Path]) -> list[RequestField]:
    """The fields at these paths that hold an amount."""
    found = ((path, number(resource, look_up(body, path))) for path in paths)
    return [(claim.key, path, amount) for path, amount in found if amount is not None]


def largest_each(
    trials: Trials, found: Sequence[RequestedAmount], guesses: dict[str, int]
) -> Iterator[list[tuple[RequestedAmount, int]]]:
    """Each request alone, where reducing it alone helps; else all of them together."""
    alone = False
    for asked in found:
        least = largest(trials, asked, (), guesses.get(asked.resource))
        if least is not None:
            alone = True
            yield [(asked, least)]
    if alone or len(found) < 2:
        return
    reduced = {asked.resource: 1 for asked in found}
    for asked in found:
        others = tuple(edit for other in found if other is not asked for edit in other.edits(reduced[other.resource]))
        least = largest(trials, asked, others, guesses.get(asked.resource), most=asked.amount)
        if least is None:
            return
        reduced[asked.resource] = least
    yield [(asked, reduced[asked.resource]) for asked in found if reduced[asked.resource] < asked.amount]


def largest(
    trials: Trials, asked: RequestedAmount, others: tuple[Edit, ...], guess: int | None, most: int | None = None
) -> int | None:
    """The largest amount from one unit to ``most`` with which the claims are admitted; None if one unit is not."""

    def admits(amount: int) -> bool:
        return trials.admits(Attempt((*others, *asked.edits(amount))))

    low, high = 1, asked.amount - 1 if most is None else most  # low is admitted, above high nothing is
    if high < low or not admits(low):
        return None
    for probe in () if guess is None else (guess, guess + 1):  # a good guess is the answer
        if low < probe <= high:
            low, high = (probe, high) if admits(probe) else (low, probe - 1)
    return high - bisect_left(range(high, low, -1), True, key=admits)


def limit_fields(trials: Trials, refusal: Refusal) -> list[LimitField] | None:
    """The fields that hold the limit that refused, or None if the policy states none."""
    for plugin in trials.registry:
        if plugin.name == refusal.policy and plugin.fixes.limits is not None:
            return list(plugin.fixes.limits(trials.source, trials.entry[0], refusal))
    return None


ROUNDS = 6

FieldKey = tuple[str, str, Path]  # (kind, key, path)
Raised = dict[FieldKey, tuple[LimitField, int]]
Accounts = dict[tuple[str, str], Raise]


def smallest_raise(trials: Trials) -> Attempt | None:
    """The smallest raise of the quotas that refuse; None if raising quotas does not help.

    Each round raises what refused in the one before, because one quota may hide another.
    """
    raised: Raised = {}
    accounts: Accounts = {}
    for _ in range(ROUNDS):
        result = trials.attempt(_raising(trials, raised, accounts))
        if result.admitted:
            _smallest(trials, raised, accounts)
            return _raising(trials, raised, accounts) if raised or accounts else None
        before = (dict(raised), dict(accounts))
        for refusal in result.refusals:
            _add(trials, refusal, raised, accounts)
        if before == (raised, accounts):
            return None
    return None


def _add(trials: Trials, refusal: Refusal, raised: Raised, accounts: Accounts) -> None:
    """Raise the limit that refused to what is used and requested together."""
    wanted, used = number(refusal.resource, refusal.requested), number(refusal.resource, refusal.used) or 0
    if wanted is None:
        return
    found = limit_fields(trials, refusal)
    if found is None:
        account = trials.engine.state.accounts.get(refusal.account)
        if account is not None and not account.physical and refusal.resource in account.limits.listed:
            accounts[refusal.account, refusal.resource] = Raise(refusal.account, refusal.resource, used + wanted)
        return
    for limit in found:
        place = (limit.kind, limit.key, limit.path)
        # A member of a gang comes on top of those before it.
        known = raised[place][1] + wanted if place in raised else 0
        free = (number(refusal.resource, refusal.limit) or 0) - used
        target = max(limit.amount + wanted - free if limit.shared else used + wanted, known)
        if target > limit.amount:
            raised[place] = (limit, target)


def _smallest(trials: Trials, raised: Raised, accounts: Accounts) -> None:
    """Raise each of them as little as possible, given the others."""
    for place, (limit, target) in list(raised.items()):

        def enough(amount: int, place: FieldKey = place, limit: LimitField = limit) -> bool:
            return trials.admits(_raising(trials, {**raised, place: (limit, amount)}, accounts))

        least = bisect_left(range(target), True, lo=limit.amount, key=enough)
        if least > limit.amount:
            raised[place] = (limit, least)
        else:
            del raised[place]


def raise_sentence(wanted: Attempt) -> str:
    parts = [
        f"{edit.field} of {edit.kind.partition('.')[0]} {edit.key} from {edit.before or 0} to {edit.after}"
        for edit in wanted.edits
    ]
    parts.extend(
        f"{one.resource} of {one.account} to {dimension(one.resource).show(one.amount)}" for one in wanted.raised
    )
    return f"raise {', and '.join(parts)}"


def _raising(trials: Trials, raised: Raised, accounts: Accounts) -> Attempt:
    edits: list[Edit] = []
    for limit, target in raised.values():
        body = trials.source.get(limit.kind, limit.key)
        value = limit.value(target)
        if target > limit.amount:
            edits.append(Edit(limit.kind, limit.key, limit.path, look_up(body, limit.path), value))
        most = look_up(body, limit.ceiling) if limit.ceiling else None
        ceiling = None if most is None else number(limit.resource, most)
        if ceiling is not None and ceiling < target:
            edits.append(Edit(limit.kind, limit.key, limit.ceiling, most, value))
    return Attempt(tuple(edits), raised=tuple(accounts.values()))
