"""Read-only views over the quotas for people: the state of each, and who lends how much to whom."""

from __future__ import annotations

from typing import Final, final

from bursar.dimensions import dimension_at
from bursar.policies.elastic.book import Book
from bursar.policies.elastic.lending import Loan, loans
from bursar.policies.elastic.quota import Quota


@final
class DimensionView:
    """One dimension of one quota, now."""

    __slots__ = ("guaranteed", "lent_to_pool", "maximum", "minimum", "name", "used")

    def __init__(self, name: str, minimum: int, maximum: int | None, used: int, lent: int, guaranteed: int) -> None:
        self.name: Final = name
        self.minimum: Final = minimum
        self.maximum: Final = maximum  # None: no limit
        self.used: Final = used
        self.lent_to_pool: Final = lent
        self.guaranteed: Final = guaranteed  # over-quota

    @property
    def over_quota(self) -> int:
        return max(0, self.used - self.minimum)


def dimension_views(book: Book, quota: Quota) -> list[DimensionView]:
    """The dimensions that the quota's min lists, by name."""
    extra = book.guaranteed(quota)
    found: list[DimensionView] = []
    for k in range(len(quota.dims)):
        name = dimension_at(quota.dims[k]).name
        maximum = quota.body.max.listed.get(name)
        found.append(DimensionView(name, quota.floor[k], maximum, quota.used[k], quota.idle[k], extra[k]))
    return found


def lending(book: Book) -> dict[str, list[Loan]]:
    """The loans of each dimension that quotas list, by its name; quotas are named as ``Kind namespace/name``."""
    standing: dict[str, dict[str, tuple[int, int]]] = {}
    for quota in book.live():
        for k in range(len(quota.dims)):
            name = dimension_at(quota.dims[k]).name
            standing.setdefault(name, {})[quota.body.subject] = (quota.floor[k], quota.used[k])
    return {name: loans(standing[name]) for name in sorted(standing)}
