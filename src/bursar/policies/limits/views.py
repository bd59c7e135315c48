"""Usage of all namespaces at one version, to list at leisure: taken under the engine's lock, read without it.

A view never changes. It shares with the view before it whatever did not change in between, so taking one costs the
namespaces that were touched since (and a copy of references), not all workers there are. Everything that takes time
(amounts as text, percents, conditions) is made from the view, when nobody has to wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.policies.limits.quotas import Quota
from bursar.policies.limits.status import amounts, status_of
from bursar.vectors import EMPTY, Tally, Vector


@final
class Usage:
    """One namespace: its quotas, what counts against them, what is declared, and who the workers are."""

    __slots__ = ("declared", "namespace", "quotas", "used", "workers")

    def __init__(
        self,
        namespace: str,
        quotas: tuple[Quota, ...],
        used: Vector,
        declared: Vector,
        workers: tuple[tuple[str, Vector], ...],
    ) -> None:
        self.namespace: Final = namespace
        self.quotas: Final = quotas
        self.used: Final = used
        self.declared: Final = declared
        self.workers: Final = workers  # (namespace/name, cost) by name

    def worker_rows(self) -> Iterator[dict[str, object]]:
        for key, cost in self.workers:
            yield {"worker": key, **amounts(cost)}

    def quota_rows(self) -> Iterator[dict[str, object]]:
        used = Tally()
        used.add(self.used)
        for quota in self.quotas:
            yield {"quota": quota.key, **status_of(quota, used, self.declared)}


@final
class View:
    """All namespaces that ever had a worker or a quota, by name, at one version of the ledger."""

    __slots__ = ("usages", "version")

    def __init__(self, version: int, usages: dict[str, Usage]) -> None:
        self.version: Final = version
        self.usages: Final = usages

    def quota_rows(self) -> Iterator[dict[str, object]]:
        """Quotas by namespace and name, each with the status it had at this version."""
        for namespace in sorted(self.usages):
            yield from self.usages[namespace].quota_rows()

    def worker_rows(self) -> Iterator[dict[str, object]]:
        """Workers by namespace and name, each with what it costs."""
        for namespace in sorted(self.usages):
            yield from self.usages[namespace].worker_rows()


@final
class Views:
    """Makes views; knows which namespaces changed since the last one."""

    __slots__ = ("last", "stale")

    def __init__(self) -> None:
        self.stale: Final[dict[str, None]] = {}
        self.last: View = View(0, {})

    def touched(self, namespace: str) -> None:
        self.stale[namespace] = None

    def keep(self, version: int, renewed: list[Usage]) -> View:
        """The view of now: the last one, with what was made anew."""
        usages = self.last.usages
        if renewed:
            usages = dict(usages)
            for usage in renewed:
                usages[usage.namespace] = usage
        self.stale.clear()
        self.last = View(version, usages)
        return self.last


def cost_of(claim: Claim, policy: str) -> Vector:
    """What a worker costs its namespace."""
    for binding in claim.bindings:
        if binding is not None and binding.policy == policy and binding.costs:
            return binding.costs[0]
    return EMPTY
