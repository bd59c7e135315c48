"""The reference model of bursar.quantity: a regular expression, fractions, and the two roundings one by one."""

import re
from fractions import Fraction
from math import ceil

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
FACTORS = {suffix: Fraction(10) ** power for suffix, power in DECIMAL.items()}
BINARY_FACTORS = {
    suffix: Fraction(1024**power) for power, suffix in enumerate(["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
}
GRAMMAR = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE]?))")
LONGEST = 128
LARGEST = 2**62 - 1


def parse(text: str, resolution: int, negative: bool) -> int | None:
    """The amount, or None where the text is refused."""
    match = GRAMMAR.fullmatch(text)
    if match is None or len(text) > LONGEST:
        return None
    sign, number, exponent, suffix = match.groups()
    if exponent is None:
        factor = (FACTORS | BINARY_FACTORS)[suffix]
    else:
        # With at most 128 digits, 10**400 and more is out of range, 10**-400 and less is under a nano.
        factor = Fraction(10) ** min(max(int(exponent), -400), 400)
    nano = ceil(Fraction(number.removesuffix(".")) * factor * 10**9)
    amount = ceil(Fraction(nano, 10**9) * resolution)
    if amount > LARGEST or (sign == "-" and amount > 0 and not negative):
        return None
    return -amount if sign == "-" else amount


def format_amount(amount: int, resolution: int, binary: bool) -> str:
    value = Fraction(amount, resolution)
    whole_kibi = binary and value.denominator == 1 and abs(value) >= 1024
    factors = BINARY_FACTORS if whole_kibi else FACTORS
    fitting = [suffix for suffix, factor in factors.items() if (value / factor).denominator == 1]
    return f"{value / factors[fitting[-1]]}{fitting[-1]}" if value else "0"
