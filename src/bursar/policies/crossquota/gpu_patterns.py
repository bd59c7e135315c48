"""Which resources are GPUs: regular expressions over whole resource names.

Administrators write the expressions for RE2, which matches in linear time. Python matches them here, against names
that users choose. So only what RE2 and Python read alike is accepted, without the nested repeats over which Python
backtracks exponentially.
"""

from __future__ import annotations

import re
from typing import Final, final

from bursar.policies.placement_kit import remember

LONGEST: Final = 256
MOST_REPEATS: Final = 3  # without upper bound, in one expression
_MOST_TIMES: Final = 1000
_OPEN_CLASS: Final = r"\[ \^?+ \]?+ (?: [^][\\] | \\ (?: [dDwWsS] | [\W_] ) )*"
_CLASS: Final = re.compile(_OPEN_CLASS, re.VERBOSE)
_TOKEN: Final = re.compile(
    rf"""
    (?P<repeat> (?: [*+?] | \{{ [0-9]{{1,5}} (?: , [0-9]{{0,5}} )? \}} ) \?? )
    | (?P<open> \( (?! \? ) | \( \? (?: : | i: | P< ) )
    | (?P<close> \) )
    | (?P<atom> [^\\[(){{*+?] | \\ (?: [dDwWsSbB] | [\W_] ) | {_OPEN_CLASS} ] | \( \? i \) )
    """,
    re.VERBOSE,
)
# Where no token begins: what stands there instead, and what is wrong with it.
_PROBLEMS: Final = (
    (re.compile(r"\\[0-9]|\(\?P="), "has a back-reference, which RE2 does not have"),
    (re.compile(r"\(\?<?[=!]"), "has look-around, {}, which RE2 does not have"),
    (re.compile(r"\(..?", re.DOTALL), "has the group {}, which is not supported"),
    (re.compile(r"\\.?", re.DOTALL), "has the escape {}, which is not supported"),
    (re.compile(r"\["), "has a [ inside of [ ], which is not supported"),
    (re.compile(r"\{"), "has a {} that counts nothing; write \\{} for the character"),
)


class PatternError(ValueError):
    """An expression that cannot be accepted."""


@final
class Patterns:
    """Some expressions; without any, nothing is a GPU."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.compiled: Final = [compile_pattern(text) for text in texts]
        self.known: Final[dict[str, bool]] = {}

    def __len__(self) -> int:
        return len(self.compiled)

    def match(self, resource: str) -> bool:
        """Whether one of the expressions matches the whole name."""
        found = self.known.get(resource)
        if found is None:
            found = any(pattern.fullmatch(resource) is not None for pattern in self.compiled)
            remember(self.known, resource, found)
        return found


def compile_pattern(text: str) -> re.Pattern[str]:
    """The compiled expression; raises ``PatternError``."""
    if len(text) > LONGEST:
        raise PatternError(f"is longer than {LONGEST} characters")
    _check(text)
    try:
        return re.compile(text, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"is not a regular expression: {error}") from None


def _check(text: str) -> None:
    """Raises ``PatternError`` for what RE2 and Python read differently, and for repeats that may explode."""
    at = 0
    unbounded = 0
    groups = [False]  # for the whole and each open group: whether it has a repeat without upper bound
    atom_repeats = False  # whether what a repeat would apply to now has one
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise PatternError(_problem(text, at))
        at = token.end()
        kind = token.lastgroup
        if kind == "open":
            groups.append(False)
        elif kind == "close" and len(groups) == 1:
            raise PatternError("is not a regular expression: a ) is not opened")
        elif kind == "repeat":
            many, bounded = _times(token.group())
            if text[at : at + 1] in tuple("*+?{"):
                raise PatternError("has a repeat of a repeat, which is not supported")
            if many and atom_repeats:
                raise PatternError("has a repeat inside of a repeat, which is not supported")
            if not bounded:
                unbounded += 1
                groups[-1] = True
        if unbounded > MOST_REPEATS:
            raise PatternError(f"has more than {MOST_REPEATS} repeats without upper bound")
        atom_repeats = False
        if kind == "close":
            atom_repeats = groups.pop()
            groups[-1] = groups[-1] or atom_repeats


def _times(repeat: str) -> tuple[bool, bool]:
    """Whether a repeat allows more than one time, and whether it has an upper bound."""
    if repeat[0] != "{":
        return repeat[0] != "?", repeat[0] == "?"
    least, comma, most = repeat.strip("{}?").partition(",")
    if max(int(least), int(most or least)) > _MOST_TIMES:
        raise PatternError(f"repeats something more than {_MOST_TIMES} times")
    bounded = not comma or bool(most)
    return not bounded or int(most or least) > 1, bounded


def _problem(text: str, at: int) -> str:
    """What is wrong with the text at a place where no token begins."""
    inside = _CLASS.match(text, at)
    if inside is not None:
        at = inside.end()
    for pattern, problem in _PROBLEMS:
        found = pattern.match(text, at)
        if found is not None:
            return problem.replace("{}", found.group())
    return "is not a regular expression: a [ is not closed"
