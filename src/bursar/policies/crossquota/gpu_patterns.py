"""Which resources are GPUs: regular expressions over whole resource names.

The expressions are written for RE2, which matches in linear time and has neither look-around nor back-references.
They are matched by Python here, so only what both read in the same way is let through, and repeats that would let
Python's search explode are refused; a resource name comes from users. What was asked once is remembered.
"""

from __future__ import annotations

import re
from typing import Final, final

LONGEST: Final = 256
MOST_REPEATS: Final = 3  # without upper bound, in one expression
_MOST_TIMES: Final = 1000
_REMEMBERED: Final = 65_536
_COUNTED: Final = re.compile(r"\{([0-9]{1,5})(,[0-9]{0,5})?\}")
_SHORTHANDS: Final = "dDwWsS"
_LOOK_AROUND: Final = ("(?=", "(?!", "(?<=", "(?<!")


class PatternError(ValueError):
    """An expression that cannot be accepted."""


@final
class Patterns:
    """Some expressions; without any, nothing is a GPU."""

    __slots__ = ("compiled", "known")

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.compiled: Final = [compile_pattern(text) for text in texts]
        self.known: Final[dict[str, bool]] = {}

    def __len__(self) -> int:
        return len(self.compiled)

    def match(self, resource: str) -> bool:
        """Whether one of the expressions matches the whole name."""
        found = self.known.get(resource)
        if found is None:
            found = self._match(resource)
            if len(self.known) >= _REMEMBERED:
                self.known.clear()
            self.known[resource] = found
        return found

    def _match(self, resource: str) -> bool:
        for pattern in self.compiled:
            if pattern.fullmatch(resource) is not None:
                return True
        return False


def compile_pattern(text: str) -> re.Pattern[str]:
    """The expression, or ``PatternError``."""
    if len(text) > LONGEST:
        raise PatternError(f"is longer than {LONGEST} characters")
    _Scan(text).run()
    try:
        return re.compile(text, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"is not a regular expression: {error}") from None


@final
class _Scan:
    """One pass over an expression that lets through what RE2 and Python agree upon."""

    __slots__ = ("at", "atom_repeats", "groups", "repeats", "text", "unbounded")

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self.at: int = 0
        self.unbounded: int = 0  # repeats without upper bound so far
        self.repeats: bool = False  # one of them is in the group that is open
        self.atom_repeats: bool = False  # one of them is in what a repeat would apply to now
        self.groups: Final[list[bool]] = []  # ``repeats`` of the groups around

    def run(self) -> None:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "(":
                self._open()
            elif char == ")":
                self._close()
            elif char in "*+?{":
                self._repeat()
            else:
                self._atom(char)

    def _atom(self, char: str) -> None:
        self.atom_repeats = False
        if char == "\\":
            self._escape(_SHORTHANDS + "bB")
        elif char == "[":
            self._class()
        else:
            self.at += 1

    def _escape(self, letters: str) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if following.isdigit():
            raise PatternError("has a back-reference, which RE2 does not have")
        if not following or (following.isalnum() and following not in letters):
            raise PatternError(f"has the escape \\{following}, which is not supported")
        self.at += 2

    def _class(self) -> None:
        self.at += 1
        if self.text.startswith("^", self.at):
            self.at += 1
        if self.text.startswith("]", self.at):
            self.at += 1
        while not self.text.startswith("]", self.at):
            if self.at >= len(self.text):
                raise PatternError("is not a regular expression: a [ is not closed")
            if self.text.startswith("\\", self.at):
                self._escape(_SHORTHANDS)
            elif self.text.startswith("[", self.at):
                raise PatternError("has a [ inside of [ ], which is not supported")
            else:
                self.at += 1
        self.at += 1

    def _open(self) -> None:
        text = self.text
        for kind in _LOOK_AROUND:
            if text.startswith(kind, self.at):
                raise PatternError(f"has look-around, {kind}, which RE2 does not have")
        if text.startswith("(?P=", self.at):
            raise PatternError("has a back-reference, which RE2 does not have")
        step = 1
        if text.startswith("(?", self.at):
            step = self._special_step()
        self.at += step
        if step != len("(?i)"):
            self.groups.append(self.repeats)
            self.repeats = False
        self.atom_repeats = False

    def _special_step(self) -> int:
        """How long the opening of a special group is; (?i) opens none."""
        for kind in ("(?:", "(?i:", "(?P<", "(?i)"):
            if self.text.startswith(kind, self.at):
                # A name and its > are read as if they were part of the group; Python checks them.
                return len(kind) if kind not in ("(?i:", "(?P<") else 3
        raise PatternError(f"has the group {self.text[self.at : self.at + 3]}, which is not supported")

    def _close(self) -> None:
        if not self.groups:
            raise PatternError("is not a regular expression: a ) is not opened")
        inside = self.repeats
        self.repeats = self.groups.pop() or inside
        self.atom_repeats = inside
        self.at += 1

    def _repeat(self) -> None:
        many, bounded = self._times()
        if many and self.atom_repeats:
            raise PatternError("has a repeat inside of a repeat, which is not supported")
        if not bounded:
            self.unbounded += 1
            self.repeats = True
            self.atom_repeats = True
            if self.unbounded > MOST_REPEATS:
                raise PatternError(f"has more than {MOST_REPEATS} repeats without upper bound")
        if self.text.startswith("?", self.at):
            self.at += 1
        if self.at < len(self.text) and self.text[self.at] in "*+?{":
            raise PatternError("has a repeat of a repeat, which is not supported")

    def _times(self) -> tuple[bool, bool]:
        """(more than once, with an upper bound) of the repeat here, which is read."""
        char = self.text[self.at]
        if char != "{":
            self.at += 1
            return char != "?", char == "?"
        counted = _COUNTED.match(self.text, self.at)
        if counted is None:
            raise PatternError("has a { that counts nothing; write \\{ for the character")
        least = int(counted.group(1))
        tail = counted.group(2) or ""
        most = int(tail[1:]) if len(tail) > 1 else least
        if max(least, most) > _MOST_TIMES:
            raise PatternError(f"repeats something more than {_MOST_TIMES} times")
        self.at = counted.end()
        return most > 1 or tail == ",", tail != ","
