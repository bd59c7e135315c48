"""Labels that Bursar keeps on pods: what each should carry, and whether somebody changed it.

A label is written when it is wanted and not there. What is seen before the write has arrived is no change of anybody's;
so a difference counts only after the label was seen as it should be.
"""

from __future__ import annotations

from collections.abc import Mapping

Marks = dict[str, str | None]


class LabelKeeper:
    """Remembers the labels of pods, by uid."""

    def __init__(self) -> None:
        self._wanted: dict[str, Marks] = {}
        self._confirmed: set[str] = set()  # pods that were seen with all of them

    def want(self, uid: str, labels: Marks, seen: Mapping[str, str]) -> Marks:
        """The pod should carry these too (None: not carry); what must be written for that."""
        if not labels:
            return {}
        known = self._wanted.get(uid)
        if known is None and _wrong(labels, seen) == {}:  # written by a predecessor
            self._wanted[uid] = dict(labels)
            self._confirmed.add(uid)
            return {}
        self._wanted[uid] = {**(known or {}), **labels}
        self._confirmed.discard(uid)
        return labels

    def seen(self, uid: str, labels: Mapping[str, str]) -> Marks:
        """The pod has these labels now; those of ours that must be written again."""
        wanted = self._wanted.get(uid)
        if wanted is None:
            return {}
        wrong = _wrong(wanted, labels)
        if not wrong:
            self._confirmed.add(uid)
        elif uid in self._confirmed:
            self._confirmed.discard(uid)
            return wrong
        return {}

    def forget(self, uid: str) -> None:
        self._wanted.pop(uid, None)
        self._confirmed.discard(uid)


def _wrong(wanted: Marks, seen: Mapping[str, str]) -> Marks:
    return {name: value for name, value in wanted.items() if seen.get(name) != value}
