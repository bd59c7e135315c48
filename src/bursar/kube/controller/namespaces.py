"""The label by which the gate knows the namespaces that quotas govern.

A namespace that some quota names is labelled; when the last of its quotas goes, the label goes too. It is applied under
a field manager of its own, so that a label that an administrator set stays his.
"""

from __future__ import annotations

from bursar.kube.client.api import Api, Writing
from bursar.kube.client.resources import NAMESPACES
from bursar.kube.controller.desk import Desk
from bursar.kube.controller.names import ENFORCED, GOVERNED_LABEL, INVALID
from bursar.kube.controller.outcomes import sent
from bursar.kube.controller.ports import ObjectKey
from bursar.kube.controller.world import Report
from bursar.objects.errors import ManifestError
from bursar.objects.kindset import TypedObject
from bursar.policies.plugin import Registry

MANAGER = "bursar-namespaces"


class NamespaceKeeper:
    """Keeps the labels in step with the quotas."""

    def __init__(self, api: Api, registry: Registry, report: Report, never: tuple[str, ...], *, dry_run: bool) -> None:
        self._api = api
        self._naming = {kind: names for plugin in registry for kind, names in plugin.namespaces.items()}
        self._report = report
        self._never = never
        self._how = Writing(field_manager=MANAGER, dry_run=dry_run)
        self._named: dict[ObjectKey, frozenset[str]] = {}  # by quota
        self._count: dict[str, int] = {}  # how many quotas name a namespace
        self.labelled: set[str] = set()  # namespaces that were seen with the label
        self.desk: Desk[str] = Desk(self._perform, 2)

    def quota_seen(self, given: TypedObject) -> None:
        names = self._naming.get(given.kind.name)
        if names is None:
            return
        try:
            self._set((given.kind.name, given.key), frozenset(names(given.key, given.typed)))
        except ManifestError:
            return  # whoever takes the object in reports it

    def quota_gone(self, kind: str, key: str) -> None:
        self._set((kind, key), frozenset())

    def namespace_seen(self, name: str, labels: dict[str, str]) -> None:
        """A namespace came or changed: it may lack its label."""
        if labels.get(GOVERNED_LABEL) == ENFORCED:
            self.labelled.add(name)
        else:
            self.labelled.discard(name)
            if self._count.get(name):
                self.desk.want(name)

    def namespace_gone(self, name: str) -> None:
        self.labelled.discard(name)
        self.desk.forget(name)

    def _set(self, quota: ObjectKey, names: frozenset[str]) -> None:
        before = self._named.pop(quota, frozenset())
        if names:
            self._named[quota] = names
        for name in names - before:
            self._count[name] = self._count.get(name, 0) + 1
        for name in before - names:
            self._count[name] -= 1
        for name in names ^ before:
            if name not in self._never and bool(self._count.get(name)) != (name in self.labelled):
                self.desk.want(name)

    async def _perform(self, name: str) -> None:
        labels = {GOVERNED_LABEL: ENFORCED} if self._count.get(name) else {}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        if not labels and name not in self.labelled:
            return
        found = await self._api.find(NAMESPACES, name)
        if found is not None:  # applying would create it
            write = self._api.apply(NAMESPACES, name, "", body, force=True, how=self._how)
            await sent(write, refused=lambda why: self._report("Namespace", name, INVALID, why))
