"""The quotas, profiles and pods of a cluster as admission sees them: read from plain manifests, never written.

A profile whose root quota has not been written yet stands for it: a child may be applied together with the profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, final

from bursar.ledger.state import State
from bursar.policies.pools.derived_state import Books
from bursar.policies.pools.node_pools import PoolNode, Profile
from bursar.policies.pools.parse import amounts_in, max_amounts, text_list
from bursar.policies.pools.root_quotas import root_labels, root_quota, shown
from bursar.policies.pools.settings import (
    DEFAULT_TREE,
    FORCE_UPDATE,
    IS_PARENT,
    IS_ROOT,
    NAMESPACES,
    PARENT,
    PROFILE_OBJECT,
    QUOTA_OBJECT,
    ROOT,
    TREE,
)
from bursar.policies.pools.tree import resolve_name

NODE_OBJECT: Final = "Node"
_ENDED: Final = ("Succeeded", "Failed")


class QuotaObjects(Protocol):
    """Read access to the objects of a cluster."""

    def get(self, kind: str, key: str) -> Mapping[str, Any] | None: ...

    def list(self, kind: str) -> Iterable[Mapping[str, Any]]: ...


def labels_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    return dict(manifest["metadata"].get("labels") or {})


def annotations_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    return dict(manifest["metadata"].get("annotations") or {})


@final
class QuotaInfo:
    """One quota, its amounts read only when somebody needs them."""

    __slots__ = ("annotations", "labels", "name", "namespace", "spec")

    def __init__(
        self, namespace: str, name: str, labels: dict[str, str], annotations: dict[str, str], spec: Mapping[str, Any]
    ) -> None:
        self.namespace: Final = namespace
        self.name: Final = name
        self.labels: Final = labels
        self.annotations: Final = annotations
        self.spec: Final = spec

    @property
    def parent(self) -> str:
        return self.labels.get(PARENT) or ROOT

    @property
    def tree(self) -> str:
        return self.labels.get(TREE, DEFAULT_TREE)

    @property
    def is_parent(self) -> bool:
        return self.labels.get(IS_PARENT) == "true"

    @property
    def is_root(self) -> bool:
        return self.labels.get(IS_ROOT) == "true"

    @property
    def forced(self) -> bool:
        return self.labels.get(FORCE_UPDATE) == "true"

    def maximum(self) -> dict[str, int]:
        return max_amounts(self.spec.get("max") or {}, "spec.max")

    def minimum(self) -> dict[str, int]:
        return max_amounts(self.spec.get("min") or {}, "spec.min")

    def guaranteed(self, key: str) -> dict[str, int]:
        return amounts_in(self.annotations, key)

    def namespaces(self) -> list[str]:
        return text_list(self.annotations, NAMESPACES)


def info_of(manifest: Mapping[str, Any]) -> QuotaInfo:
    metadata = manifest["metadata"]
    return QuotaInfo(
        str(metadata.get("namespace") or ""),
        str(metadata["name"]),
        labels_of(manifest),
        annotations_of(manifest),
        manifest.get("spec") or {},
    )


@final
class Topology:
    """All quotas by name; ``profiles`` come ready-made, because reading them is not this module's business."""

    __slots__ = ("annotated", "children", "homes", "profiles", "quotas", "stands_in", "view")

    def __init__(self, view: QuotaObjects, profiles: list[Profile]) -> None:
        self.view: Final = view
        self.profiles: Final = profiles
        self.quotas: Final[dict[str, QuotaInfo]] = {}
        self.children: Final[dict[str, list[str]]] = {}
        self.homes: Final[dict[str, str]] = {}  # quota -> its namespace
        self.annotated: dict[str, str] | None = None  # namespace -> quota, once somebody asks
        for manifest in view.list(QUOTA_OBJECT):
            self._add(info_of(manifest))
        self.stands_in: bool = False  # some profile stands for its root quota, which depends on nodes
        for profile in profiles:
            if profile.quota_name not in self.quotas:
                self.stands_in = True
                self._add(self._future_root(profile))

    def follow(self, kind: str, known: bool, now: Mapping[str, Any] | None) -> bool:
        """A new quota is added; see ``plugin.Derived``. There may be thousands, and they come one after the other."""
        if kind == QUOTA_OBJECT and not known and now is not None:
            info = info_of(now)
            if info.name not in self.quotas:
                self._add(info)
                self.annotated = None
                return True
        if kind == NODE_OBJECT:
            return not self.stands_in
        return kind not in (QUOTA_OBJECT, PROFILE_OBJECT)

    def _add(self, info: QuotaInfo) -> None:
        self.quotas[info.name] = info
        self.homes[info.name] = info.namespace
        if info.name != ROOT:
            self.children.setdefault(info.parent, []).append(info.name)

    def _future_root(self, profile: Profile) -> QuotaInfo:
        same = [other for other in self.profiles if other.quota_name == profile.quota_name]
        quota = root_quota(self._books(), State(), profile.quota_name)
        if quota is None:
            raise RuntimeError(f"profile {profile.key} has no root quota")
        spec = {"max": shown(quota.maximum), "min": shown(quota.minimum)}
        return QuotaInfo(profile.namespace, profile.quota_name, root_labels(same), {}, spec)

    def _books(self) -> Books:
        """What the nodes of the profiles have, as the policy will compute it."""
        books = Books()
        for profile in self.profiles:
            books.grounds.profile_changed(profile.key, profile)
        for manifest in self.view.list(NODE_OBJECT):
            status = manifest.get("status") or {}
            amounts = max_amounts(status.get("allocatable") or status.get("capacity") or {}, "status.allocatable")
            books.grounds.node_changed(str(manifest["metadata"]["name"]), PoolNode(amounts, labels_of(manifest)))
        return books

    # Questions

    def root_profiles(self, name: str) -> list[Profile]:
        return [profile for profile in self.profiles if profile.quota_name == name]

    def children_of(self, name: str) -> list[QuotaInfo]:
        return [self.quotas[child] for child in sorted(self.children.get(name, []))]

    def below(self, name: str, other: str) -> bool:
        """Whether ``other`` is the quota itself or hangs below it."""
        seen: set[str] = set()
        at = other
        while at and at not in seen:
            if at == name:
                return True
            seen.add(at)
            info = self.quotas.get(at)
            at = "" if info is None else info.parent
        return False

    def resolve(self, namespace: str, labels: Mapping[str, str]) -> str:
        """The quota of a pod."""
        if self.annotated is None:
            self.annotated = {}
            for name in sorted(self.quotas, reverse=True):
                if NAMESPACES in self.quotas[name].annotations:
                    for listed in self.quotas[name].namespaces():
                        self.annotated[listed] = name
        return resolve_name(namespace, labels, self.homes, self.annotated)

    def pods_of(self, name: str) -> list[str]:
        """The pods that belong to a quota and have not ended."""
        found: list[str] = []
        for manifest in self.view.list("Pod"):
            metadata = manifest["metadata"]
            phase = (manifest.get("status") or {}).get("phase")
            namespace = str(metadata.get("namespace") or "")
            if phase not in _ENDED and self.resolve(namespace, labels_of(manifest)) == name:
                found.append(f"{namespace}/{metadata['name']}")
        return sorted(found)
