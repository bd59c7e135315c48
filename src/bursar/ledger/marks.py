"""Marks: a stable number for a plain value, the same in every process, interpreted and compiled.

Cells and the data of bindings stand in the digest by their marks. A mark is a pair of residues, made by arithmetic
alone: a text is a polynomial of its characters, a tuple one of the marks of its items. Each is then moved through fifth
powers, which are one to one here and follow no sum: marks that did would let the digests of different states be equal.

Marks tell apart states that mistakes and accidents could bring about. Whoever means to forge a journal is up against
the chain of its lines (see ``ledger.journal``), not against these.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from bursar.vectors import Vector

_A: Final[i64] = 2147483647
_B: Final[i64] = 2147483629
_NONE: Final[i64] = 1
_TRUE: Final[i64] = 2
_FALSE: Final[i64] = 3
# Numbers, tuples and texts start from here.
_NUMBER: Final[i64] = 1013904223
_TUPLE: Final[i64] = 1664525
_TEXT: Final[i64] = 22695477
_WIDEST: Final = 2**60  # numbers beyond are marked as texts


def plain_mark(value: object) -> i64:
    """The mark of None, a bool, an int, a str, a vector or a tuple of those."""
    if isinstance(value, str):
        return _text_mark(value)
    if isinstance(value, tuple):
        return _tuple_mark(value)
    if isinstance(value, Vector):
        return _stirred(value.lane_a, value.lane_b)
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, int):
        return _number_mark(value)
    raise TypeError(f"{value!r} is not plain")


def cell_mark(table: i64, key: str, value: object) -> i64:
    """The mark of the tuple of the three; ``table`` is the mark of its name."""
    second = _text_mark(key)
    third = plain_mark(value)
    a = (((_TUPLE + 3) * 48271 + table % _A) % _A * 48271 + second % _A) % _A
    b = (((_TUPLE + 3) * 40692 + table % _B) % _B * 40692 + second % _B) % _B
    return _stirred((a * 48271 + third % _A) % _A, (b * 40692 + third % _B) % _B)


def _text_mark(text: str) -> i64:
    a: i64 = _TEXT + len(text)
    b: i64 = a
    for i in range(len(text)):
        character: i64 = ord(text[i])
        a = (a * 48271 + character) % _A
        b = (b * 40692 + character) % _B
    return _stirred(a, b)


def _tuple_mark(items: tuple[object, ...]) -> i64:
    a: i64 = _TUPLE + len(items)
    b: i64 = a
    for item in items:
        mark = plain_mark(item)
        a = (a * 48271 + mark % _A) % _A
        b = (b * 40692 + mark % _B) % _B
    return _stirred(a, b)


def _number_mark(number: int) -> i64:
    if not -_WIDEST < number < _WIDEST:
        return _text_mark(str(number))
    small: i64 = number
    a = _fifth_a((small + _NUMBER) % _A)
    b = _fifth_b((small + _NUMBER) % _B)
    return _stirred((a * 48271 + 1) % _A, (b * 40692 + 1) % _B)


def _stirred(a: i64, b: i64) -> i64:
    """Two residues as one number, after a step that follows no sum."""
    return _fifth_a(a) * _B + _fifth_b(b)


# Two functions, because a division by a constant is compiled to a multiplication.
def _fifth_a(x: i64) -> i64:
    square = x * x % _A
    return square * square % _A * x % _A


def _fifth_b(x: i64) -> i64:
    square = x * x % _B
    return square * square % _B * x % _B
