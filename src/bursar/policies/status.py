"""What the status writers of all policies share: they write what changed, and events on edges only.

What was written is remembered here and not in the ledger, so that everything is written once more after a restart.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from bursar.policies.results import Output

_FEW: Final = 3  # quotas that a condition names


@mypyc_attr(allow_interpreted_subclasses=True)
class StatusWriter:
    """Collects outputs, and remembers the values that the last ones were made from."""

    def __init__(self) -> None:
        self.last: Final[dict[str, dict[str, object]]] = {}  # by aspect, by key
        self.collected: list[Output] = []

    def changed(self, aspect: str, key: str, value: object) -> bool:
        """Remembers a value and returns whether it differs from the last one. An empty value counts as none."""
        known = self.last.setdefault(aspect, {})
        if not value:
            return known.pop(key, None) is not None
        if known.get(key) == value:
            return False
        known[key] = value
        return True

    def write(self, kind: str, key: str, part: str, value: dict[str, object] | None) -> None:
        """Writes a part of an object, whatever was written before."""
        self.collected.append(Output(kind, key, part, value))

    def write_status(self, kind: str, key: str, status: dict[str, object] | None) -> None:
        """Writes the status of an object if it changed; None forgets an object that no longer exists."""
        if self.changed(kind, key, status) and status is not None:
            self.write(kind, key, "status", status)

    def write_event(self, kind: str, key: str, reason: str, message: str, severity: str = "Warning") -> None:
        self.write(kind, key, "event", {"type": severity, "reason": reason, "message": message})

    def unknown_resources(self, kind: str, key: str, entry: str, problem: str) -> list[object]:
        """The condition of a quota that names resources wrongly, with an event when that begins; [] if it does not.

        ``entry`` names the quota among those of the policy.
        """
        if self.changed("resources", entry, problem) and problem:
            self.write_event(kind, key, "UnknownResource", problem)
        return [condition("ResourcesKnown", False, "UnknownResource", problem)] if problem else []

    def owned(self, unowned: list[str]) -> list[object]:
        """The condition of an object whose quotas everybody may use; [] if there are none."""
        if not unowned:
            return []
        named = ", ".join(unowned[:_FEW]) + (f" and {len(unowned) - _FEW} more" if len(unowned) > _FEW else "")
        return [condition("Owned", False, "NobodyNamed", f"pods of every namespace may use {named}")]

    def take(self) -> list[Output]:
        """Returns the outputs since the last call."""
        found = self.collected
        self.collected = []
        return found


def condition(kind: str, holds: bool, reason: str, message: str = "") -> dict[str, object]:
    """A condition of a status, without its times."""
    return {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}
