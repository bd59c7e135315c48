"""Which quota a claim belongs to: one answer for everything, and whom a change of quotas may concern.

In order: the quota that the claim's label names; the quota that is called like its namespace and lives in it; the
first quota (by name) whose annotation lists the namespace; else the default quota. A label that names no quota means
the default quota too, so that it holds nobody up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from bursar.ledger.claims import Claim
from bursar.policies.pools.names import DEFAULT, QUOTA_OF_POD, ROOT
from bursar.policies.pools.quotas import Quota


def resolve_name(
    namespace: str, labels: Mapping[str, str], homes: Mapping[str, str], annotated: Mapping[str, str]
) -> str:
    """The name of the quota. ``homes``: quota -> its namespace; ``annotated``: namespace -> quota."""
    wanted = labels.get(QUOTA_OF_POD, "")
    if wanted:
        return wanted if wanted in homes and wanted != ROOT else DEFAULT
    if namespace and homes.get(namespace) == namespace:
        return namespace
    return annotated.get(namespace, DEFAULT)


@final
class Resolver:
    """All quotas by name, and the claims that the default quota holds."""

    __slots__ = ("annotated", "by_namespace", "homes", "lists", "quotas", "strays")

    def __init__(self) -> None:
        self.quotas: Final[dict[str, Quota]] = {}
        self.homes: Final[dict[str, str]] = {}
        self.lists: Final[dict[str, list[str]]] = {}  # namespace -> quotas that list it, sorted
        self.annotated: Final[dict[str, str]] = {}
        self.by_namespace: Final[dict[str, dict[str, Claim]]] = {}  # unlabelled claims of the default quota
        self.strays: Final[dict[str, Claim]] = {}  # those whose label names no quota

    def quota_changed(self, old: Quota | None, new: Quota | None) -> None:
        if old is not None:
            del self.quotas[old.name]
            del self.homes[old.name]
            for namespace in old.namespaces:
                self.lists[namespace].remove(old.name)
                self._first(namespace)
        if new is not None:
            self.quotas[new.name] = new
            self.homes[new.name] = new.namespace
            for namespace in new.namespaces:
                names = self.lists.setdefault(namespace, [])
                names.append(new.name)
                names.sort()
                self._first(namespace)

    def _first(self, namespace: str) -> None:
        names = self.lists[namespace]
        if names:
            self.annotated[namespace] = names[0]
        else:
            del self.lists[namespace]
            del self.annotated[namespace]

    def resolve(self, claim: Claim) -> Quota | None:
        """None while there is not even a default quota."""
        return self.quotas.get(resolve_name(claim.namespace, claim.spec.labels, self.homes, self.annotated))

    def is_stray(self, claim: Claim, quota: Quota) -> bool:
        return quota.name == DEFAULT and claim.spec.labels.get(QUOTA_OF_POD, "") not in ("", DEFAULT)

    # Claims of the default quota

    def default_asks(self, claim: Claim, sign: int) -> None:
        if sign > 0:
            self.by_namespace.setdefault(claim.namespace, {})[claim.uid] = claim
            return
        known = self.by_namespace[claim.namespace]
        del known[claim.uid]
        if not known:
            del self.by_namespace[claim.namespace]

    def stray_asks(self, claim: Claim, sign: int) -> None:
        if sign > 0:
            self.strays[claim.uid] = claim
        else:
            del self.strays[claim.uid]

    def maybe_concerned(self, quota: Quota) -> list[Claim]:
        """Claims of the default quota that may belong to this one, now that it came or changed."""
        found = list(self.strays.values())
        for namespace in (*quota.namespaces, quota.name):
            found.extend(self.by_namespace.get(namespace, {}).values())
        return found
