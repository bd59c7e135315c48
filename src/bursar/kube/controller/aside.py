"""Pods that the server refuses something of: for how long it is asked, and how long they are left alone after that.

A refusal is the word of an admission plugin of others, of a disruption budget, or of a rule that Bursar does not know.
It may pass, but meanwhile the pod has a place that others could have, or keeps one that others wait for.
"""

from __future__ import annotations

from collections.abc import Callable

PATIENCE = 600_000  # milliseconds for which the server may refuse
SET_ASIDE_FOR = 600_000  # milliseconds until it is asked again


class SetAside:
    """Remembers pods by uid, for as long as they are refused or left alone."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._since: dict[str, int] = {}  # when the server refused for the first time
        self._until: dict[str, int] = {}  # when it is to be asked again

    def __len__(self) -> int:
        return len(self._since) + len(self._until)

    def refused(self, uid: str) -> bool:
        """The server refused; whether it has done so for too long."""
        now = self._now()
        if now - self._since.setdefault(uid, now) < PATIENCE:
            return False
        del self._since[uid]
        return True

    def answered(self, uid: str) -> None:
        """The server did not refuse this time, or there is nothing more to ask."""
        self._since.pop(uid, None)

    def leave_alone(self, uid: str, pause: int | None = None) -> None:
        """For so many milliseconds."""
        self._until[uid] = self._now() + (SET_ASIDE_FOR if pause is None else pause)

    def taken_up(self) -> list[str]:
        """Those whose time is up: they are left alone no longer."""
        now = self._now()
        found = [uid for uid, until in self._until.items() if until <= now]
        for uid in found:
            del self._until[uid]
        return found

    def forget(self, uid: str) -> None:
        """The pod is gone, or is what it was asked to be."""
        self._since.pop(uid, None)
        self._until.pop(uid, None)
