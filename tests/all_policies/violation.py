"""A rule that a world broke, and the defects that are known and mended elsewhere."""

from __future__ import annotations

from typing import Final


class BrokenRuleError(AssertionError):
    """``rule`` is short and stable: a world is shrunk for as long as it breaks the same rule."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule
        self.what = what


# Rules that are not judged, each with the reason. Every entry is a defect that waits for its repair.
KNOWN: Final[dict[str, str]] = {
    "running sums": "status.used misses a pod that is seen to run after its eviction began",
    "seats beside an unknown tree": "a running pod that names two trees, one of them unknown, counts in neither",
}


def require(true: bool, rule: str, what: object) -> None:
    """Raises unless it is true, or the rule is one of the known defects. ``what`` is only shown then."""
    if not true and rule not in KNOWN:
        raise BrokenRuleError(rule, str(what))
