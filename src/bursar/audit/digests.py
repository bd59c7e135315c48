"""The digest of a ledger's state, worked out anew from its definition: two residues that each change moves.

Usage counts linearly (account x amounts), so equal digests mean equal sums; everything else is mixed non-linearly.
"""

from __future__ import annotations

from hashlib import blake2b

LANES = ((2147483647, 48271, 69621, 16807), (2147483629, 40692, 39373, 30845))  # a prime each, and its factors
Cost = dict[str, int]


def mark(text: str | bytes) -> int:
    """A stable number for a text."""
    data = text.encode() if isinstance(text, str) else text
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") & (2**62 - 1)


def spelling(value: object) -> str:
    """The text that a plain value is marked by, with lists as tuples all the way down."""

    def frozen(part: object) -> object:
        return tuple(frozen(item) for item in part) if isinstance(part, list) else part

    return ascii(frozen(value))


def plain_mark(value: object) -> int:
    """The number of a cell or of a binding's data: texts are hashed one by one, all else is arithmetic."""
    if isinstance(value, str):
        return mark(ascii(value))
    if value is None or isinstance(value, bool):
        return 1 if value is None else 2 if value else 3
    if isinstance(value, int):
        if abs(value) >= 2**60:
            return mark(str(value))
        return stirred([pow(value + 1013904223, 5, prime) * factor + 1 for prime, factor, *_ in LANES])
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{value!r} is not plain")
    folded = [1664525 + len(value)] * len(LANES)
    for item in map(plain_mark, value):
        folded = [(held * lane[1] + item) % lane[0] for held, lane in zip(folded, LANES, strict=True)]
    return stirred(folded)


def stirred(residues: list[int]) -> int:
    first, second = (pow(residue, 5, lane[0]) for residue, lane in zip(residues, LANES, strict=True))
    return first * LANES[1][0] + second


def weight(cost: Cost) -> int:
    return sum(mark(name) * amount for name, amount in cost.items())


def binding_mark(policy: str, data: list[object], parts: list[tuple[int, Cost]]) -> int:
    """``parts``: for each account its mark, and the cost there."""
    found = []
    for prime, factor, second, _ in LANES:
        value = plain_mark([policy, data]) if data else mark(policy)
        for account, cost in parts:
            value = ((value * factor + account) * second + weight(cost)) % prime
        found.append(value % prime)
    return found[0] * LANES[1][0] + found[1]


class Digest:
    def __init__(self) -> None:
        self.sums = [0, 0]

    def text(self) -> str:
        return f"{self.sums[0] * LANES[1][0] + self.sums[1]:016x}"

    def usage(self, account: int, busy_account: int, cost: Cost, used: int, busy: int) -> None:
        """The cost was added so many times to the two sums of an account."""
        change = (used * account + busy * busy_account, weight(cost))
        for i, (prime, *_) in enumerate(LANES):
            self.sums[i] = (self.sums[i] + change[0] % prime * (change[1] % prime)) % prime

    def swap(self, key: int, kind: int, old: int, new: int) -> None:
        """The value of some kind under a key went from one to another; 0: there is none."""
        for value, sign in ((old, -1), (new, 1)):
            for i, (prime, factor, second, third) in enumerate(LANES if value else ()):
                mixed = (key * factor + kind * second + value) % prime
                self.sums[i] = (self.sums[i] + sign * (mixed * mixed * third + value * mixed)) % prime
