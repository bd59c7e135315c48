"""Exact Kubernetes quantities: text and numbers to integer amounts, and back to canonical text.

An *amount* is an integer counted in ``1/resolution`` units: ``parse("1.5", MILLI)`` is 1500 and
``parse("0.5Gi", UNIT)`` is 536870912. Invariants:

* No float takes part: a float that comes out of YAML or JSON is read by its shortest decimal text.
* What is finer than the resolution rounds away from zero. Kubernetes rounds to nano first; because both
  resolutions divide 10**9, the two roundings together are the one ceiling taken here.
* ``abs(amount) <= MAX_AMOUNT``; anything larger is refused, never capped.
* The cost of a call is bounded whatever the text: longer than ``MAX_TEXT`` is refused unread, and powers of
  ten come from a table.
* ``parse(format_amount(a, r, b), r, negative=True) == a``.
"""

from __future__ import annotations

from typing import Final

MILLI: Final = 1000
UNIT: Final = 1
MAX_AMOUNT: Final = 2**62 - 1
MAX_TEXT: Final = 128

_SHOWN: Final = 40
_DECIMAL_SUFFIXES: Final[dict[str, int]] = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY_SUFFIXES: Final[dict[str, int]] = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_LADDER: Final[list[str]] = ["m", "", "k", "M", "G", "T", "P", "E"]
_BINARY_LADDER: Final[list[str]] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
# No exponent outside these bounds needs arithmetic: 10**19 is above MAX_AMOUNT, and MAX_TEXT digits counted
# in thousandths are below 10**(MAX_TEXT + 3), so dividing them by more leaves one step of the resolution.
_MAX_TENS: Final = 18
_POWERS_OF_TEN: Final[list[int]] = [10**n for n in range(MAX_TEXT + 4)]


class QuantityError(ValueError):
    """A value that is no acceptable quantity: one line naming the field, the text and the problem."""

    def __init__(self, path: str, text: str, problem: str) -> None:
        super().__init__(path, text, problem)
        self.path = path
        self.text = text
        self.problem = problem

    def __str__(self) -> str:
        shown = self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "…"
        where = self.path + ": " if self.path else ""
        return f"{where}{shown!r} {self.problem}"


def parse(value: object, resolution: int, path: str = "", negative: bool = False) -> int:
    """The amount that ``value`` stands for; ``path`` names the field in errors."""
    _check_resolution(resolution)
    if isinstance(value, str):
        return _parse_text(value, resolution, path, negative)
    if isinstance(value, bool):
        raise QuantityError(path, str(value), "is not a quantity: it is a boolean")
    if isinstance(value, int):
        return _signed(abs(value) * resolution, value < 0, resolution, path, value, negative)
    if isinstance(value, float):
        return _parse_text(repr(float(value)), resolution, path, negative)
    name = "null" if value is None else type(value).__name__
    raise QuantityError(path, name, "is not a quantity: expected a number or a string")


def format_amount(amount: int, resolution: int, binary: bool) -> str:
    """The canonical text: the largest suffix that leaves an integer.

    As in Kubernetes, the binary form is used only for whole values of at least 1024; others print as decimal.
    """
    _check_resolution(resolution)
    if amount == 0:
        return "0"
    if binary and amount % resolution == 0 and abs(amount) >= 1024 * resolution:
        return _climb(amount // resolution, 1024, _BINARY_LADDER, 0)
    return _climb(amount, 1000, _DECIMAL_LADDER, 0 if resolution == MILLI else 1)


def _check_resolution(resolution: int) -> None:
    if resolution not in (UNIT, MILLI):
        raise ValueError(f"resolution must be UNIT or MILLI, not {resolution}")


def _climb(mantissa: int, base: int, ladder: list[str], rung: int) -> str:
    top = len(ladder) - 1
    while rung < top and mantissa % base == 0:
        mantissa //= base
        rung += 1
    return f"{mantissa}{ladder[rung]}"


def _parse_text(text: str, resolution: int, path: str, negative: bool) -> int:
    if len(text) > MAX_TEXT:
        raise QuantityError(path, text, f"is not a quantity: longer than {MAX_TEXT} characters")
    start = 1 if text.startswith(("-", "+")) else 0
    end = _end_of_digits(text, start)
    digits = text[start:end]
    tens = 0
    if text.startswith(".", end):
        point = end
        end = _end_of_digits(text, point + 1)
        digits += text[point + 1 : end]
        tens = point + 1 - end
    if not digits:
        raise QuantityError(path, text, "is not a quantity: it does not start with a number")
    suffix = text[end:]
    twos = 0
    if suffix in _BINARY_SUFFIXES:
        twos = _BINARY_SUFFIXES[suffix]
    elif suffix in _DECIMAL_SUFFIXES:
        tens += _DECIMAL_SUFFIXES[suffix]
    else:
        tens += _exponent(suffix, text, path)
    magnitude = _ceiling(int(digits) * resolution, tens, twos)
    return _signed(magnitude, text.startswith("-"), resolution, path, text, negative)


def _end_of_digits(text: str, start: int) -> int:
    """The index after the ASCII digits from ``start`` on; other scripts' digits are no digits here."""
    end = start
    size = len(text)
    while end < size and "0" <= text[end] <= "9":
        end += 1
    return end


def _exponent(suffix: str, text: str, path: str) -> int:
    start = 2 if suffix.startswith(("-", "+"), 1) else 1
    if suffix.startswith(("e", "E")) and start < len(suffix) == _end_of_digits(suffix, start):
        return int(suffix[1:])
    raise QuantityError(path, text, f"is not a quantity: unknown suffix {suffix!r}")


def _ceiling(mantissa: int, tens: int, twos: int) -> int:
    """``mantissa * 10**tens * 2**twos`` rounded up; some number above MAX_AMOUNT where it is far above."""
    if mantissa == 0:
        return 0
    if tens > _MAX_TENS:
        return MAX_AMOUNT + 1
    if twos:
        mantissa <<= twos
    if tens >= 0:
        return mantissa * _POWERS_OF_TEN[tens]
    if -tens >= len(_POWERS_OF_TEN):
        return 1
    return -(-mantissa // _POWERS_OF_TEN[-tens])


def _signed(magnitude: int, minus: bool, resolution: int, path: str, value: str | int, negative: bool) -> int:
    if minus and magnitude > 0 and not negative:
        raise QuantityError(path, _text_of(value), "must not be negative")
    if magnitude > MAX_AMOUNT:
        most = format_amount(MAX_AMOUNT, resolution, False)
        raise QuantityError(path, _text_of(value), f"is out of range: more than {most}")
    return -magnitude if minus else magnitude


def _text_of(value: str | int) -> str:
    if isinstance(value, str):
        return value
    # Python refuses to print very long integers, which YAML can spell in hexadecimal.
    return str(value) if value.bit_length() <= 256 else f"integer of {value.bit_length()} bits"
