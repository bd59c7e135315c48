"""Marks: a stable number for a plain value, the same in every process, interpreted and compiled.

Cells and the data of bindings stand in the digest by their marks. Every text is hashed by itself, and remembered: uids
and names come again and again, in ever new combinations. Numbers and tuples are mixed by arithmetic alone. All of it is
a pair of residues, each moved through fifth powers, which are one to one here and follow no sum: marks that did would
let the digests of different states be equal.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from bursar.vectors import fingerprint

_A: Final[i64] = 2147483647
_B: Final[i64] = 2147483629
_NONE: Final[i64] = 1
_TRUE: Final[i64] = 2
_FALSE: Final[i64] = 3
_NUMBER: Final[i64] = 1013904223  # numbers start from here, tuples from the other
_TUPLE: Final[i64] = 1664525
_WIDEST: Final = 2**60  # numbers beyond are marked as texts
_LONGEST: Final = 100  # characters of a text that is remembered
_KEPT: Final = 65_536

_TEXTS: Final[dict[str, i64]] = {}


def plain_mark(value: object) -> i64:
    """The mark of None, a bool, an int, a str or a tuple of those."""
    if isinstance(value, str):
        return _text_mark(value)
    if isinstance(value, tuple):
        return _tuple_mark(value)
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, int):
        return _number_mark(value)
    raise TypeError(f"{value!r} is not plain")


def cell_mark(table: str, key: str, value: object) -> i64:
    """The mark of the tuple of the three."""
    first = _text_mark(table)
    second = _text_mark(key)
    third = plain_mark(value)
    a = (((_TUPLE + 3) * 48271 + first % _A) % _A * 48271 + second % _A) % _A
    b = (((_TUPLE + 3) * 40692 + first % _B) % _B * 40692 + second % _B) % _B
    return _stirred((a * 48271 + third % _A) % _A, (b * 40692 + third % _B) % _B)


def _text_mark(text: str) -> i64:
    known = _TEXTS.get(text)
    if known is not None:
        return known
    # ascii, not the text: it may be no Unicode, and a mark cannot fail.
    found: i64 = fingerprint(ascii(text))
    if len(text) <= _LONGEST:
        if len(_TEXTS) >= _KEPT:
            _TEXTS.clear()
        _TEXTS[text] = found
    return found


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
        return fingerprint(str(number))
    small: i64 = number
    a = _fifth((small + _NUMBER) % _A, _A)
    b = _fifth((small + _NUMBER) % _B, _B)
    return _stirred((a * 48271 + 1) % _A, (b * 40692 + 1) % _B)


def _stirred(a: i64, b: i64) -> i64:
    """Two residues as one number, after a step that follows no sum."""
    return _fifth(a, _A) * _B + _fifth(b, _B)


def _fifth(x: i64, prime: i64) -> i64:
    square = x * x % prime
    return square * square % prime * x % prime
