"""The quotas and profiles of a cluster as admission reads them from manifests.

A topology follows the objects one by one, so they are read once. A *layer* on a topology holds what one apply changes:
it costs as much as is changed, and leaves the topology below as it is.

A root quota is what its profiles say, whatever its object says and even before it has one; only its min is read from
the object, as long as that is up to date (``quota_admission`` computes it from the nodes otherwise). A quota belongs to
the tree of the quota above it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, final

from bursar.objects.decode import ManifestError
from bursar.policies.plugin import ObjectView
from bursar.policies.pools.node_pools import NodePools, PoolNode, Profile
from bursar.policies.pools.parse import quota_of_labels, stored_quota, text_list
from bursar.policies.pools.quota_names import QuotaNames
from bursar.policies.pools.root_quotas import root_quota
from bursar.policies.pools.settings import NAMESPACES, PROFILE_OBJECT, QUOTA_OBJECT, ROOT, PoolQuotaBody, QuotaObject

NODE_OBJECT: Final = "Node"
_ENDED: Final = ("Succeeded", "Failed")

ReadProfile = Callable[[Mapping[str, Any]], Profile]
ReadNode = Callable[[Mapping[str, Any]], PoolNode]


def labels_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    return dict(manifest["metadata"].get("labels") or {})


@final
class Topology(QuotaNames):
    """All quotas by name and in their places, and the profiles."""

    def __init__(self, read_profile: ReadProfile, below: Topology | None = None) -> None:
        self.read_profile: Final = read_profile
        self.below: Final = below
        self.profiles: NodePools = NodePools() if below is None else below.profiles  # without nodes; not changed here
        self.roots: dict[str, PoolQuotaBody] = {} if below is None else below.roots  # without min; not changed here
        self._objects: Final[dict[str, QuotaObject | None]] = {}  # None: removed in this layer
        self._children: Final[dict[str, list[str]]] = {}  # by the parent that they name, sorted
        self._lists: Final[dict[str, list[str]]] = {}  # namespace -> quotas that list it, sorted
        self._promised: Final[dict[str, dict[str, int]]] = {}  # by parent: the min of its children together
        self._doubles: Final[set[str]] = set()  # names that several objects have: the first counts

    def layer(self) -> Topology:
        return Topology(self.read_profile, self)

    # Changes

    def follow(self, kind: str, key: str, now: Mapping[str, Any] | None) -> bool:
        if kind == PROFILE_OBJECT:
            self.put_profile(key, None if now is None else self._profile(now))
        elif kind == QUOTA_OBJECT:
            namespace, _, name = key.rpartition("/")
            known = self.object(name)
            if name in self._doubles:
                return False
            if known is not None and known.quota.namespace != namespace:
                self._doubles.add(name)
            else:
                self.put(name, None if now is None else _read(now))
        return True

    def _profile(self, manifest: Mapping[str, Any]) -> Profile | None:
        with suppress(ManifestError):  # one that cannot be read selects nothing
            return self.read_profile(manifest)
        return None

    def put_profile(self, key: str, profile: Profile | None) -> None:
        known = self.profiles.profiles
        self.profiles = NodePools()
        for other in known.values():
            if other.key != key:
                self.profiles.profile_changed(other.key, other)
        if profile is not None:
            self.profiles.profile_changed(key, profile)
        self.roots = {}
        for other in self.profiles.order:
            root = root_quota(self.profiles, other.quota_name)
            if root is not None:
                self.roots[other.quota_name] = replace(root, minimum={})

    def put(self, name: str, given: QuotaObject | None) -> None:
        before = self.object(name)
        if before is not None:
            self._take_out(before.quota)
        if given is not None or self.below is not None:
            self._objects[name] = given
        else:
            self._objects.pop(name, None)
        if given is None:
            return
        insort(self._own(self._children, given.quota.parent), name)
        for namespace in given.quota.namespaces:
            insort(self._own(self._lists, namespace), name)
        self._promise(given.quota, 1)

    def _take_out(self, quota: PoolQuotaBody) -> None:
        self._leave(self._children, quota.parent, quota.name)
        for namespace in quota.namespaces:
            self._leave(self._lists, namespace, quota.name)
        self._promise(quota, -1)

    def _own(self, lists: dict[str, list[str]], key: str) -> list[str]:
        """The list of this layer, to be changed."""
        found = lists.get(key)
        if found is None:
            below = self.below
            if below is not None:
                found = list(below.children(key) if lists is self._children else below.listing(key))
            else:
                found = []
            lists[key] = found
        return found

    def _leave(self, lists: dict[str, list[str]], key: str, name: str) -> None:
        names = self._own(lists, key)
        del names[bisect_left(names, name)]
        if not names and self.below is None:
            del lists[key]

    def _promise(self, quota: PoolQuotaBody, sign: int) -> None:
        if quota.parent == ROOT or not quota.minimum:
            return
        sums = self._promised.get(quota.parent)
        if sums is None:
            sums = self._promised[quota.parent] = dict(self.promised(quota.parent))
        for resource, amount in quota.minimum.items():
            sums[resource] = sums.get(resource, 0) + amount * sign
        if self.below is None and not any(sums.values()):
            del self._promised[quota.parent]

    # Questions

    def object(self, name: str) -> QuotaObject | None:
        """The quota as its object says."""
        if name in self._objects or self.below is None:
            return self._objects.get(name)
        return self.below.object(name)

    def quota(self, name: str) -> PoolQuotaBody | None:
        given = self.object(name)
        root = self.roots.get(name)
        if root is None:
            return None if given is None else given.quota
        return root if given is None else replace(root, minimum=given.quota.minimum)

    def children(self, name: str) -> list[str]:
        if name in self._children or self.below is None:
            return self._children.get(name, [])
        return self.below.children(name)

    def listing(self, namespace: str) -> list[str]:
        if namespace in self._lists or self.below is None:
            return self._lists.get(namespace, [])
        return self.below.listing(namespace)

    def promised(self, parent: str) -> dict[str, int]:
        """The min of all children of a quota together."""
        if parent in self._promised or self.below is None:
            return self._promised.get(parent, {})
        return self.below.promised(parent)

    def tree_of(self, quota: PoolQuotaBody) -> str:
        """The tree of the topmost quota above it."""
        seen: set[str] = set()
        at = quota
        while at.parent != ROOT and at.name not in seen:
            seen.add(at.name)
            above = self.quota(at.parent)
            if above is None:
                break
            at = above
        return at.tree

    def root_with_nodes(self, name: str, nodes: Iterable[tuple[str, PoolNode]]) -> PoolQuotaBody | None:
        """A root quota with the min that these nodes give it."""
        node_pools = NodePools()
        for profile in self.profiles.order:
            node_pools.profile_changed(profile.key, profile)
        for key, node in nodes:
            node_pools.node_changed(key, node)
        return root_quota(node_pools, name)

    def pods_of(self, view: ObjectView, name: str) -> list[str]:
        """The pods that belong to a quota, and neither ended nor are being deleted."""
        found: list[str] = []
        for manifest in view.list("Pod"):
            metadata = manifest["metadata"]
            phase = (manifest.get("status") or {}).get("phase")
            namespace = str(metadata.get("namespace") or "")
            if phase in _ENDED or metadata.get("deletionTimestamp"):
                continue
            if self.name_of(namespace, labels_of(manifest)) == name:
                found.append(f"{namespace}/{metadata['name']}")
        return sorted(found)


def topology_of(view: ObjectView, read_profile: ReadProfile) -> Topology:
    """The topology of all objects that there are."""
    found = Topology(read_profile)
    for kind in (PROFILE_OBJECT, QUOTA_OBJECT):
        for manifest in view.list(kind):
            metadata = manifest["metadata"]
            found.follow(kind, f"{metadata.get('namespace') or ''}/{metadata['name']}", manifest)
    return found


def _read(manifest: Mapping[str, Any]) -> QuotaObject:
    """A quota as it is stored; what cannot be read of it is left out."""
    metadata = manifest["metadata"]
    try:
        found = stored_quota(manifest)
    except ManifestError:
        labels = labels_of(manifest)
        quota = quota_of_labels(str(metadata.get("namespace") or ""), str(metadata["name"]), labels)
        found = QuotaObject(quota, labels, metadata.get("annotations") or {})
    with suppress(ManifestError):
        found.quota.namespaces = tuple(text_list(found.annotations, NAMESPACES))
    return found
