"""A consumer of the library: its id and what it asks of each tree that it names."""

from __future__ import annotations

from typing import Final, final

from bursar.ledger.claims import Claim, ClaimSpec
from bursar.policies.trees.asks import DETAILS, Row, rows_of


@final
class ConsumerInfo:
    """The specification of a consumer, as it is added to a manager."""

    __slots__ = ("id", "rows", "warnings")

    def __init__(self, consumer_id: str, rows: list[Row], warnings: tuple[str, ...] = ()) -> None:
        self.id: Final = consumer_id
        self.rows: Final = tuple(rows)
        self.warnings: Final = warnings

    def claim(self, created: int = 0) -> Claim:
        """The same as a claim without a pod."""
        return Claim(self.id, spec_of(list(self.rows)), created)


def spec_of(rows: list[Row]) -> ClaimSpec:
    """Its priority, where others ask for one, is the highest that it has in any tree."""
    pinned = [row.tree for row in rows if row.pinned]
    return ClaimSpec(
        priority=max([row.priority for row in rows], default=0),
        preemptible=not pinned,
        details={DETAILS: [row.plain() for row in rows]},
        placeable=False,
    )


def regrouped(claim: Claim, tree: str, renames: dict[str, str]) -> ClaimSpec | None:
    """The claim's spec after groups of a tree were renamed; None when that does not concern it."""
    rows = rows_of(claim)
    changed = False
    for i in range(len(rows)):
        new = renames.get(rows[i].group) if rows[i].tree == tree else None
        if new is not None:
            rows[i] = rows[i].in_group(new)
            changed = True
    return spec_of(rows) if changed else None
