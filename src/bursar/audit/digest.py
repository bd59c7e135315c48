"""The digest of a ledger's state, computed again from its definition: the sum of a number for each of its parts.

All numbers are pairs of residues. Usage counts linearly (account x amounts); everything else is mixed non-linearly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce
from hashlib import blake2b
from typing import Any

import msgspec

LANES = ((2147483647, 48271, 69621, 16807), (2147483629, 40692, 39373, 30845))  # a prime each, and its factors
SPEC, CELL, ACCOUNT, LIMITS, BINDING = 16, 17, 18, 19, 32  # kinds of facts; fields of a claim have their own number
Fact = tuple[int, int, int]  # what it is about, kind, value
Book = dict[str, Any]


def total(facts: list[Fact], usage: int = 0) -> list[int]:
    """The number of a part of the state; a value of 0 is no fact."""
    found = []
    for prime, one, two, three in LANES:
        mixed = [((key * one + kind * two + value) % prime, value) for key, kind, value in facts if value]
        found.append((usage + sum(each * each * three + value * each for each, value in mixed)) % prime)
    return found


class Spec:
    """What matters of what a claim asks for: there are many claims."""

    __slots__ = ("group", "mark", "preemptible")

    def __init__(self, content: Book) -> None:
        self.mark = mark(msgspec.json.encode(content, order="deterministic")) or 1
        self.preemptible, self.group = content.get("preemptible", True), content.get("group")


def claim_number(_: str, claim: Book, accounts: dict[str, Book]) -> list[int]:
    key, bindings = claim["mark"], msgspec.json.decode(claim["bindings"])
    place = mark(claim["place"]) if claim["place"] else 0
    leaving = mark("True") if claim["leaving"] else 0
    waits = mark(ascii(tuple(claim["waits"]))) if claim["waits"] else 0
    fields = enumerate((claim["state"], place, leaving, waits))
    bound = [(key, BINDING + i, binding_mark(binding, accounts)) for i, binding in enumerate(bindings) if binding]
    return total([(key, SPEC, claim["spec"].mark), *((key, field, value) for field, value in fields), *bound])


def account_number(name: str, account: Book, _: object) -> list[int]:
    key, listed = account["mark"], dict(sorted(account["limits"].items()))
    limits = mark(ascii((listed, account["stock"]))) if listed or account["stock"] else 0
    usage = key * weight(account["used"]) + mark(f"busy {name}") * weight(account["busy"])
    return total([(key, ACCOUNT, 1), (key, LIMITS, limits)], usage)


def cell_number(key: tuple[str, str], value: object, _: object) -> list[int]:
    return total([(plain_mark([*key, value]), CELL, 1)])


def binding_mark(binding: list[Any], accounts: dict[str, Book]) -> int:
    policy, names, costs, data = binding
    start = plain_mark([policy, data]) if data else mark(policy)
    steps = [(accounts[name]["mark"], weight(cost)) for name, cost in each_cost(names, costs)]
    return both(lambda prime, one, two: reduce(lambda a, b: (a * one + b[0]) * two + b[1], steps, start) % prime)


def each_cost(names: list[str], costs: list[Book]) -> list[tuple[str, Book]]:
    """Accounts with their costs; one cost stands for all of them."""
    return list(zip(names, costs * len(names) if len(costs) == 1 else costs, strict=True))


def weight(amounts: Book) -> int:
    return sum(mark(name) * amount for name, amount in amounts.items())


def plain_mark(value: object) -> int:
    """The number of a cell or of a binding's data, by arithmetic alone."""
    if value is None or isinstance(value, bool):
        return 1 if value is None else 2 if value else 3
    if isinstance(value, str):
        return text_mark(value)
    if isinstance(value, int) and abs(value) >= 2**60:
        return text_mark(str(value))
    if isinstance(value, dict):
        return both(lambda prime, *_: pow(weight(value), 5, prime))
    if isinstance(value, int):
        number = value + 1013904223
        return both(lambda prime, factor, _: pow(pow(number, 5, prime) * factor + 1, 5, prime))
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not plain")
    return row_mark([1664525 + len(value), *map(plain_mark, value)])


@lru_cache(maxsize=65536)
def text_mark(text: str) -> int:
    return row_mark([22695477 + len(text), *map(ord, text)])


def row_mark(numbers: list[int]) -> int:
    """The numbers as the factors of a polynomial."""
    return both(lambda prime, factor, _: pow(reduce(lambda a, b: (a * factor + b) % prime, numbers), 5, prime))


def both(residue: Callable[[int, int, int], int]) -> int:
    """What is worked out in each lane, as one number."""
    first, second = (residue(*lane[:3]) for lane in LANES)
    return first * LANES[1][0] + second


@lru_cache(2**16)
def mark(text: str | bytes) -> int:
    """A stable number for a text."""
    data = text.encode() if isinstance(text, str) else text
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") & (2**62 - 1)
