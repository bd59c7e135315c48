"""A rule that a world broke."""

from __future__ import annotations


class BrokenRuleError(AssertionError):
    """``rule`` is short and stable: a world is shrunk for as long as it breaks the same rule."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule
        self.what = what


def require(true: bool, rule: str, what: object) -> None:
    """Raises unless it is true. ``what`` is only shown then."""
    if not true:
        raise BrokenRuleError(rule, str(what))
