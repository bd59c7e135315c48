"""The quotas and profiles of a cluster as admission reads them from manifests.

A profile whose root quota has not been written yet provides it, so that children may be applied with the profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, final

from bursar.objects.decode import ManifestError
from bursar.policies.plugin import ObjectView
from bursar.policies.pools.node_pools import NodePools, PoolNode, Profile
from bursar.policies.pools.parse import quota_of_labels, stored_quota, text_list
from bursar.policies.pools.quota_names import Resolver
from bursar.policies.pools.root_quotas import root_labels, root_quota
from bursar.policies.pools.settings import NAMESPACES, PROFILE_OBJECT, QUOTA_OBJECT, PoolQuotaBody, QuotaObject

NODE_OBJECT: Final = "Node"
_ENDED: Final = ("Succeeded", "Failed")


def labels_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    return dict(manifest["metadata"].get("labels") or {})


@final
class Topology:
    """All quotas in their places, and the profiles with their nodes. Amounts are read when a check needs them."""

    def __init__(
        self, view: ObjectView, profiles: Iterable[Profile], read_node: Callable[[Mapping[str, Any]], PoolNode]
    ) -> None:
        self.view: Final = view
        self.names: Final = Resolver()
        self.node_pools: Final = NodePools()
        self.manifests: Final[dict[str, Mapping[str, Any]]] = {}  # by name
        self.objects: Final[dict[str, QuotaObject]] = {}  # those that were read, by name
        for profile in profiles:
            self.node_pools.profile_changed(profile.key, profile)
        for manifest in view.list(QUOTA_OBJECT):
            self._put(_place_of(manifest), manifest)
        missing = sorted({profile.quota_name for profile in self.node_pools.order} - set(self.manifests))
        self.stands_in: Final = bool(missing)  # some profile provides its root quota, which depends on nodes
        if missing:
            for manifest in view.list(NODE_OBJECT):
                self.node_pools.node_changed(str(manifest["metadata"]["name"]), read_node(manifest))
        for name in missing:
            self._provide(name)

    def _put(self, quota: PoolQuotaBody, manifest: Mapping[str, Any]) -> None:
        self.names.quota_changed(self.names.quotas.get(quota.name), quota)
        self.manifests[quota.name] = manifest
        self.objects.pop(quota.name, None)

    def _provide(self, name: str) -> None:
        quota = root_quota(self.node_pools, name)
        if quota is not None:
            self.names.quota_changed(None, quota)
            self.objects[name] = QuotaObject(quota, root_labels(self.node_pools.profiles_of_root(name)))

    def follow(self, kind: str, known: bool, now: Mapping[str, Any] | None) -> bool:
        """Takes in a quota that came or changed; see ``plugin.Derived``. There may be thousands."""
        if kind == QUOTA_OBJECT and now is not None:
            quota = _place_of(now)
            held = self.names.quotas.get(quota.name)
            if held is None or (known and held.namespace == quota.namespace):
                self._put(quota, now)
                return True
        if kind == NODE_OBJECT:
            return not self.stands_in
        return kind not in (QUOTA_OBJECT, PROFILE_OBJECT)

    # Questions

    def read(self, name: str) -> QuotaObject:
        """A quota with its amounts; raises ``ManifestError``."""
        found = self.objects.get(name)
        if found is None:
            found = self.objects[name] = stored_quota(self.manifests[name])
        return found

    def children_of(self, name: str) -> list[PoolQuotaBody]:
        """The children of a quota, with their amounts."""
        return [self.read(child).quota for child in self.names.children.get(name, [])]

    def pods_of(self, name: str) -> list[str]:
        """The pods that belong to a quota and have not ended."""
        found: list[str] = []
        for manifest in self.view.list("Pod"):
            metadata = manifest["metadata"]
            phase = (manifest.get("status") or {}).get("phase")
            namespace = str(metadata.get("namespace") or "")
            if phase not in _ENDED and self.names.name_of(namespace, labels_of(manifest)) == name:
                found.append(f"{namespace}/{metadata['name']}")
        return sorted(found)


def _place_of(manifest: Mapping[str, Any]) -> PoolQuotaBody:
    metadata = manifest["metadata"]
    quota = quota_of_labels(str(metadata.get("namespace") or ""), str(metadata["name"]), labels_of(manifest))
    with suppress(ManifestError):  # a list that cannot be read names no namespace
        quota.namespaces = tuple(text_list(metadata.get("annotations") or {}, NAMESPACES))
    return quota
