"""Asking for less: the amounts that a pod asks for, and the largest ones with which it would get in now.

An amount is a *knob*: the fields of the manifest that say it, turned together. The largest amount is found by
bisection over tries: it gets in, and one unit more does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bursar.control.edits import Body, Edit, Path, look_up
from bursar.control.trying import Attempt, Tries
from bursar.dimensions import dimension
from bursar.ledger.claims import Claim
from bursar.policies.tensorfusion import worker
from bursar.quantity import QuantityError

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


def knobs(tries: Tries) -> list[Knob]:
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


def largest_each(tries: Tries, found: Sequence[Knob], guesses: dict[str, int]) -> Iterator[list[tuple[Knob, int]]]:
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
    tries: Tries, knob: Knob, others: tuple[Edit, ...], guess: int | None, most: int | None = None
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
