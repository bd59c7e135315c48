"""Numbers that stand for texts, of which digests are made.

A *mark* is a number for a text, the same in every process. Digests are sums of products of marks, kept as residues
(*lanes*) of two primes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

# Two primes just under 2**31: a product of residues stays inside 63 bits, so fingerprints are plain 64-bit
# arithmetic with the same result interpreted and compiled.
PRIME_A: Final = 2147483647
PRIME_B: Final = 2147483629
_MARK_BITS: Final = 2**62 - 1
_MARKS_KEPT: Final = 65536


def fingerprint(text: str) -> int:
    """A stable 62-bit number for a text, the same in every process (``hash`` is not).

    It must be a real hash: digests are sums of marks, and marks that follow the spelling would let sums of
    neighbours (n1 + n3, n2 + n2) be equal.
    """
    return fingerprint_bytes(text.encode())


def fingerprint_bytes(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") & _MARK_BITS


_MARKS: Final[dict[str, int]] = {}


def name_mark(name: str) -> int:
    """``fingerprint`` for names that come again and again (policies, nodes), remembered."""
    known = _MARKS.get(name)
    if known is None:
        if len(_MARKS) >= _MARKS_KEPT:
            _MARKS.clear()
        known = fingerprint(name)
        _MARKS[name] = known
    return known
