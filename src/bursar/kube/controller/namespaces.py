"""Namespaces that quotas name, and the label by which the gate knows them.

A namespace that some quota names is labelled; when the last of its quotas goes, the label goes too, a little later: one
that is replaced lets no pod pass in between. It is applied under a field manager of its own, so that a label that an
administrator set stays his.
"""

from __future__ import annotations

from collections.abc import Iterable

from bursar.kube.client.api import Api, Writing
from bursar.kube.client.models import Body
from bursar.kube.client.resources import NAMESPACES
from bursar.kube.controller.desk import Again, Desk
from bursar.kube.controller.names import ENFORCED, GOVERNED_LABEL, INVALID
from bursar.kube.controller.naming import Naming
from bursar.kube.controller.outcomes import Refused, sent
from bursar.kube.controller.world import Report

MANAGER = "bursar-namespaces"
LINGER = 5.0  # seconds for which a label stays after the last quota


class NamespaceKeeper:
    """Keeps the labels in step with the quotas."""

    def __init__(self, api: Api, naming: Naming, report: Report, never: tuple[str, ...], *, dry_run: bool) -> None:
        self._api = api
        self._naming = naming
        self._report = report
        self._never = never
        self._how = Writing(field_manager=MANAGER, dry_run=dry_run)
        self._labelled: set[str] = set()  # namespaces that were seen with the label
        self._sent: set[str] = set()  # and those that were given it, seen or not
        self._lingering: set[str] = set()  # namespaces whose label is about to go
        self.desk: Desk[str] = Desk(self._perform, 2)

    def named(self, namespaces: Iterable[str]) -> None:
        """Quotas name these now, or do so no longer."""
        for name in namespaces:
            if name in self._naming:
                self._lingering.discard(name)
            if name not in self._never:
                self.desk.want(name)

    def namespace_seen(self, name: str, labels: dict[str, str]) -> None:
        """A namespace came or changed: it may lack its label."""
        if labels.get(GOVERNED_LABEL) == ENFORCED:
            self._labelled.add(name)
        else:
            self._labelled.discard(name)
            if name in self._naming:
                self.named((name,))

    def namespace_gone(self, name: str) -> None:
        self._labelled.discard(name)
        self._sent.discard(name)
        self._lingering.discard(name)
        self.desk.forget(name)

    def take_over(self) -> None:
        """All namespaces were seen: set what a predecessor did not, and take away what it left."""
        self.named(sorted(self._labelled.symmetric_difference(self._naming)))

    async def _perform(self, name: str) -> None:
        wanted = name in self._naming
        if wanted == (name in self._labelled) and (wanted or name not in self._sent):
            return
        if not wanted and name not in self._lingering:
            self._lingering.add(name)
            raise Again("its last quota may be replaced", LINGER)
        found = await sent(self._api.find(NAMESPACES, name), refused=self._refused(name))
        if found is None or not (wanted or _is_ours(found)):  # applying would create it, or own what is another's
            return
        self._sent.add(name)
        labels = {GOVERNED_LABEL: ENFORCED} if wanted else {}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        write = self._api.apply(NAMESPACES, name, "", body, force=True, how=self._how)
        await sent(write, refused=self._refused(name))
        if not wanted:
            self._sent.discard(name)
            self._lingering.discard(name)

    def _refused(self, name: str) -> Refused:
        return lambda why: self._report("Namespace", name, INVALID, why)


def _is_ours(namespace: Body) -> bool:
    fields = namespace.plain()["metadata"].get("managedFields") or ()
    return any(entry.get("manager") == MANAGER for entry in fields)
